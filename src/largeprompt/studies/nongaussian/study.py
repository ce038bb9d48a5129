"""N1, C5: what is left of the theory when tokens are not Gaussian, or not independent, and does training still follow its limit?"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from largeprompt.attention import SoftmaxAttention, affine_limit
from largeprompt.law import finite_prompt
from largeprompt.law.atomic import atomic_errors, scalar_error_moments
from largeprompt.law.dependent import effective_length
from largeprompt.measures import Discrete, Empirical, Gaussian, GaussianMixture, Measure
from largeprompt.measures.numerics.ladder import cumulant_ladder, ladder_radius
from largeprompt.measures.numerics.rules import gauss_rule
from largeprompt.runs.study import Progress, Study, merged
from largeprompt.sampling import sample_prompts
from largeprompt.studies.nongaussian import training as nongaussian_training
from largeprompt.studies.nongaussian.families import FAMILIES, F, standard_gaussian
from largeprompt.studies.nongaussian.rules import verdicts

Array = NDArray[np.float64]
CONTROL = "Gaussian"
LONGEST = 1e14  # crossing lengths are looked for up to here
NEAREST = 1e-6  # to the power of the gap: how near to the Gaussian its scaling is looked at
RADIUS = 3.5  # zeros of the moment generating function are looked for up to here


@dataclasses.dataclass(frozen=True)
class NonGaussianConfig:
    """Scalar tokens of unit variance, U = V = 1, so that the tilt is the query; AR(1) tokens in R²; regression in R²."""

    terms: tuple[float, ...] = (1, 2, 4, 8, 16, 32, 64)
    shapes: tuple[float, ...] = (1.2, 1.5, 1.8, 2.2, 3.0, 4.0, 8.0)
    separations: tuple[float, ...] = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.95)
    skews: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.9)
    tilts: tuple[float, ...] = (0.5, 1.0, 2.0)
    lengths: tuple[int, ...] = (10, 30, 100, 300, 1000, 3000, 10_000)
    replicas: int = 1000
    scaling_points: int = 13
    correlations: tuple[float, ...] = (0.0, 0.5, 0.9, -0.5)
    repeats: tuple[int, ...] = (1, 2, 10)
    score_variances: tuple[float, ...] = (0.25, 1.0, 2.0)
    dependent_lengths: tuple[int, ...] = (100, 300, 1000, 3000, 10_000)
    dependent_replicas: int = 1000
    inputs: tuple[str, ...] = ("Rademacher", "uniform", "mixture", "Gaussian")
    starts: tuple[str, ...] = ("small tilt", "moderate tilt")
    flow_lengths: tuple[int, ...] = (10, 30, 100, 300, 1000, 10_000)
    drawn_lengths: tuple[int, ...] = (10, 30, 100, 300, 1000)
    noise_variance: float = 0.1
    until: float = 6.0
    steps: int = 30
    nodes: int = 10
    drawn_tokens: int = 25_000
    sets: int = 24
    seed: int = 0


def members(config: NonGaussianConfig) -> dict[str, tuple[float, ...]]:
    """Parameters of each family."""
    return dict(zip(FAMILIES, (config.terms, config.shapes, config.separations, config.skews), strict=True)) | {CONTROL: (0.0,)}


def cells(config: NonGaussianConfig) -> list[str]:
    """One for each law of regression inputs, for each family and the Gaussian, and one for dependent tokens."""
    training = [f"training {name}" for name in config.inputs]
    return [*training, *(f"family {name}" for name in members(config)), "dependent tokens"]


def compute(config: NonGaussianConfig, cell: str, progress: Progress) -> xr.Dataset:
    """Predictions first, then draws."""
    what, _, name = cell.partition(" ")
    index = cells(config).index(cell)
    if what == "family":
        return _family(config, name, index, progress)
    if what == "training":
        return nongaussian_training.compute(config, name, index, progress)
    return _dependent(config, index, progress)


def _attention(dim: int) -> SoftmaxAttention:
    eye = torch.eye(dim, dtype=F)
    return SoftmaxAttention(eye, eye)


def _family(config: NonGaussianConfig, name: str, index: int, progress: Progress) -> xr.Dataset:
    parts = []
    for i, parameter in enumerate(members(config)[name]):
        mu = standard_gaussian() if name == CONTROL else FAMILIES[name].make(parameter)
        progress(f"{name} {parameter:g}: predictions")
        predicted = _predicted(config, mu, gauss_rule(mu))
        progress(f"{name} {parameter:g}: drawing prompts")
        drawn = _drawn(config, mu, predicted, torch.Generator().manual_seed((1000 * config.seed + index) * 100 + i))
        parts.append(predicted.merge(drawn).assign(law_parameter=float(parameter)).expand_dims(family=[name], member=[i]))
    data = xr.concat(parts, "member", combine_attrs="drop", join="outer")
    return data.merge(_scaling(config, name))


def _predicted(config: NonGaussianConfig, mu: Measure, rule: Discrete) -> xr.Dataset:
    """Limit, affine read-out, gap, ladder, exact and first-order errors, and the length at which the gap passes the noise."""
    attention, z = _attention(1), torch.tensor(config.tilts, dtype=F).unsqueeze(-1)
    limit = attention(mu, z).squeeze(-1).numpy()
    matrix, offset = affine_limit(attention, mu)
    affine = (z @ matrix.mT + offset).squeeze(-1).numpy()
    rungs = (cumulant_ladder(mu, z) / z).numpy()
    if isinstance(mu, Gaussian | GaussianMixture):
        law = finite_prompt(attention, mu, z, config.lengths)
        mse, bias = law.mse.numpy(), law.bias.squeeze(-1).numpy()
    else:
        exact = atomic_errors(rule, z, config.lengths)
        mse, bias = exact[1].numpy(), exact[0].squeeze(-1).numpy()
    first = finite_prompt(attention, mu, z, config.lengths, expansion=True).mse.numpy()
    gap = limit - affine
    d1, d2, d3, d4 = np.moveaxis(scalar_error_moments(rule, z, config.lengths).numpy(), -1, 0)
    fourth = d4 + 4 * gap * d3 + 6 * gap**2 * d2 + 4 * gap**3 * d1 + gap**4  # E (T_L - affine)⁴
    grid = ("length", "tilt")
    return xr.Dataset(
        {
            "limit": ("tilt", limit, {"long_name": "T, the tilt limit"}),
            "affine": ("tilt", affine, {"long_name": "affine read-out"}),
            "gap": ("tilt", gap, {"long_name": "T - affine read-out, predicted"}),
            "third": ("tilt", rungs[:, 2], {"long_name": "rung of the third cumulant"}),
            "fourth": ("tilt", rungs[:, 3], {"long_name": "rung of the fourth cumulant"}),
            "radius": ladder_radius(rule, largest=RADIUS),
            "spread": ("tilt", _spread(mu, z), {"long_name": "ρ, tokens behind one effective token"}),
            "mse": (grid, mse, {"long_name": "E|T_L - T|², exact"}),
            "first_order": (grid, first, {"long_name": "E|T_L - T|², first order in 1/L"}),
            "affine_mse": (grid, mse + 2 * gap * bias + gap**2, {"long_name": "E|T_L - affine|², exact"}),
            "variance": (grid, d4 - d2**2, {"long_name": "variance of |T_L - T|², exact"}),
            "affine_variance": (grid, fourth - (d2 + 2 * gap * d1 + gap**2) ** 2),
            "crossing": ("tilt", [_crossing(rule, u, g) for u, g in zip(z, gap, strict=True)]),
            "crossing_first_order": ("tilt", config.lengths[-1] * first[-1] / np.maximum(gap**2, 1e-300)),
        },
        coords={"tilt": list(config.tilts), "length": list(config.lengths)},
    )


def _spread(mu: Measure, u: torch.Tensor) -> Array:
    rho: Array = torch.exp(mu.cgf(2 * u) - 2 * mu.cgf(u)).numpy()
    return rho


def _crossing(rule: Discrete, u: torch.Tensor, gap: float) -> float:
    """Length at which E|T_L - T|² is the squared gap: below it the affine read-out is as good as the truth, up to about √2."""
    from scipy.optimize import brentq

    def excess(log_length: float) -> float:
        return math.log(float(atomic_errors(rule, u, [math.exp(log_length)])[1][0])) - math.log(gap**2)

    if gap == 0 or excess(math.log(LONGEST)) > 0:
        return math.inf
    return 1.0 if excess(0.0) < 0 else math.exp(brentq(excess, 0.0, math.log(LONGEST), xtol=1e-4))


def _drawn(config: NonGaussianConfig, mu: Measure, predicted: xr.Dataset, generator: torch.Generator) -> xr.Dataset:
    """Distances of attention over drawn prompts to the limit of their law and to the affine read-out; all tilts share a stream."""
    z = torch.tensor(config.tilts, dtype=F).unsqueeze(-1)
    outputs = sample_prompts(_attention(1), mu, z, config.lengths, config.replicas, generator).outputs.squeeze(-1).numpy()
    found: dict[str, Any] = {}
    for name, target in (("", predicted.limit.values), ("affine_", predicted.affine.values)):
        squared = (outputs - target) ** 2  # (length, replica, tilt)
        found[f"drawn_{name}mse"] = (("length", "tilt"), squared.mean(1))
        found[f"drawn_{name}error"] = (("length", "tilt"), squared.std(1, ddof=1) / math.sqrt(config.replicas))
    return xr.Dataset(found, coords={"length": list(config.lengths), "tilt": list(config.tilts)})


def _scaling(config: NonGaussianConfig, name: str) -> xr.Dataset:
    """Exact gap on the way to the Gaussian, and the predicted one, at the middle tilt; nothing for the Gaussian itself."""
    grid, steps = ("family", "step"), np.arange(config.scaling_points)
    if name == CONTROL:
        empty = np.full((1, len(steps)), np.nan)
        return xr.Dataset(
            dict.fromkeys(("distance", "scaling_gap", "scaling_predicted"), (grid, empty)) | {"power": ("family", [np.nan])},
            coords={"family": [name], "step": steps},
        )
    family, u = FAMILIES[name], config.tilts[len(config.tilts) // 2]
    attention, slope = _attention(1), family.slope(u)
    distances = np.geomspace(NEAREST ** (1 / family.power), 0.5, config.scaling_points)
    exact = []
    for i, x in enumerate(distances):
        parameter = family.at(float(x))
        if name == "Rademacher sum":  # a whole number of terms
            distances[i] = 1 / parameter
        exact.append(float(attention(family.make(parameter), torch.tensor([u], dtype=F))) - u)
    predicted = slope * distances**family.power
    return xr.Dataset(
        {
            "distance": (grid, [distances], {"long_name": "distance of the parameter from the Gaussian"}),
            "scaling_gap": (grid, [exact]),
            "scaling_predicted": (grid, [predicted]),
            "power": ("family", [family.power]),
        },
        coords={"family": [name], "step": steps},
    )


def _dependent(config: NonGaussianConfig, index: int, progress: Progress) -> xr.Dataset:
    """AR(1) and block-repeated Gaussian tokens in R²: first order, the exact law at the effective length, and draws."""
    attention, mu = _attention(2), Gaussian(torch.zeros(2, dtype=F), torch.eye(2, dtype=F))
    z = torch.tensor([[math.sqrt(q), 0.0] for q in config.score_variances], dtype=F)
    lengths, longest = np.asarray(config.dependent_lengths), config.dependent_lengths[-1]
    iid = finite_prompt(attention, mu, z, config.dependent_lengths, expansion=True).mse.numpy()
    kinds = [("AR(1)", phi) for phi in config.correlations] + [("repeated", float(r)) for r in config.repeats]
    columns: dict[str, list[Array]] = {name: [] for name in ("effective", "predicted", "first_order", "drawn", "error")}
    for kind, strength in kinds:
        progress(f"dependent tokens: {kind} {strength:g}")
        if kind == "AR(1)":
            effective = effective_length(attention, mu, z, config.dependent_lengths, strength).numpy()
        else:
            effective = np.repeat(lengths[:, None] / strength, len(z), 1)
        columns["effective"].append(effective)
        columns["first_order"].append(iid * lengths[:, None] / effective)
        columns["predicted"].append(_at_length(attention, mu, z, effective))
    for i, (kind, strength) in enumerate(kinds):
        progress(f"dependent tokens: drawing {kind} {strength:g}")
        random = np.random.default_rng([config.seed, index, i])
        total, square = np.zeros((len(lengths), len(z))), np.zeros((len(lengths), len(z)))
        block = max(1, 500_000 // longest)
        for start in range(0, config.dependent_replicas, block):
            count = min(block, config.dependent_replicas - start)
            tokens = torch.from_numpy(_tokens(kind, strength, count, longest, random)).unsqueeze(1)
            for j, length in enumerate(lengths):
                output = attention(Empirical(tokens[:, :, :length]), z)  # (replica, query, d)
                error = (output - z).square().sum(-1).numpy()
                total[j] += error.sum(0)
                square[j] += (error**2).sum(0)
        mean, n = total / config.dependent_replicas, config.dependent_replicas
        columns["drawn"].append(mean)
        columns["error"].append(np.sqrt(np.maximum(square / n - mean**2, 0.0) / (n - 1)))
    grid = ("dependence", "dependent_length", "score_variance")
    return xr.Dataset(
        {f"dependent_{name}": (grid, np.stack(values)) for name, values in columns.items()},
        coords={
            "dependence": [f"{kind} {strength:g}" for kind, strength in kinds],
            "dependent_length": lengths,
            "score_variance": list(config.score_variances),
        },
    )


def _at_length(attention: SoftmaxAttention, mu: Gaussian, z: torch.Tensor, effective: Array) -> Array:
    """Exact error of independent tokens at lengths that need not be whole, interpolated in logarithms; shape of ``effective``."""
    result = np.empty_like(effective)
    for (i, j), length in np.ndenumerate(effective):
        low = max(1, math.floor(length))
        one, two = finite_prompt(attention, mu, z[j], (low, low + 1)).mse.log().numpy()
        share = math.log(max(length, 1.0) / low) / math.log((low + 1) / low)
        result[i, j] = math.exp((1 - share) * one + share * two)
    return result


def _tokens(kind: str, strength: float, count: int, length: int, random: np.random.Generator) -> Array:
    """Stationary AR(1) tokens with correlation ``strength``, or independent ones each repeated that many times; (count, L, 2)."""
    from scipy.signal import lfilter

    if kind == "repeated":
        return np.repeat(random.standard_normal((count, math.ceil(length / strength), 2)), round(strength), axis=1)[:, :length]
    noise = random.standard_normal((count, length, 2))
    noise[:, 1:] *= math.sqrt(1 - strength**2)
    tokens: Array = lfilter([1.0], [1.0, -strength], noise, axis=1)
    return tokens


def combine(config: NonGaussianConfig, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Families and inputs stacked, dependent tokens beside them."""
    families, inputs = ([part for cell, part in parts.items() if cell.startswith(kind)] for kind in ("family", "training"))
    found = {"family": xr.concat(families, "family", combine_attrs="drop", join="outer")}
    found["training"] = xr.concat(inputs, "inputs", combine_attrs="drop", join="outer")
    data = merged(config, found | {"dependent": parts["dependent tokens"]})
    named = [name for name in data.coords if data[name].dtype.kind == "O"]  # names that were joined
    return data.assign_coords({name: data[name].astype(str) for name in named})


