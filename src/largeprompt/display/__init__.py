"""How results show themselves: one look for every picture, small tables, and what results by prompt
length have in common.
"""
