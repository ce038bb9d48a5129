"""The infinite-prompt limit: identities, gaps, and finite prompts that tend to it."""

import numpy as np
import xarray as xr

from largeprompt.runs.style import (
    COLOURS,
    DASHES,
    MARKERS,
    Axes,
    curves,
    describe,
    marks,
    study_figure,
)


@study_figure(
    "limit",
    "Root mean squared distance of attention over L tokens to the limit of their own law (left) "
    "and to the affine map with the same moments (right, dotted: the gap): only Gaussian tokens "
    "reach the latter. Lines: exact law; marks: drawn prompts.",
    cards={"C1": 0, "C2": 1},
    sharey=True,
)
def limit(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """Distance to the limit of each law, and to the affine map with the level at which it must
    stop: exact and drawn.
    """
    for axes, target in ((left, "limit"), (right, "affine")):
        for i, law, one in curves(data.sel(quantity=target), "law"):
            axes.plot(one.length, np.sqrt(one.exact), color=COLOURS[i], lw=1.1)
            root = np.sqrt(one.drawn)
            marks(
                axes, i, one.drawn_length, root, one.drawn_standard_error / root, str(law), ms=3.5
            )
            if target == "affine" and float(one.gap) > 1e-9:
                axes.axhline(float(one.gap), color=COLOURS[i], lw=1.0, ls=":")
    left.set(
        title="to the limit of its own law: falls for all",
        ylabel=r"$(\mathbf{E}\,\|T_L-T\|^2)^{1/2}$",
    )
    right.set(
        title="to the affine map: stops unless Gaussian",
        ylabel=r"$(\mathbf{E}\,\|T_L-T_{\mathrm{affine}}\|^2)^{1/2}$",
    )
    right.tick_params(labelleft=True)
    for axes in (left, right):
        describe(axes, "prompt length $L$", log="xy", legend=8)


KINDS = {
    "regular": r"$\mathcal{N}(m,\Gamma)$",
    "singular": r"$\mathcal{N}(m,\Gamma)$, rank $\lfloor d/2\rfloor$",
    "mixture": "mixture of three",
}


@study_figure(
    "identity",
    "Left: relative error of the operator against quadrature, largest over random layers, queries "
    "and laws, by dimension; crosses: what the affine map would miss for mixtures. Right: gap "
    "between limit and affine map for laws that are not Gaussian, predicted (lines) and by "
    "quadrature (marks), d = 4.",
)
def identity(data: xr.Dataset, left: Axes, right: Axes) -> None:
    """Error of the operator against quadrature, by dimension; gap of other laws to the affine map,
    by score variance.
    """
    for i, kind in enumerate(data.kind.values):
        error = np.maximum(data.identity_error.sel(kind=kind), 1e-17)
        left.plot(
            data.dim, error, MARKERS[i] + "-", color=COLOURS[i], lw=0.8, label=KINDS[str(kind)]
        )
    affine = data.affine_error.sel(kind="mixture")
    left.plot(data.dim, affine, "x:", color=COLOURS[5], lw=0.8, label="mixture, affine map instead")
    left.axhline(2.0**-52, color="0.6", lw=0.8, ls="--")
    left.text(
        float(data.dim[-1]),
        2.0**-52 / 1.6,
        "rounding unit",
        fontsize=7.5,
        color="0.35",
        ha="right",
        va="top",
    )
    describe(
        left,
        "dimension $d$",
        "relative error of $T[\\mu](z)$",
        "against quadrature",
        log="xy",
        ylim=(5e-18, 30),
    )
    left.legend(fontsize=7.5, loc="center right")
    for i, law, one in curves(data, "control"):
        right.plot(
            one.gap_score_variance,
            one.control_gap,
            color=COLOURS[i],
            ls=DASHES[i],
            lw=1.1,
            label=str(law),
        )
        right.plot(
            one.gap_score_variance,
            one.control_gap_quadrature,
            MARKERS[i],
            color=COLOURS[i],
            ms=4,
            mfc="none",
        )
    right.plot([], [], "o", color="0.3", ms=4, mfc="none", label="by quadrature")
    words = (
        r"score variance $\sigma^2$",
        r"$\|T-T_{\mathrm{affine}}\|$",
        "controls: not affine unless Gaussian",
    )
    describe(right, *words, log="xy", legend=7.5)


FIGURES = (limit, identity)
