"""C3 averaged over a random query: the power of L."""
