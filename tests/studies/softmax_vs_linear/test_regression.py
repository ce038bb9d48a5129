"""Long prompts and other covariances: closed forms of the literature, and searches."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import largeprompt as lp
from largeprompt.studies.softmax_vs_linear.regression import (
    block_risk,
    long_prompt_ratio,
    long_prompts,
    standard_task,
)

F = torch.float64


def test_long_prompt_ratios_of_the_literature():
    ratios = [long_prompt_ratio(standard_task(d, 0.0)) for d in (1, 2, 3, 5, 10)]
    np.testing.assert_allclose(ratios, [4.22, 3.70, 3.44, 3.19, 2.97], atol=0.005)
    assert long_prompt_ratio(standard_task(200, 0.0)) == pytest.approx(math.e, rel=1e-2)
    for d in (1, 3, 8):
        noisy = long_prompt_ratio(standard_task(d, 1e9))
        assert noisy == pytest.approx((1 + 2 / d) ** (1 + d / 2), rel=1e-6)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), noise=st.floats(0, 3))
def test_long_prompt_ratio_has_a_floor(seed, noise):
    """At least (e + ρ)/(1 + ρ) for any covariances."""
    generator = torch.Generator().manual_seed(seed)
    roots = torch.randn(3, 4, 4, generator=generator, dtype=F)
    sigma, prior, query = (root @ root.mT + 0.05 * torch.eye(4, dtype=F) for root in roots)
    spread = float(torch.trace(prior @ sigma)) + noise
    shape = float(torch.trace(torch.linalg.solve(sigma, query)))
    rho = float(torch.trace(prior @ query)) / (spread * shape)
    found = long_prompt_ratio(lp.LinearRegression(sigma, prior, noise, query))
    assert found >= (math.e + rho) / (1 + rho) - 1e-9


def test_best_matrices_reach_the_constants_of_long_prompts():
    task = standard_task(2, 0.3, "queries near a line")
    linear, softmax, _ = long_prompts(task)
    limit, length = task.noise_variance / 2, 10**7
    best = lp.training.linear_optimum(task, length).risk
    assert (best - limit) * length == pytest.approx(linear, rel=1e-4)
    assert (block_risk(task, length) - limit) * length == pytest.approx(softmax, rel=3e-3)


def test_best_matrices_are_isotropic_for_isotropic_tasks():
    task = standard_task(2, 0.2)
    expected = lp.training.isotropic_optimum(task, 50).risk
    assert block_risk(task, 50) == pytest.approx(expected, rel=1e-8)
