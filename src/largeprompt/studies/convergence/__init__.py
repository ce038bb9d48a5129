"""E1, E3, F1, C3, C4: distances of output and gradients to their limit, and what decides them."""
