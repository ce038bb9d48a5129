"""C1 and C2 to 1e-10, the affine read-out refuted for every other law, exact errors that fall like
1/L, and drawn prompts.
"""

import numpy as np
import xarray as xr

from largeprompt.runs.judging import (
    FALSE_ALARM,
    Answer,
    compared,
    judged,
    listed,
    log_slope,
    rule,
    span,
)

EXACT = 1e-10  # relative error that counts as none
NO_GAP = 1e-9  # distance to the affine read-out that counts as none


def worst(data: xr.Dataset, kind: str) -> float:
    """Largest relative error of the operator against quadrature, over dimensions."""
    return float(data.identity_error.sel(kind=kind).max())


@rule("C2", "Is T[N(m, Γ)](z) = V(m + ΓUz), for singular Γ and non-zero mean too?")
def gaussian(data: xr.Dataset) -> Answer:
    """Holds to 1e-10."""
    regular, singular = worst(data, "regular"), worst(data, "singular")
    return (
        judged(max(regular, singular) < EXACT, rests_on=[regular, singular]),
        f"Largest relative error against quadrature for d = 1 to {int(data.dim.max())}: "
        f"{regular:.1e}, singular Γ {singular:.1e}.",
        "Over Gaussian tokens the limit is affine, singular covariances included: relative error "
        f"{max(regular, singular):.2e}.",
    )


@rule("C1", "Is the limit for Gaussian mixtures the responsibility-weighted read-out?")
def mixtures(data: xr.Dataset) -> Answer:
    """Holds to 1e-10."""
    error = worst(data, "mixture")
    return (
        judged(error < EXACT, rests_on=[error]),
        "Largest relative error against quadrature for three components, d = 1 to "
        f"{int(data.dim.max())}: {error:.1e}.",
    )


@rule("C1", "Does one operator serve finite and infinite prompts?")
def one_operator(data: xr.Dataset) -> Answer:
    """Holds to 1e-10, on prompts and on quadrature nodes."""
    nodes, prompt = float(data.nodes_error[-1]), float(data.prompt_error.max())
    return (
        judged(nodes < EXACT and prompt < EXACT, rests_on=[nodes, prompt]),
        f"On prompts of 1 to {int(data.prompt.max())} tokens it is PyTorch's softmax attention to "
        f"{prompt:.1e}; on {int(data.nodes[-1])}² Gauss-Hermite nodes of a Gaussian law it is "
        f"within {nodes:.1e} of its value on the law, on {int(data.nodes[1])}² within "
        f"{data.nodes_error[1]:.1e}.",
        f"One formula gives PyTorch's attention on prompts, to {prompt:.2e}, and the integral over "
        f"a law, to {nodes:.2e}.",
    )


@rule("C2", "Is the limit affine for tokens that are not Gaussian?", control=True)
def affine_for_others(data: xr.Dataset) -> Answer:
    """Fails where both routes find the same gap for every law, holds where there is none."""
    gap = data.control_gap_quadrature
    apart = float(abs(data.control_gap / gap - 1).max())
    refuted, affine = bool((gap > 1e-6).all()) and apart < 1e-6, bool((gap <= 1e-6).all())
    sizes = listed(gap.isel(gap_score_variance=-1), ".2g", "{}")
    return (
        judged(affine, rests_on=[gap, apart]) if refuted or affine else "undecided",
        f"It misses the affine read-out by {sizes} at σ² = {data.gap_score_variance[-1]:g}; gaps "
        f"by the cgf and by quadrature agree to {apart:.1e}.",
    )


@rule(
    "C1",
    "Does the exact error of a finite prompt fall like 1/L for every law, and its distance to the "
    "affine map stop at the gap?",
)
def tends(data: xr.Dataset) -> Answer:
    """Holds where it falls all along, its last slope is -1 to 5 %, the level the gap to 1e-4, and
    the first order right to 20 %.
    """
    mse, levels = (
        data.exact.sel(quantity="limit"),
        np.sqrt(data.exact.sel(quantity="affine").isel(length=-1)),
    )
    slopes = [log_slope(data.length[-2:], mse.sel(law=law)[..., -2:]) for law in data.law.values]
    first = (data.first_order / mse).isel(length=-1)
    apart = data.gap > NO_GAP
    error = float(abs(levels / data.gap - 1).where(apart, 0.0).max())
    falls = bool((mse.diff("length") < 0).all())
    good = (
        falls
        and max(abs(slope + 1) for slope in slopes) < 0.05
        and error < 1e-4
        and float(abs(first - 1).max()) < 0.2
    )
    found = ", ".join(f"{gap:.3f} ({gap.law.values})" for gap in data.gap[apart.values])
    return (
        judged(good, rests_on=[mse, levels, data.gap, first]),
        "By the exact law the squared distance to the own limit falls from L = 1 on, at L = "
        f"{data.length[-1]:.0e} with "
        f"exponent {span(slopes, '.3f')}, where the first order is {span(first, '.3f')} times it. "
        f"The distance to the affine map is there within {error:.0e} of the gap, {found}.",
    )


@rule(
    "C1",
    "Do drawn prompts agree with the exact law, in their distance to the limit and to the affine "
    "map?",
)
def drawn_prompts(data: xr.Dataset) -> Answer:
    """Every drawn mean within the standard errors that 1e-6 of runs exceed, for the laws whose
    squared errors have a variance.
    """
    known = data.has_standard_error.astype(bool)
    left = [str(law) for law in data.law.values[~known.values]]
    data = data.isel(law=known.values)
    score, allowed = compared(data.drawn, data.exact_at_drawn, data.drawn_standard_error)
    return (
        judged(score <= allowed, rests_on=[data.drawn, data.exact_at_drawn, score]),
        f"{data.drawn.size} means for {', '.join(map(str, data.law.values))} tokens, L = "
        f"{int(data.drawn_length[0])} to {int(data.drawn_length[-1])}, lie within {score:.1f} "
        f"standard errors, {allowed:.1f} allowed (false alarms in {FALSE_ALARM:g} of runs)."
        + (
            f" Not judged, as its squared error has no variance: {', '.join(left)}." if left else ""
        ),
    )


RULES = (gaussian, mixtures, one_operator, affine_for_others, tends, drawn_prompts)
