"""Certificates and draws against the exact law; which constants hold; short prompts; regimes."""

import math
from typing import Any

import numpy as np
import xarray as xr

from largeprompt.runs.judging import Finding, NotInRunError, Rule, at, judged, log_slope, rule
from largeprompt.studies.convergence.config import Array
from largeprompt.studies.convergence.curves import LOGS
from largeprompt.studies.lengths import drawn_agrees, first_below

FITS = 1.25  # a form fits where it is never wrong by a larger factor
ASKED = 10  # tokens that the rules on short prompts ask about
NAMES = {"output": "output", "jacobian_u": "derivative in U"}
DRAWN = ("drawn", "exact_at_drawn", "drawn_error")

drawn_prompts = drawn_agrees(
    "E1",
    "Do drawn prompts agree with the exact law, output and gradient, for every spectrum too?",
    DRAWN,
    tuple(f"spectrum_{name}" for name in DRAWN),
    headline="Drawn prompts agree with the exact law, for outputs and for gradients.",
    otherwise="Drawn prompts do not agree with the exact law.",
)


def last_slopes(exact: xr.DataArray) -> list[float]:
    """Slopes of errors over the last three lengths, one for each curve."""
    far = exact.isel(length=slice(-3, None)).transpose(..., "length")
    return [log_slope(far.length, row) for row in far.values.reshape(-1, far.sizes["length"])]


def falls(data: xr.Dataset, *quantities: str) -> tuple[bool, xr.DataArray, list[float]]:
    """Whether errors fall, like 1/L in the end, below bounds; bound over error; last slopes."""
    part = data[["exact", "certified"]].sel(quantity=list(quantities))
    ratio, slopes = part.certified / part.exact, last_slopes(part.exact)
    down = bool((part.exact.isel(length=-1) < part.exact.isel(length=0)).all())
    return down and max(slopes) < -0.9 and float(ratio.min()) >= 1 - 1e-9, ratio, slopes


@rule(
    "C3", "Does the output's error fall like 1/L in the end, below its certificate at every length?"
)
def certified(data: xr.Dataset) -> Finding:
    """Holds where no certificate is below the exact error, of scalar tokens too."""
    good, ratio, slopes = falls(data, "output")
    most = float(ratio.max())
    return Finding(
        judged(good and float(data.ratio.min()) >= 1 - 1e-9, rests_on=[ratio, data.ratio]),
        "The paper names no constants; a certificate takes the place of its form: never crossed, "
        f"at most {most:.2g} times too large.",
        "The output's error does not fall like 1/L below its certificate.",
        {
            "bound over error": ratio,
            "for scalar tokens, two clusters too": data.ratio,
            "last exponent": slopes,
        },
    )


@rule("C4", "Do the errors of the derivatives fall like 1/L in the end, below their certificates?")
def certified_derivatives(data: xr.Dataset) -> Finding:
    """Holds where no certificate of a derivative is below the exact error."""
    good, ratio, slopes = falls(data, "jacobian_u", "jacobian_v")
    return Finding(
        judged(good, rests_on=[ratio]),
        "Gradients concentrate as outputs do, only later: their squared errors fall like 1/L in "
        "the end, below certificates.",
        "Errors of derivatives do not fall like 1/L below their certificates.",
        {"bound over error": ratio, "last exponent": slopes},
    )


def in_logarithms(data: xr.Dataset, quantity: str) -> tuple[Array, Array, Array]:
    """log(exact/(σ⁶ ln^k L)), which the form says is log c1 - c2 ln(L)/σ², and ln(L)/σ², L >= 2.

    Both are (score variance, length); the third says which lengths constants are fitted on.
    """
    part = data.exact.sel(quantity=quantity).transpose("score_variance", "length")
    part = part.sel(length=slice(2, None))
    x, q = np.log(part.length.values), part.score_variance.values[:, None]
    low, high = float(data.fitted_from), float(data.fitted_to)
    window = (part.length.values >= low) & (part.length.values <= high)
    if not window.any():
        raise NotInRunError(f"needs lengths from {low:g} to {high:g}")
    return np.log(part.values) - LOGS[quantity] * np.log(x) - 3 * np.log(q), x / q, window


def common_pair(data: xr.Dataset, quantity: str) -> tuple[float, float, float]:
    """Best (c1, c2) for all score variances together, and the factor by which it is wrong."""
    rest, steepness, window = in_logarithms(data, quantity)
    slope, intercept = np.polyfit(steepness[:, window].ravel(), rest[:, window].ravel(), 1)
    wrong = np.abs(rest - intercept - slope * steepness)[:, window].max()
    return math.exp(intercept), -float(slope), math.exp(wrong)


