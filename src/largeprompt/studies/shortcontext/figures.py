"""Short contexts: how wrong the large-prompt theory is for L = 1 to 30."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from largeprompt.runs.style import COLOURS, DASHES, MARKERS, house_style

SHORT = 30


def short_figure(data: xr.Dataset) -> Figure:
    """Relative error of the limit, first order over exact error, and the same limit for ill-conditioned tokens, L up to 30."""
    near = data.sel(length=slice(1, SHORT))
    isotropic = near.isel(case=np.flatnonzero(near.direction.values == "any"))
    dim = int(isotropic.dim.values[np.argsort(np.abs(isotropic.dim.values - 4), kind="stable")[0]])
    with house_style():
        figure = Figure(figsize=(7.6, 3.2))
        left, middle, right = figure.subplots(1, 3)
        shown = isotropic.isel(case=np.flatnonzero(isotropic.dim.values == dim))
        for i in range(shown.sizes["case"]):
            one = shown.isel(case=i)
            label = rf"$\sigma^2={float(one.score_variance):g}$"
            left.plot(near.length, np.sqrt(one.exact / one["size"]), color=COLOURS[i], ls=DASHES[i], label=label)
            middle.plot(near.length, one.first_order / one.exact, color=COLOURS[i], ls=DASHES[i])
        middle.axhspan(0.9, 1.1, color="0.9", zorder=0)
        tilted = near.isel(case=np.flatnonzero(near.direction.values != "any"))
        variances = np.unique(tilted.score_variance.values)
        variance = variances[np.argmin(np.abs(variances - 2))]
        tilted = tilted.isel(case=np.flatnonzero(tilted.score_variance.values == variance))
        for i, condition in enumerate(np.unique(tilted.condition.values)):
            for direction, dash in (("weak", "-"), ("strong", "--")):
                chosen = np.flatnonzero((tilted.condition.values == condition) & (tilted.direction.values == direction))
                one = tilted.isel(case=int(chosen[0]))
                name = f"condition {condition:g}" if direction == "weak" else None
                right.plot(near.length, np.sqrt(one.exact / one["size"]), dash, color=COLOURS[i], label=name)
        right.plot([], [], "-", color="0.3", label="weak direction")
        right.plot([], [], "--", color="0.3", label="strong direction")
        relative = r"$(\mathbf{E}\,\|T_L-T\|^2)^{1/2}/\|T\|$"
        left.set(yscale="log", ylabel=relative, title=f"the limit, $d={dim}$")
        middle.set(yscale="log", ylabel="first order / exact error", title=f"the first order, $d={dim}$")
        right.set(yscale="log", title=rf"ill-conditioned, $\sigma^2={variance:g}$")
        for axes in (left, right):
            axes.axhline(0.5, color="0.6", lw=0.8)
        for axes in (left, middle, right):
            axes.set(xlabel="prompt length $L$", xlim=(0, SHORT + 1))
        left.set_ylim(0.4, 10)
        right.set_ylim(0.3, 3e3)
        for axes, ticks in ((left, (0.5, 1, 2, 5, 10)), (middle, (1, 2, 5, 10, 20, 50))):
            axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.set_yticks([], minor=True)
        left.legend(fontsize=7)
        right.legend(fontsize=7)
    return figure


def regression_figure(data: xr.Dataset) -> Figure:
    """Risk at the infinite-prompt optimum against L for both attentions, with its limit and the risk of answering 0."""
    with house_style():
        figure = Figure(figsize=(7.6, 3.1))
        panels = figure.subplots(1, data.sizes["attention"], sharey=True, squeeze=False)[0]
        for axes, kind in zip(panels, data.attention.values, strict=True):
            for i, condition in enumerate(data.regression_condition.values):
                one = data.risk.sel(attention=kind, regression_condition=condition)
                axes.plot(data.regression_length, one, color=COLOURS[i], ls=DASHES[i], label=f"condition {condition:g}")
                if kind == "softmax":
                    at_one = float(data.risk_at_one.sel(regression_condition=condition))
                    axes.plot([1], [at_one], MARKERS[i], color=COLOURS[i], mfc="none")
            axes.axhline(float(data.limit_risk), color="0.5", lw=0.9)
            axes.axhline(float(data.zero_risk.max()), color="0.5", lw=0.9, ls=":")
            axes.axvspan(1, SHORT, color="0.93", zorder=0)
            axes.set(xscale="log", yscale="log", xlabel="prompt length $L$", title=f"{kind} attention")
        edge = float(data.regression_length[-1])
        panels[-1].text(edge, float(data.limit_risk) * 1.15, "limit", ha="right", fontsize=8, color="0.35")
        panels[-1].text(edge, float(data.zero_risk.max()) * 1.15, "always 0", ha="right", fontsize=8, color="0.35")
        panels[0].set_ylabel("risk at the infinite-prompt optimum")
        panels[0].legend(fontsize=7.5)
    return figure
