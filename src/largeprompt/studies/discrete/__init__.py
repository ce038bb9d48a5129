"""N2: gradient descent, SGD and Adam against the gradient flow."""
