"""Moments of softmax weights: against 40-digit arithmetic, special cases, identities, sampling, and
their own derivative.
"""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import largeprompt as lp
from largeprompt.law import weight_moment, weights
from largeprompt.law.weights import weight_moments

F = torch.float64
Y, W3, S, S2 = [(2, 0)], [(3, 0)], [(1, 1)], [(1, 1), (1, 1)]
REFERENCE = json.loads(
    (Path(__file__).parents[1] / "reference" / "weight_moments.json").read_text()
)


@pytest.mark.parametrize(
    "case", REFERENCE["cases"], ids=lambda c: f"L={c['length']}, scale={c['scale']}"
)
def test_against_40_digits(case):
    values = weight_moments(case["length"], float(case["scale"]), REFERENCE["products"])
    np.testing.assert_allclose(values.numpy(), [float(v) for v in case["values"]], rtol=2e-12)


def test_values_told_in_advance():
    assert float(weight_moment(10, 1.0, Y)) == pytest.approx(0.194687393695, abs=5e-13)
    assert float(weight_moment(10, 1.0, S2)) == pytest.approx(0.907998567617, abs=5e-13)
    assert float(weight_moment(50, 2.0, Y)) == pytest.approx(0.182727368013, abs=5e-13)


@pytest.mark.parametrize("length", [1, 2, 3, 10, 10**3, 10**6, 10**9, 10**12, 10**15])
def test_identities_at_every_scale(length):
    """Σ w = 1; E S = σ(1 - E Y); E S² = E Y + q E[1 - Y - 6 W3 + 6 Y²]; from scale 0 to 40, across
    every switch of method.
    """
    sigma = torch.tensor(
        [0.0, 1e-12, 1e-5, 0.01, 0.2, 0.25454, 0.25455, 0.3, 1.0, 2.5, 6.0, 10.0, 20.0, 40.0],
        dtype=F,
    )
    one, y, w3, y2, s, s2 = weight_moments(length, sigma, [[(1, 0)], Y, W3, [*Y, *Y], S, S2])
    np.testing.assert_allclose(one, 1.0, rtol=1e-13)
    np.testing.assert_allclose(s, sigma * (1 - y), rtol=1e-11, atol=1e-15 if length > 1 else 1e-12)
    np.testing.assert_allclose(s2, y + sigma**2 * (1 - y - 6 * w3 + 6 * y2), rtol=1e-10)
    assert bool(
        (
            (y >= w3)
            & (w3 >= y2 * (1 - 1e-13))
            & (y <= 1 + 1e-13)
            & (y >= 1 / length * (1 - 1e-13))
        ).all()
    )


def test_scale_zero_is_exact():
    assert float(weight_moment(7, 0.0, Y)) == pytest.approx(1 / 7, rel=1e-16)
    assert float(weight_moment(7, 0.0, S2)) == pytest.approx(1 / 7, rel=1e-16)
    # E (Σ (ξ-c)²/L)²  = ((1+c²)² + Var((ξ-c)²)/L), Var = 2 + 4c²
    c, length = 0.3, 5
    assert float(weight_moment(length, 0.0, [(1, 2), (1, 2)], center=c)) == pytest.approx(
        (1 + c * c) ** 2 + (2 + 4 * c * c) / length
    )
    assert float(weight_moment(10**15, 0.0, [(2, 0)] * 4)) == pytest.approx(1e-60, rel=1e-14)


@pytest.mark.parametrize("sigma", [0.1, 0.9, 4.0, 15.0])
def test_two_tokens_by_a_scalar_integral(sigma):
    """L = 2: w = sigmoid(σ√2 η) with η = (ξ1 - ξ2)/√2, independent of (ξ1 + ξ2)/√2."""

    def expect(f):
        def integrand(x):
            w = 1 / (1 + math.exp(-sigma * math.sqrt(2) * x))
            return f(w, x) * stats.norm.pdf(x)

        return integrate.quad(
            integrand, -12, 12, epsabs=1e-14, epsrel=1e-13, limit=400, points=[0.0]
        )[0]

    y = expect(lambda w, x: w**2 + (1 - w) ** 2)
    w3y = expect(lambda w, x: (w**3 + (1 - w) ** 3) * (w**2 + (1 - w) ** 2))
    # S = (2w - 1) η/√2 + ζ/√2 with ζ standard normal
    s2 = expect(lambda w, x: (2 * w - 1) ** 2 * x * x / 2) + 0.5
    values = weight_moments(2, sigma, [Y, [(3, 0), (2, 0)], S2])
    np.testing.assert_allclose(values, [y, w3y, s2], rtol=1e-11)


def test_one_token_and_endless_prompts():
    sigma = torch.tensor([0.5, 3.0], dtype=F)
    np.testing.assert_allclose(weight_moment(1, sigma, [(3, 2), (1, 2)]), [3.0, 3.0])  # E ξ⁴
    np.testing.assert_allclose(weight_moment(math.inf, sigma, Y), [0.0, 0.0])
    np.testing.assert_allclose(weight_moment(math.inf, sigma, S2), sigma**2)
    np.testing.assert_allclose(weight_moment(10**15, sigma, [(1, 2)]), 1 + sigma**2, rtol=1e-10)


