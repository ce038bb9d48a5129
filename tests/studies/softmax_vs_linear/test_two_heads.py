"""Moments that mix two softmaxes, against quadrature in the tokens, sampling, identities and finite
differences.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import largeprompt as lp
from largeprompt.law.weights import weight_moments
from largeprompt.studies.softmax_vs_linear.two_heads import (
    OVERLAP,
    two_head_moments,
    two_head_overlap,
)

F = torch.float64
PRODUCTS = [list(product) for product in (*OVERLAP, ((2, 0),), ((0, 2),))]


def statistics(xi, scale, other):
    """The products of OVERLAP, and S S', for scores given as an array (..., L)."""
    w, v = (np.exp(each * xi - (each * xi).max(-1, keepdims=True)) for each in (scale, other))
    w, v = w / w.sum(-1, keepdims=True), v / v.sum(-1, keepdims=True)
    powers = [[(w**a * v**b).sum(-1) for a, b in product] for product in PRODUCTS]
    return np.stack([math.prod(each) for each in powers] + [(w * xi).sum(-1) * (v * xi).sum(-1)])


@pytest.mark.parametrize(("scale", "other"), [(1.0, -1.0), (0.4, -2.0), (1.5, 0.7), (0.0, 1.2)])
def test_two_tokens_by_direct_quadrature(scale, other):
    """L = 2: a Gauss-Hermite rule over both tokens."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    xi = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), -1)
    density = np.outer(weights, weights) / weights.sum() ** 2
    truth = (statistics(xi, scale, other) * density).sum((-2, -1))
    np.testing.assert_allclose(two_head_moments(2, scale, other, PRODUCTS), truth[:-1], rtol=1e-9)
    x, along = two_head_overlap(2, scale, other)
    assert float(x + along) == pytest.approx(truth[-1], rel=1e-8, abs=1e-10)


@pytest.mark.parametrize("length", [3, 20])
def test_against_sampling(length):
    """Joint false-alarm rate below 1e-6: 2 lengths × 3 pairs × 10 numbers, 6 standard errors."""
    xi = np.random.default_rng(7).standard_normal((60_000, length))
    for scale, other in ((0.8, -0.8), (1.5, -0.5), (0.3, 1.1)):
        drawn = statistics(xi, scale, other)
        x, along = two_head_overlap(length, scale, other)
        exact = np.append(
            two_head_moments(length, scale, other, PRODUCTS).numpy(), float(x + along)
        )
        error = drawn.std(-1) / math.sqrt(len(xi))
        np.testing.assert_array_less(np.abs(drawn.mean(-1) - exact), 6 * error + 1e-15)


@settings(max_examples=8, deadline=None)
@given(length=st.sampled_from([2, 5, 100, 10**6, 10**15]), scale=st.floats(0.02, 4.0))
def test_equal_heads_are_one(length, scale):
    y, w3, y2 = weight_moments(length, scale, [[(2, 0)], [(3, 0)], [(2, 0), (2, 0)]])
    x, along = two_head_overlap(length, scale, scale)
    assert float(x) == pytest.approx(float(y), rel=1e-12)
    # of the terms, which cancel where one token is read
    size = float(scale**2 * (1 + y + 6 * w3 + 6 * y2))
    assert float(along) == pytest.approx(
        float(scale**2 * (1 - y - 6 * w3 + 6 * y2)), rel=1e-11, abs=3e-14 * size
    )


@settings(max_examples=8, deadline=None)
@given(length=st.sampled_from([2, 7, 1000, 10**12]), scale=st.floats(0.02, 4.0))
def test_opposite_heads_weigh_tokens_reciprocally(length, scale):
    """w_l w'_l = 1/(ZZ') is the same for every token, so that Σ w² w' = Σ w w'/L exactly; and the
    heads may be exchanged.
    """
    x, p21, p12, xy, xz = two_head_moments(
        length, scale, -scale, [[(1, 1)], [(2, 1)], [(1, 2)], [(1, 1), (2, 0)], [(1, 1), (0, 2)]]
    )
    assert float(p21 * length) == pytest.approx(float(x), rel=1e-12)
    assert float(p12) == pytest.approx(float(p21), rel=1e-12)
    assert float(xy) == pytest.approx(float(xz), rel=1e-12)


def test_long_prompts_have_the_first_order():
    """E Σ w w' -> e^{σσ'}/L; the odd part of opposite heads has covariance (sinh q Γ + cosh q
    Γuu^TΓ)/L.
    """
    length, sigma = 1e12, 0.9
    q = sigma**2
    f, w3, y2 = weight_moments(length, sigma, [[(2, 0)], [(3, 0)], [(2, 0), (2, 0)]])
    x, along = two_head_overlap(length, sigma, -sigma)
    assert float(length * x) == pytest.approx(math.exp(-q), rel=1e-9)
    assert float(length * (f - x) / 2) == pytest.approx(math.sinh(q), rel=1e-9)
    own = 1 - f - 6 * (w3 - y2)
    variance = (own - along / q) / 2 - (1 - f) ** 2
    # 1e-12 of one is left of sixteen digits
    assert float(length * variance) == pytest.approx(math.cosh(q), rel=1e-3)


def test_vanishing_opposite_tilts_are_a_wishart_matrix():
    """As σ -> 0 the odd part is C u with LC ~ Wishart(L - 1): E Cuu^TC = (n q Γ + (n +
    n²)Γuu^TΓ)/L².
    """
    length, sigma = 8, 1e-3
    n = length - 1
    f, w3, y2 = weight_moments(length, sigma, [[(2, 0)], [(3, 0)], [(2, 0), (2, 0)]])
    x, along = two_head_overlap(length, sigma, -sigma)
    assert float((f - x) / 2) / sigma**2 == pytest.approx(n / length**2, rel=1e-5)
    own = 1 - f - 6 * (w3 - y2)
    assert float(own - along / sigma**2) / 2 == pytest.approx((n + n**2) / length**2, rel=1e-5)


def test_one_token_and_infinitely_many():
    assert torch.equal(
        two_head_moments(1, [0.5, 1.0], -0.7, [[(1, 1)], [(2, 0), (1, 1)]]),
        torch.ones(2, 2, dtype=F),
    )
    np.testing.assert_array_equal(
        two_head_moments(math.inf, 0.5, -0.7, [[(1, 1)], [(1, 0), (0, 1)]]), [0.0, 1.0]
    )
    x, along = two_head_overlap(math.inf, 0.5, -0.7)
    assert (float(x), float(along)) == (0.0, pytest.approx(-0.35))


def test_gradients_of_every_moment():
    """Stein's identity gives derivatives as moments of the same kind; central differences agree."""
    scale, other = (torch.tensor([value], dtype=F, requires_grad=True) for value in (0.8, -1.1))
    assert torch.autograd.gradcheck(
        lambda s, t: two_head_moments(6, s, t, PRODUCTS),
        (scale, other),
        eps=1e-4,
        atol=1e-8,
        rtol=1e-6,
        fast_mode=True,
    )
    assert torch.autograd.gradgradcheck(
        lambda s, t: two_head_moments(6, s, t, [[(1, 1)]]),
        (scale, other),
        eps=1e-4,
        atol=1e-7,
        rtol=1e-5,
        fast_mode=True,
    )


