"""From sums to numbers that a person reads: relative errors, regimes, the law's share, one verdict
for each head.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from largeprompt import validation
from largeprompt.audit.expected import expected_affine_error, typical_affine_error
from largeprompt.audit.kinds import (
    FINDINGS,
    READ_OUTS,
    REGIMES,
    TRIALS,
    TRUSTED,
    described,
    mixtures,
)
from largeprompt.audit.predictions import extrapolated, law_slope, length_factor, separated, tested
from largeprompt.audit.savings import savings
from largeprompt.errors import InvalidArgumentError

SCORES = (
    "tokens",
    "weighed_tokens",
    "score_mean",
    "score_variance",
    "score_skewness",
    "score_kurtosis",
)
Array = NDArray[Any]
WIDTHS = ("key_width", "value_width", "group_size")
UNITS = ("mean_square", "mean_tilt", "tilt", "value_spread")


@dataclasses.dataclass(frozen=True)
class Rule:
    """What decides a head's verdict; all numbers are medians over texts and query positions.

    'uniform': nothing but the mean value is needed, or the weights barely differ. 'moments': the
    affine read-out stands for the head. 'needs a longer prompt': it is predicted to do so at a
    length that the model can read, and such predictions came true. 'few clusters': a Gaussian
    mixture stands for it. 'selects': none of these, and the head is beyond the linear regime or
    reads few tokens. 'other shape': none of these, though it averages over many tokens; 'mixtures
    not tried' where they were not, so that a few clusters might do.

    Attributes
    ----------
    tolerance
        Error of a read-out, relative to the head's output, up to which it stands for the head.
    flat
        Variance of the scores up to which weights count as uniform where the affine read-out stands
        for the head.
    trusted
        Share of the predictions of the same rule, made at shorter lengths and tested at longer
        ones, that must have come true for 'needs a longer prompt'.
    trials
        Fewest such predictions.
    few
        Effective tokens up to which a head selects.
    fewest
        Query positions that see fewer keys are left out; where none sees twice as many, nothing is
        judged.
    """

    tolerance: float = 0.2
    flat: float = 0.1
    trusted: float = TRUSTED
    trials: int = TRIALS
    few: float = 16.0
    fewest: int = 32

    def __post_init__(self) -> None:
        numbers = {
            name: validation.number(name, getattr(self, name), minimum=0)
            for name in ("tolerance", "flat", "trusted", "few")
        }
        counts = {
            name: validation.integer(name, getattr(self, name), minimum=0)
            for name in ("trials", "fewest")
        }
        validation.store(self, **numbers, **counts)


def derived(raw: xr.Dataset) -> xr.Dataset:
    """Relative errors and regimes from the squared sums of :func:`head_statistics`, all of the same
    dimensions.
    """
    found = derived_numbers({str(name): each.values for name, each in raw.data_vars.items()})
    return described(
        xr.Dataset(
            {name: (raw.output.dims, each) for name, each in found.items()}, coords=raw.coords
        )
    )


def derived_numbers(known: Mapping[str, Array]) -> dict[str, Array]:
    """:func:`derived` of bare arrays, which is several times faster."""
    names = [
        *READ_OUTS,
        *(
            name.removesuffix("_error")
            for name in known
            if re.fullmatch(r"mixture_\d+_error", name)
        ),
    ]
    output, variance, tokens = (
        known[name] for name in ("output", "score_variance", "weighed_tokens")
    )
    kept = [
        *SCORES,
        "entropy",
        "largest_weight",
        "tail_index",
        "affine_direction",
        *(f"mass_{name}" for name in names),
    ]
    with np.errstate(divide="ignore", invalid="ignore"):
        size, deviation = np.sqrt(output), np.sqrt(known["deviation"])
        alpha = np.sqrt(variance / (2 * np.log(np.where(tokens > 1, tokens, np.nan))))
        found = {name: known[name] for name in kept} | {
            "effective_tokens": 1 / known["collision"],
            "alpha": alpha,
            "regime": np.where(np.isnan(alpha), -1, (alpha >= 0.5) * 1 + (alpha >= 1)).astype(
                np.int8
            ),
            "linear_length": np.exp(np.minimum(2 * variance, 700.0)),
            "error_bar": np.sqrt(known["sandwich"]) / size,
        }
        for name in names:
            error = np.sqrt(known[f"{name}_error"])
            found |= {f"{name}_error": error / size, f"{name}_error_deviation": error / deviation}
        found |= {name: known[name] / output for name in UNITS}
        expected = expected_affine_error(
            tokens.round(), variance, known["tilt"], known["value_spread"]
        )
        found["law_error"] = np.sqrt(expected) / size
    return found | {
        name: each for name, each in known.items() if name.startswith("subset_") or name in WIDTHS
    }


def summary(data: xr.Dataset, rule: Rule | None = None) -> xr.Dataset:
    """One row for each head (and length): medians and quantiles over texts and positions, and the
    verdict by the rule.

    Parameters
    ----------
    data
        What :func:`audit_model` or :func:`audit_heads` gave.
    rule
        What decides the verdicts; :class:`Rule` as it stands by default.

    Returns
    -------
    xarray.Dataset
        Dimensions (length,) layer, head; ``finding`` is the place of the verdict in ``FINDINGS``,
        -1 where there is none.
    """
    rule = Rule() if rule is None else rule
    validation.instance("rule", rule, Rule, "a Rule")
    if not isinstance(data, xr.Dataset) or "affine_error" not in data or "regime" not in data:
        raise InvalidArgumentError(
            "data", validation.text(data), "the dataset of audit_model or audit_heads"
        )
    over = [name for name in ("text", "position") if name in data.dims]
    # of a short prompt the longer half, unjudged
    enough = data.tokens >= np.minimum(rule.fewest, data.tokens.max(over) / 2)
    numbers = data.drop_vars("regime").where(enough)
    result = numbers.median(over)
    for q, name in ((0.1, "low"), (0.9, "high")):
        spread = (
            numbers[["affine_error", "score_variance", "effective_tokens"]]
            .quantile(q, over)
            .drop_vars("quantile")
        )
        result = result.merge(spread.rename({each: f"{each}_{name}" for each in spread}))
    for index, name in enumerate(REGIMES):
        result[f"share_{name}"] = (data.regime == index).drop_attrs().where(enough).mean(over)
    moments = [
        result.weighed_tokens.round(),
        *(result[name] for name in ("score_variance", "tilt", "value_spread")),
    ]
    result["law_error"] = xr.apply_ufunc(typical_affine_error, *moments)  # a median too
    result["law_share"] = ((result.law_error / result.affine_error) ** 2).clip(max=1.0)
    result["queries"] = numbers.affine_error.count(over)
    result["affine_error_bar"] = _over_texts(numbers.affine_error)
    smallest = xr.full_like(result.affine_error, np.nan)
    for count in reversed(mixtures(data)):
        smallest = smallest.where(
            ~(result[f"mixture_{count}_error"] <= rule.tolerance), float(count)
        )
    result["clusters"] = smallest
    result["order"] = _order(result.affine_error)
    result["law_slope"] = law_slope(result)
    found = tested(numbers, result.law_slope, rule.tolerance)
    for name, value in found._asdict().items():
        result[f"predictions_{name}"] = value
    _predict(result, data, rule)
    judged = data.tokens.max(over) >= 2 * rule.fewest
    code = _verdict(
        result, rule, found.made >= rule.trials and found.kept >= rule.trusted * found.made
    )
    result["finding"] = code.where(judged & result.affine_error.notnull(), -1).astype(np.int8)
    result.attrs |= {f"rule_{name}": value for name, value in dataclasses.asdict(rule).items()}
    return described(result)


def _over_texts(error: xr.DataArray) -> xr.DataArray:
    """Standard error over texts of their medians over queries; NaN of one text."""
    medians = error.median("position")
    if "text" not in medians.dims:
        return xr.full_like(medians, np.nan)
    number = medians.count("text")
    found: xr.DataArray = medians.std("text") / np.sqrt((number - 1).where(number > 1))
    return found


def _order(error: xr.DataArray) -> xr.DataArray:
    """Place of each head by its error, from 1 on; unknown ones last."""
    flat = (
        error.transpose(..., "head")
        if "layer" not in error.dims
        else error.transpose(..., "layer", "head")
    )
    values = flat.values.reshape(*flat.shape[: -2 if "layer" in error.dims else -1], -1)
    places = np.argsort(np.argsort(np.nan_to_num(values, nan=np.inf), -1, kind="stable"), -1)
    return flat.copy(data=places.reshape(flat.shape) + 1.0).transpose(*error.dims)


def _predict(result: xr.Dataset, data: xr.Dataset, rule: Rule) -> None:
    """Add shape, needed length, what the next shorter length predicted, and
    what replacing saves.
    """
    error, slope = result.affine_error, result.law_slope
    share = result["shape_share"] = separated(result, slope)
    seen = data.tokens.max([name for name in ("text", "position") if name in data.dims])
    whole = data.length if "length" in data.dims else float(data.attrs.get("tokens", 0.0))
    grows = seen >= whole  # a window does not
    reach = xr.full_like(seen, float(data.attrs.get("positions_allowed", np.inf))).where(
        grows, seen
    )
    result["shape_error"] = error * np.sqrt(share)
    result["needed_length"] = np.ceil(seen * length_factor(error, share, slope, rule.tolerance))
    result["out_of_reach"] = (result.needed_length > reach).astype(np.int8)
    if "length" in data.dims:
        before = result[["affine_error", "shape_share", "law_slope", "tokens"]].shift(length=1)
        more = result.tokens / before.tokens
        result["predicted_error"] = extrapolated(
            before.affine_error, before.shape_share, before.law_slope, more
        )
    for name, values in savings(result, data).items():
        result[name] = values


def _verdict(result: xr.Dataset, rule: Rule, trusted: bool) -> xr.DataArray:
    """Place in FINDINGS of each head's verdict, for the first of the conditions that it meets."""
    moments = result.affine_error <= rule.tolerance
    uniform = (result.mean_error <= rule.tolerance) | (
        moments & (result.score_variance <= rule.flat)
    )
    longer = (result.out_of_reach == 0) & np.isfinite(result.needed_length) & trusted
    selects = (result.alpha >= 0.5) | (result.effective_tokens <= rule.few)
    conditions = {
        "uniform": uniform,
        "moments": moments,
        "needs a longer prompt": longer,
        "few clusters": result.clusters.notnull(),
        "selects": selects,
    }
    rest = "other shape" if mixtures(result) else "mixtures not tried"
    code: xr.DataArray = xr.full_like(result.affine_error, FINDINGS.index(rest))
    for name, condition in reversed(conditions.items()):
        code = code.where(~condition, FINDINGS.index(name))
    return code
