"""What knows the models: how to load them, and how to see queries, keys and values
while they run.
"""
