"""How far a dynamics is from the flow that it follows: laws of the gap, and the tube around the
infinite-prompt flow.
"""
