"""A pretrained language model: what a longer prompt does to its heads, and whether a cache that
does not grow would serve them.
"""