STUDY = Study(
    "nongaussian",
    "Tokens that are not Gaussian, or not independent",
    "What do prompts of other tokens tend to, how far is that from the Gaussian theory, from which length on does it show, "
    "and does "
    "training still follow its limit?",
    "Four families of scalar laws leave the Gaussian by one parameter each. The exact law gives the distance to the tilt "
    "limit and to "
    "the affine read-out at every length, cumulants explain the gap, and prompts are drawn over both. Autocorrelated and repeated "
    "tokens are compared with the exact law at a predicted effective length. In-context regression with inputs that are not "
    "Gaussian is trained on the exact risk of every length, on drawn prompts and on the infinite prompt's tilt.",
    NonGaussianConfig,
    NonGaussianConfig(
        terms=(1, 8),
        shapes=(1.5, 8.0),
        separations=(0.5, 0.8),
        skews=(0.1, 0.9),
        lengths=(10, 100, 1000),
        replicas=400,
        scaling_points=5,
        correlations=(0.0, 0.5, 0.9),
        repeats=(1, 2),
        dependent_lengths=(100, 1000),
        dependent_replicas=400,
        inputs=("Rademacher", "uniform", "Gaussian"),
        flow_lengths=(10, 100, 10_000),
        drawn_lengths=(10, 100),
        nodes=6,
        steps=12,
        until=3.0,
        drawn_tokens=1000,
        sets=8,
    ),
    cells,
    compute,
    combine,
    verdicts,
)
