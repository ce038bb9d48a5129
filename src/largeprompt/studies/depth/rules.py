"""What the data of the depth study says, by rule."""

import numpy as np
import xarray as xr

from largeprompt.runs.judging import Finding, allowed_score, judged, rule
from largeprompt.studies.depth.cells import THRESHOLD

WITHIN = 0.1  # of the predicted squared error
LEVEL_WITHIN = 0.2  # of the squared level at which a normalized closure should stop


def tame(data: xr.Dataset) -> xr.Dataset:
    """Stacks that should not break at the shortest judged length, at the judged lengths.

    Which these are is decided by the prediction, not by the data.
    """
    part = data.sel(length=data.length[data.length >= data.judged_from])
    banded = np.isfinite(part.band.sel(quantity="token").isel(layer=-1))
    safe = part.predicted_first.isel(length=0) > data.layer.max()
    return part.isel(case=np.flatnonzero((banded & safe).values), layer=slice(1, None))


@rule("Q2", "Is the error after every layer the propagated noise of L tokens, falling like 1/L?")
def band(data: xr.Dataset) -> Finding:
    """Holds to 10 % and chance; undecided where chance alone allows a half."""
    part = tame(data).sel(quantity=["token", "covariance"])
    ratio, error = (each * part.length / part.band for each in (part.error, part.standard_error))
    limit = allowed_score(ratio.size)
    inside = bool((abs(ratio - 1) <= WITHIN + limit * error).all())
    # else a comparison could not have failed
    sharp = bool(ratio.size) and bool((limit * error <= THRESHOLD).all())
    off = abs(ratio - 1)
    return Finding(
        judged(inside, rests_on=[ratio, error]) if sharp or not inside else "undecided",
        f"Errors after each layer are the predicted ones to {100 * float(off.median()):.2g} % "
        "(median).",
        "Errors after each layer are not the predicted ones.",
        {
            "largest deviation": (100 * off.max(), "%"),
            "largest standard error": (100 * error.max(), "%"),
        },
    )


@rule("Q2", "Would the layers' noises add up as if they were independent?", control=True)
def naive(data: xr.Dataset) -> Finding:
    """Holds where that gives 0.8 to 1.25 of the predicted squared error."""
    part = tame(data)
    ratio = part.independent / part.band.sel(quantity="token")
    return Finding(
        judged(bool(((ratio > 0.8) & (ratio < 1.25)).all()), rests_on=[ratio]),
        numbers={"independent layers over the predicted squared error": ratio},
    )


@rule("Q2", "Does the recursion alone say at which layer the closure breaks?")
def breaking(data: xr.Dataset) -> Finding:
    """Holds where nine in ten break within one layer of the prediction, in part where half do."""
    early, late, found = data.predicted_first, data.predicted_last, data.measured_breaking
    event = (late <= data.layer.max()) | (found <= data.layer.max())
    off = (found - late).clip(min=0) + (early - found).clip(min=0)
    count, near = int(event.sum()), int((off.where(event) <= 1).sum())
    share = near / count if count else np.nan
    said = f"The breaking layer is predicted to within one in {near} of {count} cases."
    return Finding(
        judged(share > 0.9, in_part=share > 0.5, rests_on=[share, early, late, found]),
        said,
        said,
        {
            "stacks and lengths that break or should": count,
            "within one layer of the prediction": near,
            "furthest off, layers": off.where(event).max(),
        },
    )


@rule("Q2", "With normalization, does the error stop falling with L at the predicted level?")
def level(data: xr.Dataset) -> Finding:
    """Holds where every level is as predicted to 20 % and chance; undecided where none is resolved.

    Errors of layers are correlated, so those of a mean over layers are added.
    """
    part = data.isel(layer=slice(1, None)).mean("layer")
    spread = np.hypot(part.measured_level_error, part.level_error)
    off = abs(part.measured_level - part.level)
    inside = off <= LEVEL_WITHIN * part.level + allowed_score(off.size) * spread
    resolved = part.level > 3 * part.level_error
    resolved &= part.measured_level > 3 * part.measured_level_error
    ok = judged(bool(inside.all()), rests_on=[off, spread])
    shown = part.isel(normalized=np.flatnonzero(resolved)) if resolved.any() else part
    return Finding(
        ok if resolved.any() or not inside.all() else "undecided",
        "With normalization the error stops falling at the predicted level.",
        "With normalization the error does not stop at the predicted level.",
        {
            "levels resolved": int(resolved.sum()),
            "predicted squared level": shown.level,
            "measured": shown.measured_level,
        },
    )


@rule("Q2", "With V of size 1, does normalization keep the closure from breaking?")
def normalized(data: xr.Dataset) -> Finding:
    """Holds where no largest error passes the threshold, in part where some do."""
    last = data.normalized_error.isel(normalized_length=-1, layer=slice(1, None))
    worst = np.sqrt(last.max("layer"))
    broken = worst > THRESHOLD
    length = int(last.normalized_length)
    return Finding(
        judged(not broken.any(), in_part=not broken.all(), rests_on=[worst]),
        "Normalization keeps the closure from breaking.",
        "Normalization does not always keep the closure from breaking.",
        {
            f"largest relative error over layers at L = {length:,}": worst,
            "layer at which the linear regime ends without it": data.plain_edge,
        },
    )


@rule("C7", "Does a stack of softmax layers compute on long prompts what linear attention does?")
def transfer(data: xr.Dataset) -> Finding:
    """Holds where no stack breaks and outputs are near, in part where only tame ones are near."""
    part = tame(data).isel(layer=-1, length=-1)
    final = np.sqrt(part.error.sel(quantity="token"))
    broken = int((data.measured_breaking.isel(length=-1) <= data.layer.max()).sum())
    near = bool(final.size) and bool((final <= THRESHOLD).all())
    return Finding(
        judged(near and not broken, in_part=near, rests_on=[final]),
        "Stacks of softmax layers compute what linear attention does.",
        f"Stacks of softmax layers compute what linear attention does, but {broken} of "
        f"{data.sizes['case']} break.",
        {
            f"relative error of {final.size} stacks after {int(data.layer.max())} layers, "
            f"L = {int(part.length):,}": final
        },
    )


RULES = (band, breaking, level, normalized, transfer, naive)
