"""Q2: does the picture survive depth? Gaussian closure of residual self-attention against systems of L tokens, layer by layer."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from largeprompt.attention import SoftmaxAttention
from largeprompt.depth import DeepLimit, DeepNoise, ResidualStack, breaking_layer, deep_limit, deep_noise
from largeprompt.law import finite_prompt, regime
from largeprompt.measures import sobol_points
from largeprompt.planning import query_average
from largeprompt.runs.study import Progress, Study
from largeprompt.studies.depth.cases import SCALES, WEIGHTS, Case, entry_law, make_stack
from largeprompt.studies.depth.prompts import QUANTITIES, excess_kurtosis, measure, prompts
from largeprompt.studies.depth.rules import THRESHOLD, verdicts

Array = NDArray[np.float64]
F = torch.float64


@dataclasses.dataclass(frozen=True)
class DepthConfig:
    """Gaussian tokens of trace d through N layers; every spectrum, kind of weights and size of V, and three score variances."""

    dim: int = 4
    layers: int = 24
    mean: float = 0.25
    spectra: tuple[str, ...] = ("isotropic", "power law", "spiked")
    weights: tuple[str, ...] = WEIGHTS
    scales: tuple[str, ...] = tuple(SCALES)
    score_variance: float = 0.2
    other_score_variances: tuple[float, ...] = (0.05, 0.8)
    degree: int = 4
    lengths: tuple[int, ...] = (32, 128, 512, 2048)
    longest: int = 8192
    scores: int = 15_000_000
    replicas: tuple[int, int] = (8, 400)
    fitted_from: int = 128
    normalised_dims: tuple[int, ...] = (4, 8, 16)
    normalised_scales: tuple[str, ...] = ("1",)
    normalised_score_variance: float = 0.5
    normalised_lengths: tuple[int, ...] = (128, 512, 2048)
    reference: int = 2048
    scrambles: int = 4
    control_lengths: tuple[int, ...] = (4, 16, 64, 256)
    control_replicas: int = 2000
    probes: int = 16
    seed: int = 0


def stacks(config: DepthConfig) -> list[Case]:
    """All spectra, weights and sizes of V at the main score variance; the first of them with √N at the others."""
    found = [
        Case(spectrum, weights, scale, config.score_variance)
        for scale in config.scales
        for weights in config.weights
        for spectrum in config.spectra
    ]
    middle = config.scales[len(config.scales) // 2]
    return found + [Case(config.spectra[0], config.weights[0], middle, each) for each in config.other_score_variances]


def long_cases(config: DepthConfig) -> list[Case]:
    """Cases that also run at the longest length: the first with random, and the first with shared weights."""
    middle = config.scales[len(config.scales) // 2]
    return [Case(config.spectra[0], weights, middle, config.score_variance) for weights in config.weights]


def cells(config: DepthConfig) -> list[str]:
    """One for each stack, one for each normalised stack, and the control of one layer."""
    normalised = [
        f"normalised {kind}, V ~ {scale}, d = {dim}"
        for dim in config.normalised_dims
        for kind in ("pre", "sphere")
        for scale in config.normalised_scales
    ]
    return [*(f"stack {case}" for case in stacks(config)), *normalised, "one layer"]


def compute(config: DepthConfig, cell: str, progress: Progress) -> xr.Dataset:
    """One of the three kinds of cell."""
    generator = torch.Generator().manual_seed(1000 * config.seed + cells(config).index(cell))
    what, _, rest = cell.partition(" ")
    if what == "stack":
        case = next(each for each in stacks(config) if str(each) == rest)
        return _stack(config, case, generator, progress)
    return _normalised(config, rest, generator, progress) if what == "normalised" else _one_layer(config, generator)


def sizes(limit: DeepLimit) -> Array:
    """What squared errors are relative to: E‖z‖² (token and mean), E‖step‖², ‖Γ‖², shape (quantity, layer)."""
    square = limit.covariance.diagonal(dim1=-2, dim2=-1).sum(-1) + limit.mean.square().sum(-1)
    V, U, read = limit.stack.V[: limit.layers], limit.stack.U[: limit.layers], limit.read_covariance
    gain = V @ read @ U
    drift = (gain @ limit.read_mean.unsqueeze(-1) + V @ limit.read_mean.unsqueeze(-1)).squeeze(-1)
    steps = (gain @ read @ gain.mT).diagonal(dim1=-2, dim2=-1).sum(-1) + drift.square().sum(-1)
    steps = torch.cat([steps.new_full((1,), math.nan), steps])
    return torch.stack([square, steps, square, limit.covariance.square().sum((-2, -1))]).numpy()


def predicted_band(noise: DeepNoise) -> Array:
    """L times the expected squared errors, shape (quantity, layer)."""
    update = torch.cat([noise.update.new_full((1,), math.nan), noise.update])
    return torch.stack([noise.token, update, noise.mean, noise.covariance]).numpy()


def _padded(values: Array, layers: int) -> Array:
    """NaN for layers that the prediction does not reach."""
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, layers + 1 - values.shape[-1])], constant_values=np.nan)


def replicas_at(config: DepthConfig, length: int) -> int:
    """As many prompts as the budget of scores allows, between the two bounds."""
    return min(max(config.scores // length**2, config.replicas[0]), config.replicas[1])


def slopes(lengths: Array, values: Array, errors: Array) -> Array:
    """Log-log slope over the first axis with its 95 % interval by the delta method, shape (3, ...)."""
    x = np.log(lengths) - np.log(lengths).mean()
    weights = (x / (x**2).sum()).reshape(-1, *(1,) * (values.ndim - 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = (weights * np.log(np.where(values > 0, values, np.nan))).sum(0)
        spread = 1.96 * np.sqrt(((weights * errors / values) ** 2).sum(0))
    return np.stack([slope, slope - spread, slope + spread])


def _stack(config: DepthConfig, case: Case, generator: torch.Generator, progress: Progress) -> xr.Dataset:
    """The prediction, then prompts of every length."""
    mu = entry_law(case.spectrum, config.dim, config.mean)
    stack = make_stack(case, mu, config.layers, config.seed)
    progress(f"{case}: recursion and band")
    limit = deep_limit(stack, mu)
    noise = deep_noise(limit, config.degree)
    lengths = [*config.lengths, *([config.longest] if case in long_cases(config) else [])]
    relative = _padded(sizes(limit), config.layers)  # (quantity, layer)
    band = _padded(predicted_band(noise), config.layers) / relative
    edge = [breaking_layer(limit, length) or config.layers + 1 for length in lengths]
    frozen = [breaking_layer(limit, length, "frozen") or config.layers + 1 for length in lengths]
    crossed = [_first(np.sqrt(band[1] / length) > THRESHOLD, config.layers) for length in lengths]
    columns: dict[str, list[Array]] = {
        name: [] for name in ("raw", "error", "standard_error", "residual", "frozen", "kurtosis", "kurtosis_error", "typical")
    }
    for length in lengths:
        progress(f"{case}: L = {length}")
        count = max(2, config.replicas[0] // 4) if length == config.longest else replicas_at(config, length)
        found = measure(stack, limit, noise, mu, length, count, generator)
        outside = [regime(variance, length) != "linear" for variance in limit.score_variance.tolist()]
        linear = np.append(True, ~np.maximum.accumulate(outside))  # the variates are used where theory, not the data, says so
        linear = np.pad(linear, (0, config.layers + 1 - len(linear)))
        each = (found.error - found.variate * linear[:, None]) / relative[..., None]
        root = math.sqrt(count)
        columns["raw"].append(found.error.mean(-1) / relative)
        columns["error"].append(each.mean(-1))
        columns["standard_error"].append(each.std(-1, ddof=1) / root)
        columns["residual"].append(found.residual.mean(-1) / relative[0])
        columns["frozen"].append(found.frozen.mean(-1) / relative[0])
        columns["kurtosis"].append(found.kurtosis.mean(-1))
        columns["kurtosis_error"].append(found.kurtosis.std(-1, ddof=1) / root)
        columns["typical"].append(np.sqrt(np.median(found.error[1], axis=-1) / relative[1]))
    data = {name: np.stack(rows) for name, rows in columns.items()}
    broken = [_first(~(row <= THRESHOLD), config.layers) for row in data["typical"]]  # NaN: the closure itself is at infinity
    window = np.asarray(config.lengths)
    chosen = np.flatnonzero(window >= config.fitted_from)
    fit = slopes(window[chosen].astype(float), data["error"][chosen], data["standard_error"][chosen])
    grid, line = ("length", "layer"), ("case", "layer")
    full = ("case", "length", "quantity", "layer")
    scores = _padded(np.append(limit.score_variance.numpy(), np.nan)[None], config.layers)
    return xr.Dataset(
        {
            "band": (("case", "quantity", "layer"), band[None], {"long_name": "L times the relative squared error, predicted"}),
            "without_feedback": (line, _padded(noise.without_feedback.numpy()[None], config.layers) / relative[0]),
            "independent": (line, _padded(noise.independent.numpy()[None], config.layers) / relative[0]),
            "tail": (line, _padded((noise.tail / noise.token.clamp_min(1e-300)).numpy()[None], config.layers)),
            "score_variance": (line, scores, {"long_name": "query-averaged score variance of the next layer, recursion"}),
            "h_squared": (line, _padded(np.append(limit.h_squared.numpy(), np.nan)[None], config.layers)),
            "raw": (full, data["raw"][None], {"long_name": "relative squared error"}),
            "error": (full, data["error"][None], {"long_name": "the same with control variates of known mean"}),
            "standard_error": (full, data["standard_error"][None]),
            "slope": (("interval", "case", "quantity", "layer"), fit[:, None]),
            "predicted_edge": (("case", "length"), [edge], {"long_name": "first layer outside the linear regime"}),
            "predicted_frozen": (("case", "length"), [frozen], {"long_name": "first layer in the frozen regime"}),
            "predicted_crossing": (("case", "length"), [crossed], {"long_name": "first layer with a band above the threshold"}),
            "measured_breaking": (("case", "length"), [broken]),
            **{
                name: (("case", *grid), data[name][None])
                for name in ("residual", "frozen", "kurtosis", "kurtosis_error", "typical")
            },
        },
        coords={
            "case": [str(case)],
            "spectrum": ("case", [case.spectrum]),
            "weights": ("case", [case.weights]),
            "value_scale": ("case", [case.scale]),
            "entry_variance": ("case", [case.score_variance]),
            "length": lengths,
            "quantity": list(QUANTITIES),
            "layer": np.arange(config.layers + 1),
            "interval": ["estimate", "lower", "upper"],
        },
    )


def _first(flags: Array, layers: int) -> int:
    """First layer (from 1) at which the flag is up; layers + 1 if there is none."""
    up = np.flatnonzero(flags[1:])
    return int(up[0]) + 1 if len(up) else layers + 1


def _normalised(config: DepthConfig, name: str, generator: torch.Generator, progress: Progress) -> xr.Dataset:
    """Closure with a normalisation, the level at which its error should stop (by Sobol points as tokens), then prompts."""
    kind, scale, dim = (part.split()[-1] for part in name.split(", "))
    d = int(dim)
    mu = entry_law("isotropic", d, config.mean)
    case = Case("isotropic", "random", scale, config.normalised_score_variance)
    stack = make_stack(case, mu, config.layers, config.seed, "pre" if kind == "pre" else "sphere")
    limit = deep_limit(stack, mu)
    plain = deep_limit(make_stack(case, mu, config.layers, config.seed), mu)
    relative = sizes(limit)[0]
    progress(f"{name}: {config.scrambles} times {config.reference} Sobol points")
    draws, bends = [], []
    for scramble in range(config.scrambles):
        far, bent = _reference(stack, limit, sobol_points(mu, config.reference, config.seed + 2 * scramble))
        near, _ = _reference(stack, limit, sobol_points(mu, config.reference // 2, config.seed + 2 * scramble + 1))
        draws.append((2 * far - near) / relative)  # the part that falls like 1/points goes
        bends.append(bent)
    level, bent = np.mean(draws, 0), np.mean(bends, 0)
    level_error = np.std(draws, 0, ddof=1) / math.sqrt(config.scrambles)
    rows = []
    for length in config.normalised_lengths:
        progress(f"{name}: L = {length}")
        count = min(max(config.scores // 2 // length**2, 6), config.replicas[1])
        found = measure(stack, limit, None, mu, length, count, generator)
        token = found.error[0] / relative[:, None]
        rows.append((token.mean(-1), token.std(-1, ddof=1) / math.sqrt(count)))
    error, spread = (np.stack(each) for each in zip(*rows, strict=True))
    x = 1 / np.asarray(config.normalised_lengths, dtype=float)
    weights = 1 / len(x) - (x - x.mean()) * x.mean() / ((x - x.mean()) ** 2).sum()  # of the intercept in 1/L
    edge = breaking_layer(plain, config.normalised_lengths[-1])
    line = ("normalised", "layer")
    return xr.Dataset(
        {
            "level": (line, level[None], {"long_name": "relative squared error at infinite length, predicted"}),
            "level_error": (line, level_error[None], {"long_name": "standard error over scrambles of the points"}),
            "measured_level": (line, (weights @ error)[None], {"long_name": "intercept of the error in 1/L"}),
            "measured_level_error": (line, np.sqrt(weights**2 @ spread**2)[None]),
            "normalised_error": (("normalised", "normalised_length", "layer"), error[None]),
            "normalised_standard_error": (("normalised", "normalised_length", "layer"), spread[None]),
            "normalised_kurtosis": (line, bent[None], {"long_name": "excess kurtosis of what the next layer reads"}),
            "normalised_score_variance": (line, np.append(limit.score_variance.numpy(), np.nan)[None]),
            "plain_edge": ("normalised", [edge or config.layers + 1], {"long_name": "breaking layer without normalisation"}),
        },
        coords={
            "normalised": [name],
            "normalised_length": list(config.normalised_lengths),
            "layer": np.arange(config.layers + 1),
            "kind": ("normalised", [kind]),
            "scale": ("normalised", [scale]),
            "dim": ("normalised", [d]),
        },
    )


def _reference(stack: ResidualStack, limit: DeepLimit, points: Tensor) -> tuple[Array, Array]:
    """Mean squared distance between closure and layers that read these points, and the kurtosis of what is read; by layer."""
    expected, off, bent = limit.tokens(points), [], []
    for k, z in enumerate(stack.states(points)):
        off.append(float((z - expected[k]).square().sum(-1).mean()))
        read = torch.nn.functional.rms_norm(z, z.shape[-1:], eps=0.0) if stack.normalisation == "pre" else z
        bent.append(float(excess_kurtosis(read)))
    return np.asarray(off), np.asarray(bent)


def _one_layer(config: DepthConfig, generator: torch.Generator) -> xr.Dataset:
    """One layer against the exact law of `convergence`, averaged over the query; and layers with V = 0."""
    mu = entry_law(config.spectra[0], config.dim, config.mean)
    stack = make_stack(Case(config.spectra[0], "random", "1", config.score_variance), mu, 1, config.seed)
    attention = SoftmaxAttention(stack.U[0], stack.V[0])
    exact = query_average(attention, mu, mu, list(config.control_lengths), points=4096, seed=config.seed)
    limit = deep_limit(stack, mu)
    first_order = float(deep_noise(limit, config.degree).token[1])
    queries = sobol_points(mu, 4096, config.seed)
    leading = float(finite_prompt(attention, mu, queries, 1, expansion=True).covariance.diagonal(dim1=-2, dim2=-1).sum(-1).mean())
    found, own = [], []
    for length in config.control_lengths:
        passive, among = [], []
        for tokens in prompts(mu, length + config.probes, config.control_replicas, generator):
            *_, last = stack.states(tokens, passive=config.probes)
            square = (last - limit.tokens(tokens)[1]).square().sum(-1)
            passive.append(square[:, length:].mean(-1))
            among.append(square[:, :length].mean(-1))
        found.append(torch.cat(passive).numpy())
        own.append(torch.cat(among).numpy())
    root = math.sqrt(config.control_replicas)
    still = ResidualStack(stack.U, torch.zeros_like(stack.V))
    tokens = mu.sample(64, generator)
    return xr.Dataset(
        {
            "one_layer_exact": ("control_length", exact.mse.numpy(), {"long_name": "exact law, averaged over the query"}),
            "one_layer_exact_error": ("control_length", exact.standard_error.numpy()),
            "one_layer": ("control_length", [each.mean() for each in found], {"long_name": "queries that nobody reads"}),
            "one_layer_standard_error": ("control_length", [each.std(ddof=1) / root for each in found]),
            "one_layer_self": ("control_length", [each.mean() for each in own], {"long_name": "tokens that read themselves"}),
            "one_layer_self_error": ("control_length", [each.std(ddof=1) / root for each in own]),
            "one_layer_band": first_order,
            "one_layer_leading": leading,
            "identity_error": float((list(still.states(tokens))[-1] - tokens).abs().max()),
        },
        coords={"control_length": list(config.control_lengths)},
    )


def combine(config: DepthConfig, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Stacks stacked by case, normalised ones beside them, and the control."""
    groups = []
    for word, dimension in (("stack", "case"), ("normalised", "normalised")):
        chosen = [part for cell, part in parts.items() if cell.startswith(word + " ")]
        groups.append(xr.concat(chosen, dimension, combine_attrs="drop", join="outer"))
    merged: xr.Dataset = xr.merge([*groups, parts["one layer"]], combine_attrs="drop", compat="no_conflicts", join="outer")
    return merged.assign(threshold=THRESHOLD, fitted_from=config.fitted_from)


STUDY = Study(
    "depth",
    "Depth: residual self-attention, layer by layer",
    "Does the infinite-prompt picture survive depth, with which error at length L, and where does it break?",
    "An infinite Gaussian prompt stays Gaussian through residual self-attention, so that a recursion on mean and covariance gives "
    "an affine token map through all layers. The noise of L tokens, correlated between layers and fed back by the tokens it moves, "
    "is propagated to first order and set against drawn prompts, for several spectra, weights and scalings. "
    "With normalisation the closure is approximate, and its error at infinite length is predicted by quasi-random tokens.",
    DepthConfig,
    DepthConfig(
        layers=8,
        spectra=("isotropic",),
        other_score_variances=(),
        lengths=(32, 128, 512),
        longest=1024,
        scores=1_000_000,
        replicas=(12, 100),
        degree=3,
        normalised_dims=(4, 16),
        normalised_scales=("1",),
        normalised_lengths=(64, 256, 512),
        reference=256,
        control_lengths=(4, 64),
        control_replicas=300,
    ),
    cells,
    compute,
    combine,
    verdicts,
)
