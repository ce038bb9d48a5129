"""Blocks from the density of the score: against the Gaussian law, contours, two tokens by double
integration, and asymptotes.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import largeprompt as lp
from largeprompt.law.blocks import OutputMoments
from largeprompt.law.density import density_blocks
from largeprompt.measures.scalar.density import ScalarDensity

F = torch.float64
ONE = lp.SoftmaxAttention([[1.0]], [[1.0]])
LENGTHS = [2, 10, 1000, 10**10, 10**15]


def by_density(mu, tilt, lengths):
    u = torch.tensor([tilt], dtype=F)
    limit = mu.tilted_mean(u)
    spread = 1 + float((mu.mean - limit).square().sum())
    return OutputMoments(density_blocks(mu, u, limit.numpy(), lengths, 2), lengths, spread)


@pytest.mark.parametrize("tilt", [1e-9, 0.1, 1.0, -2.0, 5.0, 30.0, 300.0])
def test_normal_tokens_have_the_gaussian_law(tilt):
    found, law = (
        by_density(lp.StudentT(1, math.inf), tilt, LENGTHS),
        lp.finite_prompt(ONE, lp.Gaussian([0.0], [[1.0]]), [tilt], LENGTHS),
    )
    np.testing.assert_allclose(found.collision, 1 / law.effective_tokens, rtol=1e-10)
    np.testing.assert_allclose(found.error(np.eye(1)), law.mse, rtol=1e-10)
    np.testing.assert_allclose(found.bias, law.bias, rtol=1e-8, atol=1e-7 * float(law.rmse.min()))


@pytest.mark.parametrize("u", [1e-9, 0.1, 0.5, -0.7071, 0.75, 1.0, 1.3, -1.4, 1.412])
def test_laplace_tokens_up_to_the_edge(u):
    """Contours know nothing of the density; the domain ends at √2 = 1.41421."""
    law, found = (
        lp.finite_prompt(ONE, lp.Laplace(1), [u], LENGTHS),
        by_density(lp.Laplace(1), u, LENGTHS),
    )
    np.testing.assert_allclose(found.error(np.eye(1)), law.mse, rtol=1e-10)
    np.testing.assert_allclose(found.collision, 1 / law.effective_tokens, rtol=1e-10)


@pytest.mark.parametrize(
    ("mu", "known"),
    [
        (lp.Product([lp.scalar.StudentTLaw(3.0, 0.6)]), stats.t(3, scale=0.6)),
        (lp.StudentT(1, 1.0), stats.t(1)),
    ],
    ids=["t3", "Cauchy"],
)
def test_two_tokens_by_double_integration(mu, known):
    """Two weights are 1/(1 + e^{∓u(x-y)}): E Y is a plain double integral, here over the
    probabilities of the two tokens.
    """
    z = known.ppf((np.arange(1500) + 0.5) / 1500)
    first = 1 / (1 + np.exp(np.clip(-0.8 * (z[:, None] - z), -700, 700)))
    collision = 1 / float(lp.finite_prompt(ONE, mu, [0.8], 2).effective_tokens)
    assert collision == pytest.approx((first**2 + (1 - first) ** 2).mean(), abs=5e-5)


@pytest.mark.parametrize(
    ("mu", "tilt"),
    [
        (lp.StudentT(1, 2.5), 0.5),
        (lp.Laplace(1), 1.7),
        (lp.scalar.LogNormal(1, 0.5), 1.0),
        (lp.scalar.LogNormal(1, 0.5), -1.0),
    ],
    ids=repr,
)
def test_against_drawn_prompts(mu, tilt):
    """A bounded statistic of 4000 prompts, within 6.5 standard errors: two-sided 8e-11."""
    tokens = mu.sample(4000 * 50, torch.Generator().manual_seed(2)).reshape(4000, 50)
    drawn = torch.softmax(tilt * tokens, -1).square().sum(-1)
    expected = 1 / float(lp.finite_prompt(ONE, mu, [tilt], 50).effective_tokens)
    assert abs(float(drawn.mean()) - expected) < 6.5 * float(drawn.std()) / 4000**0.5


def test_laplace_beyond_its_edge_has_poisson_dirichlet_weights():
    for tilt in (1.8, 4.0):
        tokens = float(lp.finite_prompt(ONE, lp.Laplace(1), [tilt], 10**14).effective_tokens)
        assert 1 / tokens == pytest.approx(1 - math.sqrt(2) / tilt, abs=1e-3)


@settings(deadline=None, derandomize=True, max_examples=5)
@given(st.floats(0.8, 30.0), st.floats(0.05, 20.0), st.integers(2, 10**6))
def test_the_effective_number_of_tokens_stays_in_range(df, tilt, length):
    assert (
        1
        <= float(lp.finite_prompt(ONE, lp.StudentT(1, df), [tilt], length).effective_tokens)
        <= length
    )


def test_moments_that_do_not_exist_are_said_so():
    assert math.isnan(float(lp.finite_prompt(ONE, lp.StudentT(1, 1.0), [1.0], 10).mean))
    heavy = lp.finite_prompt(ONE, lp.StudentT(1, 2.0), [1.0], 10)
    assert math.isfinite(float(heavy.mean))
    with pytest.raises(lp.NoMomentError):
        _ = heavy.covariance


class Box(lp.scalar.ScalarLaw):
    """Uniform on [-1, 1] by its density alone, with the kinks given."""

    domain = (0.0, 0.0)

    def __init__(self, *kinks):
        self.kinks = kinks

    def cgf(self, u):
        return 0 * u

    def cumulants(self, u):
        return 0 * u, 0 * u + 1 / 3, 0 * u, 0 * u - 2 / 15

    def density(self):
        return ScalarDensity.of(stats.uniform(-1, 2), kinks=self.kinks, width=1.0)

    def sample(self, u, generator):
        return 2 * torch.rand(u.shape, generator=generator, dtype=u.dtype) - 1


def test_a_density_of_ones_own():
    """A density with its two ends as kinks gives the law that the cgf gives; without them it is
    refused.
    """
    known = lp.finite_prompt(ONE, lp.Uniform(1), [2.0 / math.sqrt(3)], [2, 20])
    found = lp.finite_prompt(ONE, lp.Product([Box(-1.0, 1.0)]), [2.0], [2, 20])
    np.testing.assert_allclose(found.effective_tokens, known.effective_tokens, rtol=1e-9)
    np.testing.assert_allclose(found.mean, known.mean / math.sqrt(3), rtol=1e-9)
    with pytest.raises(lp.InvalidArgumentError, match="Take a smaller tilt"):
        lp.finite_prompt(ONE, lp.Product([Box(0.3)]), [2.0], 20)


@pytest.mark.parametrize("df", [2.05, 2.5])
def test_the_covariance_knows_the_whole_tail(df):
    """Two tokens that differ by d: E T² = 1 - E[d² sech²(d/2)]/4, and E T = E[d tanh(d/2)]/2 =
    E|d|/2 - E[|d|/(1 + e^|d|)].
    """
    scale = math.sqrt((df - 2) / df)
    v = np.arange(-1500, 1501) / 50  # x = sinh v
    x, known = np.sinh(v), stats.t(df, scale=scale)
    places, masses = np.polynomial.legendre.leggauss(20)
    d = (np.arange(60)[:, None] + (1 + places) / 2).ravel()
    density = known.pdf(x)
    # as known.pdf(x + d), but quick
    moved = known.pdf(0) * (1 + ((x + d[:, None]) / scale) ** 2 / df) ** (-(df + 1) / 2)
    apart = moved @ (density * np.cosh(v)) / 50
    near = apart * np.tile(masses, 60)  # 2 f dd
    w = np.arange(-1500, 18_000) / 50
    # E|d| = 4 ∫ F(1-F)
    size = 4 * (known.cdf(np.exp(w)) * known.sf(np.exp(w)) * np.exp(w)).sum() / 50
    mean = size / 2 - near @ (d / (1 + np.exp(d)))
    square = 1 - near @ (d**2 / np.cosh(d / 2) ** 2) / 4
    for dim, z in ((1, [1.0]), (2, [1.0, 0.0])):
        eye = torch.eye(dim, dtype=torch.float64)
        law = lp.finite_prompt(lp.SoftmaxAttention(eye, eye), lp.StudentT(dim, df=df), z, 2)
        assert float(law.mean[0]) == pytest.approx(mean, rel=1e-9)
        assert float(law.covariance[0, 0]) == pytest.approx(square - mean**2, rel=1e-9)


def test_small_tilts():
    """Weights are all but 1/L: E T = u(1 - 1/L) and Cov T = 1/L, to order u²."""
    for u in (1e-6, 1e-9, 1e-20):
        law = lp.finite_prompt(ONE, lp.StudentT(1, df=5.0), [u], [2, 1000])
        np.testing.assert_allclose(law.mean[:, 0], [u / 2, 0.999 * u], rtol=1e-8, atol=1e-15)
        np.testing.assert_allclose(law.covariance[:, 0, 0], [1 / 2, 1 / 1000], rtol=1e-10)
