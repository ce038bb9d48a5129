"""Figures of an audit: maps, regimes, read-out errors, and what replacing heads does."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from largeprompt.audit.kinds import FINDINGS, READ_OUTS, longest, mixtures
from largeprompt.audit.table import heads_of
from largeprompt.display.look import given_axes
from largeprompt.runs.style import COLORS, MARKERS, Axes, study_figure

# by verdict, in the order of FINDINGS: no two alike, in print and for the color-blind
TINTS = ("#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999")
SHORT = ("moments", "few\nclusters", "selects", "other\nshape", "uniform", "not\ntried")
MOST_TICKS = 9  # on an axis of the map: more overlap
CURVES = {
    "audit": "audit's order, affine",
    "random": "random order, affine",
    "reverse": "reverse order, affine",
    "mixture": "audit's order, mixture",
    "mean": "audit's order, mean only",
}


def _by_finding(code: NDArray[np.int8]) -> Iterator[tuple[int, NDArray[np.bool_], dict[str, Any]]]:
    """Number, heads and look of each kind of heads that there is."""
    for index, tint in enumerate(TINTS):
        if (chosen := code == index).any():
            yield index, chosen, {"color": tint, "marker": MARKERS[index], "ls": ""}


@study_figure(
    "heads",
    "Every head by layer: what it does, the variance of its scores, how many tokens it reads, and "
    "the error of the affine read-out relative to its output; medians over texts and queries.",
    size=lambda data: (7.2, 2 * float(np.clip(0.9 + 0.16 * data.sizes["layer"], 2.0, 6.0))),
    panels=(2, 2),
)
def heads(data: xr.Dataset, *panels: Axes) -> None:
    """Layer by head: verdict, score variance, effective tokens, affine error."""
    from matplotlib.colors import LogNorm, Normalize

    last = longest(data)
    _verdicts(panels[0], last.head_finding)
    look: dict[str, Any] = {"norm": LogNorm(), "cmap": "cividis"}
    _map(panels[1], last.head_score_variance, r"score variance $\sigma^2$", **look)
    _map(panels[2], last.head_effective_tokens, "effective tokens", norm=LogNorm(), cmap="cividis")
    look = {"norm": Normalize(0, 1), "cmap": "cividis_r", "extend": "max"}
    _map(panels[3], last.head_affine_error, "affine error over output", **look)


def _map(
    panel: Axes, values: xr.DataArray, title: str, extend: str = "neither", **colors: Any
) -> Any:
    """Numbers of the heads as colors, layer by head; the bar that explains them."""
    values = values.transpose("layer", "head").astype(float)
    known = values.where(values >= 0)  # -1: not known
    look: dict[str, Any] = {"aspect": "auto", "origin": "lower", "interpolation": "nearest"}
    image = panel.imshow(known.values, **look | colors)
    panel.set(title=title, xlabel="head", ylabel="layer")
    panel.grid(False)
    for axis, name in ((panel.xaxis, "head"), (panel.yaxis, "layer")):
        labels = values[name].values
        step = -(-len(labels) // MOST_TICKS)
        axis.set_ticks(np.arange(0, len(labels), step), [str(each) for each in labels[::step]])
    return panel.figure.colorbar(image, ax=panel, extend=extend)


def _verdicts(panel: Axes, finding: xr.DataArray) -> None:
    """Every head in the color of its verdict; the bar names the verdicts that there are."""
    from matplotlib.colors import BoundaryNorm, ListedColormap

    there = [code for code in range(len(FINDINGS)) if bool((finding == code).any())] or [0]
    place = {code: number for number, code in enumerate(there)}
    codes = xr.apply_ufunc(lambda code: place.get(int(code), -1), finding, vectorize=True)
    norm = BoundaryNorm(np.arange(-0.5, len(there)), len(there))
    colors = ListedColormap([TINTS[code] for code in there])
    bar = _map(panel, codes, "verdict", norm=norm, cmap=colors)
    bar.set_ticks(range(len(there)), labels=[SHORT[code] for code in there])
    bar.ax.tick_params(labelsize=7, length=0)


def plot(audit: xr.Dataset, axes: Axes | None = None) -> Axes:
    """Draw every head of an audit by layer, in the color of its verdict, at the longest length.

    Parameters
    ----------
    audit
        What :func:`summary`, :func:`audit_model` or :func:`audit_heads` gave, or the dataset of an
        audit's run.
    axes
        Axes of matplotlib, new ones when left out.

    Returns
    -------
    matplotlib.axes.Axes
        The axes, for more to be drawn on.
    """
    finding = longest(heads_of(audit, "audit")).finding
    axes = given_axes(axes)
    _verdicts(axes, finding)
    return axes


@study_figure(
    "regimes",
    "Score variance of every head against the logarithm of the number of tokens, with the lines "
    "between linear, heavy and frozen; and the affine error against it (dotted: tolerance).",
    size=(7.2, 3.6),
)
def regimes(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """Score variance against ln L, and affine error against score variance."""
    logarithm = np.log(data.head_weighed_tokens)
    # heads of one length side by side, so that they do not hide each other
    spread = xr.DataArray(np.linspace(-0.12, 0.12, data.sizes["head"]), dims="head")
    columns = (data.head_score_variance, data.head_affine_error, data.head_finding)
    x, variance, error, code = (each.values for each in xr.broadcast(logarithm + spread, *columns))
    for index, chosen, look in _by_finding(code):
        left.plot(x[chosen], variance[chosen], ms=3.5, alpha=0.8, label=FINDINGS[index], **look)
        right.plot(variance[chosen], error[chosen], ms=3.5, alpha=0.8, **look)
    grid = np.linspace(float(logarithm.min()) - 0.5, float(logarithm.max()) + 0.5, 50)
    left.plot(grid, grid / 2, "-", color="0.3", lw=1, label=r"$L=e^{2\sigma^2}$: linear below")
    left.plot(grid, 2 * grid, "--", color="0.3", lw=1, label=r"$L=e^{\sigma^2/2}$: frozen above")
    words = {"xlabel": r"$\ln L$ (heads side by side)", "ylabel": r"score variance $\sigma^2$"}
    left.set(yscale="log", title="regimes", **words)
    _legend(left)
    right.axhline(float(data.attrs["tolerance"]), color="0.3", lw=1, ls=":")
    words = {"xlabel": r"score variance $\sigma^2$", "ylabel": "affine error over output"}
    right.set(xscale="log", yscale="log", title="error of the affine read-out", **words)


def _legend(axes: Axes) -> None:
    handles = axes.get_legend_handles_labels()
    axes.figure.legend(*handles, fontsize=7, loc="outside lower center", ncols=3)


@study_figure(
    "readouts",
    "Error of the read-outs: mean value, affine, with third and fourth cumulants along the tilt, "
    "Gaussian mixtures; median and quartiles over the heads of each verdict.",
    size=(5.2, 3.4),
    panels=(1, 1),
)
def readouts(data: xr.Dataset, axes: Axes) -> None:
    """Draw the error of the read-outs by verdict, from the mean alone to many clusters."""
    last, sizes = longest(data), mixtures(data)
    names = [*READ_OUTS, *(f"mixture_{size}" for size in sizes)]
    places = np.arange(len(names), dtype=float)
    for index, chosen, look in _by_finding(last.head_finding.values):
        errors = [last[f"head_{name}_error"].values[chosen] for name in names]
        low, middle, high = np.nanquantile(errors, (0.25, 0.5, 0.75), axis=1)
        look |= {"ms": 4, "lw": 1, "label": f"{FINDINGS[index]} ({int(chosen.sum())})"}
        bars = [middle - low, high - middle]
        axes.errorbar(places + 0.12 * (index - 2), middle, bars, **look)
    words = ["mean", "affine", "+ 3rd", "+ 4th", *(f"{size} comp." for size in sizes)]
    axes.set_xticks(places, words, rotation=35, ha="right")
    axes.set(yscale="log", ylabel="error over output", title="read-outs")
    _legend(axes)


@study_figure(
    "replacement",
    "The model with more and more heads replaced by their read-outs: in the order of the audit, at "
    "random, in reverse, and with other read-outs. Bars: standard error over texts.",
    size=(7.2, 3.1),
    needs=("curve",),
)
def replacement(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """Effect on the model's output against the number of heads replaced."""
    language = bool(data.kl.notnull().any())
    for (name, label), marker, color in zip(CURVES.items(), MARKERS, COLORS, strict=False):
        if name in data.curve:
            one = data.sel(curve=name)
            label += f" of {int(data.mixture_components)}" if name == "mixture" else ""
            look = {"fmt": f"-{marker}", "color": color, "label": label}
            _curve(left, one, 1 - one.cosine, "cosine_error", **look)
            if language:
                _curve(right, one, one.kl, "kl_error", **look)
    common = {"xscale": "log", "yscale": "log", "xlabel": "heads replaced"}
    left.set(ylabel="1 - cosine of the embeddings", **common)
    if language:
        right.set(ylabel="KL divergence of the next token", **common)
        left.legend(fontsize=7)
    else:
        right.set_axis_off()
        right.legend(*left.get_legend_handles_labels(), loc="center left")


def _curve(axes: Axes, data: xr.Dataset, values: xr.DataArray, error: str, **look: Any) -> None:
    """The points that a curve has, with standard errors over texts where there are several."""
    known = values.notnull().values
    several = error in data and bool(data[error].notnull().any())
    bars = data[error].values[known] if several else None
    look |= {"lw": 1.2, "ms": 4, "capsize": 2}
    axes.errorbar(data.replaced.values[known], values.values[known], bars, **look)


FIGURES = (heads, regimes, readouts, replacement)
