"""The closure of residual self-attention, exact or with a normalisation approximate, against drawn
prompts, layer by layer.
"""

import math

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from largeprompt.attention import SoftmaxAttention
from largeprompt.depth import DeepLimit, ResidualStack, breaking_layer, deep_limit, deep_noise
from largeprompt.depth.stack import rms_norm
from largeprompt.law import finite_prompt, regime
from largeprompt.measures import sobol_points
from largeprompt.planning import query_average
from largeprompt.runs.study import Progress
from largeprompt.studies.depth.config import (
    THRESHOLD,
    Case,
    DepthConfig,
    Kind,
    Scale,
    long_cases,
    normalised_stacks,
    stacks,
)
from largeprompt.studies.depth.prompts import (
    QUANTITIES,
    entry_law,
    excess_kurtosis,
    from_first,
    make_stack,
    measure,
    prompts,
)

Array = NDArray[np.float64]


def sizes(limit: DeepLimit) -> Array:
    """What squared errors are relative to: E‖z‖² (token and mean), E‖step‖², ‖Γ‖², shape (quantity,
    layer).
    """
    square = limit.covariance.diagonal(dim1=-2, dim2=-1).sum(-1) + limit.mean.square().sum(-1)
    V, U, read = limit.stack.V[: limit.layers], limit.stack.U[: limit.layers], limit.read_covariance
    gain = V @ read @ U
    drift = (gain @ limit.read_mean.unsqueeze(-1) + V @ limit.read_mean.unsqueeze(-1)).squeeze(-1)
    steps = (gain @ read @ gain.mT).diagonal(dim1=-2, dim2=-1).sum(-1) + drift.square().sum(-1)
    return torch.stack(
        [square, from_first(steps), square, limit.covariance.square().sum((-2, -1))]
    ).numpy()