@settings(deadline=None, max_examples=40, derandomize=True)
@given(st.floats(0.02, 8.0), st.integers(2, 10**12), st.floats(-2, 2))
def test_center_is_only_a_shift(sigma, length, c):
    """E (Σ w (ξ - c))² = E S² - 2c E S + c²."""
    s, s2 = (float(v) for v in weight_moments(length, sigma, [S, S2]))
    assert float(weight_moment(length, sigma, S2, center=c)) == pytest.approx(
        s2 - 2 * c * s + c * c, rel=1e-9, abs=1e-11
    )


def test_narrow_and_wide_methods_agree():
    scales = np.array([0.26, 0.3, 0.4])
    products = [tuple(p) for p in (Y, S2, [(1, 2), (2, 1)], [(2, 0)] * 3)]
    wide = weights._integrate(1000.0, scales, np.zeros(3), products)
    original = weights.WIDE
    try:
        weights.WIDE = 1.0
        narrow = weights._integrate(1000.0, scales, np.zeros(3), products)
    finally:
        weights.WIDE = original
    np.testing.assert_allclose(wide, narrow, rtol=1e-12)


@pytest.mark.parametrize(("length", "sigma"), [(3, 2.0), (20, 0.8), (200, 1.5)])
def test_against_sampling(length, sigma):
    """Plain Monte Carlo, in 6.5 standard errors: two-sided 8e-11 for each of six moments."""
    generator = torch.Generator().manual_seed(length)
    xi = torch.randn(4_000_000 // length, length, generator=generator, dtype=F)
    w = torch.softmax(sigma * xi, -1)
    products = [Y, W3, [*Y, *Y], S2, [(1, 2), (2, 1)], [(4, 0), (2, 0)]]
    values = weight_moments(length, sigma, products)
    for value, powers in zip(values, products, strict=True):
        sample = math.prod((w**a * xi**b).sum(-1) for a, b in powers)
        assert abs(float(sample.mean() - value)) < 6.5 * float(sample.std()) / math.sqrt(
            len(sample)
        )


@pytest.mark.parametrize("length", [2, 30, 10**6])
def test_derivative_in_the_scale(length):
    sigma = torch.tensor([1e-3, 0.1, 0.25, 0.26, 1.0, 3.0], dtype=F, requires_grad=True)
    for powers in (Y, S, S2, [(1, 2), (2, 1)], [(2, 0), (3, 0)]):
        (gradient,) = torch.autograd.grad(weight_moment(length, sigma, powers).sum(), sigma)
        step = 1e-4
        with torch.no_grad():
            ahead, behind = (weight_moment(length, sigma + d, powers) for d in (step, -step))
            slope = (ahead - behind) / (2 * step)
            size = weight_moment(length, sigma, powers).abs() + slope.abs()
        assert bool(((gradient - slope).abs() < 1e-6 * size).all())
    y_by_q = (
        torch.autograd.grad(weight_moment(length, sigma, Y).sum(), sigma)[0] / (2 * sigma)
    ).detach()
    y, w3, y2 = (v.detach() for v in weight_moments(length, sigma, [Y, W3, [*Y, *Y]]))
    # dE[Y]/dq = E[Y - 4 W3 + 3 Y²]
    np.testing.assert_allclose(y_by_q, y - 4 * w3 + 3 * y2, rtol=1e-9)
    assert torch.autograd.gradgradcheck(
        lambda s: weight_moment(length, s, Y), torch.tensor([0.5, 2.0], dtype=F, requires_grad=True)
    )


def test_shapes_and_dtypes():
    assert weight_moment(5, np.ones((2, 3)), Y).shape == (2, 3)
    assert weight_moments(5, torch.ones(4), [Y, S]).shape == (2, 4)
    assert weight_moments(5, torch.ones(4), [Y, S]).dtype == torch.float32
    assert weight_moment(np.int64(5), 1.0, Y).shape == ()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 1.0, Y), "length: got 0"),
        ((1.5, 1.0, Y), "length: got 1.5"),
        ((10**16, 1.0, Y), "length: got 1000"),
        ((True, 1.0, Y), "length: got True"),
        ((math.nan, 1.0, Y), "length"),
        ((5, -1.0, Y), "scale: got -1"),
        ((5, math.nan, Y), "scale: got 1 NaN"),
        ((5, 1.0, []), "powers"),
        ((5, 1.0, [(0, 1)]), "powers"),
        ((5, 1.0, [(1.5, 1)]), "powers"),
        ((5, 1.0, [(2, 0)] * 9), "powers"),
        ((5, 1.0, (2, 0)), "powers"),
        ((5, 1.0, Y, math.inf), "center"),
    ],
)
def test_bad_input(arguments, words):
    with pytest.raises(lp.InvalidArgumentError, match=words):
        weight_moment(*arguments)
