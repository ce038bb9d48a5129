"""How sharp the certificates are."""

import numpy as np
import xarray as xr

from largeprompt.runs.style import COLOURS, DASHES, Axes, describe, study_figure
from largeprompt.studies.sharpness.rules import laws

TITLES = {"Gaussian": "Gaussian tokens: closed form", "two clusters": "two clusters: split bound"}


@study_figure(
    "sharpness",
    "Certified bound over exact mean squared error against L/ρ, scalar tokens: 1 is sharp.",
    size=(7.2, 3.0),
    panels=lambda data: (1, len(laws(data))),
)
def sharpness(data: xr.Dataset, *panels: Axes) -> None:
    """Bound over exact error against L/ρ; one panel for each family of laws."""
    for axes, law in zip(panels, laws(data), strict=True):
        for i, case in enumerate(np.flatnonzero(data.law.values == law)):
            label = rf"$\rho={data.rho[case]:.3g}$"
            axes.plot(data.multiple, data.ratio[case], color=COLOURS[i], ls=DASHES[i], label=label)
        axes.axhline(1, color="0.5", lw=0.8)
        describe(axes, r"$L/\rho$", "bound / exact", TITLES.get(law, law), log="xy", legend=9)


FIGURES = (sharpness,)
