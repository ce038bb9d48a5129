"""Errors by length with bounds and draws; spectra and constants; short prompts; regimes."""

import numpy as np
import xarray as xr

from largeprompt.runs.style import (
    COLORS,
    DASHES,
    MARKERS,
    Axes,
    curves,
    describe,
    study_figure,
    ticks,
)
from largeprompt.studies.convergence.curves import LOGS, paper_form
from largeprompt.studies.convergence.rules import common_pair
from largeprompt.studies.lengths import length_panel

ERRORS = {
    "output": r"$\mathbf{E}\,\|T_L-T\|^2$",
    "jacobian_u": r"$\mathbf{E}\,\|\partial_U T_L-\partial_U T\|^2$",
}
DIRECTIONS = {"strong": "--", "weak": "-"}
LENGTH, RELATIVE = "prompt length $L$", r"$(\mathbf{E}\,\|T_L-T\|^2)^{1/2}/\|T\|$"


@study_figure(
    "convergence",
    "Mean squared distance to the limit against L for each score variance: output (above) and "
    "derivative in U (below), with the paper's form fitted to the exact law. Gray: L = e^(2σ²), "
    "where the linear regime begins.",
    size=lambda data: (2.5 * data.sizes["score_variance"] + 0.3, 5.0),
    panels=lambda data: (len(ERRORS), data.sizes["score_variance"]),
    cards={"C3": 0, "C4": -3, "E1": 1},
    sharex=True,
)
def convergence(data: xr.Dataset, *panels: Axes) -> None:
    """Output above, derivative in U below, one column for each score variance."""
    count = data.sizes["score_variance"]
    names = ["exact", "certified", "drawn", "drawn_error"]
    for i, (quantity, label) in enumerate(ERRORS.items()):
        row = panels[i * count : (i + 1) * count]
        for axes, q in zip(row, data.score_variance.values, strict=True):
            part = data[[*names, "c1", "c2"]].sel(quantity=quantity, score_variance=q)
            if quantity == "output":
                part = part.assign(first_order=data.first_order.sel(score_variance=q))
            length_panel(axes, part)
            c1, c2 = float(part.c1), float(part.c2)
            form = paper_form(part.length, q, c1, c2, LOGS[quantity])
            form = np.where(part.length > 1, form, np.nan)
            axes.plot(part.length, form, color=COLORS[3], ls=":", label="paper's form, fitted")
            axes.axvline(np.exp(2 * q), color="0.8", lw=0.8, zorder=0)
            limits = float(part.exact.min()) / 3, 60 * float(part.exact.max())
            axes.set(title=rf"$\sigma^2={q:g}$" if not i else "", ylim=limits)
        row[0].set_ylabel(label)
    for axes in row:
        axes.set_xlabel(LENGTH)
    panels[0].legend(fontsize=7, loc="lower left")


