"""Verdicts of an audit's run: what the heads read, and whether replacing them confirms it."""

import numpy as np
import xarray as xr

from largeprompt.audit.kinds import FINDINGS, head_name, longest, mixtures
from largeprompt.runs.judging import Answer, Outcome, judged, rule

CLAIM = "audit"
# what is said of one head and of several heads of each kind but those that read only moments
WORDS = {
    "few clusters": ("reads a few clusters", "read a few clusters"),
    "selects": ("selects tokens", "select tokens"),
    "other shape": ("averages over keys of another shape", "average over keys of another shape"),
    "mixtures not tried": ("may read a few clusters", "may read a few clusters"),
}
LOWERED = 0.9  # ratio of median errors from which mixtures read visibly more


@rule(CLAIM, "Do the heads read only the mean and covariance of their prompt?")
def kinds(data: xr.Dataset) -> Answer:
    """Holds where all do, in part where some do."""
    heads = longest(data)
    counts = {name: int((heads.head_finding == index).sum()) for index, name in enumerate(FINDINGS)}
    total, moments = sum(counts.values()), counts["moments"] + counts["uniform"]
    if not total:
        few = "Below 64 tokens nothing is judged."
        return "undecided", f"No head could be judged. {few}", few
    variance, error = heads.head_score_variance, heads.head_affine_error.transpose("layer", "head")
    said = f" ({counts['uniform']} of them only the mean)" if counts["uniform"] else ""
    for name, words in WORDS.items():
        said += f"; {counts[name]} {words[counts[name] > 1]}" if counts[name] else ""
    said += "" if mixtures(data) else "; mixtures were not tried"
    ends = []
    for place in (error.argmin(...), error.argmax(...)):
        one = error.isel(place)
        ends.append(f"{float(one):.2g} ({head_name(int(one.layer), int(one['head']))})")
    return (
        judged(moments == total, in_part=moments > 0),
        f"{moments} of {total} heads do, to {float(data.attrs['tolerance']):g} of their "
        f"output{said}. Affine errors from {ends[0]} to {ends[1]}; score variances from "
        f"{float(variance.min()):.2g} to {float(variance.max()):.3g}, against ln L = "
        f"{float(np.log(heads.tokens.max())):.1f}.",
        f"{moments} of {total} heads read only moments.",
    )


@rule(CLAIM, "Do a few Gaussian clusters read more than one?")
def clusters(data: xr.Dataset) -> tuple[Outcome, str]:
    """Holds where the largest mixture lowers the median error by a tenth."""
    heads, sizes = longest(data), mixtures(data)
    atoms = f" + {int(data.attrs['sinks'])} exact" if data.attrs["sinks"] else ""
    errors = {"mean only": heads.head_mean_error, "affine": heads.head_affine_error}
    one = f"1 component{atoms}"
    errors |= {
        one if k == 1 else f"{k} components{atoms}": heads[f"head_mixture_{k}_error"] for k in sizes
    }
    medians = {name: float(error.median()) for name, error in errors.items()}
    # what the exact first tokens do is not the clusters' doing
    base = medians.get(one, medians["affine"])
    better = list(medians.values())[-1] < LOWERED * base
    tried = sizes and max(sizes) > 1 and bool((heads.head_finding >= 0).any())
    words = ", ".join(f"{name} {value:.2f}" for name, value in medians.items())
    return (
        judged(better, rests_on=medians.values()) if tried else "undecided",
        f"Median error over heads: {words}.",
    )


def _compared(data: xr.Dataset) -> xr.Dataset:
    """The steps at which all curves have points, all steps where there are none."""
    known = data.cosine.sel(curve=["random", "reverse"]).notnull().all("curve")
    return data.isel(replaced=known.values) if bool(known.any()) else data


@rule(
    CLAIM,
    "Does replacing heads in the audit's order change the model less than at random, and the "
    "reverse order more?",
)
def order(data: xr.Dataset) -> tuple[Outcome, str] | None:
    """Holds where both are so on average over the steps."""
    if "cosine" not in data:
        return None
    # at the end all are replaced, in whichever order
    inner = data.isel(replaced=slice(0, -1)) if data.sizes["replaced"] > 1 else data
    inner = _compared(inner)
    steps, names = inner.mean("replaced"), ("audit", "random", "reverse")
    audit, random, reverse = curves = [inner.cosine.sel(curve=name) for name in names]
    right = bool(((audit - random).mean() > 0) & ((random - reverse).mean() > 0))
    words = {"mean": "mean value only", "mixture": "mixtures"}  # in the audit's order, too
    text = ", ".join(
        f"{words.get(name, name)} {float(steps.cosine.sel(curve=name)):.3f}"
        for name in data.curve.values
    )
    if bool(data.kl.notnull().any()):
        kl = ", ".join(
            f"{name} {float(steps.kl.sel(curve=name)):.3g} "
            f"({float(steps.loss_change.sel(curve=name)):+.3g})"
            for name in names
        )
        text += f". KL divergence of the next token (change of the loss): {kl}"
    counts = [str(int(count)) for count in inner.replaced]
    over = ", ".join(counts) + " heads replaced" + ", on average" * (len(counts) > 1)
    return (judged(right, rests_on=curves), f"Cosine of the embeddings with {over}: {text}.")


@rule(CLAIM, "Could one as well replace the heads that the audit puts last?", control=True)
def last(data: xr.Dataset) -> tuple[Outcome, str] | None:
    """Fails where replacing the last heads changes the model more."""
    if "cosine" not in data:
        return None
    first = _compared(data).isel(replaced=0)
    kept, lost = (float(first.cosine.sel(curve=name)) for name in ("audit", "reverse"))
    return (
        judged(lost >= kept, rests_on=[kept, lost]),
        f"With {int(first.replaced)} heads replaced the cosine is {kept:.4f} for the first and "
        f"{lost:.4f} for the last.",
    )


RULES = (kinds, clusters, order, last)
