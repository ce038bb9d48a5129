"""Q3, N1: tokens that depend on each other."""
