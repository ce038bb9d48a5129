"""Least risks of softmax and linear attention against searches, closed forms and drawn prompts."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import largeprompt as lp

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


@settings(max_examples=20, deadline=None)
@given(d=st.integers(1, 6), noise=st.floats(0, 5), length=st.integers(1, 10**6))
def test_isotropic_linear_attention_is_the_closed_form(d, noise, length):
    c = ((1 + noise) * d + 1) / length
    excess = 2 * lp.training.linear_optimum(isotropic(d, noise), length).risk - noise
    assert excess == pytest.approx(c / (1 + c), rel=1e-9, abs=1e-14)


def test_linear_optimum_is_a_minimum_and_is_attained():
    """No covariance commutes with another: the layer at P has the risk, and steps away from it have
    more.
    """
    task, length = skewed(), 15
    best = lp.training.linear_optimum(task, length)
    for step in (
        torch.zeros(3, 3, dtype=F),
        *0.05 * torch.randn(6, 3, 3, generator=torch.Generator().manual_seed(0), dtype=F),
    ):
        U, V = torch.zeros(4, 4, dtype=F), torch.zeros(1, 4, dtype=F)
        U[:3, :3], V[0, 3] = best.matrix + step, 1.0
        risk = float(task.risk(lp.LinearAttention(U, V), length))
        assert risk == pytest.approx(best.risk, rel=1e-12) if not step.any() else risk > best.risk
    assert lp.training.linear_optimum(task).risk == pytest.approx(
        task.noise_variance / 2, rel=1e-12
    )


def test_bad_length_is_named():
    with pytest.raises(lp.InvalidArgumentError, match="length"):
        lp.training.linear_optimum(isotropic(2), 0)
