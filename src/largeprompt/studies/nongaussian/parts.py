"""One-parameter families of scalar laws of unit variance that leave the Gaussian, and Gaussian
tokens that depend on each other.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from largeprompt.attention import SoftmaxAttention, affine_limit
from largeprompt.law import finite_prompt
from largeprompt.law.nodes import score_range
from largeprompt.law.quadrature import Product, log_survival, partition_integrals
from largeprompt.measures import (
    Discrete,
    Empirical,
    Gaussian,
    GaussianMixture,
    GeneralizedNormal,
    Measure,
    RademacherSum,
    SkewNormal,
)
from largeprompt.measures.numerics.ladder import cumulant_ladder
from largeprompt.measures.numerics.rules import gauss_rule
from largeprompt.measures.score_nodes import SCORE_STEP
from largeprompt.planning.dependent import effective_length
from largeprompt.runs.study import Progress
from largeprompt.sampling import sample_prompts
from largeprompt.studies.nongaussian.config import CONTROL, NonGaussianConfig
from largeprompt.studies.nongaussian.radius import ladder_radius

Array = NDArray[np.float64]
F = torch.float64
# crossing lengths are looked for up to here, in so many steps at a time
LONGEST, SECTIONS = 10**14, 400
NEAREST = 1e-6  # to the power of the gap: how near to the Gaussian its scaling is looked at
RADIUS = 3.5  # zeros of the moment generating function are looked for up to here
ATTENTION = SoftmaxAttention(torch.eye(1, dtype=F), torch.eye(1, dtype=F))


def two_components(m: float) -> GaussianMixture:
    """½N(-m, 1-m²) + ½N(m, 1-m²), 0 <= m <= 1."""
    shares, means = torch.tensor([0.5, 0.5], dtype=F), torch.tensor([[-m], [m]], dtype=F)
    return GaussianMixture(shares, means, torch.full((2, 1, 1), 1 - m * m, dtype=F))


@dataclasses.dataclass(frozen=True)
class Family:
    """Laws make(p), Gaussian in a limit of p; near it T - affine is slope(u) x^power, x the
    distance of p from that limit.
    """

    make: Callable[[float], Measure]
    power: float
    slope: Callable[[float], float]
    at: Callable[[float], float]  # the parameter at distance x


def generalized_normal_slope(u: float) -> float:
    """d/dβ of T - u at the Gaussian, β = 2, at fixed variance: G(u) - G'(0)u with G(u) = -E (ξ+u)
    ln|ξ+u|, ξ standard normal.

    The logarithm of the density changes by -x² ln|x|/2 and a quadratic function of x, which moments
    up to the second undo; all even cumulants change at first order, the fourth by -1: -u³/6 + ...
    """
    from scipy.integrate import quad
    from scipy.stats import norm

    def integrand(x: float) -> float:
        return float(x * math.log(abs(x)) * norm.pdf(x - u)) if x else 0.0

    value = sum(
        quad(integrand, low, high, epsabs=1e-14, epsrel=1e-12)[0]
        for low, high in ((u - 12, 0.0), (0.0, u + 12))
    )
    return -value + u * (1 - (math.log(2) + 0.5772156649015329) / 2)  # E ln|ξ| = -(γ + ln 2)/2


FAMILIES: dict[str, Family] = {
    # κ4 = -2/k, the next cumulant of order 1/k²; distance 1/k
    "Rademacher sum": Family(
        lambda k: RademacherSum(1, round(k)),
        1.0,
        lambda u: -(u**3) / 3,
        lambda x: float(round(1 / x)),
    ),
    # distance β - 2
    "generalised normal": Family(
        lambda shape: GeneralizedNormal(1, shape), 1.0, generalized_normal_slope, lambda x: 2 + x
    ),
    # κ4 = -2m⁴; distance m
    "mixture": Family(two_components, 4.0, lambda u: -(u**3) / 3, lambda x: x),
    # κ3 is the parameter, κ4 of order κ3^(4/3)
    "skew": Family(lambda skew: SkewNormal(1, skew), 1.0, lambda u: u**2 / 2, lambda x: x),
}


def members(config: NonGaussianConfig) -> dict[str, tuple[float, ...]]:
    """Parameters of each family."""
    return dict(
        zip(FAMILIES, (config.terms, config.shapes, config.separations, config.skews), strict=True)
    ) | {CONTROL: (0.0,)}


def family(config: NonGaussianConfig, name: str, progress: Progress) -> xr.Dataset:
    """One family, member by member: predictions first, then draws; and its gap on the way to the
    Gaussian.
    """
    parts = []
    seed = (1000 * config.seed + 4 + list(members(config)).index(name)) * 100
    for i, parameter in enumerate(members(config)[name]):
        mu = (
            Gaussian(torch.zeros(1, dtype=F), torch.eye(1, dtype=F))
            if name == CONTROL
            else FAMILIES[name].make(parameter)
        )
        progress(f"{name} {parameter:g}: predictions")
        predicted = _predicted(config, mu, gauss_rule(mu))
        progress(f"{name} {parameter:g}: drawing prompts")
        drawn = _drawn(config, mu, predicted, torch.Generator().manual_seed(seed + i))
        parts.append(
            predicted.merge(drawn)
            .assign(law_parameter=float(parameter))
            .expand_dims(family=[name], member=[i])
        )
    data = xr.concat(parts, "member", combine_attrs="drop", join="outer")
    return data.merge(_scaling(config, name))


def _predicted(config: NonGaussianConfig, mu: Measure, rule: Discrete) -> xr.Dataset:
    """Limit, affine read-out, gap, ladder, exact and first-order errors, and the length at which
    the gap passes the noise.
    """
    z = torch.tensor(config.tilts, dtype=F).unsqueeze(-1)
    limit = ATTENTION(mu, z).squeeze(-1).numpy()
    matrix, offset = affine_limit(ATTENTION, mu)
    affine = (z @ matrix.mT + offset).squeeze(-1).numpy()
    rungs = (cumulant_ladder(mu, z) / z).numpy()
    law = finite_prompt(ATTENTION, mu, z, config.lengths)
    mse, bias = law.mse.numpy(), law.bias.squeeze(-1).numpy()
    first = finite_prompt(ATTENTION, mu, z, config.lengths, expansion=True).mse.numpy()
    gap, spread = limit - affine, torch.exp(mu.cgf(2 * z) - 2 * mu.cgf(z)).numpy()
    d1, d2, d3, d4 = _error_moments(rule, z, limit, config.lengths)
    fourth = d4 + 4 * gap * d3 + 6 * gap**2 * d2 + 4 * gap**3 * d1 + gap**4  # E (T_L - affine)⁴
    grid = ("length", "tilt")
    return xr.Dataset(
        {
            "limit": ("tilt", limit),
            "affine": ("tilt", affine),
            "gap": ("tilt", gap),
            "third": ("tilt", rungs[:, 2]),
            "fourth": ("tilt", rungs[:, 3]),
            "radius": ladder_radius(rule, RADIUS),
            "spread": ("tilt", spread),
            "mse": (grid, mse),
            "first_order": (grid, first),
            "affine_mse": (grid, mse + 2 * gap * bias + gap**2),
            "route_difference": (grid, abs(d2 / mse - 1)),
            "variance": (grid, d4 - d2**2),
            "affine_variance": (grid, fourth - (d2 + 2 * gap * d1 + gap**2) ** 2),
            "crossing": ("tilt", [_crossing(rule, u, g) for u, g in zip(z, gap, strict=True)]),
            "crossing_first_order": (
                "tilt",
                config.lengths[-1] * first[-1] / np.maximum(gap**2, 1e-300),
            ),
        },
        coords={"tilt": list(config.tilts), "length": list(config.lengths)},
    )


def _error_moments(rule: Discrete, z: torch.Tensor, limits: Array, lengths: Sequence[int]) -> Array:
    """E (T_L - T)^n, n = 1 to 4, shape (4, length, tilt), of scalar tokens with finitely many
    values.
    """
    products: list[Product] = [((1, 1),) * n for n in range(1, 5)]
    scores = (z @ rule.atoms.mT - rule.cgf(z).unsqueeze(-1)).numpy()  # (tilt, atom)
    tokens = rule.atoms[:, 0].numpy() - limits[:, None]

    def blocks(span: tuple[float, float]) -> tuple[Array, dict[tuple[int, int], Array]]:
        tau = -span[0] + SCORE_STEP * np.arange(math.ceil(sum(span) / SCORE_STEP) + 1)
        grown = np.exp(np.minimum(tau[:, None, None] + scores, 300.0))
        mass = rule.weights.numpy() * np.exp(-grown)
        log_phi = log_survival(-np.expm1(-grown) @ rule.weights.numpy(), mass.sum(-1))
        return log_phi, {
            (n, n): (mass * (np.minimum(grown, 1e4) * tokens) ** n).sum(-1) for n in range(1, 5)
        }

    known = rule.weights.log()
    ranges = [score_range(known, torch.from_numpy(scores), length, length) for length in lengths]
    return np.stack(
        [
            partition_integrals(n, products, blocks, span)
            for n, span in zip(lengths, ranges, strict=True)
        ],
        1,
    )


def _crossing(rule: Discrete, u: torch.Tensor, gap: float) -> float:
    """Length from which on E|T_L - T|² is below the squared gap: before it the affine read-out is
    as good as the truth, up to √2.

    The smallest L itself below 5000, beyond to one part in a thousand.
    """
    low, high = 1, LONGEST
    for _ in range(2):
        lengths = np.unique(np.geomspace(low, high, SECTIONS).round().astype(np.int64)).tolist()
        below = np.flatnonzero(finite_prompt(ATTENTION, rule, u, lengths).mse.numpy() <= gap**2)
        if not len(below):
            return math.inf
        low, high = lengths[max(int(below[0]) - 1, 0)], lengths[int(below[0])]
    return float(high)


def _drawn(
    config: NonGaussianConfig, mu: Measure, predicted: xr.Dataset, generator: torch.Generator
) -> xr.Dataset:
    """Distances of attention over drawn prompts to the limit of their law and to the affine
    read-out; all tilts share a stream.
    """
    z = torch.tensor(config.tilts, dtype=F).unsqueeze(-1)
    outputs = (
        sample_prompts(ATTENTION, mu, z, config.lengths, config.replicas, generator)
        .outputs.squeeze(-1)
        .numpy()
    )
    found: dict[str, Any] = {}
    for name, target in (("", predicted.limit.values), ("affine_", predicted.affine.values)):
        squared = (outputs - target) ** 2  # (length, replica, tilt)
        found[f"drawn_{name}mse"] = (("length", "tilt"), squared.mean(1))
        found[f"drawn_{name}error"] = (
            ("length", "tilt"),
            squared.std(1, ddof=1) / math.sqrt(config.replicas),
        )
    return xr.Dataset(found, coords={"length": list(config.lengths), "tilt": list(config.tilts)})


def _scaling(config: NonGaussianConfig, name: str) -> xr.Dataset:
    """Exact gap on the way to the Gaussian, and the predicted one, at the middle tilt; nothing for
    the Gaussian itself.
    """
    steps, u = np.arange(config.scaling_points), config.tilts[len(config.tilts) // 2]
    distances = exact = predicted = np.full(len(steps), np.nan)
    power = math.nan
    if name != CONTROL:
        family = FAMILIES[name]
        power = family.power
        distances = np.geomspace(NEAREST ** (1 / power), 0.5, len(steps))
        parameters = [family.at(float(x)) for x in distances]
        if name == "Rademacher sum":  # a whole number of terms
            distances = 1 / np.array(parameters)
        exact = np.array(
            [
                float(ATTENTION(family.make(each), torch.tensor([u], dtype=F))) - u
                for each in parameters
            ]
        )
        predicted = family.slope(u) * distances**power
    grid = ("family", "step")
    return xr.Dataset(
        {
            "distance": (grid, [distances]),
            "scaling_gap": (grid, [exact]),
            "scaling_predicted": (grid, [predicted]),
            "power": ("family", [power]),
        },
        coords={"family": [name], "step": steps},
    )


def dependent(config: NonGaussianConfig, progress: Progress) -> xr.Dataset:
    """AR(1) and block-repeated Gaussian tokens in R²: first order, the exact law at the effective
    length, and draws.
    """
    eye = torch.eye(2, dtype=F)
    attention, mu = SoftmaxAttention(eye, eye), Gaussian(0 * eye[0], eye)
    z = torch.tensor([[math.sqrt(q), 0.0] for q in config.score_variances], dtype=F)
    lengths, longest = np.asarray(config.dependent_lengths), config.dependent_lengths[-1]
    iid = finite_prompt(attention, mu, z, config.dependent_lengths, expansion=True).mse.numpy()
    kinds = [("AR(1)", phi) for phi in config.correlations] + [
        ("repeated", float(r)) for r in config.repeats
    ]
    names = ("effective", "predicted", "first_order", "drawn", "error")
    rows, n, block = [], config.dependent_replicas, max(1, 500_000 // longest)
    for i, (kind, strength) in enumerate(kinds):
        progress(f"dependent tokens: {kind} {strength:g}")
        if kind == "AR(1)":
            effective = effective_length(
                attention, mu, z, config.dependent_lengths, strength
            ).numpy()
        else:
            effective = np.repeat(lengths[:, None] / strength, len(z), 1)
        predicted = _at_length(attention, mu, z, effective)
        progress(f"dependent tokens: drawing {kind} {strength:g}")
        random = np.random.default_rng([config.seed, 4 + len(members(config)), i])
        total, square = np.zeros((2, len(lengths), len(z)))
        for start in range(0, n, block):
            tokens = torch.from_numpy(
                _tokens(kind, strength, min(block, n - start), longest, random)
            ).unsqueeze(1)
            for j, length in enumerate(lengths):
                output = attention(Empirical(tokens[:, :, :length]), z)  # (replica, query, d)
                error = (output - z).square().sum(-1).numpy()
                total[j] += error.sum(0)
                square[j] += (error**2).sum(0)
        mean = total / n
        spread = np.sqrt(np.maximum(square / n - mean**2, 0.0) / (n - 1))
        rows.append((effective, predicted, iid * lengths[:, None] / effective, mean, spread))
    grid = ("dependence", "dependent_length", "score_variance")
    return xr.Dataset(
        {
            f"dependent_{name}": (grid, np.stack(values))
            for name, values in zip(names, zip(*rows, strict=True), strict=True)
        },
        coords={
            "dependence": [f"{kind} {strength:g}" for kind, strength in kinds],
            "dependent_length": lengths,
            "score_variance": list(config.score_variances),
        },
    )


def _at_length(
    attention: SoftmaxAttention, mu: Gaussian, z: torch.Tensor, effective: Array
) -> Array:
    """Exact error of independent tokens at lengths that need not be whole, interpolated in
    logarithms; shape of ``effective``.
    """
    result = np.empty_like(effective)
    for (i, j), length in np.ndenumerate(effective):
        low = max(1, math.floor(length))
        one, two = finite_prompt(attention, mu, z[j], (low, low + 1)).mse.log().numpy()
        share = math.log(max(length, 1.0) / low) / math.log((low + 1) / low)
        result[i, j] = math.exp((1 - share) * one + share * two)
    return result


def _tokens(
    kind: str, strength: float, count: int, length: int, random: np.random.Generator
) -> Array:
    """Stationary AR(1) tokens with correlation ``strength``, or independent ones each repeated that
    many times; (count, L, 2).
    """
    from scipy.signal import lfilter

    if kind == "repeated":
        return np.repeat(
            random.standard_normal((count, math.ceil(length / strength), 2)),
            round(strength),
            axis=1,
        )[:, :length]
    noise = random.standard_normal((count, length, 2))
    noise[:, 1:] *= math.sqrt(1 - strength**2)
    tokens: Array = lfilter([1.0], [1.0, -strength], noise, axis=1)
    return tokens
