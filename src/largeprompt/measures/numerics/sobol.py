"""Low-discrepancy points from a law: averages over random queries that are smooth, repeatable and
accurate.
"""

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures.base import Measure
from largeprompt.measures.gaussian import Gaussian, square_root
from largeprompt.measures.mixture import GaussianMixture

MOST_POINTS = 2**30  # distinct ones of the sequence


def sobol_points(mu: Measure, count: int, seed: int, *, name: str = "count") -> Tensor:
    """Scrambled Sobol points of a Gaussian law or a mixture (component by one more coordinate),
    shape (count, d).

    Parameters
    ----------
    mu
        The law of the queries.
    count
        A power of two, for the balance of the points.
    name
        What an error message calls the count.
    seed
        Of the scrambling: different seeds give independent unbiased estimates.

    Examples
    --------
    >>> points = lp.measures.sobol_points(lp.Gaussian([1.0], [[1.0]]), 256, seed=0)
    >>> abs(float(points.mean()) - 1.0) < 0.01
    True
    """
    from scipy.stats import norm, qmc  # slow to import, and few need it

    if not isinstance(mu, Gaussian | GaussianMixture) or mu.batch_shape:
        raise InvalidArgumentError(
            "queries",
            validation.text(mu),
            "one Gaussian or GaussianMixture, the law of the queries",
        )
    count, seed = (
        validation.integer(name, count, maximum=MOST_POINTS),
        validation.integer("seed", seed, minimum=0),
    )
    validation.affordable(name, count, needed=24.0 * count * (mu.dim + 1))
    if count & (count - 1):
        raise InvalidArgumentError(
            name, str(count), "a power of two", f"Use {1 << count.bit_length()}."
        )
    mixture = isinstance(mu, GaussianMixture)
    uniform = qmc.Sobol(mu.dim + mixture, scramble=True, rng=seed).random(count)
    normal = torch.from_numpy(norm.ppf(uniform.clip(1e-16, 1 - 1e-16))).to(
        dtype=mu.dtype, device=mu.device
    )
    if isinstance(mu, Gaussian):
        return mu.mean + normal @ square_root(mu.covariance).mT
    label = torch.searchsorted(
        mu.weights.cumsum(0), torch.from_numpy(uniform[:, -1].copy()).to(mu.weights), right=True
    )
    label = label.clamp_max(mu.components - 1)
    return mu.means[label] + (square_root(mu.covariances)[label] @ normal[:, :-1, None]).squeeze(-1)
