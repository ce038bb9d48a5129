"""Which kinds of heads there are, what explains their errors, and whether replacing them in the
audit's order confirms it.
"""

import numpy as np
import xarray as xr

from largeprompt.audit.kinds import (
    FEWEST_KEYS,
    FINDINGS,
    TRIALS,
    longest,
    looks_back,
    mixtures,
    trusted,
)
from largeprompt.runs.judging import Answer, Outcome, judged, rule

CLAIM = "audit"
# what is said of heads of each kind but those that read only moments
WORDS = {
    "needs a longer prompt": ("need", "a longer prompt"),
    "few clusters": ("read", "a few clusters"),
    "selects": ("select", "tokens"),
    "other shape": ("average", "over many keys of another shape"),
    "mixtures not tried": (
        "average",
        "over many keys, which may be a few clusters: mixtures were not tried",
    ),
}


@rule(CLAIM, "Do the heads read only the mean and covariance of their prompt?")
def kinds(data: xr.Dataset) -> Answer:
    """Holds where all do, in part where some do."""
    heads = longest(data)
    counts = {name: int((heads.head_finding == index).sum()) for index, name in enumerate(FINDINGS)}
    total, uniform = sum(counts.values()), counts["uniform"]
    moments = counts["moments"] + uniform
    if not total:
        return (
            "undecided",
            "No head could be judged: fewer than 64 tokens.",
            "Below 64 tokens nothing is judged.",
        )
    variance, error = heads.head_score_variance, heads.head_affine_error.transpose("layer", "head")
    words = (
        WORDS
        if mixtures(data)
        else WORDS | {"selects": ("select", "tokens, or a few clusters: mixtures were not tried")}
    )
    pairs = [
        (counts[name], f"{verb}{'s' if counts[name] == 1 else ''} {what}")
        for name, (verb, what) in words.items()
    ]
    said = f" ({uniform} of them only the mean)" if uniform else ""
    said += "".join(f"; {number} {does}" for number, does in pairs if number)
    named = []
    for extreme in (float(error.quantile(q)) for q in (0.0, 1.0)):
        layer, head = np.argwhere(np.isclose(error.values, extreme))[0]
        named.append(
            f"{extreme:.2g} (layer {int(heads.layer[layer])}, head {int(heads['head'][head])})"
        )
    return (
        judged(moments == total, in_part=moments > 0),
        f"{moments} of {total} heads do, to {float(data.attrs['tolerance']):g} of their "
        f"output{said}. Affine errors from {named[0]} to {named[1]}; median score variances from "
        f"{float(variance.quantile(0.0)):.2g} to {float(variance.quantile(1.0)):.3g}, against ln "
        f"L = {float(np.log(heads.tokens.max())):.1f}.",
        f"{moments} of {total} heads read only moments.",
    )


@rule(CLAIM, "Would a prompt that the model can read be long enough for the other heads?")
def length(data: xr.Dataset) -> tuple[Outcome, str]:
    """Holds where nine in ten are predicted to come within the tolerance, in part where one in ten
    is, if predictions came true.
    """
    heads = longest(data)
    wrong = heads.head_affine_error > float(data.attrs["tolerance"])
    known = wrong & heads.head_shape_share.notnull()
    count = int(known.sum())
    if not count:
        said = (
            f"{int(wrong.sum())} heads are beyond the tolerance, but queries see fewer than "
            f"{FEWEST_KEYS} keys, too few to tell."
        )
        return "undecided", said if bool(wrong.any()) else "Every head is within the tolerance."
    mended = known & np.isfinite(heads.head_needed_length)
    near, far = mended & (heads.head_out_of_reach == 0), mended & (heads.head_out_of_reach > 0)
    within, beyond = int(near.sum()), int(far.sum())
    reads = (
        f"the {int(data.attrs['positions_allowed']):,} tokens that it reads"
        if "positions_allowed" in data.attrs
        else "its reach"
    )
    law = float(heads.head_law_share.where(wrong).median())
    made, kept, close = _tested(data)
    came = f"{kept} of {made} promises came true" if made else "no such promise was among them"
    proof = f"{close:.0%} of the predicted errors that could be tested are close, and {came}"
    return (
        judged(within > 0.9 * count, in_part=within > 0.1 * count, rests_on=[law])
        if trusted(made, kept) or within <= 0.1 * count
        else "undecided",
        f"By errors over random keys, {within} of the {count} heads beyond the tolerance would "
        f"come within it inside {reads}, {beyond} at lengths beyond, {count - within - beyond} at "
        f"none. {'Nothing of this could be tested' if np.isnan(close) else proof}. As many "
        f"Gaussian tokens of these moments would have {law:.2f} of the squared error (median).",
    )


