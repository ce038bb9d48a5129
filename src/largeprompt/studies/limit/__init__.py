"""C1, C2, N1: the limit of attention over Gaussian and other tokens."""
