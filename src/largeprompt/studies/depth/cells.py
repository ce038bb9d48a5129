"""Drawn prompts through residual stacks, compared with the closure and its predicted noise."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from largeprompt.depth import (
    DeepLimit,
    DeepNoise,
    Normalization,
    ResidualStack,
    breaking_layer,
    deep_limit,
    deep_noise,
)
from largeprompt.law import regime
from largeprompt.measures import Gaussian, sobol_points
from largeprompt.runs.study import Progress

if TYPE_CHECKING:
    from largeprompt.studies.depth.study import DepthConfig

F = torch.float64
Array = NDArray[np.float64]
Spectrum = Literal["isotropic", "power law", "spiked"]
Weights = Literal["random", "shared"]
Scale = Literal["1/N", "1/√N", "1"]
Kind = Literal["pre", "sphere"]
POWERS = {"1/N": -1.0, "1/√N": -0.5, "1": 0.0}  # of the number of layers, for each size of V
QUANTITIES = ("token", "update", "covariance")
# relative error of the step that a layer makes, from which on the closure counts as broken
THRESHOLD = 0.5
SCORES = 8_000_000  # computed in a layer for the prompts of one length: sets their number
BLOCK_TOKENS = 2**14  # through the layers at once: their Hermite features fill the cache
SCRAMBLES = 4  # of the quasi-random tokens, whose spread is the error of the predicted level


@dataclasses.dataclass(frozen=True)
class Case:
    """One stack: spectrum of the tokens, random or shared weights, and size of V."""

    spectrum: Spectrum
    weights: Weights
    scale: Scale

    def __str__(self) -> str:
        return f"{self.spectrum}, {self.weights}, V ~ {self.scale}"


def stacks(config: DepthConfig) -> list[Case]:
    """All spectra, weights and sizes of V."""
    every = itertools.product(config.scales, config.weights, config.spectra)
    return [Case(spectrum, weights, scale) for scale, weights, spectrum in every]


def normalized_stacks(config: DepthConfig) -> list[tuple[Kind, int]]:
    """Kind of normalization and dimension of each stack that has one."""
    return [(kind, dim) for dim in config.normalized_dims for kind in ("pre", "sphere")]


def entry_law(kind: Spectrum, dim: int, mean: float) -> Gaussian:
    """Gaussian tokens of trace d and a mean of norm ``mean`` √d along (1, ..., 1)."""
    values = torch.ones(dim, dtype=F)
    if kind == "power law":
        values = 1 / torch.arange(1, dim + 1, dtype=F)
    elif kind == "spiked":
        values[0] = max(dim - 1, 1)
    return Gaussian(torch.full((dim,), mean, dtype=F), torch.diag(values * dim / values.sum()))


def make_stack(
    case: Case,
    mu: Gaussian,
    layers: int,
    seed: int,
    score_variance: float,
    normalization: Normalization = "none",
) -> ResidualStack:
    """Gaussian weights: U_k of one score variance on entry, V_k times a power of N."""
    d, generator = mu.dim, torch.Generator().manual_seed(seed)
    U, V = (
        torch.randn(layers, d, d, generator=generator, dtype=F) / math.sqrt(d) for _ in range(2)
    )
    if case.weights == "shared":
        U, V = (matrices[:1].expand(layers, d, d) for matrices in (U, V))
    second = mu.covariance + torch.outer(mu.mean, mu.mean)
    found = (U.mT @ mu.covariance @ U * second).sum((-2, -1))
    U = U * (score_variance / found).sqrt()[:, None, None]
    return ResidualStack(U, V * float(layers) ** POWERS[case.scale], normalization)


def from_first(values: Tensor) -> Tensor:
    """Values of the layers with NaN before the first, as an entry has no step."""
    return torch.cat([values.new_full((1, *values.shape[1:]), math.nan), values])


def sizes(limit: DeepLimit) -> Tensor:
    """What squared errors are relative to: E‖z‖², E‖step‖², ‖Γ‖², shape (quantity, layer)."""
    square = limit.covariance.diagonal(dim1=-2, dim2=-1).sum(-1) + limit.mean.square().sum(-1)
    V, U, read = limit.stack.V[: limit.layers], limit.stack.U[: limit.layers], limit.read_covariance
    gain = V @ read @ U
    drift = (gain @ limit.read_mean.unsqueeze(-1) + V @ limit.read_mean.unsqueeze(-1)).squeeze(-1)
    steps = (gain @ read @ gain.mT).diagonal(dim1=-2, dim2=-1).sum(-1) + drift.square().sum(-1)
    return torch.stack([square, from_first(steps), limit.covariance.square().sum((-2, -1))])


def predicted(noise: DeepNoise) -> Tensor:
    """Squared errors times L to first order, shape (quantity, layer)."""
    return torch.stack([noise.token, from_first(noise.update), noise.covariance])


def control_variates(noise: DeepNoise, moments: Tensor, length: int) -> Tensor:
    """Squared first-order errors less their exact means, shape (quantity, layer, replica)."""
    fields = torch.einsum("kpcg,rg->krpc", noise.coefficients, moments)
    known = noise.coefficients.square().sum((1, 2, 3))
    known_update = from_first(noise.coefficients.diff(dim=0).square().sum((1, 2, 3)))
    shape = torch.einsum("kceg,rg->krce", noise.covariance_response, moments)
    steps = from_first(fields.diff(dim=0).square().sum((-2, -1)))
    found = [fields.square().sum((-2, -1)), steps, shape.square().sum((-2, -1))]
    exact = torch.stack([known, known_update, noise.covariance]) / length
    return torch.stack(found) - exact.unsqueeze(-1)


def prompts(
    mu: Gaussian, length: int, replicas: int, generator: torch.Generator
) -> Iterator[Tensor]:
    """All prompts of one length, in blocks (replica, L, d)."""
    block = max(1, BLOCK_TOKENS // length)
    for start in range(0, replicas, block):
        size = min(block, replicas - start)
        yield mu.sample(size * length, generator).reshape(size, length, mu.dim)


def errors(stack: ResidualStack, limit: DeepLimit, tokens: Tensor) -> Tensor:
    """Squared errors of each prompt (replica, L, d), shape (quantity, layer, replica)."""
    found = torch.full((3, stack.layers + 1, len(tokens)), math.nan, dtype=F)
    expected, before = limit.tokens(tokens), torch.zeros_like(tokens)
    for k, z in zip(range(limit.layers + 1), stack.states(tokens), strict=False):
        off, away = z - expected[k], z - z.mean(-2, keepdim=True)
        covariance = away.mT @ away / tokens.shape[-2]
        found[0, k] = off.square().sum(-1).mean(-1)
        found[2, k] = (covariance - limit.covariance[k]).square().sum((-2, -1))
        if k:
            found[1, k] = (off - before).square().sum(-1).mean(-1)
        before = off
    return found


def first_layer(flags: Array, layers: int) -> int:
    """First layer (from 1) at which the flag is up; layers + 1 if there is none."""
    up = np.flatnonzero(flags[1:])
    return int(up[0]) + 1 if len(up) else layers + 1


def stack_errors(config: DepthConfig, case: Case, progress: Progress) -> xr.Dataset:
    """The prediction, then prompts of every length."""
    generator = torch.Generator().manual_seed(1000 * config.seed + stacks(config).index(case))
    mu, none = entry_law(case.spectrum, config.dim, config.mean), config.layers + 1
    stack = make_stack(case, mu, config.layers, config.seed, config.score_variance)
    progress(f"{case}: recursion and band")
    limit = deep_limit(stack, mu)
    noise = deep_noise(limit, config.degree)

    def padded(values: Tensor) -> Array:  # NaN for layers that the prediction does not reach
        missing = config.layers + 1 - values.shape[-1]
        found: Array = torch.nn.functional.pad(values, (0, missing), value=math.nan).numpy()
        return found

    relative = padded(sizes(limit))
    band = padded(predicted(noise)) / relative
    outside = np.array([breaking_layer(limit, length) or none for length in config.lengths])
    frozen = [breaking_layer(limit, length, "frozen") or none for length in config.lengths]
    steps = [np.sqrt(band[1] / length) for length in config.lengths]
    crossed = [first_layer(each > THRESHOLD, config.layers) for each in steps]
    error, spread, broken = [], [], []
    for length in config.lengths:
        progress(f"{case}: L = {length}")
        count = min(max(SCORES // length**2, config.replicas[0]), config.replicas[1])
        drawn, variates = [], []
        for tokens in prompts(mu, length, count, generator):
            drawn.append(errors(stack, limit, tokens))
            found = control_variates(noise, noise.moments(tokens), length)
            variates.append(padded(found.mT).swapaxes(-2, -1))
        raw, variate = torch.cat(drawn, -1).numpy(), np.concatenate(variates, -1)
        heavy = [regime(each, length) != "linear" for each in limit.score_variance.tolist()]
        # the variates are used where theory, not the data, says so
        linear = np.append(True, ~np.maximum.accumulate(heavy))
        linear = np.pad(linear, (0, none - len(linear)))
        each = (raw - linear[:, None] * np.nan_to_num(variate)) / relative[..., None]
        error.append(each.mean(-1))
        spread.append(each.std(-1, ddof=1) / math.sqrt(count))
        # NaN: the closure itself is at infinity
        typical = np.sqrt(np.median(raw[1], axis=-1) / relative[1])
        broken.append(first_layer(~(typical <= THRESHOLD), config.layers))
    by_length = {
        "predicted_first": np.fmin(outside, crossed),
        "predicted_last": np.fmin(frozen, crossed),
        "measured_breaking": broken,
    }
    full = ("case", "length", "quantity", "layer")
    return xr.Dataset(
        {
            "band": (("case", "quantity", "layer"), band[None]),
            "independent": (("case", "layer"), (padded(noise.independent) / relative[0])[None]),
            "score_variance": (("case", "layer"), padded(limit.score_variance)[None]),
            "error": (full, np.stack(error)[None]),
            "standard_error": (full, np.stack(spread)[None]),
        }
        | {name: (full[:2], np.array([each], dtype=float)) for name, each in by_length.items()},
        coords={
            "case": [str(case)],
            "spectrum": ("case", [case.spectrum]),
            "weights": ("case", [case.weights]),
            "value_scale": ("case", [case.scale]),
            "length": list(config.lengths),
            "quantity": list(QUANTITIES),
            "layer": np.arange(config.layers + 1),
        },
    )


def normalized_errors(config: DepthConfig, kind: Kind, dim: int, progress: Progress) -> xr.Dataset:
    """Closure with a normalization: the level of its error (by Sobol points), then prompts."""
    name, lengths = f"{kind}, d = {dim}", config.normalized_lengths
    stream = len(stacks(config)) + normalized_stacks(config).index((kind, dim))
    generator = torch.Generator().manual_seed(1000 * config.seed + stream)
    mu, case = entry_law("isotropic", dim, config.mean), Case("isotropic", "random", "1")
    size = config.normalized_score_variance
    stack = make_stack(case, mu, config.layers, config.seed, size, kind)
    plain = make_stack(case, mu, config.layers, config.seed, size)
    limit = deep_limit(stack, mu)
    relative = sizes(limit)[0].numpy()
    progress(f"{name}: {config.reference} Sobol points")

    def reference(count: int, scramble: int) -> Array:
        points = sobol_points(mu, count, config.seed + scramble).unsqueeze(0)
        off: Array = errors(stack, limit, points)[0, :, 0].numpy() / relative
        return off

    draws = [  # the part that falls like 1/points goes
        2 * reference(config.reference, 2 * k) - reference(config.reference // 2, 2 * k + 1)
        for k in range(SCRAMBLES)
    ]
    error, spread = [], []
    for length in lengths:
        progress(f"{name}: L = {length}")
        count = min(max(SCORES // length**2, 6), config.replicas[1])
        found = [errors(stack, limit, each)[0] for each in prompts(mu, length, count, generator)]
        token = torch.cat(found, -1).numpy() / relative[:, None]
        error.append(token.mean(-1))
        spread.append(token.std(-1, ddof=1) / math.sqrt(count))
    x = 1 / np.asarray(lengths, dtype=float)
    # of the intercept in 1/L
    weights = 1 / len(x) - (x - x.mean()) * x.mean() / ((x - x.mean()) ** 2).sum()
    by_layer = {
        "level": np.mean(draws, 0),
        "level_error": np.std(draws, 0, ddof=1) / math.sqrt(SCRAMBLES),
        "measured_level": weights @ np.stack(error),
        "measured_level_error": np.sqrt(weights**2 @ np.stack(spread) ** 2),
    }
    full = ("normalized", "normalized_length", "layer")
    edge = breaking_layer(deep_limit(plain, mu), lengths[-1]) or config.layers + 1
    return xr.Dataset(
        {key: (("normalized", "layer"), [value]) for key, value in by_layer.items()}
        | {"normalized_error": (full, [error]), "plain_edge": ("normalized", [edge])},
        coords={
            "normalized": [name],
            "normalized_length": list(lengths),
            "layer": np.arange(config.layers + 1),
            "kind": ("normalized", [kind]),
            "dim": ("normalized", [dim]),
        },
    )
