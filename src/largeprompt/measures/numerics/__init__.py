"""Numerical tools that measures are made with: special functions, quadrature rules, quasi-random
points, fits.
"""
