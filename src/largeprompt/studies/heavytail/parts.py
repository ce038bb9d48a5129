"""Scalar laws read at every tilt: what is known exactly, prompts drawn beside it, and where
Student-t prompts break.
"""

import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from largeprompt.law import finite_prompt
from largeprompt.measures import (
    Gaussian,
    LaplaceLaw,
    LogNormalLaw,
    ScalarLaw,
    StudentT,
    StudentTLaw,
)
from largeprompt.measures.numerics.pareto import pareto_tail_index, tail_count
from largeprompt.measures.scalar.density import HasDensity
from largeprompt.runs.study import Progress, along, side_by_side, stacked
from largeprompt.studies.heavytail.config import HeavyTailConfig
from largeprompt.studies.heavytail.exact import ATTENTION, ONE, argmax_rate, extremes, output
from largeprompt.studies.heavytail.formulas import (
    BATCHES,
    FACTOR,
    Array,
    crossing,
    first_length,
    measured_breakdowns,
)

CHUNK = 2**20  # tokens drawn at a time
TAILED = 500  # prompts of a length whose tail index is estimated
EDGE = math.sqrt(2)  # of the domain of Laplace's cgf
QUANTITIES = ("participation", "largest", "shortfall")
LEVELS = [0.25, 0.5, 0.75]
LASTING = (3.0, 5.0, 10.0, 20.0, 30.0)  # df whose longest safe prompt is computed


def laws(config: HeavyTailConfig) -> dict[str, tuple[ScalarLaw, tuple[float, ...]]]:
    """Each law with its tilts; unit variance where there is one, Student-t unscaled for df <= 2."""
    student = {f"df = {df:g}": (StudentT(1, df).law, config.tilts) for df in config.dfs}
    return {
        **student,
        "Laplace": (LaplaceLaw(), config.laplace_tilts),
        "lognormal": (LogNormalLaw(config.lognormal_scale), config.lognormal_tilts),
    }


def law_with_tilts(config: HeavyTailConfig, name: str, progress: Progress) -> xr.Dataset:
    """One law with its tilts: the exact law first, then drawn prompts."""
    law, tilts = laws(config)[name]
    progress("exact law")
    predictions = [_predict(config, law, tilt) for tilt in tilts]
    progress("drawing prompts")
    # (length, tilt)
    drawn = [_draw(config, law, tilts, index) for index in range(len(config.lengths))]
    df = law.df if isinstance(law, StudentTLaw) else math.nan
    parts = {}
    for tilt, predicted, sampled in zip(tilts, predictions, zip(*drawn, strict=True), strict=True):
        labels = {"law": name, "df": df, "tilt": tilt, "target": target(law, tilt)}
        of_lengths = along("length")(
            config, dict(zip(config.lengths, sampled, strict=True))
        ).transpose(..., "length")
        parts[tilt] = (
            predicted.merge(of_lengths)
            .expand_dims("case")
            .assign_coords({k: ("case", [v]) for k, v in labels.items()})
        )
    return stacked("case")(config, parts)


def grid(config: HeavyTailConfig) -> list[int]:
    """Lengths of the exact curves."""
    points = np.logspace(1, config.decades, (config.decades - 1) * config.per_decade + 1)
    return [int(length) for length in np.unique(np.round(points))]


def target(law: ScalarLaw, tilt: float) -> float:
    """The limit where there is one, else the read-out u of Gaussian tokens with the same mean and
    variance.
    """
    return (
        float(law.derivatives(torch.tensor(tilt, dtype=torch.float64), 1)[1])
        if law.domain[0] < tilt < law.domain[1]
        else tilt
    )


def asymptote(law: ScalarLaw, tilt: float, lengths: Array) -> tuple[Array, Array]:
    """What E Y and E T_L tend to as L grows; nan where nothing is known.

    Student-t: E Y = 1 - rate. Laplace with α = √2/u: e^{Λ(2u) - 2Λ(u)}/L for α > 2; ½αΓ(2-α)Γ(α)
    e^{-αΛ(u)} L^{1-α} for 1 < α < 2; 1 - α beyond the edge (Poisson-Dirichlet weights), with E
    T_L = (ln(L/2) + ln Γ(1-α) + αψ(1-α) + γ)/√2.
    """
    from scipy.special import gamma, gammaln, psi

    nothing, length = np.full_like(lengths, math.nan), lengths.astype(np.float64)
    if isinstance(law, StudentTLaw) and not math.isinf(law.df):
        return 1 - argmax_rate(law.df, law.scale, tilt, length.tolist()), nothing
    if isinstance(law, LogNormalLaw) and tilt > 0:
        return nothing, nothing
    alpha = EDGE / tilt if isinstance(law, LaplaceLaw) else math.inf
    if alpha < 1:
        mean = (
            np.log(length / 2) + gammaln(1 - alpha) + alpha * psi(1 - alpha) + np.euler_gamma
        ) / EDGE
        return np.full_like(length, 1 - alpha), mean
    u = torch.tensor([tilt, 2 * tilt], dtype=torch.float64)
    limit = np.full_like(length, float(law.derivatives(u, 1)[1][0]))
    if alpha <= 2:
        level = (
            alpha / 2 * gamma(2 - alpha) * gamma(alpha) * math.exp(-alpha * float(law.cgf(u)[0]))
        )
        return level * length ** (1 - alpha), limit
    once, twice = law.cgf(u).tolist()
    return math.exp(twice - 2 * once) / length, limit


