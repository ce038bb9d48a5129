"""E1, C3, C4: distance of output and Jacobians to their limit against the prompt length."""
