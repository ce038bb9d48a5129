"""P1: the authors' own experiment."""