def test_wide_scores_return():
    """Equal heads are one, at the largest scale: Σ w² w' · Σ w w'² = (Σ w³)². Powers of the weights
    used to overflow here.
    """
    both = two_head_moments(2, 12.0, 12.0, [[(2, 1), (1, 2)]])
    np.testing.assert_allclose(both, weight_moments(2, 12.0, [[(3, 0), (3, 0)]]), rtol=1e-11)


def test_shapes_broadcast():
    assert two_head_moments(5, torch.rand(3, 1), [0.1, -0.2], [[(1, 1)]]).shape == (1, 3, 2)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0, 1.0, 1.0, [[(1, 1)]]), "length"),
        ((5, 13.0, 1.0, [[(1, 1)]]), "scale"),
        ((5, 1.0, float("nan"), [[(1, 1)]]), "other"),
        ((5, 1.0, 1.0, []), "products"),
        ((5, 1.0, 1.0, [[(0, 0)]]), "products"),
        ((5, 1.0, 1.0, [[(1, 1.5)]]), "products"),
        ((5, 1.0, 1.0, [(1, 1)]), "products"),
        ((5, 1.0, 1.0, [[(5, 5)]]), "products"),
    ],
)
def test_bad_input_is_named(arguments, name):
    with pytest.raises(lp.InvalidArgumentError, match=name):
        two_head_moments(*arguments)