@study_figure(
    "spectra",
    "Spectra of one trace, read along their weakest and strongest direction with one score "
    "variance: error times L, and relative to the output. The table: constants of the paper's form "
    "at each score variance, and by how much the best common pair is wrong.",
    size=(10.2, 3.3),
    panels=(1, 3),
    cards={"E3": 1},
)
def spectra(data: xr.Dataset, errors: Axes, relative: Axes, table: Axes) -> None:
    """Error and relative error of three spectra in two directions; the constants."""
    q, length = data.score_variance.values[len(data.score_variance) // 2], data.spectrum_length
    part = data.sel(score_variance=q)
    order = np.argsort(part.condition.values, kind="stable")
    for i, case in enumerate(sorted({order[0], order[len(order) // 2], order[-1]})):
        one = part.isel(spectrum=case)
        for name in (each for each in DIRECTIONS if each in data.direction.values):
            way, dash, color = one.sel(direction=name), DIRECTIONS[name], COLORS[i]
            label = f"{one.spectrum.values}, {name}"
            errors.plot(length, way.spectrum_exact * length, dash, color=color, label=label)
            error = np.sqrt(way.spectrum_exact / way.spectrum_size)
            relative.plot(length, error, dash, color=color)
    relative.axhline(0.1, color="0.6", lw=0.8)
    title = rf"$\sigma^2={q:g}$, tr $\Gamma=d$"
    describe(errors, LENGTH, r"$L\,\mathbf{E}\,\|T_L-T\|^2$", title, log="xy", legend=7)
    describe(relative, LENGTH, RELATIVE, "relative to the output", log="xy")
    _table(data, table)


def _table(data: xr.Dataset, axes: Axes) -> None:
    """The constants fitted at each score variance, and whether one pair serves all."""
    names = [(quantity, constant) for quantity in ERRORS for constant in ("c1", "c2")]
    cells = [
        [f"{q:g}", *(f"{float(one[name].sel(quantity=of)):.3g}" for of, name in names)]
        for _, q, one in curves(data, "score_variance")
    ]
    wrong = [f"{common_pair(data, quantity)[2]:.3g}×" for quantity in ERRORS]
    cells.append(["one pair", "wrong by", wrong[0], "wrong by", wrong[1]])
    axes.set(title="no single pair of constants", xlabel="constants of the paper's form")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    heads = [r"$\sigma^2$", "$c_1$", "$c_2$", r"$c_1$, $\partial_U$", r"$c_2$, $\partial_U$"]
    drawn = axes.table(cells, colLabels=heads, loc="center", cellLoc="center", edges="horizontal")
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(8)
    drawn.scale(1.0, 1.6)


@study_figure(
    "short",
    "Short prompts, exact: relative error of the limit; first order over exact error (gray: within "
    "10 %); risk of in-context regression at the infinite-prompt optimum.",
    size=(10.2, 3.2),
    panels=(1, 3),
    cards={"F1": 0},
)
def short(data: xr.Dataset, limit: Axes, first: Axes, risk: Axes) -> None:
    """Relative errors of the limit and of the first order, and the risk at the optimum."""
    near = data.sel(short_length=slice(1, 30))
    dim = near.short_dim.values[np.argmin(abs(near.short_dim.values - 4))]
    for i, q, one in curves(near.sel(short_dim=dim), "short_variance"):
        error, ratio = np.sqrt(one.short_exact / one.short_limit), one.short_first_order
        label, dash = rf"$\sigma^2={q:g}$", DASHES[i]
        limit.plot(near.short_length, error, ls=dash, color=COLORS[i], label=label)
        first.plot(near.short_length, ratio / one.short_exact, ls=dash, color=COLORS[i])
    limit.axhline(0.5, color="0.6", lw=0.8)
    first.axhspan(0.9, 1.1, color="0.9", zorder=0)
    describe(limit, LENGTH, RELATIVE, f"the limit, $d={dim}$", log="y", legend=7)
    describe(first, LENGTH, "first order / exact error", f"the first order, $d={dim}$", log="y")
    for i, condition, one in curves(data.sel(attention="softmax"), "regression_condition"):
        label = f"condition {condition:g}"
        risk.plot(data.regression_length, one.risk, color=COLORS[i], ls=DASHES[i], label=label)
    risk.axhline(float(data.limit_risk.max()), color="0.5", lw=0.9, label="limit")
    risk.axhline(float(data.zero_risk.max()), color="0.5", lw=0.9, ls=":", label="answering 0")
    describe(risk, LENGTH, "risk", "regression, softmax attention", log="xy", legend=7)


@study_figure(
    "regimes",
    "Effective tokens over score variance and length, exact, with the borders of the regimes. "
    "Certified bound over exact error against L/ρ: Gaussian (solid), two clusters (dashed). Factor "
    "on the scores that keeps the effective tokens as a prompt grows.",
    size=(10.4, 3.4),
    panels=(1, 3),
    width_ratios=(1.5, 1, 1),
)
def regimes(data: xr.Dataset, plane: Axes, sharp: Axes, scaled: Axes) -> None:
    """The plane of regimes, the sharpness of certificates, and how scores should be scaled."""
    _plane(data, plane)
    for i, _, one in curves(data[["ratio", "law"]], "case"):
        dash = "-" if one.law == "Gaussian" else "--"
        sharp.plot(data.multiple, one.ratio, dash, color=COLORS[i])
    describe(sharp, r"$L/\rho$", "bound / exact", "certificates", log="xy")
    for i, q, one in curves(data, "scaled_variance"):
        scaled.plot(data.growth, one.factor, MARKERS[i] + "-", color=COLORS[i], ms=3)
        scaled.annotate(rf"$\sigma^2={q:.3g}$", (data.growth[-1], one.factor[-1]), fontsize=7)
    for name, label, dash in (("log_n", "log-n", "--"), ("yarn", "YaRN", ":")):
        scaled.plot(data.growth, data[f"{name}_factor"], dash, color="0.3", label=label)
    words = ("times longer", "factor on the scores", "keeping effective tokens")
    describe(scaled, *words, log="x", legend=7, loc="upper left", xlim=(1.8, 500))
    ticks(scaled, "x", data.growth.values)


def _plane(data: xr.Dataset, axes: Axes) -> None:
    from matplotlib.colors import LogNorm

    x, y = data.regime_variance.values, data.regime_length.values
    tokens = data.effective_tokens.values
    norm = LogNorm(1, tokens.max())
    mesh = axes.pcolormesh(
        x, y, tokens, norm=norm, cmap="cividis", shading="gouraud", rasterized=True
    )
    levels = [2.0, *(10.0 ** np.arange(2, 12, 2))]
    axes.contour(x, y, tokens, levels=levels, colors="white", linewidths=0.5, alpha=0.8)
    borders = ((2.0, "-", r"$L=e^{2\sigma^2}$"), (0.5, "--", r"$L=e^{\sigma^2/2}$"))
    for factor, style, label in borders:
        axes.plot(x, np.exp(factor * x), color="white", lw=1.6, ls=style, label=label)
    for share, height, word in ((0.02, 1e8, "linear"), (0.4, 1e9, "heavy"), (0.7, 30.0, "frozen")):
        axes.text(share * x[-1], height, word, color="white", fontsize=10, fontweight="bold")
    axes.grid(False)
    describe(axes, r"score variance $\sigma^2$", LENGTH, "regimes", log="y", ylim=(2, y[-1]))
    axes.legend(loc="upper right", fontsize=7, labelcolor="white", facecolor="0.2", frameon=True)
    axes.figure.colorbar(mesh, ax=axes, label=r"effective tokens $1/\mathbf{E}\,\sum_l w_l^2$")


FIGURES = (convergence, spectra, short, regimes)
