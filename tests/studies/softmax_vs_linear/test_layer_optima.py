"""Least risks of softmax and linear attention against searches, closed forms and drawn prompts."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import largeprompt as lp
from largeprompt.law.weights import weight_moments
from largeprompt.studies.softmax_vs_linear.layer_optima import block_optimum, long_prompt_constants

F = torch.float64


def isotropic(d, noise=0.0, query=1.0):
    eye = torch.eye(d, dtype=F)
    return lp.LinearRegression(eye, eye / d, noise, query * eye)


def skewed(noise=0.2):
    sigma = torch.tensor([[1.0, 0.4, 0.0], [0.4, 2.0, 0.1], [0.0, 0.1, 0.3]], dtype=F)
    prior = torch.tensor([[0.5, 0.1, 0.0], [0.1, 0.3, 0.0], [0.0, 0.0, 1.0]], dtype=F)
    return lp.LinearRegression(
        sigma, prior, noise, torch.diag(torch.tensor([1.0, 0.2, 0.5], dtype=F))
    )


def test_long_prompt_constants_of_the_literature():
    """4.22, 3.70, 3.44, 3.19, 2.97 at d = 1, 2, 3, 5, 10, tending to e; (1 + 2/d)^{1+d/2} where
    noise dominates.
    """
    ratios = [long_prompt_constants(isotropic(d)).ratio for d in (1, 2, 3, 5, 10)]
    np.testing.assert_allclose(ratios, [4.22, 3.70, 3.44, 3.19, 2.97], atol=0.005)
    assert long_prompt_constants(isotropic(200)).ratio == pytest.approx(math.e, rel=1e-2)
    for d in (1, 3, 8):
        assert long_prompt_constants(isotropic(d, 1e9)).ratio == pytest.approx(
            (1 + 2 / d) ** (1 + d / 2), rel=1e-6
        )


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), noise=st.floats(0, 3))
def test_long_prompt_ratio_has_a_floor_and_ignores_the_spectrum(seed, noise):
    """At least (e + ρ)/(1 + ρ) for any covariances; for Σ_q = Σ and W a multiple of I it depends on
    d and tr WΣ/V2 alone.
    """
    generator = torch.Generator().manual_seed(seed)
    roots = torch.randn(3, 4, 4, generator=generator, dtype=F)
    sigma, prior, query = (root @ root.mT + 0.05 * torch.eye(4, dtype=F) for root in roots)
    found = long_prompt_constants(lp.LinearRegression(sigma, prior, noise, query))
    spread = float(torch.trace(prior @ sigma)) + noise
    rho = float(torch.trace(prior @ query)) / (
        spread * float(torch.trace(torch.linalg.solve(sigma, query)))
    )
    assert found.ratio >= (math.e + rho) / (1 + rho) - 1e-9
    scaled = lp.LinearRegression(sigma, torch.eye(4, dtype=F) / float(torch.trace(sigma)), noise)
    assert long_prompt_constants(scaled).ratio == pytest.approx(
        long_prompt_constants(isotropic(4, noise)).ratio, rel=1e-7
    )


def test_long_prompts_reach_their_constants():
    task = skewed()
    constants = long_prompt_constants(task)
    limit, length = task.noise_variance / 2, 10**7
    assert (lp.training.linear_optimum(task, length).risk - limit) * length == pytest.approx(
        constants.linear, rel=1e-4
    )
    found = block_optimum(task, length)
    assert (found.risk - limit) * length == pytest.approx(constants.softmax, rel=2e-2)
    assert abs(found.b) == pytest.approx(constants.readout, rel=5e-2)


def test_block_optimum_is_the_isotropic_one():
    task, length = isotropic(3, 0.3), 40
    found, truth = (block_optimum(task, length), lp.training.isotropic_optimum(task, length))
    assert found.risk == pytest.approx(truth.risk, rel=1e-11)
    np.testing.assert_allclose(found.A, truth.a * torch.eye(3, dtype=F), atol=1e-4 * truth.a)


@pytest.mark.parametrize(("length", "least"), [(5, 0.34764775375675), (10, 0.26277415994259)])
def test_block_optimum_in_one_dimension(length, least):
    """s² = 0.2, where Gauss points of the length had an optimum 1.6e-4 below the least risk."""
    task = isotropic(1, 0.2)
    found = block_optimum(task, length)
    assert found.risk == pytest.approx(least, rel=1e-11)
    nodes, mass = np.polynomial.legendre.leggauss(12)
    x = ((nodes + 1) / 8 + np.arange(36)[:, None] / 4).ravel()  # panels of a quarter, up to 9
    weight = np.tile(mass, 36) * np.exp(-(x**2) / 2)
    a, b = abs(float(found.A)), abs(found.b)
    f, w3, y2 = weight_moments(
        length, torch.from_numpy(a * x), [[(2, 0)], [(3, 0)], [(2, 0), (2, 0)]]
    ).numpy()
    twice = (
        1.2
        + 1.2 * b**2 * f
        + b**2 * (1 - f - 6 * (w3 - y2)) * (a * x) ** 2
        - 2 * b * (1 - f) * a * x**2
    )
    assert twice @ weight / weight.sum() / 2 == pytest.approx(found.risk, rel=1e-10)


def test_another_task_is_named():
    with pytest.raises(lp.InvalidArgumentError, match="task: got 'x'"):
        long_prompt_constants("x")


def test_block_optimum_of_linear_attention_is_the_closed_form():
    best = lp.training.linear_optimum(skewed(), 15)
    assert block_optimum(skewed(), 15, lp.LinearAttention).risk == pytest.approx(
        best.risk, rel=1e-9
    )


def test_bad_length_is_named():
    with pytest.raises(lp.InvalidArgumentError, match="length"):
        block_optimum(isotropic(2), 0)