def form(claim: str, quantity: str, logarithm: str) -> Rule:
    """Rule that holds where the best common pair is nowhere wrong by more than FITS."""

    @rule(
        claim,
        f"Does c1 σ⁶ {logarithm}/L^(c2/σ²) describe the error of the {NAMES[quantity]} with one "
        "pair (c1, c2)?",
        fails="The paper's form: its constants depend on the score variance, and at L = 1 it is 0.",
    )
    def describes(data: xr.Dataset) -> Finding:
        c1, c2, wrong = common_pair(data, quantity)
        part = data.sel(quantity=quantity)
        fitted = {"c1 of each score variance": part.c1, "c2": part.c2}
        best = {"best common c1": c1, "c2 then": c2, "it is wrong by up to": (wrong, "times")}
        return Finding(judged(wrong <= FITS, rests_on=[wrong]), numbers=fitted | best)

    return describes


@rule("C3", "Is the first order in 1/L good in the frozen regime, L <= e^(σ²/2)?", control=True)
def frozen(data: xr.Dataset) -> Finding:
    """Fails where it is more than twice the exact error."""
    there = data.frozen.astype(bool) & (data.length > 1)
    if not bool(there.any()):
        return Finding("undecided", numbers={"frozen lengths at these score variances": "none"})
    worst = float((data.first_order / data.exact.sel(quantity="output")).where(there).max())
    return Finding(
        judged(worst <= 2, rests_on=[worst]), numbers={"first order over exact, up to": worst}
    )


def long_prompts(data: xr.Dataset) -> xr.Dataset:
    """The grid of regimes from L = 100 on, with α = σ/√(2 ln L)."""
    part = data[["effective_tokens", "regime"]].sel(regime_length=slice(100, None))
    return part.assign(alpha=np.sqrt(part.regime_variance / (2 * np.log(part.regime_length))))


def named_by_tokens(part: xr.Dataset) -> Any:
    """Regimes by effective tokens alone: 'linear' above √L, 'frozen' up to √(π ln L).

    At α = σ/√(2 ln L) = 1/2 the linear law L e^{-σ²} is √L; at α = 1 E Y ≈ 1/√(π ln L).
    """
    tokens, length = part.effective_tokens, part.regime_length
    few, many = tokens <= np.sqrt(np.pi * np.log(length)), tokens > np.sqrt(length)
    return tokens.copy(data=np.where(many, "linear", np.where(few, "frozen", "heavy")))


@rule("C3", "Do regimes named by effective tokens agree with those named by σ/√(2 ln L)?")
def regimes(data: xr.Dataset) -> Finding:
    """Holds where nearly all agree, and all but those near a border."""
    part = long_prompts(data)
    agree = named_by_tokens(part) == part.regime.astype(str)
    wrong = part.alpha.where(~agree)
    farthest = float(np.minimum(abs(wrong - 0.5), abs(wrong - 1.0)).fillna(0.0).max())
    share = float(agree.mean())
    return Finding(
        judged(share >= 0.95 and farthest <= 0.15, rests_on=[part.effective_tokens]),
        numbers={
            "they agree on": (100 * share, "%"),
            "elsewhere σ/√(2 ln L) is off a border by at most": farthest,
        },
    )


@rule("C3", "Is log-n scaling of scores right at α = 1/2, and YaRN's at score variance 2.5?")
def scaling(data: xr.Dataset) -> Finding:
    """Holds where log-n is within 2 % at all lengths, and YaRN for prompts twice as long."""
    log_n, yarn = (abs(data[f"{name}_factor"] / data.factor - 1) for name in ("log_n", "yarn"))
    half = float(log_n.isel(scaled_variance=2).max())
    twice = float(at(yarn, growth=2).isel(scaled_variance=1))
    return Finding(
        judged(half < 0.02 and twice < 0.02, rests_on=[log_n, yarn]),
        numbers={
            "log-n is off by at most": (100 * half, "%"),
            "YaRN at twice the length": (100 * twice, "%"),
        },
    )


def collapse_error(data: xr.Dataset) -> float:
    """Largest relative residual of exact = f tr(Γ) + g ‖Γu‖², f and g free at each σ² and L."""
    dims = ("score_variance", "spectrum_length", "spectrum", "direction")
    exact, trace, size = xr.broadcast(data.spectrum_exact, data.trace, data.spectrum_size)
    rows, *design = (
        each.transpose(*dims).values.reshape(-1, data.sizes["spectrum"] * data.sizes["direction"])
        for each in (exact, trace, size)
    )
    residuals = []
    for row, *columns in zip(rows, *design, strict=True):
        scaled = np.stack(columns, -1) / row[:, None]
        fit = np.linalg.lstsq(scaled, np.ones(len(row)), rcond=None)[0]
        residuals.append(np.abs(scaled @ fit - 1).max())
    return float(max(residuals))


def spread(values: xr.DataArray) -> xr.DataArray:
    """Largest over smallest, over spectra and directions."""
    return values.max(("spectrum", "direction")) / values.min(("spectrum", "direction"))


