"""C1, C2: the limit of attention over Gaussian and other tokens."""
