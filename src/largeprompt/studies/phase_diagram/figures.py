"""The regimes of a finite prompt."""

import numpy as np
import xarray as xr

from largeprompt.runs.style import Axes, study_figure


@study_figure(
    "phase_diagram",
    "Effective number of tokens 1/E[Σ w²] over score variance and length, exact, with the borders "
    "of the three regimes.",
    size=(5.2, 3.7),
    panels=(1, 1),
)
def phase_diagram(data: xr.Dataset, axes: Axes) -> None:
    """Effective tokens as colour over (σ², L), with the lines L = e^{2σ²} and L = e^{σ²/2} between
    the regimes.
    """
    from matplotlib.colors import LogNorm

    x, y, tokens = data.score_variance.values, data.length.values, data.effective_tokens.values
    mesh = axes.pcolormesh(
        x,
        y,
        tokens,
        norm=LogNorm(1, tokens.max()),
        cmap="cividis",
        shading="gouraud",
        rasterized=True,
    )
    levels = [2.0, *(10.0 ** np.arange(2, 12, 2))]
    contours = axes.contour(x, y, tokens, levels=levels, colors="white", linewidths=0.5, alpha=0.8)
    axes.clabel(
        contours,
        fmt=lambda v: f"{v:.0f}" if v < 1000 else f"$10^{{{np.log10(v):.0f}}}$",
        fontsize=6.5,
    )
    for factor, style, label in (
        (2.0, "-", r"$L=e^{2\sigma^2}$"),
        (0.5, "--", r"$L=e^{\sigma^2/2}$"),
    ):
        axes.plot(x, np.exp(factor * x), color="white", lw=1.6, ls=style, label=label)
    axes.set(yscale="log", xlim=(x[0], x[-1]), xlabel=r"score variance $\sigma^2$")
    axes.set(ylim=(max(2, y[0]), y[-1]), ylabel="prompt length $L$")
    for share, height, text in (
        (0.02, 1.5e7, "linear"),
        (0.42, 1e9, "heavy"),
        (0.72, 30.0, "frozen"),
    ):
        # contours end at the words
        plate = {"facecolor": "0.2", "edgecolor": "none", "boxstyle": "round,pad=0.25"}
        axes.text(
            share * x[-1], height, text, color="white", fontsize=11, fontweight="bold", bbox=plate
        )
    box = {
        "labelcolor": "white",
        "facecolor": "0.2",
        "frameon": True,
        "framealpha": 1.0,
        "edgecolor": "none",
    }
    axes.legend(loc="upper right", fontsize=8, **box)
    axes.grid(False)
    axes.figure.colorbar(mesh, ax=axes, label=r"effective tokens $1/\mathbf{E}\,\sum_l w_l^2$")


FIGURES = (phase_diagram,)
