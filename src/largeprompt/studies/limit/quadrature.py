"""Tilted means by plain quadrature, in NumPy alone: what the operator is compared with, by a route
of its own.
"""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def _tilted_mean(log_weight: Array, x: Array) -> Array:
    """Mean of the rows of x with weights proportional to e^log_weight."""
    weight = np.exp(log_weight - log_weight.max())
    return np.asarray(weight @ x / weight.sum())


def gaussian_by_grid(mean: Array, root: Array, u: Array) -> Array:
    """∫ x e^{u·x} dμ/∫ e^{u·x} dμ for x = m + Rξ, R (d, r), by a sum over a grid of ξ in R^r, r
    <= 2.
    """
    rank = root.shape[1]
    if rank == 0:
        return mean
    reach = 9.0 + float(np.linalg.norm(root.T @ u))
    xi = np.stack(
        [part.ravel() for part in np.meshgrid(*[np.arange(-reach, reach, 0.1)] * rank)], -1
    )
    x = mean + xi @ root.T
    return _tilted_mean(x @ u - (xi**2).sum(-1) / 2, x)


def mixture_by_tilt(shares: Array, means: Array, roots: Array, u: Array) -> Array:
    """The same in any dimension, numerator and denominator summed over components; shares (k,),
    means (k, d), roots (k, d, r).
    """
    parts = [_component(mean, root, u) for mean, root in zip(means, roots, strict=True)]
    return _tilted_mean(
        np.log(shares) + np.array([log_mass for log_mass, _ in parts]),
        np.stack([moved for _, moved in parts]),
    )


def _component(mean: Array, root: Array, u: Array) -> tuple[float, Array]:
    """log ∫ e^{u·x} dμ, and the tilted mean: only the part t of ξ along R^T u is tilted.

    The trapezoidal rule is spectrally accurate for e^{st} φ(t).
    """
    a = root.T @ u
    size = float(np.linalg.norm(a))
    t = np.arange(-12.0, size + 12.0, 0.05)
    log_weight = size * t - t**2 / 2
    top = log_weight.max()
    weight = np.exp(log_weight - top)
    log_mass = top + math.log(weight.sum() * 0.05 / math.sqrt(2 * math.pi))
    moved = mean if size == 0 else mean + root @ a * (float(np.average(t, weights=weight)) / size)
    return float(u @ mean) + log_mass, moved


def enumerated_signs(u: Array) -> Array:
    """Tilted mean of independent signs, summed over all 2^d of them."""
    signs = np.stack([part.ravel() for part in np.meshgrid(*[(-1.0, 1.0)] * len(u))], -1)
    weight = np.exp(signs @ u)
    return np.asarray(weight @ signs / weight.sum())


def product_by_quadrature(law: str, u: Array) -> Array:
    """Tilted mean of independent coordinates of unit variance, 'uniform' or 'Laplace', coordinate
    by coordinate.
    """
    nodes, weights = np.polynomial.legendre.leggauss(200)
    x, mass, found = math.sqrt(3) * nodes, weights, []
    for each in u:
        # density ∝ e^{-√2|x|}: a panel on each side of the kink, as long as the slower decay asks
        # for
        if law == "Laplace":
            side = (nodes + 1) / 2 * (40 / (math.sqrt(2) - abs(each)))
            x = np.concatenate([-side, side])
            mass = np.concatenate([weights, weights]) * np.exp(-math.sqrt(2) * np.abs(x))
        found.append(np.average(x, weights=mass * np.exp(each * x)))
    return np.array(found)


def sphere_by_quadrature(radius: float, u: Array) -> Array:
    """Tilted mean on the sphere of R^d, d >= 2: with x·u = r‖u‖ cos φ the surface measure is
    sin^{d-2} φ dφ.
    """
    nodes, weights = np.polynomial.legendre.leggauss(200)
    angle, size = (nodes + 1) * math.pi / 2, float(np.linalg.norm(u))
    mass = weights * np.sin(angle) ** (len(u) - 2) * np.exp(radius * size * np.cos(angle))
    return np.asarray(u / size * radius * float(np.average(np.cos(angle), weights=mass)))
