"""E1, C3, C4: how far are output and Jacobians of a finite prompt from their limit, and does the paper's form describe it?"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from largeprompt.attention import SoftmaxAttention
from largeprompt.certificates import certificate, jacobian_certificate
from largeprompt.law import finite_prompt, regime
from largeprompt.measures import Gaussian
from largeprompt.runs.study import Outcome, Progress, Study, Verdict, log_slope
from largeprompt.sampling import sample_prompts

Array = NDArray[np.float64]
FALSE_ALARM = 1e-6  # of all comparisons of samples with the exact law together
SLOPES = (-1.11, -0.83)  # squared error in L, found by a public audit for L = 16 to 1024
FITS = 1.25  # a form fits where it is never wrong by a larger factor
QUANTITIES = ("output", "jacobian_u", "jacobian_v")


@dataclasses.dataclass(frozen=True)
class ConvergenceConfig:
    """Isotropic Gaussian tokens in R^d, V = I, one query for each score variance."""

    dim: int = 4
    score_variances: tuple[float, ...] = (0.5, 2.0, 6.0)
    longest: float = 1e8
    points: int = 81
    sampled_lengths: tuple[int, ...] = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)
    replicas: int = 4000
    fitted: tuple[int, int] = (10, 10_000)
    bootstraps: int = 1000
    seed: int = 0


def paper_form(length: Any, score_variance: float, c1: float, c2: float, logs: int = 1) -> Array:
    """c1 σ⁶ ln(L)^logs / L^{c2/σ²}: logs = 1 for the output (C3), 2 for the derivative in U (C4)."""
    length = np.asarray(length, dtype=np.float64)
    return np.asarray(c1 * score_variance**3 * np.log(length) ** logs * length ** (-c2 / score_variance))


def fit_paper_form(length: Any, mse: Any, score_variance: float, logs: int = 1) -> tuple[Array, Array]:
    """Best c1 and c2 of :func:`paper_form`, by least squares in logarithms; mse (length,), or (length, n) for n fits at once."""
    x = np.log(np.asarray(length, dtype=np.float64))
    target = (np.log(np.asarray(mse, dtype=np.float64)).T - logs * np.log(x)).T
    slope, intercept = np.polyfit(x, target, 1)
    return np.exp(intercept) / score_variance**3, -slope * score_variance


def cells(config: ConvergenceConfig) -> list[str]:
    """One for each score variance."""
    return [f"σ² = {q:g}" for q in config.score_variances]


def compute(config: ConvergenceConfig, cell: str, progress: Progress) -> xr.Dataset:
    """Every curve is computed before anything is drawn; then prompts are drawn over them."""
    index = cells(config).index(cell)
    q, d = config.score_variances[index], config.dim
    eye = torch.eye(d, dtype=torch.float64)
    attention, mu = SoftmaxAttention(eye, eye), Gaussian(torch.zeros(d, dtype=torch.float64), eye)
    z = torch.zeros(d, dtype=torch.float64)
    z[0] = math.sqrt(q)
    lengths = np.unique(np.round(np.logspace(0, math.log10(config.longest), config.points)).astype(np.int64))
    every = [int(length) for length in lengths]
    progress(f"{cell}: exact law and certificates")
    exact = finite_prompt(attention, mu, z, every)
    proved, proved_u = certificate(attention, mu, z, every), jacobian_certificate(attention, mu, z, every)
    rough = finite_prompt(attention, mu, z, every, expansion=True)
    at = finite_prompt(attention, mu, z, config.sampled_lengths)
    progress(f"{cell}: drawing prompts")
    generator = torch.Generator().manual_seed(1000 * config.seed + index)
    drawn = sample_prompts(attention, mu, z, config.sampled_lengths, config.replicas, generator, jacobian=True)
    assert drawn.readout_jacobian is not None  # asked for in the line above
    output = (drawn.outputs - exact.limit).square().sum(-1).numpy()  # (length, replica)
    squared = {
        "output": output,
        "jacobian_u": q * (drawn.readout_jacobian - eye).square().sum((-2, -1)).numpy(),  # dT/dU = C_L ⊗ z, ‖z‖² = σ²
        "jacobian_v": d * output,  # dT/dV repeats the read-out in each of d rows
    }
    exact_curves = {"output": exact.mse, "jacobian_u": exact.jacobian_u_mse, "jacobian_v": exact.jacobian_v_mse}
    exact_points = {"output": at.mse, "jacobian_u": at.jacobian_u_mse, "jacobian_v": at.jacobian_v_mse}
    bounds = {"output": proved.bound, "jacobian_u": proved_u.bound, "jacobian_v": d * proved.bound}

    def stack(values: dict[str, Any]) -> Array:
        return np.stack([np.asarray(values[name], dtype=np.float64) for name in QUANTITIES])

    grid, points = ("quantity", "length"), ("quantity", "sampled_length")
    data = xr.Dataset(
        {
            "exact": (grid, stack(exact_curves), {"long_name": "mean squared distance to the limit, exact"}),
            "certified": (grid, stack(bounds), {"long_name": "proved upper bound"}),
            "first_order": ("length", rough.mse.numpy(), {"long_name": "output, leading order in 1/L"}),
            "exact_at_samples": (points, stack(exact_points)),
            "sampled": (points, stack({name: values.mean(1) for name, values in squared.items()})),
            "sampled_standard_error": (
                points,
                stack({name: values.std(1, ddof=1) / math.sqrt(config.replicas) for name, values in squared.items()}),
            ),
            "frozen": ("length", [regime(q, length) == "frozen" for length in every]),
        },
        coords={"quantity": list(QUANTITIES), "length": lengths.astype(float), "sampled_length": list(config.sampled_lengths)},
    )
    return data.merge(_fits(config, q, squared, index))


def _fits(config: ConvergenceConfig, q: float, squared: dict[str, Array], index: int) -> xr.Dataset:
    """c1, c2 and the plain slope from the sampled points, with 95 % intervals by resampling whole streams of tokens.

    Lengths share their tokens, so that resampling streams, not points, gives the right spread.
    """
    lengths = np.asarray(config.sampled_lengths, dtype=np.float64)
    window = (lengths >= config.fitted[0]) & (lengths <= config.fitted[1])
    count = next(iter(squared.values())).shape[1]
    random = np.random.default_rng([config.seed, index])
    shares = random.multinomial(count, np.full(count, 1 / count), size=config.bootstraps).T / count  # (replica, bootstrap)
    shares = np.column_stack([np.full(count, 1 / count), shares])  # the sample itself first
    found: dict[str, list[Array]] = {"c1": [], "c2": [], "slope": []}
    for name in QUANTITIES:
        means = squared[name][window] @ shares
        c1, c2 = fit_paper_form(lengths[window], means, q, logs=2 if name == "jacobian_u" else 1)
        slope = np.polyfit(np.log(lengths[window]), np.log(means), 1)[0]
        for key, values in (("c1", c1), ("c2", c2), ("slope", slope)):
            found[key].append(np.array([values[0], *np.quantile(values[1:], [0.025, 0.975])]))
    return xr.Dataset(
        {key: (("quantity", "interval"), np.stack(rows)) for key, rows in found.items()},
        coords={"interval": ["estimate", "lower", "upper"], "quantity": list(QUANTITIES)},
    )


def combine(config: ConvergenceConfig, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Stacked by score variance, with the window of lengths that the constants were fitted on."""
    variances = xr.Variable("score_variance", list(config.score_variances))
    data = xr.concat(list(parts.values()), variances, combine_attrs="drop", join="outer")
    return data.assign(fitted_from=config.fitted[0], fitted_to=config.fitted[1])


