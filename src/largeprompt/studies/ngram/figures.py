"""In-context Markov chains: convergence of dependent tokens, training of the tilt strength, and the head beside the n-gram."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from largeprompt.runs.style import COLOURS, DASHES, MARKERS, house_style, length_label


def _style(i: int) -> tuple[str, str]:
    return COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]


def _plain(axes: Axes) -> None:
    """Labels at powers of ten only, where an axis spans few of them."""
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())


def draw_paths(data: xr.Dataset, axes: Axes) -> None:
    """Squared distance to the limit, the final context as query, middle β: drawn, exact and first order; shuffled symbols."""
    part = data.sel(query="last").isel(beta=data.sizes["beta"] // 2)
    for i, case in enumerate(data.case.values):
        one, (colour, marker) = part.sel(case=case), _style(i)
        axes.plot(one.length, one.constant / one.length, color=colour, lw=0.9, ls="--")
        axes.plot(one.length, one.exact, color=colour, lw=1.2)
        label = f"{int(one.alphabet)}, {int(one.order)}"
        face = colour if i < len(COLOURS) else "white"  # colours and markers repeat
        axes.errorbar(
            one.length, one.mse, 2 * one.mse_standard_error, fmt=marker, color=colour, mfc=face, ms=3.5, lw=0.8, label=label
        )
    axes.errorbar(data.length, data.shuffled_mse, 2 * data.shuffled_standard_error, fmt="x", color="0.35", ms=4, lw=0.8)
    axes.plot(data.length, data.shuffled_level + 0 * data.length, color="0.35", lw=0.9, ls=":")
    axes.annotate(
        "shuffled in time", (float(data.length[-1]), float(data.shuffled_level) * 1.9), fontsize=7, color="0.25", ha="right"
    )
    axes.plot([], [], color="0.4", lw=1.2, label="exact")
    axes.plot([], [], color="0.4", lw=0.9, ls="--", label="$C/L$")
    axes.set(xscale="log", yscale="log", xlabel="prompt length $L$", ylabel=r"$\mathbf{E}\,\|T_L-T\|^2$")
    axes.set_title(rf"to the discrete tilt, $\beta={float(part.beta):g}$")
    axes.legend(
        fontsize=6.5, title="alphabet, order", title_fontsize=6.5, ncols=2, loc="lower left", columnspacing=0.8, handlelength=1.3
    )


def draw_constants(data: xr.Dataset, axes: Axes) -> None:
    """Extrapolated constants against predicted ones, every chain, β and query."""
    for i, beta in enumerate(data.beta.values):
        one, (colour, marker) = data.sel(beta=beta).stack(pair=("case", "query")), _style(i)
        ratio, error = one.extrapolated / one.constant, one.extrapolated_standard_error / one.constant
        axes.errorbar(one.constant, ratio, 2 * error, fmt=marker, color=colour, ms=3.5, lw=0.8, label=rf"$\beta={beta:g}$")
    axes.axhline(1.0, color="0.3", lw=1.0)
    axes.set(xscale="log", xlabel="$C$, predicted", ylabel="extrapolated $L\\,$mse over $C$")
    axes.set_title("the constant, drawn over predicted")
    axes.legend(fontsize=7)


def draw_mixing(data: xr.Dataset, axes: Axes) -> None:
    """Price of dependence against relaxation time, a line for each β and marks at the longest length."""
    for i, beta in enumerate(data.mixing_beta.values):
        one, (colour, marker) = data.sel(mixing_beta=beta), _style(i)
        axes.plot(
            data.mixing_curve_time,
            one.mixing_curve / one.mixing_curve_independent,
            color=colour,
            ls=DASHES[i % len(DASHES)],
            lw=1.2,
        )
        base = one.mixing_independent
        spread = 2 * one.mixing_standard_error / base
        axes.errorbar(
            data.mixing_time, one.mixing_drawn / base, spread, fmt=marker, color=colour, ms=4, lw=0.8, label=rf"$\beta={beta:g}$"
        )
    axes.set(
        xscale="log", yscale="log", xlabel=r"relaxation time $1/(1-|\lambda_2|)$", ylabel="$C$ over that of independent tokens"
    )
    axes.set_title("price of dependence")
    axes.legend(fontsize=7, loc="upper left")


def ngram_figure(data: xr.Dataset) -> Figure:
    """Convergence, constants, mixing."""
    with house_style():
        figure = Figure(figsize=(9.6, 3.3))
        left, middle, right = figure.subplots(1, 3)
        draw_paths(data, left)
        draw_constants(data, middle)
        draw_mixing(data, right)
        for axes in (left, middle, right):
            _plain(axes)
    return figure


def draw_flows(data: xr.Dataset, axes: Axes) -> None:
    """β against time at order one: infinite prompt with its law, exact risk of each length, drawn prompts."""
    late = data.sel(time=slice(1e-2, None))
    axes.plot(late.time, late.beta_infinite, color="black", lw=1.6, label=length_label(np.inf))
    law = late.beta_infinite_predicted.where(late.beta_infinite_predicted > 1.0)
    axes.plot(late.time, law, color="0.5", lw=1.2, ls=":", label=r"$\frac{1}{2}\ln(2At)$")
    for i, length in enumerate(data.training_length.values):
        one, (colour, marker) = late.sel(training_length=length), _style(i)
        axes.plot(late.time, one.beta_exact, color=colour, lw=1.2)
        few = one.isel(time=slice(None, None, max(1, late.sizes["time"] // 10)))
        axes.errorbar(
            few.time,
            few.beta_drawn,
            2 * few.beta_drawn_standard_error,
            fmt=marker,
            color=colour,
            ms=3.5,
            lw=0.8,
            label=length_label(length),
        )
    axes.set(xscale="log", xlabel="time $t$", ylabel=r"$\beta(t)$")
    axes.set_title(r"flow of $\beta$: exact (lines), drawn (marks)")
    axes.legend(fontsize=6.5, loc="upper left")


def draw_optima(data: xr.Dataset, axes: Axes) -> None:
    """β*(L): predicted, exact, drawn."""
    for i, order in enumerate(data.training_order.values):
        one, (colour, marker) = data.sel(training_order=order), _style(i)
        axes.plot(
            one.training_length, one.best_beta_predicted, color=colour, ls=DASHES[i], label=rf"$\ln(1+L/a_*)$, order {int(order)}"
        )
        axes.errorbar(
            one.training_length,
            one.best_beta,
            2 * one.best_beta_standard_error,
            fmt=marker,
            color=colour,
            ms=4,
            lw=0.8,
            label=f"drawn, order {int(order)}",
        )
        if bool(np.isfinite(one.best_beta_exact).all()):
            axes.plot(
                one.training_length, one.best_beta_exact, "_", color="black", ms=9, mew=1.2, label=f"exact, order {int(order)}"
            )
    axes.set(xscale="log", xlabel="prompt length $L$", ylabel=r"$\beta_*(L)$")
    axes.set_title("where training stops")
    axes.legend(fontsize=6.5, loc="upper left")


def draw_tube(data: xr.Dataset, axes: Axes) -> None:
    """Largest distance between the flows on a bounded time."""
    early = data.sel(time=slice(0, float(data.tube_until)))
    sup = abs(early.beta_exact - early.beta_infinite).max("time")
    gap = abs(early.beta_drawn - early.beta_infinite)
    where = gap.argmax("time")
    axes.plot(
        data.training_length,
        abs(early.first_order_shift).max("time") / data.training_length,
        color="0.4",
        ls="--",
        label="first order, $1/L$",
    )
    axes.plot(data.training_length, sup, color=COLOURS[0], lw=1.4, label="exact risk")
    axes.errorbar(
        data.training_length,
        gap.isel(time=where),
        2 * early.beta_drawn_standard_error.isel(time=where),
        fmt="s",
        color=COLOURS[1],
        mec="0.2",
        mew=0.4,
        ms=4,
        lw=0.8,
        label="drawn prompts",
    )
    floor = 2 * early.beta_drawn_standard_error.max("time")
    axes.plot(data.training_length, floor, color=COLOURS[1], ls=":", lw=1, label="2 standard errors of drawn")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="prompt length $L$",
        ylabel=rf"$\sup_{{t\leq {float(data.tube_until):g}}}|\beta_L-\beta_\infty|$",
    )
    axes.set_title("the tube on a bounded time")
    axes.legend(fontsize=7)


def ngram_training_figure(data: xr.Dataset) -> Figure:
    """Flows, optima, tube."""
    with house_style():
        figure = Figure(figsize=(9.6, 3.2))
        left, middle, right = figure.subplots(1, 3)
        first = data.sel(training_order=1)
        draw_flows(first, left)
        draw_optima(data, middle)
        draw_tube(first, right)
        for axes in (middle, right):
            _plain(axes)
    return figure


def draw_operator(data: xr.Dataset, axes: Axes) -> None:
    """Distance of the limit to the row and to the affine read-out, against β, one chain of each order."""
    orders = [int(np.flatnonzero(data.order.values == order)[-1]) for order in np.unique(data.order.values)]
    for i, index in enumerate(orders):
        one, (colour, marker) = data.isel(case=index), _style(i)
        label = f"alphabet {int(one.alphabet)}, order {int(one.order)}"
        axes.plot(data.operator_beta, one.row_distance, color=colour, lw=1.3, marker=marker, ms=3.5, label=label)
        axes.plot(data.operator_beta, one.row_leading.where(data.operator_beta >= 3), color=colour, lw=0.9, ls=":")
        axes.plot(data.operator_beta, one.affine_gap, color=colour, lw=1.3, ls="--")
    axes.plot([], [], color="0.4", lw=1.3, label="to the row")
    axes.plot([], [], color="0.4", lw=0.9, ls=":", label=r"its leading term, $\propto e^{-\beta}$")
    axes.plot([], [], color="0.4", lw=1.3, ls="--", label="to the affine read-out")
    axes.set(yscale="log", xlabel=r"tilt strength $\beta$", ylabel="distance of the limit")
    axes.set_title("limit: towards the row, not affine")
    axes.legend(fontsize=6.5, loc="lower left", bbox_to_anchor=(0.07, 0.0))


def draw_risk(data: xr.Dataset, axes: Axes) -> None:
    """Excess risk against β for every length, the infinite prompt, and the β predicted to be best."""
    axes.plot(data.risk_beta, data.infinite_risk, color="black", lw=1.4, label=length_label(np.inf))
    for i, length in enumerate(data.risk_length.values):
        one, (colour, marker) = data.sel(risk_length=length), _style(i)
        axes.errorbar(
            one.risk_beta,
            one.risk,
            2 * one.risk_standard_error,
            fmt=marker,
            ls="-",
            color=colour,
            ms=3,
            lw=0.9,
            label=length_label(length),
        )
        axes.plot(
            float(one.chosen_beta),
            float(one.predictor_risk.sel(predictor="attention")),
            "*",
            color=colour,
            ms=9,
            mec="0.2",
            mew=0.5,
            zorder=5,
        )
    low = float(data.risk.min())
    axes.plot([], [], "*", color="0.6", ms=8, mec="0.2", mew=0.5, ls="none", label=r"predicted $\beta_*(L)$")
    axes.set(
        yscale="log", ylim=(low / 3, 12 * float(data.risk.max())), xlabel=r"tilt strength $\beta$", ylabel="excess squared risk"
    )
    axes.set_title(f"risk, Dirichlet({float(data.concentration):g}) rows")
    axes.legend(fontsize=6.5, loc="upper right", ncols=2, columnspacing=1.0)


def draw_saved(data: xr.Dataset, axes: Axes) -> None:
    """What smoothing saves over the empirical n-gram, in units of what attention is predicted to save on long prompts."""
    for i, name in enumerate(each for each in data.predictor.values if each != "n-gram"):
        one, (colour, marker) = data.sel(predictor=name), _style(i)
        ratio, spread = one.saved / data.saved_predicted, 2 * one.saved_standard_error / data.saved_predicted
        axes.errorbar(data.risk_length * 1.08 ** (i - 1.5), ratio, spread, fmt=marker, color=colour, ms=4, lw=0.8, label=str(name))
    axes.axhline(1.0, color=COLOURS[0], lw=1.1, ls="--", label="attention, predicted")
    axes.axhline(0.0, color="0.4", lw=0.9)
    axes.set(xscale="log", xlabel="prompt length $L$", ylabel=r"saved risk over $B^2/(2AL^2)$")
    axes.set_ylim(top=float(axes.get_ylim()[1]) * 1.35)  # room for the legend
    axes.set_title("saved over the empirical n-gram")
    axes.legend(fontsize=6.5, loc="upper left", ncols=2, columnspacing=1.0)


def ngram_operator_figure(data: xr.Dataset) -> Figure:
    """The limit operator, risk against β, and what is saved."""
    with house_style():
        figure = Figure(figsize=(9.6, 3.3))
        left, middle, right = figure.subplots(1, 3)
        one = data.isel(concentration=data.sizes["concentration"] // 2)
        draw_operator(data, left)
        draw_risk(one, middle)
        draw_saved(one, right)
        for axes in (left, middle, right):
            _plain(axes)
    return figure