def slopes(lengths: Array, values: Array, errors: Array) -> Array:
    """Log-log slope over the first axis with its 95 % interval by the delta method,
    shape (3, ...).
    """
    x = np.log(lengths) - np.log(lengths).mean()
    weights = (x / (x**2).sum()).reshape(-1, *(1,) * (values.ndim - 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = (weights * np.log(np.where(values > 0, values, np.nan))).sum(0)
        spread = 1.96 * np.sqrt(((weights * errors / values) ** 2).sum(0))
    return np.stack([slope, slope - spread, slope + spread])


def stack_errors(config: DepthConfig, case: Case, progress: Progress) -> xr.Dataset:
    """The prediction, then prompts of every length."""
    generator = torch.Generator().manual_seed(1000 * config.seed + stacks(config).index(case))
    mu = entry_law(case.spectrum, config.dim, config.mean)
    stack = make_stack(case, mu, config.layers, config.seed)
    progress(f"{case}: recursion and band")
    limit = deep_limit(stack, mu)
    noise = deep_noise(limit, config.degree)
    lengths = [*config.lengths, *([config.longest] if case in long_cases(config) else [])]

    def padded(values: Array) -> Array:  # NaN for layers that the prediction does not reach
        return np.pad(
            values,
            [(0, 0)] * (values.ndim - 1) + [(0, config.layers + 1 - values.shape[-1])],
            constant_values=np.nan,
        )

    relative = padded(sizes(limit))  # (quantity, layer)
    # times L
    expected = torch.stack(
        [noise.token, from_first(noise.update), noise.mean, noise.covariance]
    ).numpy()
    band = padded(expected) / relative
    edge = [breaking_layer(limit, length) or config.layers + 1 for length in lengths]
    frozen = [breaking_layer(limit, length, "frozen") or config.layers + 1 for length in lengths]
    crossed = [_first(np.sqrt(band[1] / length) > THRESHOLD, config.layers) for length in lengths]
    rows: list[dict[str, Array]] = []
    for length in lengths:
        progress(f"{case}: L = {length}")
        budget = min(max(config.scores // length**2, config.replicas[0]), config.replicas[1])
        count = max(2, config.replicas[0] // 4) if length == config.longest else budget
        drawn = measure(stack, limit, noise, mu, length, count, generator)
        outside = [
            regime(variance, length) != "linear" for variance in limit.score_variance.tolist()
        ]
        # the variates are used where theory, not the data, says so
        linear = np.append(True, ~np.maximum.accumulate(outside))
        linear = np.pad(linear, (0, config.layers + 1 - len(linear)))
        each, root = (
            (drawn.error - drawn.variate * linear[:, None]) / relative[..., None],
            math.sqrt(count),
        )
        rows.append(
            {
                "raw": drawn.error.mean(-1) / relative,
                "error": each.mean(-1),
                "standard_error": each.std(-1, ddof=1) / root,
                "residual": drawn.residual.mean(-1) / relative[0],
                "frozen": drawn.frozen.mean(-1) / relative[0],
                "kurtosis": drawn.kurtosis.mean(-1),
                "kurtosis_error": drawn.kurtosis.std(-1, ddof=1) / root,
                "typical": np.sqrt(np.median(drawn.error[1], axis=-1) / relative[1]),
            }
        )
    data = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    # NaN: the closure itself is at infinity
    broken = [_first(~(row <= THRESHOLD), config.layers) for row in data["typical"]]
    window = np.asarray(config.lengths)
    chosen = np.flatnonzero(window >= config.fitted_from)
    fit = slopes(
        window[chosen].astype(float), data["error"][chosen], data["standard_error"][chosen]
    )
    by_layer = {
        "without_feedback": padded(noise.without_feedback.numpy()) / relative[0],
        "independent": padded(noise.independent.numpy()) / relative[0],
        "tail": padded((noise.tail / noise.token.clamp_min(1e-300)).numpy()),
        "score_variance": padded(limit.score_variance.numpy()),
        "h_squared": padded(limit.h_squared.numpy()),
    }
    by_length = {
        "predicted_edge": edge,
        "predicted_frozen": frozen,
        "predicted_crossing": crossed,
        "measured_breaking": broken,
    }
    line, full = ("case", "layer"), ("case", "length", "quantity", "layer")
    return xr.Dataset(
        {
            "band": (("case", "quantity", "layer"), band[None]),
            "slope": (("interval", "case", "quantity", "layer"), fit[:, None]),
            **{name: (line, values[None]) for name, values in by_layer.items()},
            **{name: (("case", "length"), [values]) for name, values in by_length.items()},
            **{
                name: (full if values.ndim == 3 else ("case", "length", "layer"), values[None])
                for name, values in data.items()
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


def normalised_errors(
    config: DepthConfig, kind: Kind, scale: Scale, dim: int, progress: Progress
) -> xr.Dataset:
    """Closure with a normalisation, the level at which its error should stop (by Sobol points as
    tokens), then prompts.
    """
    name = f"{kind}, V ~ {scale}, d = {dim}"
    stream = len(stacks(config)) + normalised_stacks(config).index((kind, scale, dim))
    generator = torch.Generator().manual_seed(1000 * config.seed + stream)
    mu = entry_law("isotropic", dim, config.mean)
    case = Case("isotropic", "random", scale, config.normalised_score_variance)
    stack = make_stack(case, mu, config.layers, config.seed, kind)
    limit = deep_limit(stack, mu)
    plain = deep_limit(make_stack(case, mu, config.layers, config.seed), mu)
    relative = sizes(limit)[0]
    progress(f"{name}: {config.scrambles} times {config.reference} Sobol points")
    draws, bends = [], []
    for scramble in range(config.scrambles):
        far, bent = _reference(
            stack, limit, sobol_points(mu, config.reference, config.seed + 2 * scramble)
        )
        near, _ = _reference(
            stack, limit, sobol_points(mu, config.reference // 2, config.seed + 2 * scramble + 1)
        )
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
    # of the intercept in 1/L
    weights = 1 / len(x) - (x - x.mean()) * x.mean() / ((x - x.mean()) ** 2).sum()
    edge = breaking_layer(plain, config.normalised_lengths[-1])
    line = ("normalised", "layer")
    return xr.Dataset(
        {
            "level": (line, level[None]),
            "level_error": (line, level_error[None]),
            "measured_level": (line, (weights @ error)[None]),
            "measured_level_error": (line, np.sqrt(weights**2 @ spread**2)[None]),
            "normalised_error": (("normalised", "normalised_length", "layer"), error[None]),
            "normalised_standard_error": (
                ("normalised", "normalised_length", "layer"),
                spread[None],
            ),
            "normalised_kurtosis": (line, bent[None]),
            "normalised_score_variance": (
                line,
                np.append(limit.score_variance.numpy(), np.nan)[None],
            ),
            "plain_edge": ("normalised", [edge or config.layers + 1]),
        },
        coords={
            "normalised": [name],
            "normalised_length": list(config.normalised_lengths),
            "layer": np.arange(config.layers + 1),
            "kind": ("normalised", [kind]),
            "scale": ("normalised", [scale]),
            "dim": ("normalised", [dim]),
        },
    )


def _reference(stack: ResidualStack, limit: DeepLimit, points: Tensor) -> tuple[Array, Array]:
    """Mean squared distance between closure and layers that read these points, and the kurtosis of
    what is read; by layer.
    """
    expected, off, bent = limit.tokens(points), [], []
    for k, z in enumerate(stack.states(points)):
        off.append(float((z - expected[k]).square().sum(-1).mean()))
        read = rms_norm(z) if stack.normalisation == "pre" else z
        bent.append(float(excess_kurtosis(read)))
    return np.asarray(off), np.asarray(bent)


def one_layer(config: DepthConfig, progress: Progress) -> xr.Dataset:
    """One layer against the exact law of `convergence`, averaged over the query; and layers with
    V = 0.
    """
    stream = len(stacks(config)) + len(normalised_stacks(config))
    generator = torch.Generator().manual_seed(1000 * config.seed + stream)
    mu = entry_law(config.spectra[0], config.dim, config.mean)
    stack = make_stack(
        Case(config.spectra[0], "random", "1", config.score_variance), mu, 1, config.seed
    )
    attention = SoftmaxAttention(stack.U[0], stack.V[0])
    exact = query_average(attention, mu, mu, list(config.control_lengths))
    limit = deep_limit(stack, mu)
    first_order = float(deep_noise(limit, config.degree).token[1])
    queries = sobol_points(mu, 4096, config.seed)
    leading = float(
        finite_prompt(attention, mu, queries, 1, expansion=True)
        .covariance.diagonal(dim1=-2, dim2=-1)
        .sum(-1)
        .mean()
    )
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
            "one_layer_exact": ("control_length", exact.mse.numpy()),
            "one_layer": ("control_length", [each.mean() for each in found]),
            "one_layer_standard_error": (
                "control_length",
                [each.std(ddof=1) / root for each in found],
            ),
            "one_layer_self": ("control_length", [each.mean() for each in own]),
            "one_layer_self_error": ("control_length", [each.std(ddof=1) / root for each in own]),
            "one_layer_band": first_order,
            "one_layer_leading": leading,
            "identity_error": float((list(still.states(tokens))[-1] - tokens).abs().max()),
        },
        coords={"control_length": list(config.control_lengths)},
    )
