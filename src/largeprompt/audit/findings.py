"""From sums to numbers that a person reads: relative errors, regimes, one verdict for each head."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from largeprompt import validation
from largeprompt.audit.kinds import (
    FINDINGS,
    READ_OUTS,
    REGIMES,
    described,
    longest,
    mixtures,
    queries,
)
from largeprompt.audit.savings import savings
from largeprompt.errors import InvalidArgumentError

Array = NDArray[Any]
WIDTHS = ("key_width", "value_width", "group_size")
KEPT = (
    *("tokens", "weighed_tokens", "score_variance", "score_skewness", "score_kurtosis"),
    *("entropy", "largest_weight"),
)


@dataclasses.dataclass(frozen=True)
class Rule:
    """What decides a head's verdict; all numbers are medians over texts and query positions.

    The first that fits counts. 'uniform': the mean value is enough, or the weights barely differ.
    'moments': the affine read-out is enough. 'few clusters': a Gaussian mixture is enough.
    'selects': the head is beyond the linear regime or reads few tokens. 'other shape': the head
    averages over many tokens; 'mixtures not tried' where a few clusters might be enough.

    Attributes
    ----------
    tolerance
        Error of a read-out, relative to the head's output, up to which it is enough.
    flat
        Variance of the scores up to which weights count as uniform where the affine read-out is
        enough.
    few
        Effective tokens up to which a head selects.
    fewest
        Query positions that see fewer keys are left out; where none sees twice as many, nothing is
        judged.
    """

    tolerance: float = 0.2
    flat: float = 0.1
    few: float = 16.0
    fewest: int = 32

    def __post_init__(self) -> None:
        for name in ("tolerance", "flat", "few"):
            validation.number(name, getattr(self, name), minimum=0)
        validation.integer("fewest", self.fewest, minimum=0)


def derived(raw: xr.Dataset) -> xr.Dataset:
    """Return relative errors and regimes of the squared sums of :func:`head_statistics`."""
    found = derived_numbers({str(name): each.values for name, each in raw.data_vars.items()})
    known = {name: (raw.output.dims, each) for name, each in found.items()}
    return described(xr.Dataset(known, coords=raw.coords))


def derived_numbers(known: Mapping[str, Array]) -> dict[str, Array]:
    """:func:`derived` of bare arrays, which is several times faster."""
    names = [f"{name}_error" for name in READ_OUTS]
    names += [name for name in known if re.fullmatch(r"mixture_\d+_error", name)]
    output, variance, tokens = known["output"], known["score_variance"], known["weighed_tokens"]
    with np.errstate(divide="ignore", invalid="ignore"):
        alpha = np.sqrt(variance / (2 * np.log(np.where(tokens > 1, tokens, np.nan))))
        regime = np.where(np.isnan(alpha), -1, (alpha >= 0.5) * 1 + (alpha >= 1)).astype(np.int8)
        found = {name: known[name] for name in KEPT}
        found |= {"effective_tokens": 1 / known["collision"], "alpha": alpha, "regime": regime}
        found |= {name: np.sqrt(known[name]) / np.sqrt(output) for name in names}
        found |= {name: known[name] / output for name in ("tilt", "value_spread")}
    return found | {name: known[name] for name in WIDTHS if name in known}


def summary(data: xr.Dataset, rule: Rule | None = None) -> xr.Dataset:
    """Return one row for each head (and length): medians, and the verdict by the rule.

    Parameters
    ----------
    data
        What :func:`audit_model` or :func:`audit_heads` gave.
    rule
        What decides the verdicts; :class:`Rule` as it is by default.

    Returns
    -------
    xarray.Dataset
        Dimensions (length,) layer, head; ``finding`` is the place of the verdict in ``FINDINGS``,
        -1 where there is none.
    """
    rule = Rule() if rule is None else rule
    validation.instance("rule", rule, Rule, "a Rule")
    if not isinstance(data, xr.Dataset) or "affine_error" not in data or "regime" not in data:
        allowed = "the dataset of audit_model or audit_heads"
        raise InvalidArgumentError("data", validation.text(data), allowed)
    over, enough = queries(data), _enough(data, rule)
    numbers = data.drop_vars("regime").where(enough)
    result = numbers.median(over)
    for index, name in enumerate(REGIMES):
        result[f"share_{name}"] = (data.regime == index).drop_attrs().where(enough).mean(over)
    result["affine_error_bar"] = _over_texts(numbers.affine_error)
    smallest = xr.full_like(result.affine_error, np.nan)
    for count in reversed(mixtures(data)):
        smallest = smallest.where(~(result[f"mixture_{count}_error"] <= rule.tolerance), count)
    result["clusters"] = smallest
    result["order"] = _order(result.affine_error)
    result = result.assign(savings(result, data))
    judged = (data.tokens.max(over) >= 2 * rule.fewest) & result.affine_error.notnull()
    result["finding"] = _verdict(result, rule).where(judged, -1).astype(np.int8)
    result.attrs |= {f"rule_{name}": value for name, value in dataclasses.asdict(rule).items()}
    return described(result)


def replacement_order(data: xr.Dataset) -> list[tuple[int, int]]:
    """Return the heads of an audit by their ``order`` in its :func:`summary`, unknown ones last."""
    error = data.affine_error.where(_enough(data, Rule())).median(queries(data))
    order = _order(longest(error.to_dataset(name="error")).error).stack(pair=("layer", "head"))
    return [(int(layer), int(head)) for layer, head in order.sortby(order).pair.values.tolist()]


def _enough(data: xr.Dataset, rule: Rule) -> xr.DataArray:
    """Which queries see enough keys; of a short prompt, which is not judged, the longer half."""
    return data.tokens >= np.minimum(rule.fewest, data.tokens.max(queries(data)) / 2)  # type: ignore[no-any-return]


def _over_texts(error: xr.DataArray) -> xr.DataArray:
    """Standard error over texts of their medians over queries; NaN of one text."""
    medians = error.median("position")
    if "text" not in medians.dims:
        return xr.full_like(medians, np.nan)
    number = medians.count("text")
    return medians.std("text") / np.sqrt((number - 1).where(number > 1))


def _order(error: xr.DataArray) -> xr.DataArray:
    """Place of each head by its error, from 1; unknown ones last."""
    dims = [name for name in ("layer", "head") if name in error.dims]
    flat = error.transpose(..., *dims)
    values = flat.values.reshape(*flat.shape[: -len(dims)], -1)  # NaN is sorted last
    places = np.argsort(np.argsort(values, -1, kind="stable"), -1).reshape(flat.shape)
    return flat.copy(data=places + 1.0).transpose(*error.dims)


def _verdict(result: xr.Dataset, rule: Rule) -> xr.DataArray:
    """Place in FINDINGS of each head's verdict: the first of the conditions that it meets."""
    moments = result.affine_error <= rule.tolerance
    flat = result.score_variance <= rule.flat
    conditions = {
        "uniform": (result.mean_error <= rule.tolerance) | (moments & flat),
        "moments": moments,
        "few clusters": result.clusters.notnull(),
        "selects": (result.alpha >= 0.5) | (result.effective_tokens <= rule.few),
    }
    rest = "other shape" if mixtures(result) else "mixtures not tried"
    code: xr.DataArray = xr.full_like(result.affine_error, FINDINGS.index(rest))
    for name, condition in reversed(conditions.items()):
        code = code.where(~condition, FINDINGS.index(name))
    return code
