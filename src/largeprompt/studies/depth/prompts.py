"""The stacks of the depth study, and prompts through a stack, compared with its limit token by
token and layer by layer.
"""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from largeprompt.depth import DeepLimit, DeepNoise, Normalisation, ResidualStack
from largeprompt.measures import Gaussian
from largeprompt.studies.depth.config import Case, Spectrum

F = torch.float64
POWERS = {"1/N": -1.0, "1/√N": -0.5, "1": 0.0}  # of the number of layers, for each size of V
Array = NDArray[np.float64]
QUANTITIES = ("token", "update", "mean", "covariance")
# in one pass through the layers: Hermite features of these many tokens at a time
BLOCK_TOKENS = 2**14


def spectrum(kind: Spectrum, dim: int) -> Tensor:
    """Diagonal covariance of trace d: 'isotropic', 'power law' (λ_i ∝ 1/i) or 'spiked' (half the
    trace in one direction).
    """
    values = (
        1 / torch.arange(1, dim + 1, dtype=F) if kind == "power law" else torch.ones(dim, dtype=F)
    )
    if kind == "spiked":
        values[0] = max(dim - 1, 1)
    return torch.diag(values * dim / values.sum())


def entry_law(kind: Spectrum, dim: int, mean: float) -> Gaussian:
    """Gaussian tokens of that spectrum, with a mean of norm ``mean`` √d along (1, ..., 1)."""
    return Gaussian(torch.full((dim,), mean, dtype=F), spectrum(kind, dim))


def make_stack(
    case: Case, mu: Gaussian, layers: int, seed: int, normalisation: Normalisation = "none"
) -> ResidualStack:
    """Gaussian weights: every U_k scaled to the score variance on entry, V_k of entries N(0, 1/d)
    times a power of the depth.

    The same seed gives the same directions in every case, so that cases differ by what their names
    say alone.
    """
    d = mu.dim
    generator = torch.Generator().manual_seed(seed)
    U, V = (
        torch.randn(layers, d, d, generator=generator, dtype=F) / math.sqrt(d) for _ in range(2)
    )
    if case.weights == "shared":
        U, V = (matrices[:1].expand(layers, d, d) for matrices in (U, V))
    second = mu.covariance + torch.outer(mu.mean, mu.mean)
    found = (U.mT @ mu.covariance @ U * second).sum((-2, -1))
    U = U * (case.score_variance / found).sqrt()[:, None, None]
    return ResidualStack(U, V * float(layers) ** POWERS[case.scale], normalisation)


def prompts(
    mu: Gaussian, length: int, replicas: int, generator: torch.Generator
) -> Iterator[Tensor]:
    """All prompts of one length, in blocks (r, L, d)."""
    block = max(1, BLOCK_TOKENS // length)
    for start in range(0, replicas, block):
        size = min(block, replicas - start)
        yield mu.sample(size * length, generator).reshape(size, length, mu.dim)


def frozen_tokens(stack: ResidualStack, mu: Gaussian, z: Tensor) -> list[Tensor]:
    """The negative control: tokens moved by layers that all read the law on entry, as if the prompt
    did not change.
    """
    states = [z]
    for U, V in zip(stack.U, stack.V, strict=True):
        states.append(states[-1] + (mu.mean + states[-1] @ (mu.covariance @ U).mT) @ V.mT)
    return states


def excess_kurtosis(z: Tensor) -> Tensor:
    """Mardia's kurtosis of prompts (..., L, d) over that of Gaussian tokens, less 1, without its
    bias at length L.
    """
    length, d = z.shape[-2:]
    centred = z - z.mean(-2, keepdim=True)
    covariance = centred.mT @ centred / length
    ridge = 1e-13 * covariance.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    solved = torch.linalg.solve(covariance + ridge * torch.eye(d, dtype=z.dtype), centred.mT).mT
    fourth: Tensor = (centred * solved).sum(-1).square().mean(-1)
    return fourth / (d * (d + 2)) * (length + 1) / (length - 1) - 1


def from_first(values: Tensor) -> Tensor:
    """Values of the layers with NaN before the first, as an entry has no step."""
    return torch.cat([values.new_full((1, *values.shape[1:]), math.nan), values])


def _control_variates(noise: DeepNoise, moments: Tensor, length: int) -> Array:
    """Squares of the first-order errors of each prompt, less their exact means; shape (quantity,
    layer, replica).
    """
    fields = torch.einsum("kpcg,rg->krpc", noise.coefficients, moments)
    token, known = fields.square().sum((-2, -1)), noise.coefficients.square().sum((1, 2, 3))
    update = from_first(fields.diff(dim=0).square().sum((-2, -1)))
    known_update = from_first(noise.coefficients.diff(dim=0).square().sum((1, 2, 3)))
    mean = torch.einsum("kcg,rg->krc", noise.mean_response, moments).square().sum(-1)
    covariance = (
        torch.einsum("kceg,rg->krce", noise.covariance_response, moments).square().sum((-2, -1))
    )
    found = torch.stack([token, update, mean, covariance])
    exact = torch.stack([known, known_update, noise.mean, noise.covariance]) / length
    return (found - exact.unsqueeze(-1)).numpy()


@dataclasses.dataclass(frozen=True)
class Measured:
    """Squared errors of every prompt of one length: (quantity, layer, replica) and, for tokens
    alone, (layer, replica).
    """

    error: Array
    variate: Array  # control variates, 0 where there is no band
    residual: Array  # of tokens once their first-order displacement is taken off
    frozen: Array  # of tokens against layers that read the law on entry
    kurtosis: Array


def measure(
    stack: ResidualStack,
    limit: DeepLimit,
    noise: DeepNoise | None,
    mu: Gaussian,
    length: int,
    replicas: int,
    generator: torch.Generator,
) -> Measured:
    """Run prompts through the layers and compare with the limit."""
    layers, reached = stack.layers, limit.layers
    blocks = []
    for tokens in prompts(mu, length, replicas, generator):
        count = len(tokens)
        error = np.full((len(QUANTITIES), layers + 1, count), np.nan)
        variate = np.zeros_like(error)
        residual, kept, kurtosis = (np.full((layers + 1, count), np.nan) for _ in range(3))
        expected, moved = limit.tokens(tokens), noise.displacement(tokens) if noise else None
        frozen = frozen_tokens(stack, mu, tokens) if noise else None
        if noise:
            variate[:, : noise.layers + 1] = _control_variates(noise, noise.moments(tokens), length)
        before = tokens
        for k, z in enumerate(stack.states(tokens)):
            kurtosis[k] = excess_kurtosis(z)
            if frozen:
                kept[k] = (z - frozen[k]).square().sum(-1).mean(-1)
            if k <= reached:
                off, mean = z - expected[k], z.mean(-2, keepdim=True)
                covariance = (z - mean).mT @ (z - mean) / length
                error[0, k] = off.square().sum(-1).mean(-1)
                error[2, k] = (mean.squeeze(-2) - limit.mean[k]).square().sum(-1)
                error[3, k] = (covariance - limit.covariance[k]).square().sum((-2, -1))
                if k:
                    error[1, k] = (off - (before - expected[k - 1])).square().sum(-1).mean(-1)
            if noise and moved is not None and k <= noise.layers:
                residual[k] = (z - expected[k] - moved[k]).square().sum(-1).mean(-1)
            before = z
        blocks.append((error, variate, residual, kept, kurtosis))
    return Measured(*(np.concatenate(each, axis=-1) for each in zip(*blocks, strict=True)))