def ideal_tail_index(law: ScalarLaw, tilt: float, length: int) -> float:
    """k-hat of the most regular sample: scores at the quantiles (i - 1/2)/L."""
    assert isinstance(law, HasDensity)
    known = law.density() if tilt > 0 else law.density().mirrored()
    order = np.arange(tail_count(length) + 1) + 0.5
    index = float(
        pareto_tail_index(torch.from_numpy(abs(tilt) * known.upper_quantile(order / length)))
    )
    return index if math.isfinite(index) else math.nan


def _predict(config: HeavyTailConfig, law: ScalarLaw, tilt: float) -> xr.Dataset:
    """Everything that is known of one law and tilt before a prompt is drawn."""
    center, lengths = target(law, tilt), np.array(grid(config), dtype=np.float64)
    assert isinstance(law, HasDensity)
    curve, at = output(law, tilt, grid(config), center), extremes(law, tilt, config.lengths)
    collision, mean = asymptote(law, tilt, lengths)
    # max score - mean score is the entropy of the weights less ln(Z e^-max), at most ln L
    most = np.log(np.array(config.lengths))
    variance = [
        at.collision_variance,
        at.largest_variance,
        at.shortfall * np.maximum(most - at.shortfall, 0.0),
    ]
    return xr.Dataset(
        {
            "curve": ("grid", curve.collision),
            "curve_mean": ("grid", curve.mean),
            "curve_mse": ("grid", curve.mse),
            "asymptote": ("grid", collision),
            "asymptote_mean": ("grid", mean),
            "exact": (("quantity", "length"), np.stack([at.collision, at.largest, at.shortfall])),
            "variance": (("quantity", "length"), np.stack(variance)),
            "most": (("quantity", "length"), np.stack([0 * most + 1, 0 * most + 1, most])),
            "predicted_tail_index": (
                "length",
                [ideal_tail_index(law, tilt, length) for length in config.lengths],
            ),
            "route_difference": _route_difference(config, law, tilt, at.collision),
            "defect": at.defect,
        },
        coords={"grid": lengths, "length": list(config.lengths), "quantity": list(QUANTITIES)},
    )


def _route_difference(
    config: HeavyTailConfig, law: ScalarLaw, tilt: float, collision: Array
) -> float:
    """Largest relative difference of E Y from that by the cgf, which knows no density; nan where no
    cgf is finite around 0.
    """
    low, high = law.domain
    if not low < min(tilt, 0.0) <= max(tilt, 0.0) < high:
        return math.nan
    return float(np.abs(output(law, tilt, config.lengths).collision / collision - 1).max())


