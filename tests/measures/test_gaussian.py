"""The Gaussian law: density, subspaces and batches."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.testing.strategies import vectors

F = torch.float64
EVEN = settings(deadline=None, max_examples=60, derandomize=True)
dims = st.integers(1, 4)


def close(a, b):
    assert_close(a, b, rtol=1e-9, atol=1e-9)


@EVEN
@given(st.data(), dims, st.integers(1, 3))
def test_singular_covariance_stays_on_its_subspace(data, d, rank):
    """A token law that lives on a subspace is tilted inside it."""
    root = data.draw(vectors(min(rank, d), shape=(d,)))
    mean, u = data.draw(vectors(d)), data.draw(vectors(d))
    moved = lp.Gaussian(mean, root @ root.mT).tilted_mean(u) - mean
    close(moved, root @ (root.mT @ u))


@pytest.mark.parametrize("tilt", [-1.3, -1e-3, 0.0, 0.01, 0.7, 1.2])
def test_against_the_density(tilt, has_density):
    has_density(
        lp.Gaussian([0.4], [[1.7]]),
        lambda x: stats.norm.pdf(x, 0.4, math.sqrt(1.7)),
        (-30, 30),
        tilt,
    )


def test_gaussian_samples_of_a_batch_have_their_own_moments():
    generator = torch.Generator().manual_seed(1)
    roots = torch.randn(4, 2, 2, generator=generator, dtype=F)
    many = lp.Gaussian(torch.randn(4, 2, generator=generator, dtype=F), roots @ roots.mT)
    tokens = many.sample(200_000, torch.Generator().manual_seed(0))
    centered = tokens - many.mean.unsqueeze(-2)
    covariance = centered.mT @ centered / 200_000
    # entries of a sample covariance have standard deviation at most sqrt(2/n) times the largest
    # variance
    bound = 6.5 * (2 / 200_000) ** 0.5 * many.covariance.amax(dim=(-2, -1))
    assert bool(((covariance - many.covariance).abs().amax(dim=(-2, -1)) < bound).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_samples_in_half_precision(dtype):
    """LAPACK has no Cholesky factor in half precision."""
    mu = lp.Gaussian(torch.ones(2, dtype=dtype), 4 * torch.eye(2, dtype=dtype))
    drawn = mu.sample(4000, 0)
    assert drawn.dtype == dtype
    assert abs(float(drawn.double().var(0).mean()) - 4) < 0.4
