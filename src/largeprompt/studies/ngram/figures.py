"""In-context Markov chains: convergence of dependent tokens, training of the tilt strength, and the
head beside the n-gram.
"""

from typing import Any

import numpy as np
import xarray as xr

from largeprompt.runs.style import (
    COLOURS,
    DASHES,
    PALETTE,
    Axes,
    curves,
    describe,
    entry,
    length_label,
    look,
    marks,
    panels,
)


def draw_paths(data: xr.Dataset, axes: Axes) -> None:
    """Squared distance to the limit, the final context as query, middle β: drawn, exact and first
    order; shuffled symbols.
    """
    part = data.sel(query="last").isel(beta=data.sizes["beta"] // 2)
    for i, _, one in curves(part, "case"):
        axes.plot(one.length, one.constant / one.length, color=COLOURS[i], lw=0.9, ls="--")
        axes.plot(one.length, one.exact, color=COLOURS[i], lw=1.2)
        face = COLOURS[i] if i < len(PALETTE) else "white"  # colours and markers repeat
        label = f"{int(one.alphabet)} symbols, order {int(one.order)}"
        marks(axes, i, one.length, one.mse, 2 * one.mse_standard_error, label, ms=3.5, mfc=face)
    marks(
        axes,
        0,
        data.length,
        data.shuffled_mse,
        2 * data.shuffled_standard_error,
        marker="x",
        color="0.35",
    )
    axes.plot(data.length, data.shuffled_level + 0 * data.length, color="0.35", lw=0.9, ls=":")
    place = (float(data.length[-1]), float(data.shuffled_level) * 1.9)
    axes.annotate("shuffled in time", place, fontsize=7, color="0.25", ha="right")
    entry(axes, "exact", lw=1.2)
    entry(axes, "$C/L$", ls="--", lw=0.9)
    title = rf"to the discrete tilt, $\beta={part.beta:g}$"
    describe(
        axes, "prompt length $L$", r"$\mathbf{E}\,\|T_L-T\|^2$", title, log="xy", legend=7, below=2
    )


def draw_constants(data: xr.Dataset, axes: Axes) -> None:
    """Extrapolated constants against predicted ones, every chain, β and query."""
    for i, beta in enumerate(data.beta.values):
        one = data.sel(beta=beta).stack(pair=("case", "query"))
        ratio, error = (
            one.extrapolated / one.constant,
            one.extrapolated_standard_error / one.constant,
        )
        marks(axes, i, one.constant, ratio, 2 * error, rf"$\beta={beta:g}$", ms=3.5)
    axes.axhline(1.0, color="0.3", lw=1.0)
    words = (
        "$C$, predicted",
        "extrapolated $L\\,$mse over $C$",
        "the constant, drawn over predicted",
    )
    describe(axes, *words, log="x", legend=7, below=3)


def draw_mixing(data: xr.Dataset, axes: Axes) -> None:
    """Price of dependence against relaxation time, a line for each β and marks at the longest
    length.
    """
    for i, beta, one in curves(data, "mixing_beta"):
        curve, base = one.mixing_curve / one.mixing_curve_independent, one.mixing_independent
        axes.plot(data.mixing_curve_time, curve, color=COLOURS[i], ls=DASHES[i], lw=1.2)
        error = 2 * one.mixing_standard_error / base
        marks(axes, i, data.mixing_time, one.mixing_drawn / base, error, rf"$\beta={beta:g}$")
    words = (
        r"relaxation time $1/(1-|\lambda_2|)$",
        "$C$ over that of independent tokens",
        "price of dependence",
    )
    describe(axes, *words, log="xy", legend=7, below=3)


paths = panels(
    "ngram",
    "Attention over paths of Markov chains. Left: squared distance to the discrete tilt limit "
    "with the final context as query, drawn (marks, ± 2 s.e.), exact (lines, chains with few "
    "contexts) and predicted to first order (dashed); crosses: the symbols of a chain shuffled in "
    "time, with the level they must stop at. Middle: constant extrapolated from drawn paths over "
    "the one predicted through the fundamental matrix, three queries of every chain. Right: price "
    "of dependence against the relaxation time for a chain made ever slower, predicted (lines) "
    "and drawn at the longest length (marks).",
    draw_paths,
    draw_constants,
    draw_mixing,
    size=(9.6, 3.8),
    cards={"Q3": 0},
)


def draw_flows(data: xr.Dataset, axes: Axes) -> None:
    """β against time at order one: infinite prompt with its law, exact risk of each length, drawn
    prompts.
    """
    late = data.sel(training_order=1, time=slice(1e-2, None))
    axes.plot(late.time, late.beta_infinite, color="black", lw=1.6, label=length_label(np.inf))
    law = late.beta_infinite_predicted.where(late.beta_infinite_predicted > 1.0)
    axes.plot(late.time, law, color="0.5", lw=1.2, ls=":", label=r"$\frac{1}{2}\ln(2At)$")
    for i, length, one in curves(late, "training_length"):
        axes.plot(late.time, one.beta_exact, color=COLOURS[i], lw=1.2)
        few = one.isel(time=slice(None, None, max(1, late.sizes["time"] // 10)))
        marks(
            axes,
            i,
            few.time,
            few.beta_drawn,
            2 * few.beta_drawn_standard_error,
            length_label(length),
            ms=3.5,
        )
    words = ("time $t$", r"$\beta(t)$", r"flow of $\beta$: exact (lines), drawn (marks)")
    describe(axes, *words, log="x", legend=7, below=3)


def draw_optima(data: xr.Dataset, axes: Axes) -> None:
    """β*(L): predicted, exact, drawn."""
    x = data.training_length
    for i, order, one in curves(data, "training_order"):
        law = rf"$\ln(1+L/a_*)$, order {int(order)}"
        axes.plot(x, one.best_beta_predicted, color=COLOURS[i], ls=DASHES[i], label=law)
        marks(
            axes,
            i,
            x,
            one.best_beta,
            2 * one.best_beta_standard_error,
            f"drawn, order {int(order)}",
        )
        if bool(np.isfinite(one.best_beta_exact).all()):
            axes.plot(
                x,
                one.best_beta_exact,
                "_",
                color="black",
                ms=9,
                mew=1.2,
                label=f"exact, order {int(order)}",
            )
    describe(
        axes,
        "prompt length $L$",
        r"$\beta_*(L)$",
        "where training stops",
        log="x",
        legend=7,
        below=2,
    )


def draw_tube(data: xr.Dataset, axes: Axes) -> None:
    """Largest distance between the flows on a bounded time."""
    x, early = (
        data.training_length,
        data.sel(training_order=1, time=slice(0, float(data.tube_until))),
    )
    sup = abs(early.beta_exact - early.beta_infinite).max("time")
    gap, error = abs(early.beta_drawn - early.beta_infinite), early.beta_drawn_standard_error
    where = gap.argmax("time")
    axes.plot(
        x,
        abs(early.first_order_shift).max("time") / x,
        color="0.4",
        ls="--",
        label="first order, $1/L$",
    )
    axes.plot(x, sup, color=COLOURS[0], lw=1.4, label="exact risk")
    marks(
        axes,
        1,
        x,
        gap.isel(time=where),
        2 * error.isel(time=where),
        "drawn prompts",
        mec="0.2",
        mew=0.4,
    )
    axes.plot(
        x, 2 * error.max("time"), color=COLOURS[1], ls=":", lw=1, label="2 standard errors of drawn"
    )
    distance = rf"$\sup_{{t\leq {data.tube_until:g}}}|\beta_L-\beta_\infty|$"
    describe(
        axes,
        "prompt length $L$",
        distance,
        "the tube on a bounded time",
        log="xy",
        legend=7,
        below=2,
    )


training = panels(
    "ngram_training",
    "Training of the tilt strength. Left: flow of β on infinite prompts, with its law, on the "
    "exact risk of each length (lines) and on drawn prompts (marks, ± 2 s.e.). Middle: where "
    "training stops, predicted, exact and drawn. Right: largest distance between the flows on a "
    "bounded time, exact, drawn and to first order.",
    draw_flows,
    draw_optima,
    draw_tube,
    size=(9.6, 3.8),
)


def draw_operator(data: xr.Dataset, axes: Axes) -> None:
    """Distance of the limit to the row and to the affine read-out, against β, one chain of each
    order.
    """
    beta, orders = data.operator_beta, data.order.values
    for i, order in enumerate(np.unique(orders)):
        one = data.isel(case=int(np.flatnonzero(orders == order)[-1]))
        label = f"alphabet {int(one.alphabet)}, order {int(one.order)}"
        axes.plot(beta, one.row_distance, label=label, **look(i, lw=1.3, ms=3.5))
        axes.plot(beta, one.row_leading.where(beta >= 3), color=COLOURS[i], lw=0.9, ls=":")
        axes.plot(beta, one.affine_gap, color=COLOURS[i], lw=1.3, ls="--")
    entry(axes, "to the row")
    entry(axes, r"its leading term, $\propto e^{-\beta}$", ls=":", lw=0.9)
    entry(axes, "to the affine read-out", ls="--")
    describe(
        axes,
        r"tilt strength $\beta$",
        "distance of the limit",
        "limit: towards the row, not affine",
        log="y",
        legend=7,
        below=2,
    )


def _middle(data: xr.Dataset) -> xr.Dataset:
    """The concentration in the middle of those of the run."""
    return data.isel(concentration=data.sizes["concentration"] // 2)


def draw_risk(data: xr.Dataset, axes: Axes) -> None:
    """Excess risk against β for every length, the infinite prompt, and the β predicted
    to be best.
    """
    data = _middle(data)
    star: dict[str, Any] = {"marker": "*", "ls": "none", "mec": "0.2", "mew": 0.5}
    axes.plot(data.risk_beta, data.infinite_risk, color="black", lw=1.4, label=length_label(np.inf))
    for i, length, one in curves(data, "risk_length"):
        marks(
            axes,
            i,
            one.risk_beta,
            one.risk,
            2 * one.risk_standard_error,
            length_label(length),
            ls="-",
            ms=3,
            lw=0.9,
        )
        at = (float(one.chosen_beta), float(one.predictor_risk.sel(predictor="attention")))
        axes.plot(*at, color=COLOURS[i], ms=9, zorder=5, **star)
    axes.plot([], [], color="0.6", ms=8, label=r"predicted $\beta_*(L)$", **star)
    limits = (float(data.risk.min()) / 3, 2 * float(data.risk.max()))
    title = f"risk, Dirichlet({data.concentration:g}) rows"
    describe(
        axes,
        r"tilt strength $\beta$",
        "excess squared risk",
        title,
        log="y",
        ylim=limits,
        legend=7,
        below=3,
    )


def draw_saved(data: xr.Dataset, axes: Axes) -> None:
    """What smoothing saves over the empirical n-gram, in units of what attention is predicted to
    save on long prompts.
    """
    data = _middle(data)
    for i, name in enumerate(each for each in data.predictor.values if each != "n-gram"):
        one, x = data.sel(predictor=name), data.risk_length * 1.08 ** (i - 1.5)
        marks(
            axes,
            i,
            x,
            one.saved / data.saved_predicted,
            2 * one.saved_standard_error / data.saved_predicted,
            str(name),
        )
    axes.axhline(1.0, color=COLOURS[0], lw=1.1, ls="--", label="attention, predicted")
    axes.axhline(0.0, color="0.4", lw=0.9)
    words = (
        "prompt length $L$",
        r"saved risk over $B^2/(2AL^2)$",
        "saved over the empirical n-gram",
    )
    describe(axes, *words, log="x", legend=7, below=3)


operator = panels(
    "ngram_operator",
    "Left: distance of the limit to the row of the query, with its leading term, and to the "
    "affine read-out, against β. Middle: excess squared risk over random chains against β, drawn, "
    "with the β predicted to be best (stars). Right: what smoothing saves over the empirical "
    "n-gram, in units of what attention is predicted to save on long prompts.",
    draw_operator,
    draw_risk,
    draw_saved,
    size=(9.6, 3.8),
)


FIGURES = (paths, training, operator)
