"""Moments of Gaussian tokens put on the sphere: what RMSNorm leaves of mean and covariance."""

import dataclasses

import numpy as np
import torch
from torch import Tensor

from largeprompt.measures.gaussian import Gaussian

# of the double-exponential rule; halving it changes nothing in double precision (tests)
STEP = 0.05
REACH = 5.0


@dataclasses.dataclass(frozen=True)
class NormalizedMoments:
    """Of n = √d z/‖z‖: mean (d,), covariance (d, d), and covariance of z with n (d, d)."""

    mean: Tensor
    covariance: Tensor
    cross: Tensor


def normalized_moments(mu: Gaussian) -> NormalizedMoments:
    """Moments of n(z) = √d z/‖z‖, z ~ N(m, Γ): (depth.3) of docs/mathematics/depth.md."""
    values, vectors = torch.linalg.eigh(mu.covariance)
    lam, m = (part.detach().cpu().numpy() for part in (values.clamp_min(0.0), vectors.mT @ mu.mean))
    scale = float(lam.sum() + m @ m)  # E‖z‖²
    x = np.arange(-REACH, REACH + STEP / 2, STEP)
    t = np.exp(np.pi * np.sinh(x) / 2) / scale
    weight = STEP * np.pi / 2 * np.cosh(x) * t
    c = 1 / (1 + 2 * np.outer(t, lam))  # (t, i)
    mass = np.exp(0.5 * np.log(c).sum(-1) - t * (c @ m**2))
    shifted = c * m
    second = shifted[:, :, None] * shifted[:, None, :]
    index = np.arange(len(lam))
    second[:, index, index] += c * lam
    d = len(lam)
    half, one = weight * mass / np.sqrt(np.pi * t), weight * mass
    mean = np.sqrt(d) * half @ shifted
    square = d * np.einsum("t,tij->ij", one, second)
    cross = np.sqrt(d) * np.einsum("t,tij->ij", half, second)

    def back(matrix: np.ndarray) -> Tensor:
        turned: Tensor = vectors @ torch.from_numpy(matrix).to(vectors) @ vectors.mT
        return turned

    return NormalizedMoments(
        vectors @ torch.from_numpy(mean).to(vectors),
        back(square - np.outer(mean, mean)),
        back(cross - np.outer(m, mean)),
    )
