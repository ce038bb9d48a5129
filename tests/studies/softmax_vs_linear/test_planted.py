"""Weights of tokens whose scores are shifted: one planted token, and tokens of several kinds,
against independent computations.
"""

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.law.weights import weight_moments
from largeprompt.studies.softmax_vs_linear.planted import planted_moments
from largeprompt.studies.softmax_vs_linear.token_kinds import (
    ReadOutKinds,
    linear_error,
    softmax_error,
)

F = torch.float64


def functions(w, place=0):
    y, w3 = (w**2).sum(-1), (w**3).sum(-1)
    one = w[..., place]
    return [one, 1 - one, one**2, y, y * one, w3 - y**2]


@pytest.mark.parametrize(
    ("q", "shift"), [(0.0, 0.7), (0.03, -1.2), (0.4, 0.4), (4.0, 3.0), (25.0, -6.0)]
)
def test_two_and_three_tokens_by_direct_quadrature(q, shift):
    """The weights depend on differences of scores: one integral for two tokens, two for three."""
    step = 0.05
    xi = step * torch.arange(-200, 201, dtype=F)
    density = torch.exp(-(xi**2) / 2) * step / math.sqrt(2 * math.pi)
    two = torch.softmax(torch.stack([shift + math.sqrt(2 * q) * xi, 0 * xi], -1), -1)
    for found, expected in zip(planted_moments(2, q, shift), functions(two), strict=True):
        assert float(found) == pytest.approx(
            float((expected * density).sum()), rel=1e-11, abs=1e-14
        )
    # ξ_1 - ξ_3 and ξ_2 - ξ_3 have variance 2 and covariance 1
    first, other = torch.meshgrid(xi, xi, indexing="ij")
    a, b = math.sqrt(2) * first, first / math.sqrt(2) + math.sqrt(1.5) * other
    three = torch.softmax(torch.stack([shift + math.sqrt(q) * a, math.sqrt(q) * b, 0 * a], -1), -1)
    for found, expected in zip(planted_moments(3, q, shift), functions(three), strict=True):
        assert float(found) == pytest.approx(
            float((expected * density.outer(density)).sum()), rel=1e-10, abs=1e-13
        )


@settings(max_examples=15, deadline=None)
@given(st.sampled_from([2, 3, 17, 10**4, 10**9, 10**15]), st.floats(0, 80))
def test_without_shift_all_tokens_are_alike(length, q):
    found = planted_moments(length, q, 0.0)
    y, w3, y2 = weight_moments(length, [math.sqrt(q)], [[(2, 0)], [(3, 0)], [(2, 0)] * 2])
    assert float(found.found) == pytest.approx(1 / length, rel=1e-12)
    assert float(found.found + found.missed) == pytest.approx(1, rel=1e-13)
    assert float(found.collision) == pytest.approx(float(y), rel=1e-11)
    assert float(found.found_square) == pytest.approx(float(y) / length, rel=1e-11)
    assert float(found.product) == pytest.approx(float(y) / length, rel=1e-11)
    assert float(found.imbalance) == pytest.approx(float(w3 - y2), rel=1e-9, abs=1e-12 * float(y))


@settings(max_examples=15, deadline=None)
@given(st.sampled_from([2, 5, 300, 10**6, 10**15]), st.floats(0, 150))
def test_where_the_weights_are_the_posterior(length, nu):
    """q = δ: E w_ε = E Σ w² (a posterior's mean at the truth is its mean square), and E w_ε² = E Σ
    w³.
    """
    found = planted_moments(length, nu, nu)
    assert float(found.found) == pytest.approx(float(found.collision), rel=1e-11)
    # E Y w_ε = E Y²
    assert float(found.product) == pytest.approx(
        float(found.found_square - found.imbalance), rel=1e-9
    )


def test_one_token_and_no_end_of_tokens():
    assert [float(x) for x in planted_moments(1, 2.0, 3.0)] == [1, 0, 1, 1, 1, 0]
    assert [float(x) for x in planted_moments(math.inf, 2.0, 3.0)] == [0, 1, 0, 0, 0, 0]
    assert float(planted_moments(10**15, 0.5, 3.0).found * 10**15) == pytest.approx(
        math.exp(3), rel=1e-12
    )


