"""Cubature rules for the standard normal law that are exact on polynomials: averages without sampling error."""

from __future__ import annotations

import torch
from torch import Tensor


def quadratic_points(dim: int) -> tuple[Tensor, Tensor]:
    """2d points ±√d e_i with equal weights: exact up to degree three."""
    eye = dim**0.5 * torch.eye(dim, dtype=torch.float64)
    return torch.cat([eye, -eye]), torch.full((2 * dim,), 1 / (2 * dim), dtype=torch.float64)


def quartic_points(dim: int) -> tuple[Tensor, Tensor]:
    """2d² + 1 points, exact up to degree five: 0, ±√(d+2) e_i and √((d+2)/2)(±e_i ± e_j).

    Weights 2/(d+2), (4-d)/(2(d+2)²) and 1/(d+2)²; some are negative for d > 4, so that the rule is for polynomials alone.
    """
    eye = torch.eye(dim, dtype=torch.float64)
    axes = (dim + 2) ** 0.5 * eye
    i, j = torch.triu_indices(dim, dim, 1)
    pairs = [(a * eye[i] + b * eye[j]) * ((dim + 2) / 2) ** 0.5 for a in (1, -1) for b in (1, -1)]
    points = torch.cat([torch.zeros(1, dim, dtype=torch.float64), axes, -axes, *pairs])
    weights = torch.full((len(points),), 1 / (dim + 2) ** 2, dtype=torch.float64)
    weights[0], weights[1 : 2 * dim + 1] = 2 / (dim + 2), (4 - dim) / (2 * (dim + 2) ** 2)
    return points, weights
