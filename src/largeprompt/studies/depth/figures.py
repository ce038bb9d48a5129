"""Residual self-attention in depth: errors with their predicted band, where the closure breaks, and
what normalisation does.
"""

from typing import Any

import numpy as np
import xarray as xr

from largeprompt.runs.style import (
    COLOURS,
    DASHES,
    MARKERS,
    Axes,
    describe,
    entry,
    length_label,
    look,
    marks,
    study_figure,
    ticks,
)
from largeprompt.studies.depth.rules import breaking_window

NAMES = {"token": "token outputs", "covariance": "empirical covariance"}
SCALE_LABELS = {"1/N": r"$V\sim 1/N$", "1/√N": r"$V\sim 1/\sqrt{N}$", "1": r"$V\sim 1$"}
KINDS = {"pre": "pre-norm", "sphere": "on the sphere"}


def shown_cases(data: xr.Dataset) -> list[str]:
    """One stack for each size of V: the first case of each."""
    first: dict[str, str] = {}
    for case, scale in zip(data.case.values, data.value_scale.values, strict=True):
        first.setdefault(str(scale), str(case))
    return list(first.values())


def draw_band(data: xr.Dataset, quantity: str, axes: Axes) -> None:
    """Relative root mean squared error of one case against the layer, predicted (lines) and
    measured (marks), by length.
    """
    part, layer = data.sel(quantity=quantity), data.layer.values
    lengths = [
        each for each in data.length.values if bool(np.isfinite(part.error.sel(length=each)).any())
    ]
    for i, length in enumerate(lengths):
        axes.plot(layer, np.sqrt(part.band.where(part.band > 0) / length), color=COLOURS[i], lw=1.3)
        # every other mark, where they crowd
        marked = part.sel(length=length, layer=layer[:: 2 if len(layer) > 13 else 1])
        root = np.sqrt(marked.error.where(marked.error > 0))
        spread = marked.standard_error / root  # 2 standard errors of the square are one of this
        marks(
            axes,
            i,
            marked.layer,
            root,
            spread,
            length_label(length),
            ms=3.4,
            lw=0.7,
            mec="0.2",
            mew=0.3,
        )
    if quantity == "token":
        axes.plot(
            layer,
            np.sqrt(data.independent.where(data.independent > 0) / lengths[-1]),
            color="0.45",
            lw=1.0,
            ls="--",
        )
    axes.set_yscale("log")


@study_figure(
    "depth",
    "Relative error of token outputs (above) and of the empirical covariance (below) against the "
    "layer, by prompt length, one column for each size of V: predicted band (lines, up to the "
    "layer from which on there is none) and drawn prompts (marks, ± 2 standard errors of the "
    "square). Dashed: the noise of the layers added up as if they were independent.",
    size=lambda data: (2.15 * len(shown_cases(data)) + 0.4, 4.0),
    panels=lambda data: (2, len(shown_cases(data))),
    sharex=True,
    sharey="row",
    cards={"Q2": 0},
)
def band(data: xr.Dataset, *panels: Axes) -> None:
    """Token outputs and covariance against depth, one column for each size of V."""
    cases = shown_cases(data)
    tokens, covariances = panels[: len(cases)], panels[len(cases) :]
    for row, quantity in ((tokens, "token"), (covariances, "covariance")):
        for axes, case in zip(row, cases, strict=True):
            draw_band(data.sel(case=case), quantity, axes)
        row[0].set_ylabel(NAMES[quantity])
    figure: Any = panels[0].figure
    figure.supylabel("relative error, root mean square", fontsize=9)
    for above, below, case in zip(tokens, covariances, cases, strict=True):
        one = data.sel(case=case)
        above.set_title(
            f"{SCALE_LABELS.get(str(one.value_scale.values), str(one.value_scale.values))}, "
            f"{one.weights.values}"
        )
        below.set_xlabel("layer")
        below.set_xticks(np.unique(np.linspace(0, int(data.layer.max()), 5).astype(int)))
    most = max(tokens, key=lambda axes: len(axes.get_legend_handles_labels()[0]))
    entry(most, "predicted", lw=1.3)
    entry(most, "layers independent (longest)", color="0.45", ls="--")
    figure.legend(
        *most.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=7.5
    )