@dataclasses.dataclass(frozen=True)
class OnePair:
    """One (c1, c2) for all score variances: the least-squares pair, and the best pair that bounds every curve for L >= 2."""

    c1: float
    c2: float
    factor: float  # by which the least-squares pair is wrong at worst
    bound_c1: float
    bound_c2: float
    slack: float  # by which the bounding pair is too large at worst, within the window
    breaks_below: float  # score variance below which the bounding pair is less than tr(Γ)/L, hence than the error, at L = 100


def one_pair(data: xr.Dataset, quantity: str) -> OnePair:
    """Fit the exact curves of all score variances together, on the window that the sampled fits use.

    Every curve ends like 1/L, so that a bound needs c2 <= the least σ²; c1 is then the least that will do from L = 2 on.
    """
    logs = 2 if quantity == "jacobian_u" else 1
    part = data.exact.sel(quantity=quantity).transpose("score_variance", "length").sel(length=slice(2, None))
    x, q = np.log(part.length.values), part.score_variance.values
    rest = np.log(part.values) - logs * np.log(x) - 3 * np.log(q)[:, None]
    steepness = x / q[:, None]  # rest ≈ log c1 - c2 ln(L)/σ²
    window = (part.length.values >= float(data.fitted_from)) & (part.length.values <= float(data.fitted_to))
    slope, intercept = np.polyfit(steepness[:, window].ravel(), rest[:, window].ravel(), 1)
    wrong = np.abs(rest - intercept - slope * steepness)[:, window].max()
    c2 = float(q.min())
    needed = rest + c2 * steepness  # log c1
    c1 = math.exp(needed.max())
    small = np.logspace(-3, 1, 801)
    least = float((data.exact.sel(quantity="output", length=1.0) - data.score_variance).min()) / 100  # tr(Γ)/L, as E Y >= 1/L
    short = small[[float(paper_form(100.0, each, c1, c2, logs)) < least for each in small]]
    return OnePair(
        math.exp(intercept),
        -float(slope),
        math.exp(wrong),
        c1,
        c2,
        math.exp(needed.max() - needed[:, window].min()),
        float(short.max()) if len(short) else math.nan,
    )


