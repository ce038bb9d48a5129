"""Softmax over scalar tokens of any law: against the Gaussian law, two tokens by double integration, samples, and asymptotes."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import largeprompt as lp
from largeprompt.law import scalar_prompt, weight_moment
from largeprompt.law.density import ScalarDensity, scalar_density
from largeprompt.law.heavy_tails import argmax_rate

LAWS = {
    "t3": (lp.scalar.StudentTLaw(3.0, 0.6), stats.t(3, scale=0.6)),
    "Cauchy": (lp.scalar.StudentTLaw(1.0, 1.0), stats.t(1)),
    "Laplace": (lp.scalar.LaplaceLaw(), stats.laplace(scale=1 / math.sqrt(2))),
}


@pytest.mark.parametrize("tilt", [0.1, 1.0, -2.0, 5.0])
def test_gaussian_tokens_are_those_of_the_exact_law(tilt):
    lengths = [2, 10, 1000, 10**10, 10**15]
    found = scalar_prompt(lp.scalar.StudentTLaw(math.inf, 1.0), tilt, lengths, center=tilt)
    expected = [float(weight_moment(length, abs(tilt), [(2, 0)])) for length in lengths]
    np.testing.assert_allclose(found.collision, expected, rtol=1e-12)
    square = [float(weight_moment(length, abs(tilt), [(2, 0), (2, 0)])) for length in lengths]
    np.testing.assert_allclose(found.collision_variance + found.collision**2, square, rtol=1e-11)
    attention, mu = lp.SoftmaxAttention([[1.0]], [[1.0]]), lp.Gaussian([0.0], [[1.0]])
    law = lp.finite_prompt(attention, mu, [tilt], lengths)
    np.testing.assert_allclose(found.mean, law.mean[:, 0], rtol=1e-12)
    np.testing.assert_allclose(found.mse, law.mse, rtol=1e-11)
    assert found.defect < 1e-13


@pytest.mark.parametrize("name", LAWS)
def test_two_tokens_by_double_integration(name):
    """Two weights are 1/(1 + e^{∓u(x-y)}): everything is a plain double integral, here over the probabilities of the two tokens."""
    law, known = LAWS[name]
    tilt = 0.8
    p = (np.arange(1500) + 0.5) / 1500
    z = known.ppf(p)
    x, y = z[:, None], z[None, :]
    first = 1 / (1 + np.exp(np.clip(-tilt * (x - y), -700, 700)))
    found = scalar_prompt(law, tilt, 2, extremes=True)
    assert found.collision[0] == pytest.approx((first**2 + (1 - first) ** 2).mean(), abs=5e-5)
    assert found.largest[0] == pytest.approx(np.maximum(first, 1 - first).mean(), abs=5e-5)
    shortfall = tilt * (np.maximum(x, y) - first * x - (1 - first) * y)
    assert found.shortfall[0] == pytest.approx(shortfall.mean(), abs=5e-5)


@pytest.mark.parametrize("name", LAWS)
def test_densities_against_scipy(name):
    law, known = LAWS[name]
    found = scalar_density(law)
    x = np.array([-1e6, -30.0, -1.0, -0.1, 0.0, 0.3, 2.0, 50.0, 1e8])
    np.testing.assert_allclose(found.density(x), known.pdf(x), rtol=1e-12)
    np.testing.assert_allclose(found.upper(x), known.sf(x), rtol=1e-11)
    np.testing.assert_allclose(found.lower(x), known.cdf(x), rtol=1e-11)
    p = np.array([1e-20, 1e-5, 0.2, 0.5, 0.9])
    np.testing.assert_allclose(found.upper_quantile(p), known.isf(p), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(found.lower_quantile(p), known.ppf(p), rtol=1e-9, atol=1e-15)
    other = found.mirrored()
    np.testing.assert_allclose(other.upper(x), known.cdf(-x), rtol=1e-11)
    np.testing.assert_allclose(other.upper_quantile(p), -known.ppf(p), rtol=1e-9, atol=1e-15)


def test_lognormal_density():
    law = lp.scalar.LogNormalLaw(0.7)
    found = scalar_density(law)
    x = np.array([-1.0, -0.5, 0.0, 1.0, 10.0, 1e4])
    known = law.center + law.spread * x
    np.testing.assert_allclose(found.density(x), law.spread * stats.lognorm.pdf(known, 0.7), rtol=1e-12)
    np.testing.assert_allclose(found.upper(x), stats.lognorm.sf(known, 0.7), rtol=1e-11)
    assert found.density(np.array([-5.0]))[0] == 0
    np.testing.assert_allclose(found.upper(found.upper_quantile(np.array([1e-9, 0.3]))), [1e-9, 0.3], rtol=1e-9)
    np.testing.assert_allclose(found.lower(found.lower_quantile(np.array([1e-9, 0.3]))), [1e-9, 0.3], rtol=1e-9)


@pytest.mark.parametrize(
    ("law", "tilt"),
    [
        (lp.scalar.StudentTLaw(2.5, 1.0), 0.5),
        (lp.scalar.LaplaceLaw(), 1.7),
        (lp.scalar.LogNormalLaw(0.5), 1.0),
        (lp.scalar.LogNormalLaw(0.5), -1.0),
    ],
)
def test_against_drawn_prompts(law, tilt):
    """Bounded statistics of 4000 prompts, each within 6.5 standard errors."""
    length = 50
    found = scalar_prompt(law, tilt, length, extremes=True)
    tokens = law.sample(torch.zeros(4000, length, dtype=torch.float64), torch.Generator().manual_seed(2))
    scores = tilt * tokens
    weights = torch.softmax(scores, -1)
    drawn = {
        "collision": weights.square().sum(-1),
        "largest": weights.amax(-1),
        "shortfall": scores.amax(-1) - (weights * scores).sum(-1),
    }
    for name, variance in (("collision", found.collision_variance), ("largest", found.largest_variance)):
        squares = (drawn[name] - getattr(found, name)[0]).square()
        assert abs(float(squares.mean()) - variance[0]) < 6.5 * float(squares.std()) / 4000**0.5, name
    for name, values in drawn.items():
        assert abs(float(values.mean()) - getattr(found, name)[0]) < 6.5 * float(values.std()) / 4000**0.5, name


def test_student_weights_become_argmax_at_the_predicted_rate():
    lengths = [10**10, 10**13]
    for df, tilt in ((3.0, 1.0), (1.5, 0.5)):
        found, rate = (
            scalar_prompt(lp.scalar.StudentTLaw(df, 1.0), tilt, lengths, extremes=True),
            argmax_rate(df, 1.0, tilt, lengths),
        )
        assert rate[1] / rate[0] == pytest.approx(1000 ** (-1 / df))
        np.testing.assert_allclose(1 - found.collision, rate, rtol=1e-3)
        np.testing.assert_allclose(1 - found.largest, math.log(2) * rate, rtol=2e-3)
        np.testing.assert_allclose(found.shortfall, math.pi**2 / 12 * rate, rtol=5e-3)


def test_argmax_rate_is_the_density_of_a_small_gap():
    """L² ∫ f² e^{-L P(score > y)} dy by direct integration of the tail."""
    df, tilt, length = 2.5, 0.7, 10**8
    c = (
        length
        * tilt**df
        * math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2))
        / math.sqrt(df * math.pi)
        * df ** ((df - 1) / 2)
    )
    rate, _ = integrate.quad(
        lambda v: (df * c * math.exp(-df * v)) ** 2 * math.exp(-c * math.exp(-df * v) - v), 0, 40, points=[4, 8, 12]
    )
    assert argmax_rate(df, 1.0, tilt, [length])[0] == pytest.approx(rate, rel=1e-6)


def test_laplace_beyond_its_edge_has_poisson_dirichlet_weights():
    for tilt in (1.8, 4.0):
        found = scalar_prompt(lp.scalar.LaplaceLaw(), tilt, 10**14)
        assert found.collision[0] == pytest.approx(1 - math.sqrt(2) / tilt, abs=1e-3)


@settings(deadline=None, derandomize=True, max_examples=5)
@given(st.floats(0.8, 30.0), st.floats(0.05, 20.0), st.integers(2, 10**6))
def test_weights_sum_to_one_and_stay_in_range(df, tilt, length):
    found = scalar_prompt(lp.scalar.StudentTLaw(df, 1.0), tilt, [length], extremes=True)
    assert found.defect < 1e-11
    y, w = found.collision[0], found.largest[0]
    assert 1 / length <= y <= w <= math.sqrt(y) + 1e-12 <= 1 + 2e-12
    assert found.shortfall[0] >= 0


def test_moments_that_do_not_exist_are_said_so():
    assert math.isnan(scalar_prompt(lp.scalar.StudentTLaw(1.0, 1.0), 1.0, 10).mean[0])
    heavy = scalar_prompt(lp.scalar.StudentTLaw(2.0, 1.0), 1.0, 10)
    assert math.isfinite(heavy.mean[0])
    assert math.isinf(heavy.mse[0])
    assert heavy.largest is None


def test_a_density_of_ones_own():
    """A uniform density with its two ends as kinks agrees with drawn prompts; without them it is refused."""

    def box(kinks):
        return ScalarDensity(
            lambda x: np.where(np.abs(x) < 1, 0.5, 0.0),
            lambda x: np.clip((1 - x) / 2, 0, 1),
            lambda x: np.clip((1 + x) / 2, 0, 1),
            lambda p: 1 - 2 * p,
            lambda p: 2 * p - 1,
            kinks,
            1.0,
        )

    found = scalar_prompt(box((-1.0, 1.0)), 2.0, 20)
    uniform = 2 * torch.rand(20_000, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 1
    drawn = torch.softmax(2 * uniform, -1).square().sum(-1)
    assert abs(float(drawn.mean()) - found.collision[0]) < 6.5 * float(drawn.std()) / 20_000**0.5
    with pytest.raises(lp.InvalidArgumentError, match="Take a smaller tilt"):
        scalar_prompt(box((0.3,)), 2.0, 20)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: scalar_prompt(lp.scalar.LaplaceLaw(), 0.0, 10), "tilt: got 0.0"),
        (lambda: scalar_prompt(lp.scalar.LaplaceLaw(), math.nan, 10), "tilt: got nan"),
        (lambda: scalar_prompt(lp.scalar.LaplaceLaw(), "far", 10), "tilt: got 'far'"),
        (lambda: scalar_prompt(lp.scalar.LaplaceLaw(), 1.0, 1), "lengths: got 1"),
        (lambda: scalar_prompt(lp.scalar.LaplaceLaw(), 1.0, []), "lengths: got no lengths"),
        (lambda: scalar_prompt(lp.scalar.LaplaceLaw(), 1.0, 10, center=math.nan), "center: got"),
        (lambda: scalar_prompt(lp.scalar.LaplaceLaw(), 1.0, 10, center="x"), "center: got"),
        (lambda: scalar_prompt(lp.scalar.LaplaceLaw(), 1.0, 10, center=[1.0, 2.0]), r"center: got shape \(2,\)"),
        (lambda: scalar_prompt(lp.scalar.RademacherLaw(), 1.0, 10), "law: got Rademacher"),
    ],
)
def test_refused(call, words):
    with pytest.raises(lp.InvalidArgumentError, match=words):
        call()


@pytest.mark.parametrize("df", [2.05, 2.5])
def test_the_covariance_knows_the_whole_tail(df):
    """Two tokens that differ by d: E T² = 1 - E[d² sech²(d/2)]/4, and E T = E[d tanh(d/2)]/2 = E|d|/2 - E[|d|/(1 + e^|d|)]."""
    scale = math.sqrt((df - 2) / df)
    v = np.arange(-1500, 1501) / 50  # x = sinh v
    x, known = np.sinh(v), stats.t(df, scale=scale)
    places, masses = np.polynomial.legendre.leggauss(20)
    d = (np.arange(60)[:, None] + (1 + places) / 2).ravel()
    density = known.pdf(x)
    moved = known.pdf(0) * (1 + ((x + d[:, None]) / scale) ** 2 / df) ** (-(df + 1) / 2)  # as known.pdf(x + d), but quick
    apart = moved @ (density * np.cosh(v)) / 50
    near = apart * np.tile(masses, 60)  # 2 f dd
    w = np.arange(-1500, 18_000) / 50
    size = 4 * (known.cdf(np.exp(w)) * known.sf(np.exp(w)) * np.exp(w)).sum() / 50  # E|d| = 4 ∫ F(1-F)
    mean = size / 2 - near @ (d / (1 + np.exp(d)))
    square = 1 - near @ (d**2 / np.cosh(d / 2) ** 2) / 4
    for dim, z in ((1, [1.0]), (2, [1.0, 1e-6])):
        eye = torch.eye(dim, dtype=torch.float64)
        law = lp.finite_prompt(lp.SoftmaxAttention(eye, eye), lp.StudentT(dim, df=df), z, 2)
        assert float(law.mean[0]) == pytest.approx(mean, rel=1e-9)
        assert float(law.covariance[0, 0]) == pytest.approx(square - mean**2, rel=1e-9)


def test_small_tilts_keep_their_digits_or_are_refused():
    """Weights are all but 1/L: E T = u(1 - 1/L) and Cov T = 1/L, to order u²."""
    one, mu = lp.SoftmaxAttention([[1.0]], [[1.0]]), lp.StudentT(1, df=5.0)
    law = lp.finite_prompt(one, mu, [2e-7], [2, 1000])
    np.testing.assert_allclose(law.mean[:, 0], [1e-7, 2e-7 * 0.999], rtol=1e-8)
    np.testing.assert_allclose(law.covariance[:, 0, 0], [1 / 2, 1 / 1000], rtol=1e-11)
    assert scalar_prompt(mu.law, 1e-12, [2]).collision[0] == pytest.approx(0.5, rel=1e-13)
    with pytest.raises(lp.InvalidArgumentError, match=r"tilt of 1e-09.*Set it to 0"):
        lp.finite_prompt(one, mu, [1e-9], 2)
