"""How sharp the certificates are."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from largeprompt.runs.style import COLOURS, house_style

DASHES = ("-", "--", "-.", ":")


def sharpness_figure(data: xr.Dataset) -> Figure:
    """Bound over exact error against L/ρ; one panel for each family of laws."""
    with house_style():
        figure = Figure(figsize=(7.2, 3.0))
        laws = list(dict.fromkeys(data.law.values))
        titles = {"Gaussian": "Gaussian tokens: closed form", "two clusters": "two clusters: split bound"}
        for axes, law in zip(figure.subplots(1, len(laws), squeeze=False)[0], laws, strict=True):
            for i, case in enumerate(np.flatnonzero(data.law.values == law)):
                one = data.isel(case=case)
                axes.plot(data.multiple, one.ratio, color=COLOURS[i], ls=DASHES[i], label=rf"$\rho={float(one.rho):.3g}$")
            axes.axhline(1, color="0.5", lw=0.8)
            axes.set(xscale="log", yscale="log", xlabel=r"$L/\rho$", ylabel="bound / exact", title=titles.get(str(law), str(law)))
            axes.legend()
    return figure
