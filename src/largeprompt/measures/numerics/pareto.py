"""How heavy is the tail of the softmax weights? The shape of a generalized Pareto law.

References: Zhang & Stephens, Technometrics 51 (2009), for the estimator; Vehtari, Simpson, Gelman,
Yao & Gabry, "Pareto smoothed importance sampling" (arXiv:1507.02646), for the number of weights in
the tail and the weak prior.
"""

import math

import torch
from torch import Tensor

from largeprompt import validation

FEWEST = 5  # exceedances below which no shape is fitted


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
    log_weights = validation.tensor("log_weights", log_weights).detach()
    validation.last_dimensions("log_weights", log_weights, ("M + 1",))
    tail, none = log_weights.shape[-1] - 1, log_weights.new_full((), torch.inf, dtype=torch.float64)
    if tail < FEWEST or not log_weights.numel():
        return none.expand(log_weights.shape[:-1])
    scores = log_weights.to(torch.float64).sort(-1, descending=True).values
    top, cutoff = scores[..., :1], scores[..., -1:]
    rounding = 8 * torch.finfo(log_weights.dtype).eps * (1 + torch.maximum(top.abs(), cutoff.abs()))
    gap = scores[..., :-1] - cutoff
    above = gap > rounding  # ties with the cutoff do not exceed it
    count = above.sum(-1, keepdim=True)
    fitted = count >= FEWEST
    log_excess = scores[..., :-1] - top + torch.log(-torch.expm1(-gap))
    log_excess = torch.where(above, log_excess, -torch.inf)
    place = (count - (count + 2) // 4).clamp_max(tail - 1)
    quartile = torch.where(fitted, log_excess.gather(-1, place), 0.0)
    largest = torch.where(fitted, log_excess[..., :1], 0.0)
    # 1 + b y = (1 - y/y_max) + c y/y_quartile, two positive terms, both divided by y/y_quartile
    # where that is above 1
    to_quartile = log_excess - quartile
    large, ratio = to_quartile.clamp_min(0.0), torch.exp(-to_quartile.abs())
    linear, constant = torch.where(large > 0, 1.0, ratio), torch.where(large > 0, ratio, 1.0)
    constant = torch.addcmul(constant, linear, -torch.exp(quartile - largest))
    taken_out, number = large.sum(-1, keepdim=True), count.clamp_min(1)

    def shape_at(c: Tensor) -> Tensor:
        """k(b) at b = c/y_quartile - 1/y_max, one b for each row."""
        total = torch.log(torch.addcmul(constant, linear, c)).sum(-1, keepdim=True)
        return (total + taken_out) / number

    points = 30 + math.isqrt(tail)
    steps = torch.arange(1, points + 1, dtype=torch.float64, device=scores.device)
    grid = (torch.sqrt(points / (steps - 0.5)) - 1) / 3  # c_j > 0
    shapes = torch.cat([shape_at(c) for c in grid], -1)
    rates = grid - torch.exp(quartile - largest)  # b_j in units of 1/y_quartile
    # k(b)/b -> mean of y as b -> 0
    average = torch.exp(to_quartile).sum(-1, keepdim=True) / number
    nearly_exponential = rates.abs() * torch.exp(largest - quartile) < 1e-6
    profile = torch.where(nearly_exponential, -torch.log(average), torch.log(rates / shapes))
    likely = torch.softmax(count * (profile - shapes - 1), -1)
    mean_c = (likely * grid).sum(-1, keepdim=True)
    # averaged with ten observations that say 1/2
    shape = (count * shape_at(mean_c) + 5) / (count + 10)
    return torch.where(fitted, shape, torch.where(count == 0, -none, none)).squeeze(-1)
