"""Low-discrepancy points from a law, for averages over random queries."""

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures.base import Measure
from largeprompt.measures.gaussian import Gaussian, square_root
from largeprompt.measures.mixture import GaussianMixture

MOST_POINTS = 2**30  # distinct ones of the sequence


def sobol_points(mu: Measure, count: int, seed: int, *, name: str = "count") -> Tensor:
    """Scrambled Sobol points of a Gaussian law or a mixture, shape (count, d).

    ``count`` is a power of two, which error messages call ``name``; different seeds give
    independent unbiased estimates. One more coordinate chooses the component of a mixture.

    Examples
    --------
    >>> points = lp.measures.sobol_points(lp.Gaussian([1.0], [[1.0]]), 256, seed=0)
    >>> abs(float(points.mean()) - 1.0) < 0.01
    True
    """
    if not isinstance(mu, Gaussian | GaussianMixture) or mu.batch_shape:
        allowed = "one Gaussian or GaussianMixture, the law of the queries"
        raise InvalidArgumentError("queries", validation.text(mu), allowed)
    count = validation.integer(name, count, maximum=MOST_POINTS)
    seed = validation.integer("seed", seed, minimum=0)
    validation.affordable(name, count, needed=24.0 * count * (mu.dim + 1))
    if count & (count - 1):
        remedy = f"Use {1 << count.bit_length()}."
        raise InvalidArgumentError(name, str(count), "a power of two", remedy)
    mixture = isinstance(mu, GaussianMixture)
    uniform, normal = _standard(mu.dim + mixture, count, seed)
    normal = normal.to(mu._like)
    if isinstance(mu, Gaussian):
        return mu.mean + normal @ square_root(mu.covariance).mT
    place = uniform[:, -1].contiguous().to(mu.weights)
    label = torch.searchsorted(mu.weights.cumsum(0), place, right=True)
    label = label.clamp_max(mu.components - 1)
    return mu.means[label] + (square_root(mu.covariances)[label] @ normal[:, :-1, None]).squeeze(-1)


def normal_points(dim: int, count: int, seed: int) -> Tensor:
    """Return scrambled Sobol points of N(0, I), shape (count, dim)."""
    return _standard(dim, count, seed)[1]


def _standard(dim: int, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return the points in the unit cube, and of N(0, I)."""
    from scipy.stats import norm, qmc  # slow to import, and few need it

    uniform = qmc.Sobol(dim, scramble=True, rng=seed).random(count)
    normal = norm.ppf(uniform.clip(1e-16, 1 - 1e-16))
    return torch.from_numpy(uniform), torch.from_numpy(normal)
