"""Dependent tokens: error and price of mixing, effective length, training and the limit."""

import numpy as np
import xarray as xr

from largeprompt.runs.style import (
    COLORS,
    DASHES,
    Axes,
    curves,
    describe,
    entry,
    length_label,
    look,
    marks,
    panels,
    ticks,
)


def draw_paths(data: xr.Dataset, axes: Axes) -> None:
    """Squared distance to the limit for the rarest query and the middle β: exact and C/L."""
    middle = data.sel(query="rarest").isel(beta=data.sizes["beta"] // 2)
    for i, _, one in curves(middle, "case"):
        label = f"{int(one.alphabet)} symbols, order {int(one.order)}"
        axes.plot(one.length, one.exact, label=label, **look(i, lw=1.2, ms=3.5))
        axes.plot(one.length, one.constant / one.length, color=COLORS[i], lw=0.9, ls="--")
    alone = middle.isel(case=0)
    axes.plot(alone.length, alone.memoryless, color="0.35", marker="x", lw=0.9, ms=4)
    entry(axes, "independent symbols", marker="x", lw=0.9)
    entry(axes, "$C/L$", ls="--", lw=0.9)
    title = rf"Markov chains, $\beta={middle.beta:g}$"
    words = ("prompt length $L$", r"$\mathbf{E}\,\|T_L-T\|^2$", title)
    describe(axes, *words, log="xy", legend=7, below=2)


def draw_mixing(data: xr.Dataset, axes: Axes) -> None:
    """Price of dependence against the relaxation time: predicted (lines), exact (marks)."""
    for i, beta, one in curves(data, "mixing_beta"):
        curve = one.mixing_constant / one.mixing_independent
        axes.plot(data.mixing_time, curve, color=COLORS[i], ls=DASHES[i], lw=1.2)
        exact = one.mixing_exact / one.mixing_independent
        axes.plot(data.mixing_time, exact, ls="none", ms=4, label=rf"$\beta={beta:g}$", **look(i))
    words = (r"relaxation time $1/(1-|\lambda_2|)$", "error over that of independent tokens")
    describe(axes, *words, "price of slow mixing", log="xy", legend=7, below=2)


def draw_effective(data: xr.Dataset, axes: Axes) -> None:
    """Effective over true length against the score variance, predicted (lines) and drawn."""
    share = data.effective / data.correlated_length
    found = share * data.correlated_predicted / data.correlated_drawn
    error = found * data.correlated_error / data.correlated_drawn
    for i, phi, one in curves(share, "correlation"):
        axes.plot(data.score_variance, one, color=COLORS[i], lw=1.0)
        x = data.score_variance * 1.03 ** (i - 1)
        marks(axes, i, x, found[i], 2 * error[i], rf"correlation ${phi:g}$")
    axes.axhline(1.0, color="0.5", lw=0.8)
    words = (r"score variance $\sigma^2$", r"$L_{\mathrm{eff}}/L$", "autocorrelated tokens")
    describe(axes, *words, log="y", legend=7, below=2)
    ticks(axes, "x", data.score_variance.values)
    ticks(axes, "y", (0.05, 0.1, 0.2, 0.5, 1, 2))


paths = panels(
    "dependent",
    "Predicted (lines) and exact or drawn (marks). Left: squared distance over Markov paths to the "
    "discrete tilt limit, rarest query. Middle: error over that of independent tokens for a chain "
    "made ever slower. Right: share of autocorrelated Gaussian tokens that independent ones are "
    "worth.",
    draw_paths,
    draw_mixing,
    draw_effective,
    size=(9.6, 3.8),
    cards={"Q3": 0},
)


def draw_flows(data: xr.Dataset, axes: Axes) -> None:
    """β against time: infinite prompt with its law, and the exact risk of each length."""
    late = data.sel(time=slice(1e-2, None))
    for i, length, one in curves(late, "training_length"):
        axes.plot(late.time, one.beta_exact, color=COLORS[i], lw=1.2, label=length_label(length))
    axes.plot(late.time, late.beta_infinite, color="black", lw=1.6, label=length_label(np.inf))
    law = late.beta_infinite_predicted.where(late.beta_infinite_predicted > 1.0)
    axes.plot(late.time, law, color="0.5", lw=1.2, ls=":", label=r"$\frac{1}{2}\ln(2At)$")
    words = ("time $t$", r"$\beta(t)$", r"gradient flow of $\beta$")
    describe(axes, *words, log="x", legend=7, below=3)


def draw_optima(data: xr.Dataset, axes: Axes) -> None:
    """Where training stops, and what it saves over the empirical n-gram."""
    x = data.training_length
    axes.plot(x, data.best_beta_predicted, color="0.4", ls="--", label=r"$\ln(1+L/a_*)$")
    axes.plot(x, data.best_beta_exact, ls="none", label="best for exact risk", **look(0))
    words = ("prompt length $L$", r"$\beta_*(L)$", "where training stops")
    describe(axes, *words, log="x", legend=7, below=2)


def draw_limit(data: xr.Dataset, axes: Axes) -> None:
    """Distance of the limit to the row and to the affine read-out, one chain of each order."""
    orders = data.order.values
    for i, order in enumerate(np.unique(orders)):
        one = data.isel(case=int(np.flatnonzero(orders == order)[-1]))
        label = f"{int(one.alphabet)} symbols, order {int(one.order)}"
        axes.plot(data.operator_beta, one.row_distance, label=label, **look(i, lw=1.3, ms=3.5))
        axes.plot(data.operator_beta, one.affine_gap, color=COLORS[i], lw=1.3, ls="--")
    entry(axes, "to the row of the query")
    entry(axes, "to the affine read-out", ls="--")
    words = (r"strength $\beta$ of a match", "distance of the limit", "the limit is not affine")
    describe(axes, *words, log="y", legend=7, below=2)


training = panels(
    "dependent_training",
    "Gradient flow of the strength β of a match, on infinite prompts with its law and on the exact "
    "risk of each length; where training stops; distance of the limit to the row of the query (the "
    "n-gram) and to the affine read-out.",
    draw_flows,
    draw_optima,
    draw_limit,
    size=(9.6, 3.8),
)

FIGURES = (paths, training)