@study_figure(
    "breaking",
    "Left: score variance of the recursion, with the edge of the linear regime for the shortest "
    "and the longest prompt. Right: the layer at which the closure should break, by the recursion "
    "and the band alone, against the layer from which on the steps of the tokens are wrong by "
    "half; every stack and length, jittered.",
    size=(7.4, 3.3),
)
def breaking(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """Score variance of the recursion with the edges of the linear regime; predicted against
    measured breaking layer.
    """
    scales = list(dict.fromkeys(str(each) for each in data.value_scale.values))
    none = int(data.layer.max()) + 1
    top = 4 * np.log(float(data.length.max()))
    dashes = {"random": DASHES[0], "shared": DASHES[1]}
    for case in data.case.values:
        one = data.sel(case=case)
        colour, dash = (
            COLOURS[scales.index(str(one.value_scale.values))],
            dashes[str(one.weights.values)],
        )
        left.plot(
            data.layer + 1,
            one.score_variance.where(one.score_variance < 100 * top),
            color=colour,
            ls=dash,
            lw=1.0,
        )
    for length in (data.length.values[0], data.length.values[-1]):
        edge = np.log(float(length)) / 2
        left.axhline(edge, color="0.4", lw=0.8, ls=":")
        left.text(
            1.0,
            edge * 1.06,
            length_label(float(length)),
            fontsize=7.5,
            color="0.3",
            va="bottom",
            ha="left",
        )
    describe(
        left, "layer $k$", r"score variance $\sigma_k^2$, recursion", log="y", ylim=(None, top)
    )
    random = np.random.default_rng(0)
    for i, scale in enumerate(scales):
        chosen = data.isel(case=np.flatnonzero(data.value_scale.values == scale))
        early, late = breaking_window(chosen)
        points = np.stack(
            [((early + late) / 2).values.ravel(), chosen.measured_breaking.values.ravel()]
        )
        points = points[:, np.isfinite(points[1])]
        points = points + random.uniform(-0.28, 0.28, size=points.shape)
        label = SCALE_LABELS.get(scale, scale)
        right.plot(
            *points, MARKERS[i], color=COLOURS[i], ms=4, mec="0.2", mew=0.3, alpha=0.8, label=label
        )
    right.plot([1, none], [1, none], color="0.6", lw=0.8, zorder=0)
    ticks = sorted({1, *range(none // 4, none - 2, max(1, none // 4)), none})
    names = ["none" if each == none else str(each) for each in ticks]
    right.set_xticks(ticks, names)
    right.set_yticks(ticks, names)
    describe(
        right,
        "layer at which closure should break",
        "layer at which it does",
        legend=7.5,
        loc="lower right",
    )
    for name, dash in dashes.items():
        entry(left, name, ls=dash)
    left.legend(fontsize=7.5, loc=(0.45, 0.75), title="weights", title_fontsize=7.5)


@study_figure(
    "normalised",
    "With normalisation and V of size 1: relative error of the closure against the length, with "
    "the level at which it should stop (dashed), and that level beside the excess kurtosis of "
    "what the layers read, against the dimension.",
    size=lambda data: (2.5 * (len(set(data.kind.values)) + 1) + 0.4, 3.0),
    panels=lambda data: (1, len(set(data.kind.values)) + 1),
)
def normalised(data: xr.Dataset, *panels: Axes) -> None:
    """Error of the closure against L with the predicted level, and level and kurtosis against the
    dimension.
    """
    kinds, dims = (
        list(dict.fromkeys(data.kind.values)),
        sorted({int(each) for each in data.dim.values}),
    )
    if len(kinds) > 1:
        panels[1].sharey(panels[0])
    handles: list[Any] = []
    for j, (kind, axes) in enumerate(zip(kinds, panels[:-1], strict=True)):
        levels, bends = [], []
        for i, dim in enumerate(dims):
            one = data.isel(
                normalised=np.flatnonzero((data.kind.values == kind) & (data.dim.values == dim))[0]
            )
            after = one.isel(layer=slice(1, None))
            level, root = after.level.mean("layer"), np.sqrt(after.normalised_error.mean("layer"))
            spread = np.sqrt((after.normalised_standard_error**2).mean("layer")) / root
            marks(axes, i, data.normalised_length, root, spread, f"$d={dim}$", lw=0.9)
            known = float(level) > 3 * float(after.level_error.mean())  # else 0 for all we know
            levels.append(float(np.sqrt(level)) if known else np.nan)
            if known:
                axes.axhline(levels[-1], color=COLOURS[i], lw=1.1, ls=DASHES[1])
            bends.append(float(abs(one.normalised_kurtosis).isel(layer=slice(1, -1)).mean()))
        title = KINDS.get(kind, kind)
        describe(axes, "prompt length $L$", "", title, log="xy")
        ticks(axes, "x", data.normalised_length.values)
        handles += panels[-1].plot(dims, levels, ls="-", label=f"level, {title}", **look(j, lw=1.0))
        handles += panels[-1].plot(
            dims, bends, ls=":", label=f"kurtosis, {title}", **look(j, lw=1.0, mfc="white")
        )
    panels[0].set_ylabel("relative error of tokens")
    handles = [*panels[0].get_legend_handles_labels()[0], *handles]
    figure: Any = panels[0].figure
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=7)
    describe(panels[-1], "dimension $d$", "", "closure at $L=\\infty$", log="xy")
    ticks(panels[-1], "x", dims)


FIGURES = (band, breaking, normalised)
