"""One operator for prompts and laws; affine for Gaussian tokens; other tokens have own limits."""

import numpy as np
import xarray as xr

from largeprompt.runs.judging import Finding, judged, log_slope, rule
from largeprompt.studies.lengths import drawn_agrees, first_below

EXACT = 1e-10  # relative error that counts as none
NO_GAP = 1e-6  # distance to the affine map that counts as none


@rule("C2", "Is T[N(m, Γ)](z) = V(m + ΓUz), for singular Γ and non-zero mean too?")
def gaussian(data: xr.Dataset) -> Finding:
    """Holds to 1e-10."""
    error = data.identity_error.sel(kind=["regular", "singular"])
    return Finding(
        judged(float(error.max()) < EXACT, rests_on=[error]),
        "Over Gaussian tokens the infinite prompt is an affine map, to rounding, for singular "
        "covariances too.",
        "Over Gaussian tokens the infinite prompt is not the affine map.",
        {"relative error against quadrature": error, "largest dimension": int(data.dim.max())},
    )


@rule("C1", "Does one operator serve finite and infinite prompts, mixtures too?")
def one_operator(data: xr.Dataset) -> Finding:
    """Holds to 1e-10, on prompts, on quadrature nodes and for mixtures."""
    nodes, mixture = data.nodes_error[-1], data.identity_error.sel(kind="mixture").max()
    errors = [data.prompt_error.max(), nodes, mixture]
    return Finding(
        judged(float(max(errors)) < EXACT, rests_on=errors),
        "One formula is PyTorch's softmax attention on prompts and the integral over a law, to "
        "rounding.",
        "One formula does not serve finite and infinite prompts.",
        {
            "off PyTorch on prompts": data.prompt_error.max(),
            "off the law on its nodes": nodes,
            "off quadrature for mixtures": mixture,
        },
    )


drawn_prompts = drawn_agrees("C1", "Do drawn prompts of six laws agree with the exact law?")


@rule("C2", "Is the limit affine for tokens that are not Gaussian?", control=True)
def affine_for_others(data: xr.Dataset) -> Finding:
    """Fails where no law but the Gaussian has an affine limit."""
    gaps = data.gap.where(data.law != "Gaussian", drop=True)
    return Finding(
        judged(bool((gaps < NO_GAP).any()), rests_on=[gaps]) if gaps.size else "undecided",
        numbers={"distance to the affine map": gaps},
    )


@rule(
    "N1", "Do prompts of other tokens converge to the limit of their own law, off the affine map?"
)
def own_limits(data: xr.Dataset) -> Finding:
    """Holds where errors fall like 1/L in the end, and distances to the affine map stop at gaps."""
    slopes = [log_slope(data.length[-2:], data.exact.sel(law=law)[-2:]) for law in data.law.values]
    apart = data.gap > NO_GAP
    level = (np.sqrt(data.affine.isel(length=-1)) / data.gap).where(apart)
    last, gaps = data.isel(family_length=-1), data.family_gap
    clear = gaps**2 > 1e4 * last.family_exact  # the gap is 100 times the noise
    levels = (np.sqrt(last.family_affine) / gaps).where(clear)
    falls = bool((data.exact.diff("length") < 0).all())
    falls = falls and float((last.family_exact / data.family_exact[{"family_length": 0}]).max()) < 1
    off = max(float(abs(level - 1).max()), float(abs(levels - 1).max()))
    crossing = first_below(np.sqrt(data.family_exact) / gaps, 1.0, "family_length", between=True)
    good = falls and max(abs(slope + 1) for slope in slopes) < 0.05 and off < 0.02
    return Finding(
        judged(good, rests_on=[data.exact, data.gap, off]),
        "Prompts of other tokens converge to a limit of their own, which is not linear in the "
        "query.",
        "Not all prompts of other tokens converge to a limit of their own.",
        {"last exponent": slopes, "gap": gaps, "the gap shows from L =": np.ceil(crossing)},
    )


@rule("N1", "Does the distance to linear grow with the distance from the Gaussian as predicted?")
def scaling(data: xr.Dataset) -> Finding:
    """Holds where exponents are right to 2 % and the nearest gaps to 5 %."""
    near = data[["distance", "scaling_gap", "scaling_predicted"]].isel(step=slice(0, 2))
    found = [near.sel(family=name) for name in data.family.values]
    slopes = np.array([log_slope(one.distance, one.scaling_gap) for one in found])
    ratio = (near.scaling_gap / near.scaling_predicted).isel(step=0)
    off = abs(slopes / data.power.values - 1).max()
    return Finding(
        judged(off < 0.02 and float(abs(ratio - 1).max()) < 0.05, rests_on=[off, ratio]),
        "How far from linear they are is predicted as laws leave the Gaussian.",
        "How far from linear they are is not as predicted.",
        {"exponents": ", ".join(f"{slope:.3f}" for slope in slopes), "over predicted": ratio},
    )


@rule(
    "N1",
    "Do the third and fourth cumulants give the distance to linear within 10 %?",
    fails="A method: past small tilts two more cumulants are not enough.",
)
def cumulants(data: xr.Dataset) -> Finding:
    """In part where they do at the smallest tilt alone."""
    share = data.cumulants / data.family_gap
    small, worst = abs(share.isel(tilt=0) - 1).max(), abs(share - 1).max()
    return Finding(
        judged(float(worst) < 0.1, in_part=float(small) < 0.1, rests_on=[small]),
        numbers={
            "share at the smallest tilt": share.isel(tilt=0),
            "at the largest": share.isel(tilt=-1),
        },
    )


RULES = (gaussian, one_operator, own_limits, scaling, cumulants, drawn_prompts, affine_for_others)
