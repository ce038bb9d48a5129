"""Names by effective tokens against names by α = σ/√(2 ln L), from L = 100 on, and L e^-σ² against
the effective tokens.
"""

import numpy as np
import xarray as xr

from largeprompt.runs.judging import Answer, judged, rule, span


def named_by_tokens(data: xr.Dataset) -> xr.DataArray:
    """Regimes by effective tokens alone: 'linear' above √L, 'frozen' up to √(π ln L), 'heavy'
    between.

    At α = σ/√(2 ln L) = 1/2 the linear law L e^{-σ²} is √L. At α = 1 half of the normaliser lies
    beyond the largest score, so that E S = σ(1 - E Y) ≈ σ - φ(0)/Φ(0) and E Y ≈ 1/√(π ln L).
    """
    tokens, log_length = data.effective_tokens, np.log(data.length)
    few, many = tokens <= np.sqrt(np.pi * log_length), tokens > np.sqrt(data.length)
    named: xr.DataArray = tokens.copy(
        data=np.where(many, "linear", np.where(few, "frozen", "heavy"))
    )
    return named


def long_prompts(data: xr.Dataset) -> xr.Dataset:
    """The grid from L = 100 on, with α, and with the effective tokens over L e^-σ²."""
    part = data.sel(length=slice(100, None))
    alpha = np.sqrt(part.score_variance / (2 * np.log(part.length)))
    return part.assign(
        alpha=alpha,
        over_linear_law=part.effective_tokens * np.exp(part.score_variance) / part.length,
    )


@rule(
    "C3",
    "Do the regimes read off the effective number of tokens agree with those named by σ/√(2 ln L)?",
)
def two_namings(data: xr.Dataset) -> Answer:
    """Holds where nearly all agree, and all but those near a border."""
    part = long_prompts(data)
    agree = named_by_tokens(part) == part.regime.astype(str)
    wrong = part.alpha.where(~agree)
    from_border = np.minimum(abs(wrong - 0.5), abs(wrong - 1.0))
    share, farthest = float(agree.mean()), float(from_border.max()) if bool((~agree).any()) else 0.0
    return (
        judged(share >= 0.95 and farthest <= 0.15, rests_on=[share, part.effective_tokens]),
        f"On {share:.1%} of the grid from L = 100 to {part.length[-1]:.0e}; where they differ, "
        f"σ/√(2 ln L) is within {farthest:.2f} of a border.",
        f"Attention is linear, heavy or frozen: two ways to tell which agree on {share:.1%} of the "
        "diagram.",
    )


@rule(
    "C3",
    "Is the effective number of tokens L e^-σ² well inside the linear regime, σ/√(2 ln L) < 0.35?",
)
def linear_regime(data: xr.Dataset) -> Answer:
    """Holds within a factor of 1.5."""
    part = long_prompts(data)
    ratio = part.over_linear_law.where(part.alpha < 0.35)
    least, most = float(ratio.min()), float(ratio.max())
    return (
        judged(most < 1.5 and least > 0.999, rests_on=[least, most]),
        f"1/E[Y] is {span(ratio, '.3f')} times that, nearer 1 as L grows "
        f"({ratio.isel(length=-1).max():.4f} at most at the longest).",
    )


@rule(
    "C3",
    "Is the effective number of tokens L e^-σ² in the frozen regime too, σ/√(2 ln L) > 1?",
    control=True,
)
def frozen_regime(data: xr.Dataset) -> Answer:
    """Fails where it is nowhere within a factor of 1.5."""
    part = long_prompts(data)
    ratio = part.over_linear_law.where(part.alpha > 1)
    least, most = float(ratio.min()), float(ratio.max())
    return judged(
        least <= 1.5, rests_on=[least, most]
    ), f"There 1/E[Y] is {least:.2g} to {most:.1g} times L e^-σ²."


RULES = (two_namings, linear_regime, frozen_regime)
