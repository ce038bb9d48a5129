"""Tokens that are not Gaussian or not independent: distances, gaps, what explains them, and training."""

from __future__ import annotations

import math

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from largeprompt.runs.style import COLOURS, MARKERS, house_style

CONTROL = "Gaussian"
SYMBOLS = {"Rademacher sum": "k", "generalised normal": r"\beta", "mixture": "m", "skew": r"\kappa_3"}
TITLES = {
    "Rademacher sum": "sum of $k$ signs",
    "generalised normal": r"density $\propto e^{-|x/a|^\beta}$",
    "mixture": "two components at $\\pm m$",
    "skew": r"skewness $\kappa_3$",
}


def _families(data: xr.Dataset) -> list[str]:
    return [str(name) for name in data.family.values if name != CONTROL]


def _middle(data: xr.Dataset) -> float:
    return float(data.tilt[data.sizes["tilt"] // 2])


def draw_family(data: xr.Dataset, family: str, affine: bool, axes: Axes) -> None:
    """Root mean squared distance against L for a few members: exact (lines), drawn (marks), gap (dotted)."""
    one = data.sel(family=family, tilt=_middle(data))
    known = np.flatnonzero(one.law_parameter.notnull().values)
    chosen = sorted({int(known[i]) for i in (0, len(known) // 3, 2 * len(known) // 3, -1)})
    name = "affine_mse" if affine else "mse"
    for i, member in enumerate(chosen):
        law = one.isel(member=member)
        mean, error = law[f"drawn_{name}"], law["drawn_affine_error" if affine else "drawn_error"]
        root = np.sqrt(mean)
        axes.plot(law.length, np.sqrt(law[name]), color=COLOURS[i], lw=1.1)
        label = f"${SYMBOLS[family]}={float(law.law_parameter):g}$"
        axes.errorbar(law.length, root, error / root, fmt=MARKERS[i], color=COLOURS[i], ms=3.5, lw=0.8, label=label)
        if affine:
            axes.axhline(abs(float(law.gap)), color=COLOURS[i], lw=0.9, ls=":")
    axes.set(xscale="log", yscale="log")


def families_figure(data: xr.Dataset) -> Figure:
    """Distance to the tilt limit above, to the affine read-out below, one column for each family."""
    names = _families(data)
    with house_style():
        figure = Figure(figsize=(2.15 * len(names) + 0.5, 4.6))
        panels = figure.subplots(2, len(names), sharex=True, sharey=True, squeeze=False)
        for column, name in enumerate(names):
            for row in (0, 1):
                draw_family(data, name, bool(row), panels[row, column])
            panels[0, column].set_title(TITLES[name])
            panels[0, column].legend(fontsize=7, handletextpad=0.2, borderpad=0.2, labelspacing=0.3, loc="lower left")
            panels[1, column].set_xlabel("prompt length $L$")
        panels[0, 0].set_ylabel(r"$(\mathbf{E}\,|T_L-T|^2)^{1/2}$")
        panels[1, 0].set_ylabel(r"$(\mathbf{E}\,|T_L-T_{\mathrm{affine}}|^2)^{1/2}$")
    return figure


def draw_scaling(data: xr.Dataset, axes: Axes) -> None:
    """Exact gap (marks) and the predicted power law (lines) against the distance from the Gaussian."""
    for i, name in enumerate(_families(data)):
        one = data.sel(family=name)
        axes.plot(one.distance, abs(one.scaling_predicted), color=COLOURS[i], lw=1.0)
        axes.plot(one.distance, abs(one.scaling_gap), MARKERS[i], color=COLOURS[i], ms=4, mfc="none", label=name)
    axes.set(xscale="log", yscale="log", xlabel="distance of the parameter from the Gaussian", ylabel=r"$|T-T_{\mathrm{affine}}|$")
    axes.set_title(f"gap at $u={_middle(data):g}$: exact, and predicted (lines)")
    axes.legend(fontsize=7.5)


def draw_ladder(data: xr.Dataset, axes: Axes) -> None:
    """Share of the gap that third and fourth cumulant give, against the tilt over the radius of convergence."""
    for i, name in enumerate(_families(data)):
        one = data.sel(family=name)
        share = ((one.third + one.fourth) / one.gap).transpose("member", "tilt")
        x = (one.tilt / one.radius).transpose("member", "tilt").where(np.isfinite(one.radius))
        axes.plot(x.values.ravel(), share.values.ravel(), MARKERS[i], color=COLOURS[i], ms=4, mfc="none", label=name)
        if name == "skew":
            third = (one.third / one.gap).transpose("member", "tilt")
            axes.plot(x.values.ravel(), third.values.ravel(), "+", color=COLOURS[i], ms=5, label="skew, third alone")
    axes.axhline(1.0, color="0.6", lw=0.8)
    axes.axvline(1.0, color="0.6", lw=0.8, ls="--")
    axes.set(xlabel="tilt over the radius of convergence", ylabel="share of the gap", ylim=(0, 3))
    axes.set_title("third and fourth cumulants")
    axes.legend(fontsize=7.5, loc="upper left")


def draw_crossing(data: xr.Dataset, axes: Axes) -> None:
    """Length from which on the gap shows, against the gap: exact (marks) and first order (lines), for every tilt."""
    for j, tilt in enumerate(data.tilt.values):
        for i, name in enumerate(_families(data)):
            one = data.sel(family=name, tilt=tilt)
            order = np.argsort(abs(one.gap.values))
            gap, exact = abs(one.gap.values[order]), one.crossing.values[order]
            kept = np.isfinite(exact)
            axes.plot(gap[kept], exact[kept], MARKERS[i], color=COLOURS[j], ms=4, mfc="none")
        gaps = np.geomspace(1e-4, 1.0, 30)
        control = data.sel(family=CONTROL, tilt=tilt).isel(member=0)
        noise = float(control.first_order.isel(length=-1) * data.length[-1])
        axes.plot(gaps, noise / gaps**2, color=COLOURS[j], lw=0.9, ls="--", label=f"$u={float(tilt):g}$, Gaussian noise")
    finite = data.crossing.where(np.isfinite(data.crossing) & (data.crossing > 1))
    low, high = (10 ** math.floor(math.log10(float(finite.min()))), 10 ** math.ceil(math.log10(float(finite.max()))))
    axes.set(
        xscale="log", yscale="log", xlabel=r"gap $|T-T_{\mathrm{affine}}|$", ylabel="crossing length $L_\\times$", ylim=(low, high)
    )
    axes.set_title("below it the Gaussian theory is as good")
    axes.legend(fontsize=7.5, loc="lower left")


def draw_effective(data: xr.Dataset, axes: Axes) -> None:
    """Effective length over length against the score variance, predicted (lines) and by the drawn errors (marks)."""
    last = data.isel(dependent_length=-1)
    share = last.dependent_effective / last.dependent_length
    measured = share * last.dependent_predicted / last.dependent_drawn
    error = measured * last.dependent_error / last.dependent_drawn
    for i, name in enumerate(last.dependence.values):
        colour, mark = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
        kind, strength = str(name).rsplit(" ", 1)
        label = rf"$\varphi={strength}$" if kind == "AR(1)" else f"repeated {strength}×"
        x = last.score_variance.values * 1.03 ** (i - len(last.dependence) / 2)
        axes.plot(last.score_variance, share.sel(dependence=name), color=colour, lw=1.0)
        axes.errorbar(
            x, measured.sel(dependence=name), 2 * error.sel(dependence=name), fmt=mark, color=colour, ms=4, lw=0.8, label=label
        )
    axes.set(xscale="log", yscale="log", xlabel=r"score variance $\sigma^2$", ylabel=r"$L_{\mathrm{eff}}/L$")
    axes.set_xticks(last.score_variance.values, [f"{float(q):g}" for q in last.score_variance.values], minor=False)
    axes.set_xticks([], minor=True)
    axes.set_ylim(top=6)
    axes.set_title(f"dependent Gaussian tokens, $L={int(last.dependent_length)}$")
    axes.legend(fontsize=7, ncols=3, loc="upper center")


def ladder_figure(data: xr.Dataset) -> Figure:
    """Scaling of the gap, the cumulant ladder, the crossing length, and the effective length of dependent tokens."""
    with house_style():
        figure = Figure(figsize=(7.8, 6.0))
        panels = figure.subplots(2, 2)
        for axes, draw in zip(panels.ravel(), (draw_scaling, draw_ladder, draw_crossing, draw_effective), strict=True):
            draw(data, axes)
    return figure


def inputs_figure(data: xr.Dataset) -> Figure:
    """Tube around the tilt flow (above) and distance to the Gaussian theory's flow (below) against L, one column for each start."""
    rows = (
        ("flow_distance", "trained_distance", r"$\sup_t\|\theta_L-\theta_\infty\|$"),
        ("flow_gauss_distance", "trained_gauss", r"$\sup_t\|\theta_L-\theta^{\mathrm{Gauss}}_\infty\|$"),
    )
    with house_style():
        figure = Figure(figsize=(3.4 * data.sizes["start"] + 0.6, 5.2))
        panels = figure.subplots(2, data.sizes["start"], sharex=True, sharey="row", squeeze=False)
        for column, start in enumerate(data.start.values):
            for row, (exact, drawn, label) in enumerate(rows):
                axes = panels[row, column]
                for i, name in enumerate(data.inputs.values):
                    one = data.sel(inputs=name, start=start)
                    axes.plot(one.flow_length, one[exact], color=COLOURS[i], lw=1.1)
                    axes.errorbar(
                        one.drawn_length,
                        one[drawn],
                        2 * one[f"{drawn}_error"],
                        fmt=MARKERS[i],
                        color=COLOURS[i],
                        ms=4,
                        lw=0.8,
                        label=str(name),
                    )
                    if row and float(one.level) > 1e-9:
                        axes.axhline(float(one.level), color=COLOURS[i], lw=0.9, ls=":")
                axes.set(xscale="log", yscale="log")
                if not column:
                    axes.set_ylabel(label)
            panels[0, column].set_title(f"start: {start}")
            panels[1, column].set_xlabel("prompt length $L$")
        panels[0, 0].legend(fontsize=7.5, title="inputs", title_fontsize=7.5)
    return figure
