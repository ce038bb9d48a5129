"""The exponent of the query-averaged error against H."""

import numpy as np
import xarray as xr

from largeprompt.runs.style import COLOURS, MARKERS, Axes, study_figure
from largeprompt.studies.exponent.formulas import sharp_exponent, without_logarithm


@study_figure(
    "exponent",
    "Decay exponent of the query-averaged error between decades of L, by the exact law, with the "
    "predicted g(H), the 1/(1+H²) of 2512.10656, and the paper's form c2/H² with c2 = 1. In d = 4 "
    "a known factor (ln L)^(3/2) holds it lower.",
    size=(7.2, 3.1),
    panels=lambda data: (1, data.sizes["dim"]),
    sharey=True,
)
def exponent(data: xr.Dataset, *panels: Axes) -> None:
    """Local exponents of the exact law at growing L, with the predicted curve that they tend to."""
    square = np.linspace(0.02, float(data.square.max()) * 1.05, 400)
    last = data.sizes["decade_end"] - 1
    shown = sorted({0, (last + 1) // 2, last})
    for axes, dim in zip(panels, data.dim.values, strict=True):
        axes.plot(square, sharp_exponent(square), color="black", lw=1.6, label=r"$g(H)$, predicted")
        axes.plot(
            square,
            1 / (1 + square),
            color="0.5",
            lw=1.2,
            ls="--",
            label=r"$1/(1+H^2)$ (2512.10656)",
        )
        axes.plot(square, 1 / square, color="0.7", lw=1.0, ls=":", label=r"$c_2/H^2$, $c_2=1$")
        for i, k in enumerate(shown):
            label = (
                rf"exact, $L=10^{{{int(data.decade[k])}}}$ to $10^{{{int(data.decade_end[k])}}}$"
            )
            axes.plot(
                data.square,
                data.exponent.sel(dim=dim)[:, k],
                MARKERS[i],
                color=COLOURS[i],
                label=label,
            )
        if dim > 1:
            less = without_logarithm(data).sel(dim=dim).where(data.square >= 0.5)
            label = r"the last, less $(\ln L)^{(d-1)/2}$"
            axes.plot(
                data.square, less, MARKERS[i], color=COLOURS[i], mfc="none", ms=6, label=label
            )
        axes.set(xlabel=r"$H^2=\|\Gamma^{1/2}UC^{1/2}\|^2$", title=f"$d={dim}$", ylim=(0, 1.1))
    panels[0].set_ylabel(r"decay exponent of $\mathbf{E}\,\|T_L-T\|^2$")
    panels[-1].legend(fontsize=7.5)


FIGURES = (exponent,)
