"""Verdicts of an audit's run: what the heads read, and whether replacing them confirms it."""

from typing import Any

import numpy as np
import xarray as xr

from largeprompt.audit.kinds import FINDINGS, head_name, longest, mixtures
from largeprompt.runs.judging import Finding, judged, rule

CLAIM = "audit"
LOWERED = 0.9  # ratio of median errors from which mixtures read visibly more


@rule(CLAIM, "Do the heads read only the mean and covariance of their prompt?")
def kinds(data: xr.Dataset) -> Finding:
    """Holds where all do, in part where some do."""
    heads = longest(data)
    counts = {name: int((heads.head_finding == index).sum()) for index, name in enumerate(FINDINGS)}
    total, moments = sum(counts.values()), counts["moments"] + counts["uniform"]
    if not total:
        return Finding("undecided", numbers={"text": "shorter than 64 tokens"})
    told = f"{moments} of {total} heads read only moments."
    error = heads.head_affine_error.transpose("layer", "head")
    ends = [error.isel(error.argmin(...)), error.isel(error.argmax(...))]
    names = [head_name(int(one.layer), int(one["head"])) for one in ends]
    numbers: dict[str, Any] = {
        "heads that read only moments": (moments, f"of {total}"),
        "tolerance": (float(data.attrs["tolerance"]), "of the output"),
        **{name: number for name, number in counts.items() if number},
        "affine error": (error, f"({names[0]} to {names[1]})"),
        "score variance": heads.head_score_variance,
        "ln L": float(np.log(heads.tokens.max())),
    }
    return Finding(judged(moments == total, in_part=moments > 0), told, told, numbers)


@rule(CLAIM, "Do a few Gaussian clusters read more than one?")
def clusters(data: xr.Dataset) -> Finding:
    """Holds where the largest mixture lowers the median error by a tenth."""
    heads, sizes = longest(data), mixtures(data)
    errors = {"mean only": heads.head_mean_error, "affine": heads.head_affine_error}
    errors |= {f"{k} component{'s' * (k > 1)}": heads[f"head_mixture_{k}_error"] for k in sizes}
    medians = {name: float(error.median()) for name, error in errors.items()}
    # what the exact first tokens do is not the clusters' doing
    better = list(medians.values())[-1] < LOWERED * medians.get("1 component", medians["affine"])
    tried = sizes and max(sizes) > 1 and bool((heads.head_finding >= 0).any())
    outcome = judged(better, rests_on=medians.values()) if tried else "undecided"
    numbers = {f"median error, {name}": value for name, value in medians.items()}
    return Finding(outcome, numbers=numbers | {"exact first tokens": int(data.attrs["sinks"])})


def _compared(data: xr.Dataset) -> xr.Dataset:
    """The steps at which all curves have points, all steps where there are none."""
    known = data.cosine.sel(curve=["random", "reverse"]).notnull().all("curve")
    return data.isel(replaced=known.values) if bool(known.any()) else data


@rule(
    CLAIM,
    "Does replacing heads in the audit's order change the model less than at random, and the "
    "reverse order more?",
)
def order(data: xr.Dataset) -> Finding | None:
    """Holds where both are so on average over the steps."""
    if "cosine" not in data:
        return None
    # at the end all are replaced, in whichever order
    inner = data.isel(replaced=slice(0, -1)) if data.sizes["replaced"] > 1 else data
    inner = _compared(inner)
    steps, names = inner.mean("replaced"), ("audit", "random", "reverse")
    audit, random, reverse = curves = [inner.cosine.sel(curve=name) for name in names]
    right = bool(((audit - random).mean() > 0) & ((random - reverse).mean() > 0))
    numbers: dict[str, Any] = {
        "heads replaced": ", ".join(str(int(count)) for count in inner.replaced)
    }
    numbers |= {
        f"cosine, {name}": float(steps.cosine.sel(curve=name)) for name in data.curve.values
    }
    if bool(data.kl.notnull().any()):
        for each, label in (("kl", "KL divergence"), ("loss_change", "change of the loss")):
            numbers |= {f"{label}, {name}": float(steps[each].sel(curve=name)) for name in names}
    return Finding(judged(right, rests_on=curves), numbers=numbers)


@rule(CLAIM, "Could one as well replace the heads that the audit puts last?", control=True)
def last(data: xr.Dataset) -> Finding | None:
    """Fails where replacing the last heads changes the model more."""
    if "cosine" not in data:
        return None
    first = _compared(data).isel(replaced=0)
    kept, lost = (float(first.cosine.sel(curve=name)) for name in ("audit", "reverse"))
    numbers = {"heads replaced": int(first.replaced), "cosine, first": kept, "cosine, last": lost}
    return Finding(judged(lost >= kept, rests_on=[kept, lost]), numbers=numbers)


RULES = (kinds, clusters, order, last)
