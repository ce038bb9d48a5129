"""How heavy is the tail of the softmax weights? The shape of a generalised Pareto law fitted to the largest of them.

References: Zhang & Stephens, Technometrics 51 (2009), for the estimator; Vehtari, Simpson, Gelman, Yao & Gabry, "Pareto smoothed
importance sampling" (arXiv:1507.02646), for the number of weights in the tail and the weak prior.
"""

import math

import torch
from torch import Tensor

from largeprompt import validation

FEWEST = 5  # exceedances below which no shape is fitted
PRIOR_SHAPE, PRIOR_COUNT = 0.5, 10  # the estimate is averaged with ten observations that say 1/2


def tail_count(length: int) -> int:
    """Number of weights in the tail of L, the smaller of L/5 and 3√L, rounded up; at least five from L = 21 on."""
    return min(-(-length // 5), math.isqrt(9 * length - 1) + 1)


def pareto_tail_index(log_weights: Tensor) -> Tensor:
    """Shape k of the generalised Pareto law of the largest weights: E w^p is finite for p < 1/k only.

    With cutoff w_(M+1) and exceedances y_i = w_(i) - w_(M+1), i = 1..M, of likelihood (1/s)(1 + k y/s)^{-1-1/k}: for a given
    b = k/s the best shape is k(b) = mean log(1 + b y_i), which leaves the profile likelihood ℓ(b) = M (log(b/k(b)) - k(b) - 1).
    The estimate is k at the mean of b under weights e^{ℓ(b)} on a grid b_j = c_j/y_quartile - 1/y_max, shrunk to
    (M k + 5)/(M + 10). Everything is a ratio of exceedances kept as a logarithm, so that scores of any size can be given.

    Parameters
    ----------
    log_weights
        Logarithms of the M + 1 largest weights, in any order and up to a constant (scores will do), shape (..., M + 1).
        The smallest is the cutoff.

    Returns
    -------
    Tensor
        Shape (...), float64, never NaN, without gradient. Below 1/2 the weights have a variance; below 0 they are bounded.

        * ``+inf``: too few tokens for an estimate, that is fewer than five weights exceed the cutoff;
        * ``-inf``: no tail, that is all the M + 1 weights are equal (up to rounding), and M is at least five.

    Examples
    --------
    Weights 1/√v with v uniform have tail index 1/2:

    >>> uniform = (torch.arange(1000, dtype=torch.float64) + 0.5) / 10_000
    >>> round(float(pareto_tail_index(-torch.log(uniform) / 2)), 2)
    0.5
    >>> pareto_tail_index(torch.zeros(3))
    tensor(inf, dtype=torch.float64)
    """
    log_weights = validation.shaped("log_weights", log_weights, ("M + 1",))
    scores = log_weights.detach().to(torch.float64).sort(-1, descending=True).values
    tail = scores.shape[-1] - 1
    if tail < FEWEST:
        return scores.new_full(scores.shape[:-1], torch.inf)
    rounding = 8 * torch.finfo(log_weights.dtype).eps * (1 + scores.abs().amax(-1, keepdim=True))
    gap = scores[..., :-1] - scores[..., -1:]
    above = gap > rounding  # ties with the cutoff do not exceed it
    count = above.sum(-1, keepdim=True)
    fitted = count >= FEWEST
    log_excess = torch.where(above, scores[..., :-1] - scores[..., :1] + torch.log(-torch.expm1(-gap)), -torch.inf)
    quartile = torch.where(fitted, log_excess.gather(-1, (count - (count + 2) // 4).clamp_max(tail - 1)), 0.0)
    largest = torch.where(fitted, log_excess[..., :1], 0.0)
    to_quartile = log_excess - quartile
    log_rest = torch.log(-torch.expm1((log_excess - largest).clamp_max(0.0)))  # log(1 - y/y_max)

    def shape_at(c: Tensor) -> Tensor:
        """k(b) for b = c/y_quartile - 1/y_max: both terms of 1 + b y = (1 - y/y_max) + c y/y_quartile are positive."""
        return torch.logaddexp(log_rest, torch.log(c) + to_quartile).sum(-1, keepdim=True) / count.clamp_min(1)

    points = 30 + math.isqrt(tail)
    steps = torch.arange(1, points + 1, dtype=torch.float64, device=scores.device)
    grid = (torch.sqrt(points / (steps - 0.5)) - 1) / 3  # c_j > 0
    shapes = torch.cat([shape_at(c) for c in grid], -1)  # (..., points), one array of the size of the tail at a time
    rates = grid - torch.exp(quartile - largest)  # b_j in units of 1/y_quartile
    average = torch.exp(to_quartile).sum(-1, keepdim=True) / count.clamp_min(1)
    nearly_exponential = rates.abs() * torch.exp(largest - quartile) < 1e-6  # k(b)/b -> mean of y as b -> 0
    profile = torch.where(nearly_exponential, -torch.log(average), torch.log(rates / shapes)) - shapes - 1
    mean_c = (torch.softmax(count * profile, -1) * grid).sum(-1, keepdim=True)
    shape = (count * shape_at(mean_c) + PRIOR_COUNT * PRIOR_SHAPE) / (count + PRIOR_COUNT)
    unfitted = torch.where(count == 0, -torch.inf, torch.inf).to(torch.float64)
    return torch.where(fitted, shape, unfitted).squeeze(-1)
