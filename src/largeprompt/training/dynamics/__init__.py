"""What descends a risk: gradient flow, gradient descent, SGD, Adam, and the parametrisations that
they move.
"""
