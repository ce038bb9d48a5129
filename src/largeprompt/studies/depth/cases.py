"""The stacks of the depth study: spectra of the tokens, weights, scalings, and one prompt after another through them."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from largeprompt.depth import Normalisation, ResidualStack
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures import Gaussian

F = torch.float64
SCALES = {"1/N": -1.0, "1/√N": -0.5, "1": 0.0}  # powers of the number of layers
WEIGHTS = ("random", "shared")


@dataclasses.dataclass(frozen=True)
class Case:
    """One stack: spectrum of the tokens, random or shared weights, size of V, query-averaged score variance on entry."""

    spectrum: str
    weights: str
    scale: str
    score_variance: float

    def __str__(self) -> str:
        return f"{self.spectrum}, {self.weights}, V ~ {self.scale}, σ² = {self.score_variance:g}"


def spectrum(kind: str, dim: int) -> Tensor:
    """Diagonal covariance of trace d: 'isotropic', 'power law' (λ_i ∝ 1/i) or 'spiked' (half the trace in one direction)."""
    if kind == "isotropic":
        values = torch.ones(dim, dtype=F)
    elif kind == "power law":
        values = 1 / torch.arange(1, dim + 1, dtype=F)
    elif kind == "spiked":
        values = torch.ones(dim, dtype=F)
        values[0] = max(dim - 1, 1)
    else:
        raise InvalidArgumentError("spectrum", repr(kind), "'isotropic', 'power law' or 'spiked'")
    return torch.diag(values * dim / values.sum())


def entry_law(kind: str, dim: int, mean: float) -> Gaussian:
    """Gaussian tokens of that spectrum, with a mean of norm ``mean`` √d along (1, ..., 1)."""
    return Gaussian(torch.full((dim,), mean, dtype=F), spectrum(kind, dim))


def make_stack(case: Case, mu: Gaussian, layers: int, seed: int, normalisation: Normalisation = "none") -> ResidualStack:
    """Gaussian weights: every U_k scaled to the score variance on entry, V_k of entries N(0, 1/d) times a power of the depth.

    The same seed gives the same directions in every case, so that cases differ by what their names say alone.
    """
    if case.weights not in WEIGHTS or case.scale not in SCALES:
        raise InvalidArgumentError("case", str(case), f"weights {', '.join(WEIGHTS)}; scales {', '.join(SCALES)}")
    d = mu.dim
    generator = torch.Generator().manual_seed(seed)
    U, V = (torch.randn(layers, d, d, generator=generator, dtype=F) / math.sqrt(d) for _ in range(2))
    if case.weights == "shared":
        U, V = (matrices[:1].expand(layers, d, d) for matrices in (U, V))
    second = mu.covariance + torch.outer(mu.mean, mu.mean)
    found = (U.mT @ mu.covariance @ U * second).sum((-2, -1))
    U = U * (case.score_variance / found).sqrt()[:, None, None]
    return ResidualStack(U, V * float(layers) ** SCALES[case.scale], normalisation)
