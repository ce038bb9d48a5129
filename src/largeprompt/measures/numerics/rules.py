"""Quadrature rules: a law as finitely many atoms with the same averages of smooth functions.

A scalar law is put on a fine grid by its density. The Lanczos process makes of it a Gauss rule with
n nodes, exact for polynomials of degree 2n - 1: they are the eigenvalues of its Jacobi matrix.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from largeprompt import validation
from largeprompt.devices import computed_on_cpu
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures.base import Measure
from largeprompt.measures.finite.laws import Discrete
from largeprompt.measures.gaussian import Gaussian, square_root
from largeprompt.measures.mixture import GaussianMixture
from largeprompt.measures.scalar.generalized_normal import GeneralizedNormalLaw
from largeprompt.measures.scalar.product import ProductMeasure, ScalarLaw
from largeprompt.measures.scalar.rademacher import RademacherLaw
from largeprompt.measures.scalar.skew_normal import SkewNormalLaw
from largeprompt.measures.scalar.uniform import HALF_WIDTH, UniformLaw

Array = NDArray[np.float64]
MOST_ATOMS = 1 << 20
FINE = 160  # nodes of each component of a mixture on the line


@computed_on_cpu
def gauss_rule(mu: Measure, nodes: int) -> Discrete:
    """Gauss rule of a law: ``nodes`` atoms for each coordinate (fewer where it has fewer values).

    Parameters
    ----------
    mu
        A Discrete law (returned as it is), a Gaussian, a GaussianMixture (a rule for each
        component; on the line, one for all), or a product of Rademacher, Uniform, GeneralizedNormal
        (shape above 1) and SkewNormal coordinates.
    nodes
        1 to 200, for tilts of moderate size: the smallest weights are right to 1e-30.

    Examples
    --------
    >>> rule = lp.measures.gauss_rule(lp.Uniform(1), 5)
    >>> float(rule.weights @ rule.atoms[:, 0] ** 8), 9.0  # E x⁸ on [-√3, √3] is 3⁴/9
    (9.0..., 9.0)
    """
    nodes = validation.integer("nodes", nodes, maximum=200)
    if not isinstance(mu, Measure) or mu.batch_shape:
        allowed = "one Measure, without batch dimensions"
        raise InvalidArgumentError("mu", validation.text(mu), allowed, "Loop over the laws.")
    if isinstance(mu, Discrete):
        return mu
    if isinstance(mu, Gaussian | GaussianMixture):
        line = mu.dim == 1 and isinstance(mu, GaussianMixture)
        points, mass = np.polynomial.hermite_e.hermegauss(FINE if line else nodes)
        atoms, weights = _tensor_product([(points, mass / mass.sum())] * mu.dim)
        if isinstance(mu, Gaussian):
            return Discrete(mu.mean + atoms @ square_root(mu.covariance).mT, weights)
        spread = mu.means.unsqueeze(-2) + atoms @ square_root(mu.covariances).mT  # (k, atoms, d)
        atoms, weights = spread.flatten(0, 1), (mu.weights.unsqueeze(-1) * weights).flatten()
        if line:
            points, mass = _reduced(atoms[:, 0].numpy(), weights.numpy(), nodes)
            atoms, weights = torch.from_numpy(points[:, None]), torch.from_numpy(mass)
        return Discrete(atoms, weights)
    if not isinstance(mu, ProductMeasure):
        allowed = "Discrete, Gaussian, GaussianMixture or a product of scalar laws"
        raise InvalidArgumentError("mu", validation.text(mu), allowed)
    found = {i: rule for law, at in mu.groups for rule in [_scalar(law, nodes)] for i in at}
    return Discrete(*_tensor_product([found[i] for i in range(mu.dim)]))


def _tensor_product(rules: list[tuple[Array, Array]]) -> tuple[Tensor, Tensor]:
    count = math.prod(len(points) for points, _ in rules)
    if count > MOST_ATOMS:
        given, allowed = f"{count} atoms in R^{len(rules)}", f"at most {MOST_ATOMS} in all"
        raise InvalidArgumentError("nodes", given, allowed, "Use fewer nodes.")
    grids = (np.meshgrid(*part, indexing="ij") for part in zip(*rules, strict=True))
    atoms, mass = (np.stack(grid, -1).reshape(count, -1) for grid in grids)
    return torch.from_numpy(atoms), torch.from_numpy(mass.prod(-1) / mass.prod(-1).sum())


def _scalar(law: ScalarLaw, nodes: int) -> tuple[Array, Array]:
    """Gauss rule of one coordinate."""
    from scipy.special import log_ndtr

    if isinstance(law, RademacherLaw):
        return np.array([-1.0, 1.0]), np.array([0.5, 0.5])
    if isinstance(law, UniformLaw):
        points, weights = np.polynomial.legendre.leggauss(nodes)
        return HALF_WIDTH * points, weights / 2
    if isinstance(law, GeneralizedNormalLaw) and law.shape > 1:
        points, weights = _panels(law.width * _powers(law.shape))
        return _reduced(points, weights * np.exp(-(np.abs(points / law.width) ** law.shape)), nodes)
    if isinstance(law, SkewNormalLaw):
        slant = law.delta / math.sqrt(max(1 - law.delta**2, 1e-16))
        # of the law before it is centered; Φ(slant·x) rises within 1/slant of 0
        points, weights = _panels(_doubling(1 / max(abs(slant), 1.0)))
        density = weights * np.exp(-(points**2) / 2 + log_ndtr(slant * points))
        return _reduced((points - law.center) / law.spread, density, nodes)
    allowed = "RademacherLaw, UniformLaw, GeneralizedNormalLaw or SkewNormalLaw"
    raise InvalidArgumentError("mu", validation.text(law), allowed)


def _powers(shape: float) -> Array:
    """Rising ends of panels on which e^{-x^β} is smooth: v = β log x in steps, x by 4 at most."""
    # e^-250 counts as nothing, under tilts of moderate size too
    v, found, last = math.log(250.0), [], -max(24 / (1 + 1 / shape), shape * math.log(8))
    while v > last:
        found.append(v)
        v -= min(max(math.log(4), -v), shape * math.log(4))
    found.append(v)
    return np.exp(np.array(found[::-1]) / shape)


def _doubling(first: float) -> Array:
    """Ends of panels that double, none longer than 1, until a normal density is nothing."""
    found = [first]
    while found[-1] < 12.5:
        found.append(found[-1] + min(found[-1], 1.0))
    return np.array(found)


def _panels(ends: Array) -> tuple[Array, Array]:
    """Gauss-Legendre panels between rising ends, 0 and their mirror images."""
    nodes, weights = np.polynomial.legendre.leggauss(24)
    ends = np.concatenate([-ends[::-1], [0.0], ends])
    low, width = ends[:-1, None], np.diff(ends)[:, None]
    return (low + (nodes + 1) / 2 * width).ravel(), (weights / 2 * width).ravel()


def _reduced(points: Array, weights: Array, nodes: int) -> tuple[Array, Array]:
    """Gauss rule of the law that has these atoms, by Lanczos with full reorthogonalization."""
    weights = weights / weights.sum()
    # a Gauss rule cannot distinguish atoms below 1e-32 from rounding
    kept = weights > 1e-32
    points, weights = points[kept], weights[kept]
    if nodes >= len(points):
        return points, weights
    basis = [np.sqrt(weights)]
    diagonal, off = np.zeros(nodes), np.zeros(nodes - 1)
    for i in range(nodes):
        moved = points * basis[-1]
        diagonal[i] = basis[-1] @ moved
        if i + 1 < nodes:
            for _ in range(2):  # twice is enough
                moved = moved - np.stack(basis).T @ (np.stack(basis) @ moved)
            off[i] = np.linalg.norm(moved)
            basis.append(moved / off[i])
    values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1))
    mass: Array = vectors[0] ** 2
    return values, mass / mass.sum()