def _draw(
    config: HeavyTailConfig, law: ScalarLaw, tilts: Sequence[float], index: int
) -> list[xr.Dataset]:
    """Prompts of one length, read with every tilt. One seed serves all laws: Student-t laws share
    their uniform numbers.
    """
    length = config.lengths[index]
    replicas = max(BATCHES, min(config.most_replicas, config.tokens // length) // BATCHES * BATCHES)
    generator = torch.Generator().manual_seed(1000 * config.seed + index)
    rows = max(1, CHUNK // length)
    found: list[list[Tensor]] = [[] for _ in tilts]
    tails: list[list[Tensor]] = [[] for _ in tilts]
    for start in range(0, replicas, rows):
        origin = torch.zeros(1, 1, dtype=torch.float64).expand(min(rows, replicas - start), length)
        tokens = law.sample(origin, generator)
        for tilt, parts, indices in zip(tilts, found, tails, strict=True):
            parts.append(_read(tokens, tilt))
            if start < TAILED:
                indices.append(_tail_index(tilt * tokens[: TAILED - start]))
    every = zip(tilts, found, tails, strict=True)
    return [
        _summary(torch.cat(parts, -1).numpy(), torch.cat(indices).numpy(), target(law, tilt))
        for tilt, parts, indices in every
    ]


def _tail_index(scores: Tensor) -> Tensor:
    """k-hat of each prompt; NaN where it has too few tokens."""
    tail = pareto_tail_index(scores.topk(tail_count(scores.shape[-1]) + 1, -1).values)
    return torch.where(torch.isfinite(tail), tail, math.nan)


def _read(tokens: Tensor, tilt: float) -> Tensor:
    """Of each prompt: Σ w², max w, u(max - T) in scores, T, T over the largest token; shape (5,
    prompt).
    """
    scores = tilt * tokens
    weights = torch.softmax(scores, -1)
    output, top = (weights * tokens).sum(-1), scores.amax(-1)
    return torch.stack(
        [
            weights.square().sum(-1),
            weights.amax(-1),
            top - tilt * output,
            output,
            tilt * output / top,
        ]
    )


def _summary(values: Array, tails: Array, center: float) -> xr.Dataset:
    """Means with standard errors, batch means, and quantiles of what :func:`_read` and
    :func:`_tail_index` give.
    """
    count = values.shape[-1]
    # order statistics around the median
    errors, reach = np.sort(np.abs(values[3] - center)), 1.96 * math.sqrt(count)
    ends = [
        max(0, math.floor((count - reach) / 2) - 1),
        min(count - 1, math.ceil((count + reach) / 2)),
    ]
    return xr.Dataset(
        {
            "sampled": ("quantity", values[:3].mean(-1)),
            "sampled_standard_error": ("quantity", values[:3].std(-1, ddof=1) / math.sqrt(count)),
            "batches": ("batch", values[0].reshape(BATCHES, -1).mean(-1)),
            "error": ("level", np.quantile(errors, LEVELS)),
            "of_largest": ("level", np.quantile(values[4], LEVELS)),
            "tail_index": ("level", np.quantile(tails, LEVELS)),
            "median_interval": ("bound", errors[ends]),
            "replicas": count,
        },
        coords={"quantity": list(QUANTITIES), "level": LEVELS, "bound": ["lower", "upper"]},
    )


def rule_of_thumb(tilt: float, length: float) -> float:
    """df at which the largest of L tokens, P(z > x) = 1/L, is the x = ln(L)/(2u) + u whose weight
    alone is worth E Y; heuristic.
    """
    from scipy.optimize import brentq

    def gap(log_df: float) -> float:
        law = StudentT(1, math.exp(log_df)).law
        assert isinstance(law, HasDensity)
        return (
            float(law.density().upper_quantile(np.array(1 / length)))
            - math.log(length) / (2 * tilt)
            - tilt
        )

    low, high = math.log(2.01), math.log(1e4)
    return math.exp(brentq(gap, low, high)) if gap(low) * gap(high) < 0 else math.nan


def breakdown(config: HeavyTailConfig, tilt: float, progress: Progress) -> xr.Dataset:
    """E Y over its Gaussian value for many df and all lengths, exact, and where it passes the
    factor.
    """
    from scipy.optimize import root_scalar

    progress(f"{config.finest} values of df")
    df, lengths = np.geomspace(2.1, 250.0, config.finest), grid(config)

    def ratio_of(freedom: float, at: Sequence[int]) -> Array:
        """E Y of Student-t tokens over that of Gaussian ones."""
        student, gaussian = (
            finite_prompt(ATTENTION, mu, tilt * ONE[0], list(at)).effective_tokens.numpy()
            for mu in (StudentT(1, freedom), Gaussian(0 * ONE[0], ONE))
        )
        return np.asarray(gaussian / student)

    def refined(length: int, guess: float) -> float:
        """The df at which prompts of this length break, from one that is nearly right."""
        if not math.isfinite(guess):
            return guess
        near = math.log(guess)
        found = root_scalar(
            lambda x: math.log(ratio_of(math.exp(x), [length])[0] / FACTOR),
            x0=near,
            x1=near + 1e-3,
            xtol=1e-4,
        )
        return math.exp(found.root)  # the next step is smaller by far

    ratio = np.stack([ratio_of(each, lengths) for each in df])
    breaks = [refined(length, crossing(df, ratio[:, i])) for i, length in enumerate(lengths)]
    progress("lengths from which on prompts break")
    lasting = [first_length(functools.partial(ratio_of, each), lengths) for each in LASTING]
    data = xr.Dataset(
        {
            "ratio": (("fine_df", "grid"), ratio),
            "breakdown": ("grid", breaks),
            "thumb": ("grid", [rule_of_thumb(tilt, length) for length in lengths]),
            "lasting": ("lasting_df", lasting),
        },
        coords={
            "fine_df": df,
            "grid": np.array(lengths, dtype=np.float64),
            "lasting_df": list(LASTING),
        },
    )
    return data.expand_dims(breakdown_tilt=[tilt])


def with_measured_breakdowns(
    config: HeavyTailConfig, parts: Mapping[str, xr.Dataset]
) -> xr.Dataset:
    """All parts, and where drawn prompts break."""
    data = side_by_side(config, parts)
    return data.merge(measured_breakdowns(data))
