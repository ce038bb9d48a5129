"""Heads against the length of the prompt, what explains their errors, and what reading them
otherwise costs.
"""

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from largeprompt.runs.style import COLOURS, MARKERS, Axes, curves, describe, entry, study_figure

HEADS = ["layer", "head"]


def _texts(values: xr.DataArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean over texts and its standard error, 0 for one text."""
    count = np.maximum(values.notnull().sum("text"), 1)
    error = (
        (values.std("text", ddof=1) / np.sqrt(count)).fillna(0.0)
        if values.sizes["text"] > 1
        else 0 * values.mean("text")
    )
    return values.mean("text").values, error.values


@study_figure(
    "length",
    "Left: affine error of the heads, median over heads and mean over texts (bars: standard error "
    "over texts), beside what the exact law gives for as many Gaussian keys of the same moments "
    "(dashed) and what the shortest prefix foretold (dotted). Right: heads within the tolerance, "
    "and those of which the shortest prefix foretold it by the law (dotted).",
)
def length(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """Errors and heads within the tolerance against the length."""
    tolerance = float(data.attrs["tolerance"])
    for i, first, one in curves(data, "first"):
        style: dict[str, Any] = {"color": COLOURS[i], "lw": 1.2}
        left.errorbar(
            data.length,
            *_texts(one.affine_error.median(HEADS)),
            marker=MARKERS[i],
            ms=4,
            label=f"first token {first}",
            **style,
        )
        left.plot(data.length, _texts(one.law_error.median(HEADS))[0], "--", **style)
        left.plot(
            data.length, _texts(one.law_foretold.isel(made_at=0).median(HEADS))[0], ":", **style
        )
        right.errorbar(
            data.length,
            *_texts((one.affine_error <= tolerance).sum(HEADS)),
            marker=MARKERS[i],
            ms=4,
            **style,
        )
        told = one.law_foretold.isel(made_at=0)
        right.plot(
            data.length,
            _texts((told <= tolerance).sum(HEADS).where(told.notnull().any(HEADS)))[0],
            ":",
            **style,
        )
    entry(left, "exact law", ls="--")
    entry(left, f"foretold at {int(data.made_at[0])} tokens", ls=":")
    total = data.sizes["layer"] * data.sizes["head"]
    describe(left, "tokens", "affine error, median over heads", log="xy", legend=7)
    describe(right, "tokens", f"heads of {total} within {tolerance:g}", log="x")


@study_figure(
    "explained",
    "Left: logarithm of the error at the longest prefix over that three octaves before, mean over "
    "heads and texts: what the law foretells, what is seen, and the three parts of the gap "
    "between them. Right: score variance (median over heads and texts, quartiles shaded), and the "
    "effective over the real number of keys (dashed).",
)
def explained(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """The terms of the gap, and two of the assumptions against the length."""
    names = [
        str(name)
        for name in ("foretold", "seen", "variance", "shape", "order")
        if name in data.term.values
    ]
    for i, first, one in curves(data, "first"):
        known = one.explained.where(one.explained.notnull().all("term")).mean(HEADS).sel(term=names)
        mean, error = _texts(known)
        left.bar(
            np.arange(len(names)) + 0.38 * i - 0.19,
            mean,
            0.36,
            yerr=error,
            color=COLOURS[i],
            label=f"first token {first}",
        )
        low, middle, high = one.score_variance.quantile([0.25, 0.5, 0.75], ["text", *HEADS]).values
        right.plot(data.length, middle, "-" + MARKERS[i], color=COLOURS[i], ms=4)
        right.fill_between(data.length, low, high, color=COLOURS[i], alpha=0.12, lw=0)
    right.plot(
        data.length, _texts(data.effective_share.median(HEADS))[0], "--", color="0.3", lw=1.2
    )
    entry(right, "score variance")
    entry(right, "effective over real number of keys", ls="--")
    left.axhline(0.0, color="0.3", lw=1, ls=":")
    left.set_xticks(range(len(names)), names)
    describe(left, "part of the logarithm", "ln of the ratio of errors", legend=7)
    describe(right, "tokens", "score variance, share of keys", log="xy", legend=7)


@study_figure(
    "replacement",
    "Change of the loss of the next token with heads replaced by their affine read-out, in the "
    "order of their errors on another text, at random and in reverse. Left in nats, right over "
    "the loss; mean over texts, bars: standard error.",
    needs=("change",),
)
def replacement(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """Change of the loss against the number of heads replaced, for three orders."""
    for i, name, one in curves(data.change, "order"):
        for axes, values in ((left, one), (right, 100 * one / data.loss)):
            axes.errorbar(
                data.heads_replaced,
                *_texts(values),
                marker=MARKERS[i],
                ms=4,
                color=COLOURS[i],
                lw=1,
                label=f"order: {name}",
            )
    describe(left, "heads replaced", "change of the loss, nats", log="xy", legend=7.5)
    describe(right, "heads replaced", "change of the loss, per cent", log="xy")


LOOKS = {0: "first and last tokens alone", 1: "and mean and covariance of the others"}


@study_figure(
    "pays",
    "Does it pay? Left: share of the heads that a state of constant size serves within the "
    "tolerance, against its size in tokens of an ordinary cache, at the longest prefix and at a "
    "shorter one (faint); bars: standard error over texts. Right: change of the loss with so many "
    "of the heads read from a state, those of the smallest errors on another text first; dotted: "
    "one per cent.",
    needs=("state_change",),
    cards={"languagemodel": 0},
)
def pays(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """Heads served against the size of the state, and the loss against the share of heads."""
    error = data.state_error
    share = 100 * (error <= float(data.attrs["tolerance"])).mean(HEADS).where(
        error.notnull().any(HEADS)
    )
    middle = max(0, data.sizes["length"] - 4)
    for i, count in enumerate(data.components.values):
        sizes, label = (
            data.size_of_state.sel(components=count),
            LOOKS.get(int(count), f"and {int(count)} clusters of the others"),
        )
        for place, alpha in ((middle, 0.3), (-1, 1.0)):
            values = share.sel(components=count).isel(length=place)
            named = f"{label}" if alpha == 1 else None
            left.errorbar(
                sizes,
                *_texts(values),
                marker=MARKERS[i],
                ms=4,
                color=COLOURS[i],
                lw=1.2,
                alpha=alpha,
                label=named,
            )
        for j, recent in enumerate(data.replaced_recent.values):
            change = 100 * (data.state_change / data.loss).sel(
                components=count, replaced_recent=recent
            )
            style: dict[str, Any] = {
                "marker": MARKERS[i],
                "ms": 4,
                "color": COLOURS[i],
                "lw": 1.0,
                "ls": ("-", "--", ":", "-.")[j % 4],
            }
            right.errorbar(100 * data.replaced_share, *_texts(change), **style)
    for j, recent in enumerate(data.replaced_recent.values):
        entry(right, f"{int(recent)} last tokens", ls=("-", "--", ":", "-.")[j % 4])
    right.axhline(1.0, color="0.3", lw=1, ls=":")
    right.set_yscale("symlog", linthresh=1.0)
    right.set_ylim(bottom=-0.5)
    ends = f"{int(data.length[-1])} tokens (faint: {int(data.length[middle])})"
    describe(
        left,
        "size of the state, tokens of cache",
        "heads served, per cent",
        ends,
        log="x",
        legend=6.5,
        ylim=(0, 100),
    )
    describe(
        right,
        "heads read from the state, per cent",
        "change of the loss, per cent",
        f"{int(data.attrs['replaced_length'])} tokens",
        legend=7,
    )


FIGURES = (length, explained, replacement, pays)
