"""The three regimes over score variance and prompt length, with the effective number of tokens."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import torch
import xarray as xr

from largeprompt.law import regime, weight_moments
from largeprompt.runs.study import Progress, Study, Verdict, merged


@dataclasses.dataclass(frozen=True)
class PhaseDiagramConfig:
    """A grid of score variances and of logarithms of the length."""

    largest_variance: float = 40.0
    longest: float = 1e12
    variances: int = 121
    lengths: int = 81


def cells(config: PhaseDiagramConfig) -> list[str]:
    """The whole grid at once: it takes seconds."""
    return ["grid"]


def compute(config: PhaseDiagramConfig, cell: str, progress: Progress) -> xr.Dataset:
    """Exact E Y, hence effective tokens 1/E Y, and the mean squared error along the tilt, on the grid."""
    variance = np.linspace(0.0, config.largest_variance, config.variances)
    sigma = torch.from_numpy(np.sqrt(variance))
    lengths = np.unique(np.round(np.logspace(0, math.log10(config.longest), config.lengths)).astype(np.int64))
    collision = np.empty((len(lengths), len(variance)))
    along = np.empty_like(collision)
    for i, length in enumerate(lengths):
        progress(f"L = {length:.3g}")
        y, w3, y2 = weight_moments(int(length), sigma, [[(2, 0)], [(3, 0)], [(2, 0), (2, 0)]]).numpy()
        collision[i], along[i] = y, y + variance * (y - 6 * w3 + 6 * y2)
    grid = ("length", "score_variance")
    names = [[regime(q, int(length)) for q in variance] for length in lengths]
    return xr.Dataset(
        {
            "effective_tokens": (grid, 1 / collision, {"long_name": "effective tokens, 1/E[Y]"}),
            "along_mse": (grid, along, {"long_name": "E(S - sigma)^2"}),
            "regime": (grid, names, {"long_name": "regime by sigma/sqrt(2 ln L)"}),
        },
        coords={"length": lengths.astype(float), "score_variance": variance},
    )


def named_by_tokens(data: xr.Dataset) -> xr.DataArray:
    """Regimes by effective tokens alone: 'linear' above √L, 'frozen' up to √(π ln L), 'heavy' between.

    At α = σ/√(2 ln L) = 1/2 the linear law L e^{-σ²} is √L. At α = 1 half of the normaliser lies beyond the largest score, so that
    E S = σ(1 - E Y) ≈ σ - φ(0)/Φ(0) and E Y ≈ 1/√(π ln L).
    """
    tokens, log_length = data.effective_tokens, np.log(data.length)
    few, many = tokens <= np.sqrt(np.pi * log_length), tokens > np.sqrt(data.length)
    named: xr.DataArray = tokens.copy(data=np.where(many, "linear", np.where(few, "frozen", "heavy")))
    return named


def verdicts(data: xr.Dataset) -> list[Verdict]:
    """Names by effective tokens against names by α, from L = 100 on: nearly all agree, and all but those near a border."""
    part = data.sel(length=slice(100, None))
    agree = named_by_tokens(part) == part.regime.astype(str)
    alpha = np.sqrt(part.score_variance / (2 * np.log(part.length)))
    wrong = alpha.where(~agree)
    from_border = np.minimum(abs(wrong - 0.5), abs(wrong - 1.0))
    share, farthest = float(agree.mean()), float(from_border.max()) if bool((~agree).any()) else 0.0
    outer = part.effective_tokens * np.exp(part.score_variance) / part.length
    linear = outer.where(alpha < 0.35)
    frozen = outer.where(alpha > 1)
    return [
        Verdict(
            "C3",
            "Do the regimes read off the effective number of tokens agree with those named by σ/√(2 ln L)?",
            "holds" if share >= 0.95 and farthest <= 0.15 else "fails",
            f"On {share:.1%} of the grid from L = 100 to {float(part.length[-1]):.0e}; where they differ, σ/√(2 ln L) is within "
            f"{farthest:.2f} of a border.",
        ),
        Verdict(
            "C3",
            "Is the effective number of tokens L e^-σ² well inside the linear regime, σ/√(2 ln L) < 0.35?",
            "holds" if float(linear.max()) < 1.5 and float(linear.min()) > 0.999 else "fails",
            f"1/E[Y] is {float(linear.min()):.3f} to {float(linear.max()):.3f} times that, nearer 1 as L grows "
            f"({float(linear.isel(length=-1).max()):.4f} at most at the longest).",
        ),
        Verdict(
            "C3",
            "Is it so in the frozen regime?",
            "fails" if float(frozen.min()) > 1.5 else "holds",
            f"There 1/E[Y] is {float(frozen.min()):.2g} to {float(frozen.max()):.1g} times L e^-σ².",
            control=True,
        ),
    ]


STUDY = Study(
    "phase_diagram",
    "The regimes of a finite prompt",
    "How many tokens does softmax attention read, and where does it stop to average?",
    "The exact effective number of tokens 1/E[Σ w²] is computed on a grid of score variances and lengths. "
    "Regimes are named twice, by σ/√(2 ln L) and by effective tokens against √L and √(π ln L). "
    "The two namings are compared point by point.",
    PhaseDiagramConfig,
    PhaseDiagramConfig(variances=41, lengths=31),
    cells,
    compute,
    merged,
    verdicts,
)
