"""The cumulant ladder: the limit of attention as a power series in the tilt.

Formula (tilt.10) of docs/mathematics/tilting.md, whose first two rungs are the affine read-out.
"""

import math

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures.base import Measure
from largeprompt.validation import ArrayLike


def cumulant_ladder(mu: Measure, u: ArrayLike) -> Tensor:
    """First four rungs κ_n/(n-1)! of u·∇Λ(u) = κ1 + κ2 + κ3/2 + κ4/6 + ..., κ_n the cumulants of
    the score u·x.

    Parameters
    ----------
    mu
        One law, without batch dimensions.
    u
        Tilts, shape (..., d).

    Returns
    -------
    Tensor
        Shape (..., 4); in one dimension divide by u for the rungs of ∇Λ.

    Examples
    --------
    tanh u = u - u³/3 + ...:

    >>> lp.measures.cumulant_ladder(lp.Rademacher(1), [0.5]) / 0.5
    tensor([ 0.0000,  0.5000,  0.0000, -0.0417], dtype=torch.float64)
    """
    if not isinstance(mu, Measure) or mu.batch_shape:
        raise InvalidArgumentError("mu", validation.text(mu), "one law, without batch dimensions")
    mu, u = mu._at(u)
    cumulants = mu._directional_cumulants(u.reshape(-1, mu.dim), mu._origin())
    rungs = torch.stack([k / math.factorial(n) for n, k in enumerate(cumulants)], -1)
    return rungs.reshape(*u.shape[:-1], 4)