@rule("E3", "At given σ² and L, do tr Γ and ‖Γu‖² explain the error for every spectrum?")
def two_traces(data: xr.Dataset) -> Finding:
    """Holds to 1e-10."""
    residual = collapse_error(data)
    return Finding(
        judged(residual < 1e-10, rests_on=[data.spectrum_exact]),
        "Two traces, tr Γ and ‖Γu‖², explain the error for every spectrum.",
        "Two traces, tr Γ and ‖Γu‖², do not explain the error of every spectrum.",
        {"largest residual": residual, "condition numbers": data.condition},
    )


@rule("E3", "Does the score variance alone explain the error, tr Γ being fixed?", control=True)
def score_variance_alone(data: xr.Dataset) -> Finding:
    """Fails where errors of one score variance differ by more than FITS."""
    ratio = spread(data.spectrum_exact).max("spectrum_length")
    return Finding(
        judged(float(ratio.max()) <= FITS, rests_on=[ratio]),
        numbers={"largest over smallest error at one σ²": (ratio, "times")},
    )


@rule(
    "E3",
    "Does one pair (c1, c2) hold for all spectra and score variances?",
    fails="The paper's form, as a description: its constants change with the score variance and "
    "the spectrum.",
)
def one_pair(data: xr.Dataset) -> Finding:
    """Fails where c2, or c1 at one score variance, changes by more than FITS."""
    c1, c2 = float(spread(data.spectrum_c1).max()), data.spectrum_c2
    return Finding(
        judged(float(c2.max() / c2.min()) <= FITS and c1 <= FITS, rests_on=[c1, c2]),
        "One pair of constants survives spread eigenvalues.",
        "No single pair of constants survives spread eigenvalues.",
        {"c2": c2, "c1 at one score variance differs": (c1, "times")},
    )


@rule(
    "E3",
    "Does the score variance set the length needed for a relative error of 10 %?",
    fails="Our conjecture: the direction of the query counts as well.",
)
def needed_length(data: xr.Dataset) -> Finding:
    """Fails where the lengths needed differ by more than FITS."""
    middle = data.isel(score_variance=data.sizes["score_variance"] // 2)
    relative = np.sqrt(middle.spectrum_exact / middle.spectrum_size)
    needed = first_below(relative, 0.1, "spectrum_length", between=True)
    return Finding(
        judged(float(needed.max() / needed.min()) <= FITS, rests_on=[relative]),
        numbers={"at σ² =": float(middle.score_variance), "tokens needed": needed},
    )


@rule(
    "F1",
    f"Is the limit within 50 % of the output over {ASKED} tokens, ill-conditioned ones too?",
    fails="A method: the limit does not stand for a short prompt. The paper claims nothing here.",
)
def near(data: xr.Dataset) -> Finding:
    """Fails where some case needs more than ASKED tokens."""
    short = np.sqrt(data.short_exact / data.short_limit)
    spread = np.sqrt(data.spectrum_exact / data.spectrum_size).where(data.condition > 1, drop=True)
    isotropic = first_below(short, 0.5, "short_length")
    ill = first_below(spread, 0.5, "spectrum_length", between=True)
    worst = float(isotropic.max())
    return Finding(
        judged(max(worst, float(ill.max())) <= ASKED, rests_on=[short, spread]),
        "Ten tokens are enough for the limit.",
        f"Ten tokens are not enough: the limit can be off by half up to {worst:,.0f} tokens, and "
        "far longer for ill-conditioned covariances.",
        {"isotropic, from L =": isotropic, "ill-conditioned, from L =": ill},
    )


@rule(
    "F1",
    f"At the infinite-prompt optimum, is the risk within 50 % of its limit from {ASKED} tokens on?",
    fails="A method: the infinite-prompt optimum is no optimum for short prompts.",
)
def regression(data: xr.Dataset) -> Finding:
    """Fails where some condition number needs more than ASKED tokens, with softmax attention."""
    excess = data.risk / data.limit_risk - 1
    enough = first_below(excess, 0.5, "regression_length")
    softmax, linear = (enough.sel(attention=kind) for kind in ("softmax", "linear"))
    return Finding(
        judged(float(softmax.max()) <= ASKED, rests_on=[excess]),
        numbers={
            "condition numbers": data.regression_condition,
            "softmax, from L =": softmax,
            "linear attention, from L =": linear,
        },
    )


@rule("F1", "Does one token suffice for an answer within 50 %?", control=True)
def one_token(data: xr.Dataset) -> Finding:
    """Fails where it does in no case."""
    error = np.sqrt(at(data.short_exact, short_length=1.0) / data.short_limit)
    return Finding(
        judged(float(error.min()) <= 0.5, rests_on=[error]), numbers={"relative error": error}
    )


RULES: tuple[Rule, ...] = (
    certified,
    form("C3", "output", "ln(L)"),
    regimes,
    scaling,
    frozen,
    certified_derivatives,
    form("C4", "jacobian_u", "ln²(L)"),
    drawn_prompts,
    one_pair,
    two_traces,
    needed_length,
    score_variance_alone,
    near,
    regression,
    one_token,
)
