"""Tilted means by plain quadrature, in NumPy alone: what the operator is compared with, by a route of its own."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def _tilted_normal(size: float) -> tuple[float, float]:
    """log ∫ e^{st} φ(t) dt and the mean of t under e^{st} φ(t), by the trapezoidal rule (spectrally accurate here)."""
    t = np.arange(-12.0, size + 12.0, 0.05)
    log_weight = size * t - t**2 / 2
    top = log_weight.max()
    weight = np.exp(log_weight - top)
    log_mass = top + math.log(weight.sum() * 0.05 / math.sqrt(2 * math.pi))
    return log_mass, float((weight * t).sum() / weight.sum())


def gaussian_by_tilt(mean: Array, root: Array, u: Array) -> Array:
    """∫ x e^{u·x} dμ/∫ e^{u·x} dμ for x = m + Rξ: only the part of ξ along R^T u is tilted; any dimension, R (d, r)."""
    return _component(mean, root, u)[1]


def _component(mean: Array, root: Array, u: Array) -> tuple[float, Array]:
    """log ∫ e^{u·x} dμ, and the tilted mean."""
    a = root.T @ u
    size = float(np.linalg.norm(a))
    log_mass, along = _tilted_normal(size)
    moved = mean if size == 0 else mean + root @ a * (along / size)
    return float(u @ mean) + log_mass, moved


def gaussian_by_grid(mean: Array, root: Array, u: Array) -> Array:
    """The same by a sum over a grid of ξ in R^r, r <= 2, with no use of the tilt's direction."""
    rank = root.shape[1]
    if rank == 0:
        return mean
    reach = 9.0 + float(np.linalg.norm(root.T @ u))
    axis = np.arange(-reach, reach, 0.1)
    xi = np.stack([part.ravel() for part in np.meshgrid(*[axis] * rank)], -1)
    x = mean + xi @ root.T
    log_weight = x @ u - (xi**2).sum(-1) / 2
    weight = np.exp(log_weight - log_weight.max())
    tilted: Array = weight @ x / weight.sum()
    return tilted


def mixture_by_tilt(shares: Array, means: Array, roots: Array, u: Array) -> Array:
    """Numerator and denominator of the operator summed over components; shares (k,), means (k, d), roots (k, d, r)."""
    parts = [_component(mean, root, u) for mean, root in zip(means, roots, strict=True)]
    logs = np.log(shares) + np.array([log_mass for log_mass, _ in parts])
    mass = np.exp(logs - logs.max())
    tilted: Array = mass @ np.stack([moved for _, moved in parts]) / mass.sum()
    return tilted


def enumerated_signs(u: Array) -> Array:
    """Tilted mean of independent signs, summed over all 2^d of them."""
    signs = np.stack([part.ravel() for part in np.meshgrid(*[(-1.0, 1.0)] * len(u))], -1)
    weight = np.exp(signs @ u)
    tilted: Array = weight @ signs / weight.sum()
    return tilted


def product_by_quadrature(law: str, u: Array) -> Array:
    """Tilted mean of independent coordinates of unit variance, 'uniform' or 'Laplace', coordinate by coordinate."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    if law == "uniform":
        points = [(math.sqrt(3) * nodes, weights)] * len(u)
    else:  # density ∝ e^{-√2|x|}: a panel on each side of the kink, as long as the slower decay asks for
        slack = math.sqrt(2) - np.abs(u)
        points = [_two_sided(nodes, weights, 40 / each) for each in slack]
    return np.array(
        [
            float((mass * np.exp(each * x) * x).sum() / (mass * np.exp(each * x)).sum())
            for each, (x, mass) in zip(u, points, strict=True)
        ]
    )


def _two_sided(nodes: Array, weights: Array, reach: float) -> tuple[Array, Array]:
    side = (nodes + 1) / 2 * reach
    x = np.concatenate([-side, side])
    return x, np.concatenate([weights, weights]) * np.exp(-math.sqrt(2) * np.abs(x))


def sphere_by_quadrature(radius: float, u: Array) -> Array:
    """Tilted mean on the sphere of R^d, d >= 2: with x·u = r‖u‖ cos φ the surface measure is sin^{d-2} φ dφ."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    angle = (nodes + 1) * math.pi / 2
    size = float(np.linalg.norm(u))
    mass = weights * np.sin(angle) ** (len(u) - 2) * np.exp(radius * size * np.cos(angle))
    tilted: Array = u / size * radius * float((mass * np.cos(angle)).sum() / mass.sum())
    return tilted