def z_scores(data: xr.Dataset) -> tuple[float, float]:
    """Largest distance of a sample from the exact law in standard errors, and what is allowed at the false-alarm level."""
    from scipy.stats import norm

    difference = abs(data.sampled - data.exact_at_samples)
    known = data.sampled_standard_error > 1e-12 * data.exact_at_samples  # at L = 1 a Jacobian does not vary
    score = (difference / data.sampled_standard_error.where(known)).where(known, np.where(difference < 1e-9, 0.0, np.inf))
    return float(score.max()), float(norm.isf(FALSE_ALARM / (2 * score.size)))


def verdicts(data: xr.Dataset) -> list[Verdict]:
    """Certificates against the exact law, samples against it, the slope, and the paper's form with one pair of constants."""
    found = [_samples(data), _certified(data, "output", "C3"), _slope(data, "output", "C3"), _form(data, "output", "C3")]
    found += [_bound(data), _at_one(data, "output", "C3"), _frozen(data)]
    found += [_certified(data, "jacobian_u", "C4"), _slope(data, "jacobian_u", "C4"), _form(data, "jacobian_u", "C4")]
    return [*found, _certified(data, "jacobian_v", "C4"), _at_one(data, "jacobian_u", "C4")]


NAMES = {"output": "the output", "jacobian_u": "the derivative in U", "jacobian_v": "the derivative in V"}


def _samples(data: xr.Dataset) -> Verdict:
    score, allowed = z_scores(data)
    return Verdict(
        "C3",
        "Do drawn prompts agree with the exact law, output and both derivatives?",
        "holds" if score <= allowed else "fails",
        f"{data.sampled.size} means lie within {score:.1f} standard errors, {allowed:.1f} allowed "
        f"(false alarms in {FALSE_ALARM:g} of runs).",
    )


def _certified(data: xr.Dataset, quantity: str, claim: str) -> Verdict:
    ratio = (data.certified / data.exact).sel(quantity=quantity)
    end = ratio.isel(length=-1)
    holds = bool((ratio >= 1 - 1e-9).all())
    return Verdict(
        claim,
        f"Does the exact error of {NAMES[quantity]} stay below its certificate at every length?",
        "holds" if holds else "fails",
        f"Bound over exact error from L = 1 to {float(data.length[-1]):.0e}: never below {float(ratio.min()):.4g}, at most "
        f"{float(ratio.max()):.3g}; {float(end.min()):.4f} to {float(end.max()):.4g} at the end.",
    )


def _interval(row: xr.DataArray) -> str:
    return f"{float(row[0]):.2f} [{float(row[1]):.2f}, {float(row[2]):.2f}]"


