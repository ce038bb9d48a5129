"""Certified bound over exact error for scalar tokens, from L below ρ to many times ρ; signs at L =
1 as the control.
"""

import math
from typing import Annotated

import numpy as np
import torch
import xarray as xr
from pydantic import Field

from largeprompt.attention import SoftmaxAttention
from largeprompt.certificates import certificate
from largeprompt.law import finite_prompt
from largeprompt.measures import Gaussian, GaussianMixture, Measure, Rademacher
from largeprompt.runs.settings import Distinct, Number, Positive, SomeFew, settings
from largeprompt.runs.study import Progress

F = torch.float64
LAWS = ("Gaussian", "two clusters")
LAYER = SoftmaxAttention(torch.ones(1, 1, dtype=F), torch.ones(1, 1, dtype=F))  # U = V = 1


@settings
class SharpnessConfig:
    """Scalar tokens, the least favourable case; ρ = e^{Λ(2u) - 2Λ(u)} sets the unit of length."""

    variances: Distinct[Positive] = (0.2, 0.8, 2.0, 4.0)
    tilts: Distinct[Number] = (0.3, 1.0, 1.7, 2.5)
    sign_tilts: Distinct[Number] = (0.5, 1.0, 2.0)
    largest_multiple: Annotated[Number, Field(gt=1)] = 1e5
    points: SomeFew = 41


def family(config: SharpnessConfig, law: str) -> tuple[Measure, list[float]]:
    """A law and its tilts."""
    if law == "Gaussian":
        return Gaussian(torch.zeros(1, dtype=F), torch.ones(1, 1, dtype=F)), [
            math.sqrt(q) for q in config.variances
        ]
    means, covariances = (
        torch.tensor([[-1.0], [1.0]], dtype=F),
        torch.tensor([[[0.5]], [[0.3]]], dtype=F),
    )
    return GaussianMixture(torch.tensor([0.3, 0.7], dtype=F), means, covariances), list(
        config.tilts
    )


def ratios(config: SharpnessConfig, law: str, progress: Progress) -> xr.Dataset:
    """Bound over exact mean squared error of one law: the closed form for Gaussian tokens, the
    split bound for two clusters.
    """
    mu, tilts = family(config, law)
    multiples = np.logspace(-0.5, math.log10(config.largest_multiple), config.points)
    ratio, rho = np.empty((len(tilts), config.points)), np.empty(len(tilts))
    for i, tilt in enumerate(tilts):
        progress(f"u = {tilt:.3g}")
        z = torch.tensor([tilt], dtype=F)
        rho[i] = math.exp(float(mu.cgf(2 * z) - 2 * mu.cgf(z)))
        lengths = [max(1, round(multiple * rho[i])) for multiple in multiples]
        ratio[i] = (
            certificate(LAYER, mu, z, lengths).bound / finite_prompt(LAYER, mu, z, lengths).mse
        ).numpy()
    return xr.Dataset(
        {"ratio": (("case", "multiple"), ratio), "rho": ("case", rho)},
        coords={
            "multiple": multiples,
            "law": ("case", [law] * len(tilts)),
            "tilt": ("case", tilts),
        },
    )


def signs(config: SharpnessConfig, progress: Progress) -> xr.Dataset:
    """Signs at L = 1, where T_1 = ±1 and E(T_1 - T)² = 1 + tanh² u: the leading term alone, and the
    certificate.
    """
    z = torch.tensor(config.sign_tilts, dtype=F).unsqueeze(-1)
    proved = certificate(LAYER, Rademacher(1), z, 1)
    exact = 1 + torch.tanh(z[:, 0]).square()
    return xr.Dataset(
        {
            "sign_leading_ratio": ("sign_tilt", (proved.leading / exact).numpy()),
            "sign_bound_ratio": ("sign_tilt", (proved.bound / exact).numpy()),
        },
        coords={"sign_tilt": list(config.sign_tilts)},
    )
