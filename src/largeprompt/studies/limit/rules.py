"""C1 and C2 to 1e-10, the affine read-out refuted for every other law, and the sampled levels within 5 %."""

import numpy as np
import xarray as xr

from largeprompt.runs.judging import Outcome, judged, listed, log_slope, rule

EXACT = 1e-10  # relative error that counts as none
NO_GAP = 1e-9  # distance to the affine read-out that counts as none


def worst(data: xr.Dataset, kind: str) -> float:
    """Largest relative error of the operator against quadrature, over dimensions."""
    return float(data.identity_error.sel(kind=kind).max())


@rule("C2", "Is T[N(m, Γ)](z) = V(m + ΓUz), for singular Γ and non-zero mean too?")
def gaussian(data: xr.Dataset) -> tuple[Outcome, str]:
    """Holds to 1e-10."""
    regular, singular = worst(data, "regular"), worst(data, "singular")
    return (
        judged(max(regular, singular) < EXACT, rests_on=[regular, singular]),
        f"Largest relative error against quadrature for d = 1 to {int(data.dim.max())}: {regular:.1e}, singular Γ {singular:.1e}.",
    )


@rule("C1", "Is the limit for Gaussian mixtures the responsibility-weighted read-out?")
def mixtures(data: xr.Dataset) -> tuple[Outcome, str]:
    """Holds to 1e-10."""
    error = worst(data, "mixture")
    return (
        judged(error < EXACT, rests_on=[error]),
        f"Largest relative error against quadrature for three components, d = 1 to {int(data.dim.max())}: {error:.1e}.",
    )


@rule("C1", "Does one operator serve finite and infinite prompts?")
def one_operator(data: xr.Dataset) -> tuple[Outcome, str]:
    """Holds to 1e-10, on prompts and on quadrature nodes."""
    nodes, prompt = float(data.nodes_error[-1]), float(data.prompt_error.max())
    return (
        judged(nodes < EXACT and prompt < EXACT, rests_on=[nodes, prompt]),
        f"On prompts of 1 to {int(data.prompt.max())} tokens it is PyTorch's softmax attention to {prompt:.1e}; "
        f"on {int(data.nodes[-1])}² Gauss-Hermite nodes of a Gaussian law it is within {nodes:.1e} of its value on the law, "
        f"on {int(data.nodes[1])}² within {float(data.nodes_error[1]):.1e}.",
    )


@rule("C2", "Is the limit affine for tokens that are not Gaussian?", control=True)
def affine_for_others(data: xr.Dataset) -> tuple[Outcome, str]:
    """Fails where both routes find the same gap for every law, holds where there is none."""
    gap = data.control_gap_quadrature
    apart = float(abs(data.control_gap / gap - 1).max())
    refuted, affine = bool((gap > 1e-6).all()) and apart < 1e-6, bool((gap <= 1e-6).all())
    sizes = listed(gap.isel(gap_score_variance=-1), ".2g", "{}")
    return (
        judged(affine, rests_on=[gap, apart]) if refuted or affine else "undecided",
        f"It misses the affine read-out by {sizes} at σ² = {float(data.gap_score_variance[-1]):g}; gaps by the cgf and by "
        f"quadrature agree to {apart:.1e}.",
    )


@rule("C1", "Do drawn prompts tend to the limit of their own law, and stop at the predicted gap from the affine map?")
def drawn_prompts(data: xr.Dataset) -> tuple[Outcome, str]:
    """Holds where the squared distance falls at a power above 0.8, and the level is within 5 % of the gap."""
    slopes = [log_slope(data.length[-4:], data.mse.sel(law=law)[-4:]) for law in data.law.values]
    falls = bool((data.mse.diff("length") < 0).all()) and max(slopes) < -0.8
    levels, gaps = np.sqrt(data.affine_mse.isel(length=-1)), data.gap
    apart = gaps > NO_GAP
    error = float(abs(levels / gaps - 1).where(apart).max())
    pairs = zip(levels[apart.values], gaps[apart.values], strict=True)
    found = ", ".join(f"{float(level):.3f} (gap {float(gap):.3f}, {gap.law.values})" for level, gap in pairs)
    return (
        judged(falls and error < 0.05, rests_on=[data.mse, levels, gaps, error]),
        f"Squared distance to the own limit falls like L^{min(slopes):.2f} to L^{max(slopes):.2f}; "
        f"at L = {int(data.length[-1])} the distance to the affine map is {found}.",
    )


RULES = (gaussian, mixtures, one_operator, affine_for_others, drawn_prompts)
