"""Runs: what a study is, the folder that a run lives in, and how its cells are
computed and stored.
"""
