"""How heavy is the tail of the softmax weights? The shape of a generalized Pareto law.

References: Zhang & Stephens, Technometrics 51 (2009), for the estimator; Vehtari, Simpson, Gelman,
Yao & Gabry, "Pareto smoothed importance sampling" (arXiv:1507.02646), for the number of weights in
the tail and the weak prior.
"""

import math

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation

FEWEST = 5  # exceedances below which no shape is fitted
GROUP = 32  # terms, each between 10^-3 and 10, that are multiplied before a logarithm is taken
# terms in memory at a time: what a cache holds, and what keeps a GPU busy
PIECE = {"cpu": 2**18, "cuda": 2**24}


def tail_count(length: int) -> int:
    """Number of weights in the tail of L: the smaller of L/5 and 3√L, rounded up."""
    return min(-(-length // 5), math.isqrt(9 * length - 1) + 1)


def pareto_tail_index(log_weights: Tensor) -> Tensor:
    """Shape k of the generalized Pareto law of the largest weights: E w^p is finite for p < 1/k
    only.

    With cutoff w_(M+1) and exceedances y_i = w_(i) - w_(M+1), i = 1..M, of likelihood (1/s)(1 + k
    y/s)^{-1-1/k}: for a given b = k/s the best shape is k(b) = mean log(1 + b y_i), which leaves
    the profile likelihood ℓ(b) = M (log(b/k(b)) - k(b) - 1). The estimate is k at the mean of b
    under weights e^{ℓ(b)} on a grid b_j = c_j/y_quartile - 1/y_max, shrunk to (M k + 5)/(M + 10).
    Everything is a ratio of exceedances kept as a logarithm, so that scores of any size can be
    given.

    Parameters
    ----------
    log_weights
        Logarithms of the M + 1 largest weights, in any order and up to a constant (scores will do),
        shape (..., M + 1). The smallest is the cutoff.

    Returns
    -------
    Tensor
        Shape (...), float64, never NaN, without gradient. Below 1/2 the weights have a variance;
        below 0 they are bounded. ``+inf``: too few tokens, fewer than five weights exceed the
        cutoff. ``-inf``: no tail, all the M + 1 weights are equal up to rounding.

    Examples
    --------
    Weights 1/√v with v uniform have tail index 1/2:

    >>> uniform = (torch.arange(1000, dtype=torch.float64) + 0.5) / 10_000
    >>> round(float(pareto_tail_index(-torch.log(uniform) / 2)), 2)
    0.5
    >>> pareto_tail_index(torch.zeros(3))
    tensor(inf, dtype=torch.float64)
    """
    log_weights = validation.shaped("log_weights", log_weights, ("M + 1",)).detach()
    count = log_weights.new_full(log_weights.shape[:-1], log_weights.shape[-1] - 1)
    return tail_indices(log_weights, count.long())


def tail_indices(log_weights: Tensor, tails: Tensor) -> Tensor:
    """:func:`pareto_tail_index` of rows (..., W) with tails M, shape (...), of their own.

    Entries beyond the M + 1 largest may be minus infinity. A GPU is not waited for.
    """
    *batch, width = log_weights.shape
    if width - 1 < FEWEST or log_weights.numel() == 0:
        return log_weights.new_full(batch, torch.inf, dtype=torch.float64)
    rows = max(1, PIECE.get(log_weights.device.type, PIECE["cuda"]) // width)
    parts = log_weights.reshape(-1, width).split(rows), tails.reshape(-1).split(rows)
    return torch.cat([_piece(*pair) for pair in zip(*parts, strict=True)]).reshape(batch)


def _piece(log_weights: Tensor, tails: Tensor) -> Tensor:
    """:func:`tail_indices` of rows (n, W) with tails (n,)."""
    scores = log_weights.detach().to(torch.float64)
    if scores.device.type == "cpu":  # where NumPy sorts many times faster than PyTorch
        scores = torch.from_numpy(np.sort(scores.numpy())).flip(-1)
    else:
        scores = scores.sort(-1, descending=True).values
    n, tail = len(scores), scores.shape[-1] - 1
    most = 30 + math.isqrt(tail)  # points of the grid
    own = tails.to(torch.int64).clamp(0, tail)[:, None]
    top, cutoff = scores[:, :1], scores.gather(-1, own)
    rounding = 8 * torch.finfo(log_weights.dtype).eps * (1 + torch.maximum(top.abs(), cutoff.abs()))
    gap = scores[:, :-1] - cutoff
    above = gap > rounding  # ties with the cutoff do not exceed it
    count = above.sum(-1, keepdim=True)
    fitted = count >= FEWEST
    log_excess = scores[:, :-1] - top + torch.log(-torch.expm1(-gap))
    log_excess = torch.where(above, log_excess, -torch.inf)
    place = (count - (count + 2) // 4).clamp_max(tail - 1)
    quartile = torch.where(fitted, log_excess.gather(-1, place), 0.0)
    largest = torch.where(fitted, log_excess[:, :1], 0.0)
    # 1 + b y = (1 - y/y_max) + c y/y_quartile, two positive terms, both divided by y/y_quartile
    # where that is above 1
    padding = (0, (-tail) % GROUP)
    to_quartile = torch.nn.functional.pad(log_excess - quartile, padding, value=-torch.inf)
    large, ratio = to_quartile.clamp_min(0.0), torch.exp(-to_quartile.abs())
    linear, constant = torch.where(large > 0, 1.0, ratio), torch.where(large > 0, ratio, 1.0)
    constant = torch.addcmul(constant, linear, -torch.exp(quartile - largest))
    taken_out = large.sum(-1, keepdim=True)
    at_once = PIECE.get(scores.device.type, PIECE["cuda"])
    step = max(1, at_once // (constant.shape[1] * most))

    def shape_at(c: Tensor) -> Tensor:
        """k(b) at b = c/y_quartile - 1/y_max, c (n, points): a logarithm for a group of terms."""
        parts = (each.split(step) for each in (constant[:, None], linear[:, None], c[..., None]))
        grouped = (
            torch.addcmul(*each).unflatten(-1, (-1, GROUP)) for each in zip(*parts, strict=True)
        )
        products = torch.cat([group.prod(-1) for group in grouped])
        return (products.log().sum(-1) + taken_out) / count.clamp_min(1)

    points = 30 + own.to(torch.float64).sqrt().floor()
    steps = torch.arange(1, most + 1, dtype=torch.float64, device=scores.device)
    used = steps <= points
    grid = torch.where(used, (torch.sqrt(points / (steps - 0.5)) - 1) / 3, 1.0)  # c_j > 0
    shapes = shape_at(grid)  # (n, points)
    rates = grid - torch.exp(quartile - largest)  # b_j in units of 1/y_quartile
    average = torch.exp(to_quartile).sum(-1, keepdim=True) / count.clamp_min(1)
    # k(b)/b -> mean of y as b -> 0
    nearly_exponential = rates.abs() * torch.exp(largest - quartile) < 1e-6
    profile = torch.log(rates / shapes)
    profile = torch.where(nearly_exponential, -torch.log(average), profile) - shapes - 1
    likely = torch.softmax(torch.where(used, count * profile, -torch.inf), -1)
    mean_c = (likely * grid).sum(-1, keepdim=True)
    # averaged with ten observations that say 1/2
    shape = (count * shape_at(mean_c) + 5) / (count + 10)
    unfitted = torch.where((count == 0) & (own >= FEWEST), -torch.inf, torch.inf).to(torch.float64)
    return torch.where(fitted, shape, unfitted).reshape(n)