def _tested(data: xr.Dataset) -> tuple[int, int, float]:
    """Predictions that a head comes within the tolerance, those that came true, and the share of
    predicted errors close by.
    """
    made, kept = (int(data[f"head_predictions_{name}"]) for name in ("made", "kept"))
    return made, kept, float(data.head_predictions_close)


@rule(CLAIM, "Did predictions made at shorter lengths come true at longer ones?")
def predictions(data: xr.Dataset) -> tuple[Outcome, str]:
    """Holds where eight in ten of at least five heads that were predicted to come within the
    tolerance did.
    """
    made, kept, close = _tested(data)
    if np.isnan(close):
        least = FEWEST_KEYS * (
            2 if bool(looks_back(longest(data)).any()) else 1
        )  # the earliest of the queries see half of the keys
        said = f"read two lengths of at least {least} tokens"
        if data.sizes.get("length", 1) > 1 and int(np.sort(data.length)[-2]) >= least:
            said = (
                f"queries see {int(data.tokens.max())} keys at most, and {FEWEST_KEYS} are needed"
            )
        return "undecided", f"No prediction could be tested: {said}."
    said = f"{close:.0%} of the predicted errors are within a quarter of what was seen. "
    said += f"{made} heads were predicted to come within the tolerance, and {kept} did"
    if made < TRIALS:
        return "undecided", f"{said}: too few to trust such a verdict, and none is given."
    right = trusted(made, kept)
    return judged(
        right
    ), f"{said}: the verdict 'needs a longer prompt' is {'' if right else 'not '}given."


@rule(CLAIM, "Do a few Gaussian clusters read more than one?")
def clusters(data: xr.Dataset) -> tuple[Outcome, str]:
    """Holds where the largest mixture lowers the median error by a tenth."""
    heads, sizes = longest(data), mixtures(data)
    atoms = f" + {int(data.attrs['sinks'])} exact" if data.attrs["sinks"] else ""
    errors = {"mean only": heads.head_mean_error, "affine": heads.head_affine_error}
    errors |= {
        f"{k} component{'s' if k > 1 else ''}{atoms}": heads[f"head_mixture_{k}_error"]
        for k in sizes
    }
    medians = {name: float(error.median()) for name, error in errors.items()}
    # what the exact first tokens do is not the clusters' doing
    base = medians.get(f"1 component{atoms}", medians["affine"])
    better = list(medians.values())[-1] < 0.9 * base
    return (
        judged(better, rests_on=medians.values())
        if sizes and max(sizes) > 1 and bool((heads.head_finding >= 0).any())
        else "undecided",
        "Median error over heads: "
        + ", ".join(f"{name} {value:.2f}" for name, value in medians.items())
        + ".",
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
    names = ("audit", "random", "reverse")
    # at the end all are replaced
    inner = data.isel(replaced=slice(0, -1)) if data.sizes["replaced"] > 1 else data
    inner = _compared(inner)
    steps = inner.mean("replaced")
    audit, random, reverse = curves = [inner.cosine.sel(curve=name) for name in names]
    right = bool(((audit - random).mean() > 0) & ((random - reverse).mean() > 0))
    words = {"mean": "mean value only", "mixture": "mixtures"}  # in the audit's order, too
    text = ", ".join(
        f"{words.get(name, name)} {float(steps.cosine.sel(curve=name)):.3f}"
        for name in data.curve.values
    )
    if bool(data.kl.notnull().any()):
        at = {name: steps.sel(curve=name) for name in names}
        kl = ", ".join(
            f"{name} {float(one.kl):.3g} ({float(one.loss_change):+.3g})"
            for name, one in at.items()
        )
        text += f". KL divergence of the next token (change of the loss): {kl}"
    counts = [int(count) for count in inner.replaced]
    over = (
        "with "
        + (f"{counts[0]}, ..., " if len(counts) > 1 else "")
        + f"{counts[-1]} heads replaced"
        + ", on average" * (len(counts) > 1)
    )
    return judged(right, rests_on=curves), f"Cosine of the embeddings {over}: {text}."


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


RULES = (kinds, length, predictions, clusters, order, last)