def _slope(data: xr.Dataset, quantity: str, claim: str) -> Verdict:
    slopes = data.slope.sel(quantity=quantity)
    inside = (slopes.sel(interval="lower") >= SLOPES[0]) & (slopes.sel(interval="upper") <= SLOPES[1])
    outcome: Outcome = "holds" if bool(inside.all()) else "holds in part" if bool(inside.any()) else "fails"
    far = data.exact.sel(quantity=quantity)[..., -5:]
    ends = [log_slope(far.length, far.sel(score_variance=q)) for q in data.score_variance]
    text = ", ".join(f"{_interval(row)} at σ² = {float(row.score_variance):g}" for row in slopes)
    return Verdict(
        claim,
        f"Does the squared error of {NAMES[quantity]} fall with a slope in L between {SLOPES[0]} and {SLOPES[1]} (public audit)?",
        outcome,
        f"L = {int(data.fitted_from)} to {int(data.fitted_to)}, sampled: {text}. "
        f"By the exact law {min(ends):.2f} to {max(ends):.2f} at L = {float(data.length[-1]):.0e}.",
    )


def _form(data: xr.Dataset, quantity: str, claim: str) -> Verdict:
    pair, rows = one_pair(data, quantity), data.c2.sel(quantity=quantity)
    text = ", ".join(_interval(row) for row in rows)
    return Verdict(
        claim,
        f"Does c1 σ⁶ ln{'²' if quantity == 'jacobian_u' else ''}(L)/L^(c2/σ²), σ² the score variance, describe {NAMES[quantity]} "
        "with one pair (c1, c2)?",
        "holds" if pair.factor <= FITS else "fails",
        f"Fitted one by one, c2 = {text} at σ² = {', '.join(f'{float(q):g}' for q in data.score_variance)}; the best common pair "
        f"(c1 = {pair.c1:.2g}, c2 = {pair.c2:.2g}) is wrong by up to {pair.factor:.3g} times.",
    )


def _bound(data: xr.Dataset) -> Verdict:
    pair = one_pair(data, "output")
    return Verdict(
        "C3",
        "Is the paper's form an upper bound from L = 2 on, with one pair (c1, c2)?",
        "fails" if not math.isfinite(pair.bound_c1) else "holds" if math.isnan(pair.breaks_below) else "holds in part",
        f"For these σ² it is with c2 = {pair.bound_c2:g} (more will not do: the error ends like 1/L) and c1 = {pair.bound_c1:.3g}, "
        f"up to {pair.slack:.3g} times too large for L = {int(data.fitted_from)} to {int(data.fitted_to)}. "
        f"With the same pair and σ² below {pair.breaks_below:.2g} it is less than tr(Γ)/L at L = 100, and so less than the error.",
    )


def _at_one(data: xr.Dataset, quantity: str, claim: str) -> Verdict:
    errors = data.exact.sel(quantity=quantity, length=1.0)
    bound = max(float(paper_form(1.0, float(q), 1.0, 1.0)) for q in data.score_variance)
    broken = bool((errors > bound).all())
    return Verdict(
        claim,
        f"Does the paper's form hold at L = 1 for {NAMES[quantity]}?",
        "fails" if broken else "holds",
        f"It is {bound:g} there for all constants; the error is {', '.join(f'{float(e):.3g}' for e in errors)}.",
    )


def _frozen(data: xr.Dataset) -> Verdict:
    ratio = (data.first_order / data.exact.sel(quantity="output")).where(data.frozen & (data.length > 1))
    worst = float(ratio.max())
    return Verdict(
        "C3",
        "Is the first order in 1/L good in the frozen regime, L <= e^(σ²/2)?",
        "fails" if worst > 2 else "undecided" if math.isnan(worst) else "holds",
        f"It is up to {worst:.3g} times the exact error there.",
        control=True,
    )


STUDY = Study(
    "convergence",
    "How fast a finite prompt reaches its limit",
    "How far are output and derivatives of attention over L Gaussian tokens from their limit, and does the paper's form say so?",
    "The exact law gives the mean squared errors of output and both derivatives from L = 1 to 10⁸ for three score variances. "
    "Proved bounds stand above it, drawn prompts over it. "
    "The constants of the paper's form are fitted to the drawn prompts, with intervals from resampled streams.",
    ConvergenceConfig,
    ConvergenceConfig(points=25, sampled_lengths=(1, 10, 30, 100, 300, 1000), fitted=(10, 1000), replicas=400),
    cells,
    compute,
    combine,
    verdicts,
)