def test_planted_moments_are_differentiable_twice_and_batched():
    q, shift = torch.tensor([0.02, 0.5, 3.0], dtype=F), torch.tensor([[0.3], [-1.0]], dtype=F)
    assert planted_moments(7, q, shift).found.shape == (2, 3)
    assert_close(
        planted_moments(7, q, shift).product[1, 2],
        planted_moments(7, 3.0, -1.0).product,
        rtol=1e-12,
        atol=0,
    )
    arguments = (
        torch.tensor([0.05, 2.0], dtype=F, requires_grad=True),
        torch.tensor([0.5, -0.4], dtype=F, requires_grad=True),
    )
    assert torch.autograd.gradcheck(
        lambda a, b: tuple(planted_moments(9, a, b)), arguments, rtol=1e-5
    )
    assert torch.autograd.gradgradcheck(
        lambda a, b: planted_moments(9, a, b).product, arguments, rtol=1e-4
    )
    zero = torch.zeros(1, dtype=F, requires_grad=True)  # q = 0: dE Y/dq = (L-1)/L²
    (slope,) = torch.autograd.grad(
        planted_moments(5, zero, torch.zeros(1, dtype=F)).collision, zero
    )
    assert float(slope) == pytest.approx(4 / 25, rel=1e-6)


def read_outs(seed=0, n=6, kinds=2, outputs=2):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=F)

    variance = draw(n, kinds).exp() * torch.tensor([0.01, 1.0] * (n // 2), dtype=F).unsqueeze(-1)
    tilt = 0.5 * draw(n, kinds, outputs)
    # no less than the part that the score explains
    spread = tilt.square().sum(-1) / variance + draw(n, kinds).square()
    pi = torch.tensor([0.7, 0.3], dtype=F)
    return ReadOutKinds(pi, draw(n, kinds), variance, draw(n, kinds, outputs), tilt, spread)


@pytest.mark.parametrize("length", [1, 2, 12, 10**4, 10**12])
def test_one_kind_is_the_gaussian_law(length):
    kinds = dataclasses.replace(read_outs(1), level=torch.zeros(6, 2, dtype=F)).keep([0])
    kinds = dataclasses.replace(kinds, probability=torch.ones(1, dtype=F))
    target, a, spread = -kinds.offset[:, 0], kinds.tilt[:, 0], kinds.spread[:, 0]
    y, w3, y2 = weight_moments(
        length, kinds.variance[:, 0].sqrt(), [[(2, 0)], [(3, 0)], [(2, 0)] * 2]
    )
    square = a.square().sum(-1)
    expected = (
        (a - target).square().sum(-1)
        + y * (spread - square + 2 * (a * target).sum(-1))
        - 6 * (w3 - y2) * square
    )
    assert_close(softmax_error(float(length), kinds), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("length", [2, 3, 40, 10**5])
def test_two_kinds_are_a_gaussian_mixture(length):
    """Against the exact law of mixtures, which is another program: the mean squared error around
    the limit.
    """
    mu = lp.GaussianMixture(
        [0.6, 0.4], [[0.3, -0.2], [-0.5, 0.8]], [[[1.0, 0.2], [0.2, 0.5]], [[0.3, 0.0], [0.0, 0.9]]]
    )
    u, attention = (
        torch.tensor([0.8, -0.5], dtype=F),
        lp.SoftmaxAttention(torch.eye(2, dtype=F), torch.eye(2, dtype=F)),
    )
    limit = mu.tilted_mean(u)
    moved = mu.covariances @ u
    kinds = ReadOutKinds(
        mu.weights,
        (mu.means @ u)[None],
        (moved @ u)[None],
        (mu.means - limit)[None],
        moved[None],
        mu.covariances.diagonal(dim1=-2, dim2=-1).sum(-1)[None],
    )
    law = lp.finite_prompt(attention, mu, u, length)
    assert float(softmax_error(float(length), kinds)) == pytest.approx(float(law.mse), rel=1e-9)
    assert float(softmax_error(math.inf, kinds)) == pytest.approx(0, abs=1e-28)


@pytest.mark.parametrize("length", [1, 2, 9, 30])
def test_silence_is_a_binomial_number_of_tokens(length):
    kinds = read_outs(2)
    silenced = dataclasses.replace(
        kinds, level=torch.tensor([0.0, -math.inf], dtype=F).expand(6, 2)
    )
    one, other = (
        dataclasses.replace(kinds.keep([k]), probability=torch.ones(1, dtype=F)) for k in (0, 1)
    )
    expected = 0.3**length * softmax_error(
        float(length), dataclasses.replace(other, level=0 * other.level)
    )
    for k in range(1, length + 1):
        expected = expected + binom.pmf(k, length, 0.7) * softmax_error(float(k), one)
    assert_close(softmax_error(float(length), silenced), expected, rtol=1e-12, atol=0)
    far = dataclasses.replace(kinds, level=torch.tensor([0.0, -60.0], dtype=F).expand(6, 2))
    assert_close(softmax_error(float(length), far), expected, rtol=1e-10, atol=0)


def test_kinds_that_are_alike_are_one():
    kinds = read_outs(3)
    same = ReadOutKinds(
        kinds.probability,
        *(
            field[:, :1].expand(-1, 2, *field.shape[2:])
            for field in (kinds.level, kinds.variance, kinds.offset, kinds.tilt)
        ),
        kinds.spread[:, :1].expand(-1, 2),
    )
    one = dataclasses.replace(kinds.keep([0]), probability=torch.ones(1, dtype=F))
    for length in (2.0, 50.0, math.inf):
        assert_close(softmax_error(length, same), softmax_error(length, one), rtol=1e-12, atol=0)
    absent = dataclasses.replace(kinds, probability=torch.tensor([1.0, 0.0], dtype=F))
    assert_close(softmax_error(5.0, absent), softmax_error(5.0, one), rtol=1e-12, atol=0)


def test_linear_read_out_by_the_law_of_one_token():
    """E‖(1/L) Σ s r - t‖² from the first two moments of one s r, by Gauss-Hermite quadrature over
    score and value.
    """
    kinds, target = read_outs(4, outputs=1), torch.tensor([[0.4]], dtype=F).expand(6, 1)
    nodes, weights = np.polynomial.hermite_e.hermegauss(12)
    weights = weights / weights.sum()
    xi, eta = np.meshgrid(nodes, nodes)
    mass = np.outer(weights, weights)
    first, second = np.zeros(6), np.zeros(6)
    for k, p in enumerate((0.7, 0.3)):
        for i in range(6):
            level, sigma = float(kinds.level[i, k]), math.sqrt(float(kinds.variance[i, k]))
            slope = float(kinds.tilt[i, k, 0]) / sigma
            rest = math.sqrt(max(float(kinds.spread[i, k]) - slope**2, 0))
            product = (level + sigma * xi) * (
                float(kinds.offset[i, k, 0]) + 0.4 + slope * xi + rest * eta
            )
            first[i] += p * (mass * product).sum()
            second[i] += p * (mass * product**2).sum()
    for length in (1, 7):
        expected = (first - 0.4) ** 2 + (second - first**2) / length
        assert_close(
            linear_error(float(length), kinds, target).numpy(), expected, rtol=1e-11, atol=0
        )
    assert_close(
        linear_error(math.inf, kinds, target).numpy(), (first - 0.4) ** 2, rtol=1e-11, atol=1e-14
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: planted_moments(0, 1.0, 1.0), "length: got 0"),
        (lambda: planted_moments(5, -1.0, 1.0), "variance: got -1"),
        (lambda: planted_moments(5, math.nan, 1.0), "variance"),
        (lambda: planted_moments(5, 1.0, math.inf), "shift"),
        (lambda: planted_moments(5, 1e5, 1.0), "score variance: got 100000"),
        (lambda: planted_moments(5, 1.0, 1e5), "difference of scores"),
        (lambda: planted_moments(5, torch.ones(2), 1.0), "variance: got dtype torch.float32"),
        (
            lambda: planted_moments(5, torch.ones(2, dtype=F), torch.ones(3, dtype=F)),
            "variance and shift",
        ),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(lp.InvalidArgumentError, match=words):
        call()
