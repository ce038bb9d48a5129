"""What descends a risk: gradient flow, gradient descent, SGD, Adam, and the parametrizations that
they move.
"""
