"""Depth: predicted errors, and where the closure breaks."""

from typing import Any

import numpy as np
import xarray as xr

from largeprompt.runs.style import (
    COLORS,
    DASHES,
    MARKERS,
    Axes,
    curves,
    describe,
    entry,
    length_label,
    marks,
    study_figure,
)

SCALE_LABELS = {"1/N": r"$V\sim 1/N$", "1/√N": r"$V\sim 1/\sqrt{N}$", "1": r"$V\sim 1$"}


def shown_cases(data: xr.Dataset) -> list[str]:
    """The first case of each size of V."""
    first: dict[str, str] = {}
    for case, scale in zip(data.case.values, data.value_scale.values, strict=True):
        first.setdefault(str(scale), str(case))
    return list(first.values())


@study_figure(
    "depth",
    "Relative error of token outputs (above) and of the empirical covariance (below) against the "
    "layer, one column for each size of V: predicted (lines) and drawn prompts (marks, ± 2 "
    "standard errors of the square). Dashed: as if layers were independent.",
    size=lambda data: (2.15 * len(shown_cases(data)) + 0.4, 4.0),
    panels=lambda data: (2, len(shown_cases(data))),
    sharex=True,
    sharey="row",
    cards={"Q2": 0},
)
def band(data: xr.Dataset, *panels: Axes) -> None:
    """Token outputs and covariance against depth."""
    cases = shown_cases(data)
    places = [(quantity, case) for quantity in ("token", "covariance") for case in cases]
    for axes, (quantity, case) in zip(panels, places, strict=True):
        one = data.sel(quantity=quantity, case=case)
        marked = one.layer.values[:: 2 if data.sizes["layer"] > 13 else 1]  # where they crowd
        for i, length, part in curves(one, "length"):
            known = part.band.where(part.band > 0)
            axes.plot(one.layer, np.sqrt(known / length), color=COLORS[i], lw=1.3)
            few = part.sel(layer=marked)
            root = np.sqrt(few.error.where(few.error > 0))
            # 2 standard errors of the square are one of the root
            spread = few.standard_error / root
            marks(axes, i, marked, root, spread, length_label(length), ms=3.4, lw=0.7)
        axes.set_yscale("log")
        if quantity == "token":
            alone = one.independent.where(one.independent > 0)
            axes.plot(one.layer, np.sqrt(alone / length), color="0.45", lw=1.0, ls="--")
            scale = str(one.value_scale.values)
            axes.set_title(f"{SCALE_LABELS.get(scale, scale)}, {one.weights.values}")
        else:
            axes.set_xlabel("layer")
            axes.set_xticks(np.unique(np.linspace(0, int(data.layer.max()), 5).astype(int)))
    figure: Any = panels[0].figure
    panels[0].set_ylabel("token outputs")
    panels[len(cases)].set_ylabel("empirical covariance")
    figure.supylabel("relative error, root mean square", fontsize=9)
    entry(panels[0], "predicted", lw=1.3)
    entry(panels[0], "layers independent (longest)", color="0.45", ls="--")
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=3, fontsize=7.5)


@study_figure(
    "breaking",
    "Left: score variance of the recursion, with the edge of the linear regime for two lengths. "
    "Right: the layer at which the closure should break against the layer whose step is wrong by "
    "half; every stack and length, jittered.",
    size=(7.4, 3.3),
)
def breaking(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """Score variance with the edges of the linear regime; predicted against measured layers."""
    scales = list(dict.fromkeys(str(each) for each in data.value_scale.values))
    none = int(data.layer.max()) + 1
    top = 4 * np.log(float(data.length.max()))
    dashes = {"random": DASHES[0], "shared": DASHES[1]}
    for _, _, one in curves(data, "case"):
        look: dict[str, Any] = {"ls": dashes[str(one.weights.values)], "lw": 1.0}
        variance = one.score_variance.where(one.score_variance < 100 * top)
        i = scales.index(str(one.value_scale.values))
        left.plot(data.layer + 1, variance, color=COLORS[i], **look)
    for length in (data.length.values[0], data.length.values[-1]):
        edge = np.log(float(length)) / 2
        left.axhline(edge, color="0.4", lw=0.8, ls=":")
        words = length_label(float(length))
        left.text(1.0, edge * 1.06, words, fontsize=7.5, color="0.3", va="bottom", ha="left")
    for name, dash in dashes.items():
        entry(left, f"{name} weights", ls=dash)
    variance = r"score variance $\sigma_k^2$, recursion"
    describe(left, "layer $k$", variance, log="y", ylim=(None, top), legend=7.5, below=2)
    random = np.random.default_rng(0)
    for i, scale in enumerate(scales):
        chosen = data.isel(case=np.flatnonzero(data.value_scale.values == scale))
        middle = (chosen.predicted_first + chosen.predicted_last) / 2
        points = np.stack([middle.values.ravel(), chosen.measured_breaking.values.ravel()])
        points = points + random.uniform(-0.28, 0.28, size=points.shape)
        label = SCALE_LABELS.get(scale, scale)
        look = {"ms": 4, "mec": "0.2", "mew": 0.3, "alpha": 0.8, "label": label}
        right.plot(*points, MARKERS[i], color=COLORS[i], **look)
    right.plot([1, none], [1, none], color="0.6", lw=0.8, zorder=0)
    places = sorted({1, *range(none // 4, none - 2, max(1, none // 4)), none})
    names = ["none" if each == none else str(each) for each in places]
    right.set_xticks(places, names)
    right.set_yticks(places, names)
    x, y = "layer at which closure should break", "layer at which it does"
    describe(right, x, y, legend=7.5, below=3)


FIGURES = (band, breaking)
