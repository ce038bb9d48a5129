"""From sums to numbers that a person reads: relative errors, regimes, the law's share, one verdict for each head."""

import dataclasses

import numpy as np
import xarray as xr

from largeprompt.audit.expected import Moments, expected_affine_error, needed_length
from largeprompt.audit.kinds import FINDINGS, NAMES, READ_OUTS, mixtures
from largeprompt.display.labels import label

REGIMES = ("linear", "heavy", "frozen")
SCORES = ("tokens", "score_mean", "score_variance", "score_skewness", "score_kurtosis")
UNITS = ("mean_square", "mean_tilt", "tilt", "value_spread")


@dataclasses.dataclass(frozen=True)
class Rule:
    """What decides a head's verdict; all numbers are medians over texts and query positions.

    'moments': the affine read-out stands for the head. 'needs a longer prompt': its error is what Gaussian tokens of these moments
    and this number have, and would go with more. 'few clusters': a Gaussian mixture stands for it. 'selects': none of these,
    and the head is beyond the linear regime or reads few tokens. 'other shape': none of these, though it averages over many tokens.

    Attributes
    ----------
    tolerance
        Error of a read-out, relative to the head's output, up to which it stands for the head.
    explained
        Share of the squared error that the finite-length law must explain for 'needs a longer prompt'.
    overshoot
        How many times the measured error the law may expect and still be said to explain it.
    longest
        Longest prompt that one may ask for.
    few
        Effective tokens up to which a head selects.
    fewest
        Query positions that see fewer keys are left out, and those that see less than half of a still shorter prompt.
    """

    tolerance: float = 0.2
    explained: float = 0.5
    overshoot: float = 2.0
    longest: float = 1e6
    few: float = 16.0
    fewest: int = 32


def derived(raw: xr.Dataset) -> xr.Dataset:
    """Relative errors and regimes from the squared sums of :func:`head_statistics`."""
    output, deviation = np.sqrt(raw.output), np.sqrt(raw.deviation)
    data = raw[[*SCORES, "entropy", "largest_weight", "tail_index", "affine_direction"]]
    data["effective_tokens"] = 1 / raw.collision
    data["alpha"] = np.sqrt(raw.score_variance / (2 * np.log(raw.tokens.where(raw.tokens > 1))))
    code = ((data.alpha >= 0.5) * 1 + (data.alpha >= 1) * 1).where(data.alpha.notnull(), -1).astype(np.int8)
    data["regime"] = code.assign_attrs(meaning="0 linear, 1 heavy, 2 frozen, -1 unknown")
    data["linear_length"] = np.exp(np.minimum(2 * raw.score_variance, 700.0))
    data["error_bar"] = np.sqrt(raw.sandwich) / output
    for name in [*READ_OUTS, *(f"mixture_{count}" for count in mixtures(raw))]:
        error = np.sqrt(raw[f"{name}_error"])
        data[f"{name}_error"], data[f"{name}_error_deviation"] = error / output, error / deviation
        data[f"mass_{name}"] = raw[f"mass_{name}"]
    for name in UNITS:
        data[name] = raw[name] / raw.output
    expected = xr.apply_ufunc(expected_affine_error, raw.tokens, raw.score_variance, raw.tilt, raw.value_spread)
    data["law_error"] = np.sqrt(expected) / output
    data["law_share"] = (expected / raw.affine_error).clip(max=1.0)
    data["shape_error"] = np.sqrt((raw.affine_error - expected).clip(min=0.0)) / output
    return label(data, NAMES)


def summary(data: xr.Dataset, rule: Rule | None = None) -> xr.Dataset:
    """One row for each head (and length): medians and quantiles over texts and positions, and the verdict by the rule.

    Parameters
    ----------
    data
        What :func:`audit_model` or :func:`audit_heads` gave.
    rule
        What decides the verdicts; :class:`Rule` as it stands by default.

    Returns
    -------
    xarray.Dataset
        Dimensions (length,) layer, head; ``finding`` is the place of the verdict in ``FINDINGS``, -1 where there is none.
    """
    rule = rule or Rule()
    over = [name for name in ("text", "position") if name in data.dims]
    enough = data.tokens >= np.minimum(rule.fewest, data.tokens.max(over) / 2)  # a short prompt is judged by its longer half
    numbers = data.drop_vars("regime").where(enough)
    result = numbers.median(over)
    for q, name in ((0.1, "low"), (0.9, "high")):
        spread = numbers[["affine_error", "score_variance", "effective_tokens"]].quantile(q, over).drop_vars("quantile")
        result = result.merge(spread.rename({each: f"{each}_{name}" for each in spread}))
    for index, name in enumerate(REGIMES):
        result[f"share_{name}"] = (data.regime == index).drop_attrs().where(enough).mean(over)
    # an expectation over one draw has a long tail: the share of a head is a ratio of typical values, not a typical ratio
    result["law_share"] = ((result.law_error / result.affine_error) ** 2).clip(max=1.0)
    result["queries"] = numbers.affine_error.count(over)
    smallest = xr.full_like(result.affine_error, np.nan)
    for count in reversed(mixtures(data)):
        smallest = smallest.where(~(result[f"mixture_{count}_error"] <= rule.tolerance), float(count))
    result["clusters"] = smallest
    needed = needed_length(Moments(*(result[name].values for name in Moments._fields)), rule.tolerance)
    result["needed_length"] = result.affine_error.copy(data=needed)
    moments = result.affine_error <= rule.tolerance
    explains = (result.law_share >= rule.explained) & (result.law_error <= rule.overshoot * result.affine_error)
    selects = (result.alpha >= 0.5) | (result.effective_tokens <= rule.few)
    code = xr.full_like(result.affine_error, 4).where(~selects, 3).where(result.clusters.isnull(), 2)
    code = code.where(~(explains & (result.needed_length <= rule.longest)), 1).where(~moments, 0)
    code = code.where(result.affine_error.notnull(), -1).astype(np.int8)
    result["finding"] = code.assign_attrs(meaning=", ".join(f"{i} {name}" for i, name in enumerate(FINDINGS)))
    result.attrs |= {f"rule_{name}": value for name, value in dataclasses.asdict(rule).items()}
    return label(result, NAMES)
