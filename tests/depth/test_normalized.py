"""Moments of normalized Gaussian tokens, against closed forms and polar integrals."""

import math

import numpy as np
import pytest
import torch

import largeprompt as lp
from largeprompt.depth import normalized
from largeprompt.depth.normalized import normalized_moments


@pytest.mark.parametrize("dim", [1, 2, 5, 40])
def test_isotropic_tokens_become_uniform_on_the_sphere(dim):
    found = normalized_moments(
        lp.Gaussian(
            torch.zeros(dim, dtype=torch.float64), 2.5 * torch.eye(dim, dtype=torch.float64)
        )
    )
    sphere = lp.Sphere(dim) if dim > 1 else lp.Rademacher(1)
    torch.testing.assert_close(found.covariance, sphere.covariance, rtol=1e-12, atol=1e-12)
    mean_norm = math.sqrt(2 * 2.5) * math.exp(math.lgamma((dim + 1) / 2) - math.lgamma(dim / 2))
    # E z·n = √d E‖z‖
    assert float(found.cross.trace()) == pytest.approx(math.sqrt(dim) * mean_norm, rel=1e-12)
    assert float(found.mean.abs().max()) == 0


def test_plane_by_polar_coordinates():
    mean, covariance = np.array([0.7, -0.2]), np.array([[1.3, 0.4], [0.4, 0.6]])
    r, weight = np.polynomial.legendre.leggauss(200)
    r, weight = 7 * (r + 1), 7 * weight
    angle = np.arange(400) * 2 * np.pi / 400
    unit = np.stack([np.cos(angle), np.sin(angle)], -1)  # (angle, 2)
    off = r[:, None, None] * unit - mean
    density = (
        np.exp(-0.5 * np.einsum("rai,ij,raj->ra", off, np.linalg.inv(covariance), off))
        * (r * weight)[:, None]
    )
    density /= density.sum()
    n = math.sqrt(2) * unit
    m = density.sum(0) @ n
    second = np.einsum("a,ai,aj->ij", density.sum(0), n, n)
    cross = np.einsum("ra,r,ai,aj->ij", density, r, unit, n)
    found = normalized_moments(lp.Gaussian(mean, covariance))
    np.testing.assert_allclose(found.mean, m, rtol=1e-9)
    np.testing.assert_allclose(found.covariance, second - np.outer(m, m), rtol=1e-9)
    np.testing.assert_allclose(found.cross, cross - np.outer(mean, m), rtol=1e-9)


def test_trace_is_the_dimension_for_singular_and_ill_conditioned_tokens():
    for values in ([1.0, 0.0, 0.0], [1.0, 1e-3, 1e-6]):
        mu = lp.Gaussian(
            torch.tensor([0.0, 0.5, 0.0], dtype=torch.float64),
            torch.diag(torch.tensor(values, dtype=torch.float64)),
        )
        found = normalized_moments(mu)
        assert float(found.covariance.trace() + found.mean @ found.mean) == pytest.approx(
            3, rel=1e-10
        )


def test_halving_the_step_changes_nothing(monkeypatch):
    mu = lp.Gaussian(
        torch.tensor([0.3, 2.0, -0.1], dtype=torch.float64),
        torch.diag(torch.tensor([4.0, 0.1, 1.0], dtype=torch.float64)),
    )
    before = normalized_moments(mu)
    monkeypatch.setattr(normalized, "STEP", normalized.STEP / 2)
    after = normalized_moments(mu)
    for name in ("mean", "covariance", "cross"):
        torch.testing.assert_close(
            getattr(after, name), getattr(before, name), rtol=1e-12, atol=1e-13
        )
