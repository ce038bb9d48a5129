"""The infinite-prompt limit: six laws, families that leave the Gaussian, and the identities."""

import numpy as np
import xarray as xr

from largeprompt.runs.style import COLORS, MARKERS, Axes, curves, describe, study_figure
from largeprompt.studies.lengths import length_panel
from largeprompt.studies.limit.laws import FAMILIES

LENGTH = "prompt length $L$"
TO_LIMIT = r"$(\mathbf{E}\,\|T_L-T\|^2)^{1/2}$"
TO_AFFINE = r"$(\mathbf{E}\,\|T_L-T_{\mathrm{affine}}\|^2)^{1/2}$"
KINDS = {
    "regular": r"$\mathcal{N}(m,\Gamma)$",
    "singular": r"$\mathcal{N}(m,\Gamma)$, rank $\lfloor d/2\rfloor$",
    "mixture": "mixture of three",
}


@study_figure(
    "limit",
    "Root mean squared distance over L tokens to the limit of their own law (left) and to the "
    "affine map with the same moments (middle; dotted: the gap). Lines: exact law; marks: drawn "
    "prompts. Right: relative error of the operator against quadrature.",
    size=(10.2, 3.2),
    panels=(1, 3),
    cards={"C1": 0, "C2": 1},
)
def limit(data: xr.Dataset, own: Axes, affine: Axes, identity: Axes) -> None:
    """Distances of six laws to both limits, and the error of the operator by dimension."""
    for i, law, one in curves(data, "law"):
        length_panel(own, one, i, label=str(law), root=True)
        affine.plot(one.length, np.sqrt(one.affine), color=COLORS[i], lw=1.1)
        if float(one.gap) > 1e-9:
            affine.axhline(float(one.gap), color=COLORS[i], lw=1.0, ls=":")
    describe(own, LENGTH, TO_LIMIT, "to the limit of its own law", log="xy", legend=7)
    describe(affine, LENGTH, TO_AFFINE, "to the affine map", log="xy")
    for i, kind, one in curves(data, "kind"):
        error, form = np.maximum(one.identity_error, 1e-17), f"{MARKERS[i]}-"
        identity.plot(data.dim, error, form, label=KINDS[str(kind)], color=COLORS[i], lw=0.8)
    missed = data.affine_error.sel(kind="mixture")
    identity.plot(data.dim, missed, "x:", color=COLORS[5], lw=0.8, label="mixture, affine map")
    identity.axhline(2.0**-52, color="0.6", lw=0.8, ls="--", label="rounding unit")
    title = "against quadrature"
    describe(identity, "dimension $d$", "relative error", title, log="xy", ylim=(5e-18, 1e2))
    identity.legend(fontsize=7, loc="center")


@study_figure(
    "families",
    "Families that leave the Gaussian, exact: root mean squared distance to the limit of their own "
    "law (solid) and to the affine map (dashed), which stops at the gap. Right: the gap against "
    "the distance from the Gaussian, with the prediction (lines).",
    size=lambda data: (2.2 * (data.sizes["family"] + 1) + 0.6, 2.9),
    panels=lambda data: (1, data.sizes["family"] + 1),
    cards={"N1": 0},
)
def families(data: xr.Dataset, *panels: Axes) -> None:
    """Both distances of a few members of each family, and the growth of the gap."""
    middle = data.isel(tilt=data.sizes["tilt"] // 2)
    for axes, (_, name, one) in zip(panels[:-1], curves(middle, "family"), strict=True):
        about = FAMILIES[str(name)]
        known = np.flatnonzero(one.law_parameter.notnull().values)
        for i, member in enumerate(sorted({known[0], known[len(known) // 2], known[-1]})):
            law = one.isel(member=member)
            label = f"${about.symbol}={law.law_parameter:g}$"
            axes.plot(law.family_length, np.sqrt(law.family_exact), color=COLORS[i], label=label)
            axes.plot(law.family_length, np.sqrt(law.family_affine), "--", color=COLORS[i])
        describe(axes, LENGTH, "", about.title, log="xy", legend=7, loc="lower left", xlim=(1, 1e8))
        axes.set_ylim(1e-4, 5)
    describe(panels[0], "", "distance")
    for i, name, one in curves(data, "family"):
        color, label = COLORS[i], str(name)
        panels[-1].plot(one.distance, one.scaling_predicted, color=color, lw=1.0)
        panels[-1].plot(one.distance, one.scaling_gap, MARKERS[i], color=color, label=label, ms=4)
    gap = r"$|T-T_{\mathrm{affine}}|$"
    describe(panels[-1], "distance from the Gaussian", gap, "the gap", log="xy", legend=7)


FIGURES = (limit, families)
