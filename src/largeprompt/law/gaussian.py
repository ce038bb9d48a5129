"""The exact law of attention over L Gaussian tokens, by formula (law.2) of docs/mathematics/finite_prompt.md."""

from collections.abc import Sequence

import torch
from torch import Tensor

from largeprompt.law.statistics import collision_moments, jacobian_statistics
from largeprompt.measures import Gaussian


def trace(matrix: Tensor) -> Tensor:
    """Trace of (..., n, n) matrices, shape (...)."""
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1)


def _scores(mu: Gaussian, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Γu, the standard deviation σ = √(u^T Γ u) of the scores, with derivative 0 at σ = 0, and their variance."""
    shift = mu.shift(u)
    variance = (u * shift).sum(-1)
    positive = variance > 0
    return shift, torch.where(positive, torch.where(positive, variance, 1.0).sqrt(), 0.0), variance


def output_laws(mu: Gaussian, u: Tensor, values: Tensor, lengths: Sequence[float]) -> list[tuple[Tensor, ...]]:
    """Bias, covariance, mean squared error, the same without V, and E Y, for each length.

    bias = -E[Y] VΓu;  Cov T_L = E[Y] VΓV^T + (a - E[Y]²) VΓuu^TΓV^T;  mse = E[Y] tr VΓV^T + a ‖VΓu‖²,  a = E[Y - 6 W3 + 6 Y²]:
    formulas (law.8) to (law.10) of docs/mathematics/finite_prompt.md.
    """
    shift, sigma, variance = _scores(mu, u)
    read = (values @ shift.unsqueeze(-1)).squeeze(-1)  # VΓu
    spread = values @ mu.covariance @ values.mT
    outer = read.unsqueeze(-1) * read.unsqueeze(-2)
    laws: list[tuple[Tensor, ...]] = []
    for length in lengths:
        statistics = collision_moments(length, sigma, variance)
        y, along = statistics.collision, statistics.along
        covariance = y[..., None, None] * spread + (along - y**2)[..., None, None] * outer
        mse = y * trace(spread) + along * read.square().sum(-1)
        without_values = y * trace(mu.covariance) + along * shift.square().sum(-1)
        laws.append((-y.unsqueeze(-1) * read, covariance, mse, without_values, y))
    return laws


def output_errors(mu: Gaussian, u: Tensor, values: Tensor, lengths: Sequence[float]) -> Tensor:
    """Mean squared errors alone, shape (length, ...), without a matrix for each length."""
    shift, sigma, variance = _scores(mu, u)
    size = (values @ shift.unsqueeze(-1)).squeeze(-1).square().sum(-1)
    spread = ((values @ mu.covariance) * values).sum(dim=(-2, -1))
    found = [collision_moments(length, sigma, variance) for length in lengths]
    return torch.stack([one.collision * spread + one.along * size for one in found])


def jacobian_error(mu: Gaussian, u: Tensor, values: Tensor, length: float) -> Tensor:
    """E‖V(C_L - Γ)‖_F², C_L the softmax-weighted covariance of tokens: formula (law.13) of docs/mathematics/finite_prompt.md."""
    shift, sigma, _ = _scores(mu, u)
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
