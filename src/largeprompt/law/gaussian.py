"""The exact law of attention over L Gaussian tokens.

A token splits into its score and the rest: z_l = m + e ξ_l + r_l with e = Γu/σ, ξ_l standard normal, r_l ~ N(0, Γ - ee^T). The
weights depend on ξ alone, so T_L = m + e S + √Y (Γ - ee^T)^{1/2} η: a prompt of L tokens in R^d has the law of L scalars and one
vector.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from largeprompt.law.statistics import jacobian_statistics, output_statistics
from largeprompt.measures import Gaussian


def trace(matrix: Tensor) -> Tensor:
    """Trace of (..., n, n) matrices, shape (...)."""
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1)


def _scores(mu: Gaussian, u: Tensor) -> tuple[Tensor, Tensor]:
    """Γu and the standard deviation σ = √(u^T Γ u) of the scores, with derivative 0 at σ = 0."""
    shift = mu.shift(u)
    variance = (u * shift).sum(-1)
    positive = variance > 0
    return shift, torch.where(positive, torch.where(positive, variance, 1.0).sqrt(), 0.0)


def output_laws(mu: Gaussian, u: Tensor, values: Tensor, lengths: Sequence[float]) -> list[tuple[Tensor, ...]]:
    """Bias, covariance, mean squared error, the same without V, and E Y, for each length.

    bias = -E[Y] VΓu;  Cov T_L = E[Y] VΓV^T + (a - E[Y]²) VΓuu^TΓV^T;  mse = E[Y] tr VΓV^T + a ‖VΓu‖²,  a = E[Y - 6 W3 + 6 Y²].
    """
    shift, sigma = _scores(mu, u)
    read = (values @ shift.unsqueeze(-1)).squeeze(-1)  # VΓu
    spread = values @ mu.covariance @ values.mT
    outer = read.unsqueeze(-1) * read.unsqueeze(-2)
    laws: list[tuple[Tensor, ...]] = []
    for length in lengths:
        statistics = output_statistics(length, sigma)
        y, along = statistics.collision, statistics.along
        covariance = y[..., None, None] * spread + (along - y**2)[..., None, None] * outer
        mse = y * trace(spread) + along * read.square().sum(-1)
        without_values = y * trace(mu.covariance) + along * shift.square().sum(-1)
        laws.append((-y.unsqueeze(-1) * read, covariance, mse, without_values, y))
    return laws


def output_errors(mu: Gaussian, u: Tensor, values: Tensor, lengths: Sequence[float]) -> Tensor:
    """Mean squared errors alone, shape (length, ...), without a matrix for each length."""
    shift, sigma = _scores(mu, u)
    size = (values @ shift.unsqueeze(-1)).squeeze(-1).square().sum(-1)
    spread = ((values @ mu.covariance) * values).sum(dim=(-2, -1))
    found = [output_statistics(length, sigma) for length in lengths]
    return torch.stack([one.collision * spread + one.along * size for one in found])


def jacobian_error(mu: Gaussian, u: Tensor, values: Tensor, length: float) -> Tensor:
    """E‖V(C_L - Γ)‖_F², C_L the softmax-weighted covariance of the tokens.

    Given ξ, C_L - Γ = (κ - 1)ee^T + eg^T + ge^T + (R - G) with G = Γ - ee^T, g ~ N(0, Σ w²(ξ-S)² G) and R the weighted covariance
    of the residuals, of mean (1 - Y)G. With B = V^T V the squared norm averages to

        E(κ-1)² ‖Ve‖²‖e‖² + E Σw²(ξ-S)² (‖Ve‖² tr G + ‖e‖² tr BG + 2 e^T BG e) - 2 E(κ-1)Y e^T BG e
        + E Y² tr BG² + E‖diag(w) - ww^T‖² (tr BG tr G + tr BG²).
    """
    shift, sigma = _scores(mu, u)
    statistics = jacobian_statistics(length, sigma)
    safe = torch.where(sigma > 0, sigma, 1.0)
    e = torch.where((sigma > 0).unsqueeze(-1), shift / safe.unsqueeze(-1), 0.0)
    rest = mu.covariance - e.unsqueeze(-1) * e.unsqueeze(-2)  # G
    gram = values.mT @ values  # B
    read_e = (values @ e.unsqueeze(-1)).squeeze(-1)
    weighted = gram @ rest  # BG
    along, across = read_e.square().sum(-1), e.square().sum(-1)
    mixed = torch.einsum("...i,...ij,...j->...", e, weighted, e)
    square = (weighted * rest.mT).sum(dim=(-2, -1))  # tr BG²
    return (
        statistics.spread * along * across
        + statistics.cross * (along * trace(rest) + across * trace(weighted) + 2 * mixed)
        - 2 * statistics.mixed * mixed
        + statistics.collision2 * square
        + statistics.pairs * (trace(weighted) * trace(rest) + square)
    )
