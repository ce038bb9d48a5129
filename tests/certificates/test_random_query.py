"""The certificate of a random query: above the exact average, and what it is made of against other
routes.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate
from scipy.special import log_ndtr, ndtr

import largeprompt as lp
from largeprompt.certificates.output import gaussian_collision_bound
from largeprompt.certificates.random_query import (
    QueryTransform,
    _line,
    _line_integral,
    random_query_bounds,
)

NORMAL = lp.Gaussian([0.0], [[1.0]])
LENGTHS = [1, 2, 10, 1000, 10**9]


def scalar(square):
    """d = 1, tokens and query standard normal, U = √square."""
    return QueryTransform(np.array([[square]]), np.array([[square]]), 1.0, NORMAL)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    dim=st.integers(1, 4),
    scale=st.floats(0.01, 0.8),
    offset=st.floats(0.0, 1.0),
    rank=st.integers(0, 5),
)
def test_certificate_is_above_the_exact_average(seed, dim, scale, offset, rank):
    """Random layers, tokens and queries, means and singular covariances included, at five lengths
    each.
    """
    generator = np.random.default_rng(seed)
    a, c = generator.standard_normal((dim, dim)), generator.standard_normal((dim, min(rank, dim)))
    layer = lp.SoftmaxAttention(
        scale * generator.standard_normal((dim, dim)) / dim, generator.standard_normal((2, dim))
    )
    mu = lp.Gaussian(generator.standard_normal(dim), a @ a.T / dim)
    queries = lp.Gaussian(offset * generator.standard_normal(dim), c @ c.T)
    exact, proved = (
        lp.query_average(layer, mu, queries, LENGTHS, method=method).mse
        for method in ("exact", "certified")
    )
    assert bool((proved >= exact * (1 - 1e-12)).all())  # rounding of the exact average
    assert bool((proved.diff() < 0).all() or float(proved[0]) == 0)


@pytest.mark.parametrize("square", [0.1, 0.25, 0.49, 0.5, 0.75, 2.0, 20.0])
@pytest.mark.parametrize("length", [1, 2, 30, 10**4, 10**9, 10**15])
def test_line_against_real_quadrature(square, length):
    """(cert.17) is the mean of ((1 - e^-y)/y + (y/L) e^-y)(1 + q), y = L e^-q, and the bounds of
    its error are small.
    """
    transform, right = scalar(square), min(1.0, 1 / (2 * square))

    def integrand(x):
        y = length * math.exp(-square * x * x)
        share = -math.expm1(-y) / y if y > 1e-12 else 1.0
        return (share + y / length * math.exp(-y)) * (1 + square * x * x) * math.exp(-x * x / 2)

    turn = math.sqrt(math.log(length) / square)
    ends = sorted({0.0, *(min(one, 11.0) for one in (0.5 * turn, turn)), 1.0, 3.0, 6.0, 12.0})
    pieces = [
        integrate.quad(integrand, *pair, epsabs=1e-30, epsrel=1e-11, limit=300)[0]
        for pair in itertools.pairwise(ends)
    ]
    expected = sum(pieces) * math.sqrt(2 / math.pi)
    c = np.linspace(0, right, 202)[1:-1]
    level = (
        transform.logarithm(c) - c * math.log(length) + np.array([math.lgamma(one) for one in c])
    )
    found, added = _line(transform, length, float(c[level.argmin()]), right, float(level.min()))
    assert found == pytest.approx(expected, rel=1e-10)
    assert 0 < added < 1e-9 * found
    assert found - added <= expected * (1 + 1e-11)
    assert found + 1e-11 * expected >= expected


def test_majorant_of_the_gaussian_bound():
    """(cert.1) is at most (1 - e^-y)/y + (y/L) e^-y, which is at most 1 + 0.65/L times it."""
    q = torch.linspace(1e-3, 60, 5000, dtype=torch.float64)
    for length in (1, 2, 5, 100, 10**6):
        small = torch.exp(-q)
        bound = -torch.expm1(length * torch.log1p(-small)) / (length * small)
        y = length * small
        larger = -torch.expm1(-y) / y + y / length * torch.exp(-y)
        assert bool((larger >= bound * (1 - 1e-9)).all())
        assert bool((larger <= bound * (1 + 0.65 / length + 1e-9)).all())


SCORES = np.linspace(0.02, 2.5, 160)  # α = σ/√(2 ln L), through all regimes


def test_moment_of_the_weights_from_below():
    """(cert.19) on 2,080 (L, σ): E Y >= L E(ω/(ω + L - 1))² >= (L/4) N(-(ln L + q/2)/√q), against E
    Y of the exact law.

    What stood there before, ½ N(-(ln L - q/2)/√q), is above E Y at the three places below.
    """
    z = np.linspace(-10.0, 40.0, 10_001)
    for length in (1, 2, 3, 5, 10, 30, 200, 1000, 10**4, 10**6, 10**9, 10**12, 10**15):
        sigma = SCORES * math.sqrt(2 * max(math.log(length), 0.5))
        exact = lp.weight_moment(length, torch.from_numpy(sigma), [(2, 0)]).numpy()
        rest = np.exp(sigma[:, None] ** 2 / 2 - sigma[:, None] * z) * (length - 1)  # (L - 1)/ω
        middle = length * np.trapezoid(
            (1 + rest) ** -2 * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi), z, axis=-1
        )
        assert np.all(exact >= middle * (1 - 1e-11))
        assert np.all(middle >= length / 4 * ndtr(-(math.log(length) + sigma**2 / 2) / sigma))
    for length, alpha in ((200, 1.27), (10**6, 1.1), (10**15, 1.0)):
        q = 2 * alpha**2 * math.log(length)
        assert (
            float(lp.weight_moment(length, math.sqrt(q), [(2, 0)]))
            < ndtr(-(math.log(length) - q / 2) / math.sqrt(q)) / 2
        )


def test_truncated_square_of_a_large_weight():
    """(open.5) of docs/mathematics/open.md: A E min(1, (ω/A)²) <= 2A e^{-b²/2} <= 2 where q >= ⅔ ln
    A; below, A E(ω/A)² = e^q/A.
    """
    for A in (1.5, 3.0, 100.0, 1e6, 1e15):
        log, q = math.log(A), np.linspace(0.05, 6.0, 400) * math.log(A)
        sigma = np.sqrt(q)
        b = log / sigma + sigma / 2
        square = A * ndtr(-b) + np.exp(q - log + log_ndtr(b - 2 * sigma))  # A E min(1, (ω/A)²)
        heavy = q >= 2 / 3 * log
        assert np.all(square[heavy] <= 2 * np.exp(log - b[heavy] ** 2 / 2))
        np.testing.assert_allclose(
            log - b**2 / 2, -((log / sigma - sigma / 2) ** 2) / 2, atol=1e-12 * log
        )
        assert np.all(square[~heavy] <= np.exp(q[~heavy] - log) * (1 + 1e-12))


def test_moment_of_order_p_of_the_weights():
    """(cert.16): E Σ w^p <= L^{1-p} e^{p(p-1)σ²/2}, against E Y, E W3 and E Y⁴-like moments of the
    exact law.
    """
    sigma = torch.linspace(0.05, 14, 80, dtype=torch.float64)
    for length in (1, 2, 3, 10, 1000, 10**8, 10**15):
        y = lp.weight_moment(length, sigma, [(2, 0)])
        assert bool((y <= gaussian_collision_bound(sigma**2, length) * (1 + 1e-11)).all())
        for p in (2, 3, 4):
            exponent = (p * (p - 1) / 2 * sigma**2 + (1 - p) * math.log(length)).clamp_max(600)
            assert bool(
                (
                    lp.weight_moment(length, sigma, [(p, 0)]) <= torch.exp(exponent) * (1 + 1e-11)
                ).all()
            )


def test_moments_of_fractional_order_against_draws():
    """(cert.16) for p = 1.3 and 1.6 on drawn weights: the bound is at least the mean less 6.5
    standard errors.
    """
    generator = torch.Generator().manual_seed(0)
    for sigma, length in ((0.5, 3), (1.0, 10), (2.0, 10), (2.0, 1000), (3.0, 100)):
        weights = torch.softmax(
            sigma * torch.randn(4000, length, generator=generator, dtype=torch.float64), -1
        )
        for p in (1.3, 1.6):
            sums = (weights**p).sum(-1)
            bound = length ** (1 - p) * math.exp(p * (p - 1) * sigma**2 / 2)
            assert bound > float(sums.mean() - 6.5 * sums.std() / math.sqrt(4000))


def test_transform_against_draws_and_closed_forms():
    """Φ(t) = E e^{tq}(τ + z^TBz) for a shifted query with singular covariance, by a dense sum over
    its two dimensions.
    """
    generator = np.random.default_rng(0)
    root, mean = generator.standard_normal((3, 2)), generator.standard_normal(3)
    M, B = (part @ part.T for part in generator.standard_normal((2, 3, 3)))
    transform = QueryTransform(0.1 * M, B, 0.7, lp.Gaussian(mean, root @ root.T))
    line = np.arange(-11, 11.01, 0.1)
    xi = np.stack(np.meshgrid(line, line), -1).reshape(-1, 2)
    weights = np.exp(-(xi**2).sum(-1) / 2) * 0.01 / (2 * math.pi)
    z = mean + xi @ root.T
    q, form = 0.1 * ((z @ M) * z).sum(-1), 0.7 + ((z @ B) * z).sum(-1)
    t = np.array([0.0, 0.3 * transform.edge, 0.2 * transform.edge + 0.5j, -1.0 + 2j])
    exponent, found = transform(t)
    np.testing.assert_allclose(
        np.exp(exponent) * found, [(weights * np.exp(one * q) * form).sum() for one in t], rtol=1e-9
    )


def test_line_integral_of_gamma():
    for c in (0.1, 0.5, 1.0, 1.9):
        true = 2 * integrate.quad(lambda w, c=c: abs(np.exp(_loggamma(c + 1j * w))), 0, 40)[0]
        assert true <= float(_line_integral(np.array([c]))[0]) <= 1.3 * true


def _loggamma(t):
    from scipy.special import loggamma

    return loggamma(t)


@pytest.mark.parametrize(
    ("square", "exponent"), [(0.3, 1.0), (0.75, 0.758), (1.0, 0.618), (2.0, 0.366), (4.0, 0.207)]
)
def test_certificate_falls_with_the_sharp_exponent(square, exponent):
    """(cert.18): up to logarithms L^-g with g of (reg.8), seen at lengths that nobody has."""
    bounds = random_query_bounds(scalar(square), [10.0**100, 10.0**200])[0]
    assert math.log10(bounds[0] / bounds[1]) / 100 == pytest.approx(exponent, abs=0.01)


def test_one_token_and_nothing_read():
    bounds, _ = random_query_bounds(scalar(0.7), [1])
    assert bounds[0] == pytest.approx(1.7, rel=1e-12)  # equality at L = 1
    silent = lp.SoftmaxAttention([[1.0]], [[0.0]])
    assert float(lp.certificate(silent, NORMAL, NORMAL, 10).bound) == 0
    still = lp.SoftmaxAttention([[0.0]], [[1.0]])
    assert float(lp.certificate(still, NORMAL, NORMAL, 1000).bound) == pytest.approx(1e-3, rel=1e-9)


@pytest.mark.parametrize("square", [1e3, 1e6, 1e12])
def test_frozen_queries_have_a_finite_bound(square):
    """Far too many nodes for the line: what is left is the closed form, at most the size of the
    output.
    """
    bounds, added = random_query_bounds(scalar(square), [10, 10**15])
    assert np.all((bounds > 0) & (bounds <= (1 + square) * (1 + 1e-9)))
    assert np.all(np.isfinite(added))


def test_finitely_many_queries_are_summed():
    for mu in (NORMAL, lp.Rademacher(1)):
        layer = lp.SoftmaxAttention([[1.0]], [[1.0]])
        found = lp.certificate(layer, mu, lp.Discrete([[0.2], [1.5]], [0.25, 0.75]), [5, 500])
        each = lp.certificate(layer, mu, [[0.2], [1.5]], [5, 500]).bound
        torch.testing.assert_close(
            found.bound,
            each @ torch.tensor([0.25, 0.75], dtype=torch.float64),
            rtol=1e-12,
            atol=0.0,
        )
        assert list(found.reason) == ["average over 2 queries"] * 2


def test_tail_and_words():
    found = lp.certificate(
        lp.SoftmaxAttention([[1.0]], [[1.0]]), NORMAL, lp.Gaussian([0.0], [[0.4]]), 1000
    )
    assert found.reason == "average over a Gaussian query"
    assert float(found.rho) == pytest.approx(5**0.5)  # E e^q = 1/√(1 - 0.8)
    assert float(found.tail(0.5)) == pytest.approx(4 * float(found.bound))
    assert math.isinf(lp.certificate(lp.SoftmaxAttention([[1.0]], [[1.0]]), NORMAL, NORMAL, 10).rho)


@pytest.mark.parametrize(
    ("mu", "queries"),
    [(lp.Rademacher(1), NORMAL), (NORMAL, lp.Uniform(1)), (lp.Laplace(1), lp.Laplace(1))],
    ids=repr,
)
def test_no_certificate_where_nothing_is_proved(mu, queries):
    with pytest.raises(lp.InvalidArgumentError, match="which is no bound"):
        lp.certificate(lp.SoftmaxAttention([[0.1]], [[1.0]]), mu, queries, 10)
