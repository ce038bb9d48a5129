"""Tokens that are not Gaussian or not independent: distances, gaps, and what explains them."""

import math

import numpy as np
import xarray as xr

from largeprompt.runs.style import COLOURS, MARKERS, Axes, describe, marks, study_figure, ticks
from largeprompt.studies.nongaussian.config import CONTROL

FAMILIES = {  # symbol of the parameter, and title
    "Rademacher sum": ("k", "sum of $k$ signs"),
    "generalised normal": (r"\beta", r"density $\propto e^{-|x/a|^\beta}$"),
    "mixture": ("m", "two components at $\\pm m$"),
    "skew": (r"\kappa_3", r"skewness $\kappa_3$"),
}


def _families(data: xr.Dataset) -> list[str]:
    return [str(name) for name in data.family.values if name != CONTROL]


def _middle(data: xr.Dataset) -> float:
    return float(data.tilt[data.sizes["tilt"] // 2])


def draw_family(data: xr.Dataset, family: str, kind: str, axes: Axes) -> None:
    """Root mean squared distance against L for a few members: exact (lines), drawn (marks), gap
    (dotted, for kind 'affine_').
    """
    one = data.sel(family=family, tilt=_middle(data))
    known = np.flatnonzero(one.law_parameter.notnull().values)
    for i, member in enumerate(
        sorted({int(known[i]) for i in (0, len(known) // 3, 2 * len(known) // 3, -1)})
    ):
        law = one.isel(member=member)
        root = np.sqrt(law[f"drawn_{kind}mse"])
        axes.plot(law.length, np.sqrt(law[f"{kind}mse"]), color=COLOURS[i], lw=1.1)
        label = f"${FAMILIES[family][0]}={law.law_parameter:g}$"
        marks(axes, i, law.length, root, law[f"drawn_{kind}error"] / root, label, ms=3.5)
        if kind:
            axes.axhline(abs(float(law.gap)), color=COLOURS[i], lw=0.9, ls=":")
    describe(axes, log="xy")


@study_figure(
    "families",
    "Four families that leave the Gaussian, scalar tokens, one tilt: root mean squared distance "
    "of attention to the tilt limit of its law (above) and to the affine read-out (below). Lines: "
    "exact law; marks: drawn prompts; dotted: the predicted gap.",
    size=lambda data: (2.15 * len(_families(data)) + 0.5, 4.6),
    panels=lambda data: (2, len(_families(data))),
    cards={"N1": -1},
    sharex=True,
    sharey=True,
)
def families(data: xr.Dataset, *panels: Axes) -> None:
    """Distance to the tilt limit above, to the affine read-out below, one column
    for each family.
    """
    names = _families(data)
    for name, above, below in zip(names, panels, panels[len(names) :], strict=False):
        draw_family(data, name, "", above)
        draw_family(data, name, "affine_", below)
        above.set_title(FAMILIES[name][1])
        above.legend(
            fontsize=7, handletextpad=0.2, borderpad=0.2, labelspacing=0.3, loc="lower left"
        )
        below.set_xlabel("prompt length $L$")
    panels[0].set_ylabel(r"$(\mathbf{E}\,|T_L-T|^2)^{1/2}$")
    panels[len(names)].set_ylabel(r"$(\mathbf{E}\,|T_L-T_{\mathrm{affine}}|^2)^{1/2}$")


def draw_scaling(data: xr.Dataset, axes: Axes) -> None:
    """Exact gap (marks) and the predicted power law (lines) against the distance
    from the Gaussian.
    """
    for i, name in enumerate(_families(data)):
        one = data.sel(family=name)
        axes.plot(one.distance, abs(one.scaling_predicted), color=COLOURS[i], lw=1.0)
        axes.plot(
            one.distance,
            abs(one.scaling_gap),
            MARKERS[i],
            color=COLOURS[i],
            ms=4,
            mfc="none",
            label=name,
        )
    title = f"gap at $u={_middle(data):g}$: exact, and predicted (lines)"
    distance = "distance of the parameter from the Gaussian"
    describe(axes, distance, r"$|T-T_{\mathrm{affine}}|$", title, log="xy", legend=7.5)


def draw_ladder(data: xr.Dataset, axes: Axes) -> None:
    """Share of the gap that third and fourth cumulant give, against the tilt over the radius of
    convergence.
    """
    for i, name in enumerate(_families(data)):
        one = data.sel(family=name)
        share, third = (part / one.gap for part in (one.third + one.fourth, one.third))
        x = (one.tilt / one.radius).where(np.isfinite(one.radius))
        x, share, third = (
            each.transpose("member", "tilt").values.ravel() for each in (x, share, third)
        )
        axes.plot(x, share, MARKERS[i], color=COLOURS[i], ms=4, mfc="none", label=name)
        if name == "skew":
            axes.plot(x, third, "+", color=COLOURS[i], ms=5, label="skew, third alone")
    axes.axhline(1.0, color="0.6", lw=0.8)
    axes.axvline(1.0, color="0.6", lw=0.8, ls="--")
    words = (
        "tilt over the radius of convergence",
        "share of the gap",
        "third and fourth cumulants",
    )
    describe(axes, *words, legend=7.5, loc="upper left", ylim=(0, 3))


def draw_crossing(data: xr.Dataset, axes: Axes) -> None:
    """Length from which on the gap shows, against the gap: exact (marks) and first order (lines),
    for every tilt.
    """
    gaps = np.geomspace(1e-4, 1.0, 30)
    for j, tilt in enumerate(data.tilt.values):
        for i, name in enumerate(_families(data)):
            one = data.sel(family=name, tilt=tilt)
            one = one.isel(member=np.argsort(abs(one.gap.values)))
            one = one.isel(member=np.isfinite(one.crossing.values))
            axes.plot(abs(one.gap), one.crossing, MARKERS[i], color=COLOURS[j], ms=4, mfc="none")
        control = data.sel(family=CONTROL, tilt=tilt).isel(member=0)
        noise = float(control.first_order.isel(length=-1) * data.length[-1])
        axes.plot(
            gaps,
            noise / gaps**2,
            color=COLOURS[j],
            lw=0.9,
            ls="--",
            label=f"$u={tilt:g}$, Gaussian noise",
        )
    finite = data.crossing.where(np.isfinite(data.crossing) & (data.crossing > 1))
    limits = (
        10 ** math.floor(math.log10(float(finite.min()))),
        10 ** math.ceil(math.log10(float(finite.max()))),
    )
    words = (
        r"gap $|T-T_{\mathrm{affine}}|$",
        r"crossing length $L_\times$",
        "below it the Gaussian theory is as good",
    )
    describe(axes, *words, log="xy", legend=7.5, loc="lower left", ylim=limits)


def draw_effective(data: xr.Dataset, axes: Axes) -> None:
    """Effective length over length against the score variance, predicted (lines) and by the drawn
    errors (marks).
    """
    last = data.isel(dependent_length=-1)
    share = last.dependent_effective / last.dependent_length
    measured = share * last.dependent_predicted / last.dependent_drawn
    error = measured * last.dependent_error / last.dependent_drawn
    for i, name in enumerate(last.dependence.values):
        kind, strength = str(name).rsplit(" ", 1)
        label = rf"$\varphi={strength}$" if kind == "AR(1)" else f"repeated {strength}×"
        x = last.score_variance.values * 1.03 ** (i - len(last.dependence) / 2)
        axes.plot(last.score_variance, share.sel(dependence=name), color=COLOURS[i], lw=1.0)
        marks(axes, i, x, measured.sel(dependence=name), 2 * error.sel(dependence=name), label)
    words = (
        r"score variance $\sigma^2$",
        r"$L_{\mathrm{eff}}/L$",
        f"dependent Gaussian tokens, $L={int(last.dependent_length)}$",
    )
    describe(axes, *words, log="xy", legend=7, ncols=3, loc="upper center", ylim=(None, 6))
    ticks(axes, "x", last.score_variance.values)


@study_figure(
    "ladder",
    "Gap against the distance from the Gaussian; share of the gap that the third and fourth "
    "cumulants give, against the tilt over the radius of convergence (dashed); length from which "
    "on the gap exceeds the noise of a finite prompt, for all laws (marks as in the first panel); "
    "effective length of autocorrelated and repeated Gaussian tokens.",
    size=(7.8, 6.0),
    panels=(2, 2),
)
def ladder(data: xr.Dataset, *panels: Axes) -> None:
    """Scaling of the gap, the cumulant ladder, the crossing length, and the effective length of
    dependent tokens.
    """
    for axes, draw in zip(
        panels, (draw_scaling, draw_ladder, draw_crossing, draw_effective), strict=True
    ):
        draw(data, axes)


FIGURES = (families, ladder)
