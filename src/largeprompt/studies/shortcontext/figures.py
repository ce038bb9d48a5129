"""Short contexts: how wrong the large-prompt theory is for L = 1 to 30."""

import numpy as np
import xarray as xr

from largeprompt.runs.style import (
    COLOURS,
    DASHES,
    MARKERS,
    Axes,
    curves,
    describe,
    entry,
    study_figure,
    ticks,
)
from largeprompt.studies.shortcontext.formulas import SHORT, cases, ill_conditioned, isotropic


@study_figure(
    "short",
    "L = 1 to 30, exact: relative error of the limit, first order over exact error (grey: within "
    "10 %), and relative error for ill-conditioned tokens along weak and strong directions.",
    size=(7.6, 3.2),
    panels=(1, 3),
    cards={"F1": 0},
)
def short(data: xr.Dataset, left: Axes, middle: Axes, right: Axes) -> None:
    """Relative error of the limit, first order over exact error, and the same limit for
    ill-conditioned tokens, L up to 30.
    """
    near = data.assign(relative=np.sqrt(data.exact / data["size"])).sel(length=slice(1, SHORT))
    dims = isotropic(near).dim.values
    dim = int(dims[np.argmin(np.abs(dims - 4))])
    shown = cases(isotropic(near), dim=dim)
    for i, variance, one in curves(shown.set_index(case="score_variance"), "case"):
        left.plot(
            near.length,
            one.relative,
            color=COLOURS[i],
            ls=DASHES[i],
            label=rf"$\sigma^2={variance:g}$",
        )
        middle.plot(near.length, one.first_order / one.exact, color=COLOURS[i], ls=DASHES[i])
    middle.axhspan(0.9, 1.1, color="0.9", zorder=0)
    tilted = ill_conditioned(near)
    variances = np.unique(tilted.score_variance.values)
    variance = variances[np.argmin(np.abs(variances - 2))]
    for i, condition in enumerate(np.unique(tilted.condition.values)):
        for direction, dash in (("weak", "-"), ("strong", "--")):
            one = cases(
                tilted, condition=condition, direction=direction, score_variance=variance
            ).isel(case=0)
            name = f"condition {condition:g}" if direction == "weak" else None
            right.plot(near.length, one.relative, dash, color=COLOURS[i], label=name)
    entry(right, "weak direction")
    entry(right, "strong direction", ls="--")
    for axes in (left, middle, right):
        describe(axes, "prompt length $L$", log="y", xlim=(0, SHORT + 1))
    left.set(
        ylabel=r"$(\mathbf{E}\,\|T_L-T\|^2)^{1/2}/\|T\|$",
        title=f"the limit, $d={dim}$",
        ylim=(0.4, 10),
    )
    middle.set(ylabel="first order / exact error", title=f"the first order, $d={dim}$")
    right.set(title=rf"ill-conditioned, $\sigma^2={variance:g}$", ylim=(0.3, 3e3))
    for axes in (left, right):
        axes.axhline(0.5, color="0.6", lw=0.8)
        axes.legend(fontsize=7)
    ticks(left, "y", (0.5, 1, 2, 5, 10))
    ticks(middle, "y", (1, 2, 5, 10, 20, 50))


@study_figure(
    "regression",
    "Risk of in-context regression at the infinite-prompt optimum against L, d = 5, by condition "
    "number of the inputs; marks: predicted at L = 1; grey band: L up to 30.",
    size=(7.6, 3.1),
    panels=lambda data: (1, data.sizes["attention"]),
    sharey=True,
)
def regression(data: xr.Dataset, *panels: Axes) -> None:
    """Risk at the infinite-prompt optimum against L for both attentions, with its limit and the
    risk of answering 0.
    """
    limit, zero = float(data.limit_risk), float(data.zero_risk.max())
    for axes, kind in zip(panels, data.attention.values, strict=True):
        for i, condition, one in curves(data.sel(attention=kind), "regression_condition"):
            axes.plot(
                data.regression_length,
                one.risk,
                color=COLOURS[i],
                ls=DASHES[i],
                label=f"condition {condition:g}",
            )
            if kind == "softmax":
                axes.plot([1], [float(one.risk_at_one)], MARKERS[i], color=COLOURS[i], mfc="none")
        axes.axhline(limit, color="0.5", lw=0.9)
        axes.axhline(zero, color="0.5", lw=0.9, ls=":")
        axes.axvspan(1, SHORT, color="0.93", zorder=0)
        describe(axes, "prompt length $L$", "", f"{kind} attention", log="xy")
    for level, words in ((limit, "limit"), (zero, "always 0")):
        panels[-1].text(
            float(data.regression_length[-1]),
            level * 1.15,
            words,
            ha="right",
            fontsize=8,
            color="0.35",
        )
    describe(panels[0], "", "risk at the infinite-prompt optimum", legend=7.5)


FIGURES = (short, regression)
