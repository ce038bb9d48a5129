"""How far above the truth the certificates are: bound over exact error, against L/ρ."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable

import numpy as np
import torch
import xarray as xr

from largeprompt.attention import SoftmaxAttention
from largeprompt.certificate import certificate
from largeprompt.law import finite_prompt
from largeprompt.measures import Gaussian, GaussianMixture, Measure


@dataclasses.dataclass(frozen=True)
class SharpnessConfig:
    """Scalar tokens, the least favourable case; ρ = e^{Λ(2u) - 2Λ(u)} sets the unit of length."""

    variances: tuple[float, ...] = (0.2, 0.8, 2.0, 4.0)
    tilts: tuple[float, ...] = (0.3, 1.0, 1.7, 2.5)
    largest_multiple: float = 1e5
    points: int = 41


def run(config: SharpnessConfig, progress: Callable[[str], None] = lambda message: None) -> xr.Dataset:
    """Bound over exact mean squared error, for Gaussian tokens (closed form) and for two clusters (split bound)."""
    attention = SoftmaxAttention(torch.ones(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64))
    normal = Gaussian(torch.zeros(1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64))
    clusters = GaussianMixture(
        torch.tensor([0.3, 0.7], dtype=torch.float64),
        torch.tensor([[-1.0], [1.0]], dtype=torch.float64),
        torch.tensor([[[0.5]], [[0.3]]], dtype=torch.float64),
    )
    multiples = np.logspace(-0.5, math.log10(config.largest_multiple), config.points)
    cases: list[tuple[str, Measure, float]] = [("Gaussian", normal, math.sqrt(q)) for q in config.variances]
    cases += [("two clusters", clusters, u) for u in config.tilts]
    ratios, rhos = np.empty((len(cases), config.points)), np.empty(len(cases))
    for i, (name, mu, tilt) in enumerate(cases):
        progress(f"sharpness: {name}, u = {tilt:.3g}")
        z = torch.tensor([tilt], dtype=torch.float64)
        rhos[i] = math.exp(float(mu.cgf(2 * z) - 2 * mu.cgf(z)))
        lengths = [max(1, round(multiple * rhos[i])) for multiple in multiples]
        ratios[i] = (certificate(attention, mu, z, lengths).bound / finite_prompt(attention, mu, z, lengths).mse).numpy()
    return xr.Dataset(
        {"ratio": (("case", "multiple"), ratios, {"long_name": "bound / exact mean squared error"}), "rho": ("case", rhos)},
        coords={"multiple": multiples, "law": ("case", [name for name, _, _ in cases]), "tilt": ("case", [u for _, _, u in cases])},
        attrs={"study": "sharpness", "config": json.dumps(dataclasses.asdict(config))},
    )
