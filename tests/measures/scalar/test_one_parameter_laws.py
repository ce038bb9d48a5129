"""The families that leave the Gaussian: limits, densities integrated by SciPy and mpmath, exact draws, refusals."""

import itertools
import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import largeprompt as lp
from largeprompt.measures.scalar.skew_normal import LARGEST_SKEW, log_ndtr
from largeprompt.testing import assert_sample_mean

F = torch.float64
TILTS = torch.tensor([[-7.0], [-1.3], [-0.01], [0.0], [0.2], [0.9], [4.0], [300.0]], dtype=F)


def skew_normal_density(skew):
    law = lp.scalar.SkewNormalLaw(skew)
    slant = law.delta / math.sqrt(1 - law.delta**2)

    def density(x):
        y = law.center + law.spread * x
        return law.spread * 2 * math.exp(-(y**2) / 2) / math.sqrt(2 * math.pi) * math.erfc(-slant * y / math.sqrt(2)) / 2

    assert density(0.7) == pytest.approx(law.spread * stats.skewnorm.pdf(law.center + law.spread * 0.7, slant))
    return density


def lognormal_density(scale):
    law = lp.scalar.LogNormalLaw(scale)

    def density(x):
        y = law.center + law.spread * x
        return law.spread * math.exp(-((math.log(y) / scale) ** 2) / 2) / (y * scale * math.sqrt(2 * math.pi))

    assert density(0.7) == pytest.approx(law.spread * stats.lognorm.pdf(law.center + law.spread * 0.7, scale))
    return density


def generalised_normal_density(shape):
    width = math.sqrt(math.gamma(1 / shape) / math.gamma(3 / shape))
    assert stats.gennorm.var(shape, scale=width) == pytest.approx(1)
    return lambda x: shape / (2 * width * math.gamma(1 / shape)) * math.exp(-(abs(x / width) ** shape))


DENSITIES = {
    "shape 1.3": (lp.scalar.GeneralisedNormal(1, 1.3), generalised_normal_density(1.3), (-60.0, 60.0), (-1.3, 0.0, 0.4, 1.5)),
    "shape 3": (lp.scalar.GeneralisedNormal(1, 3.0), generalised_normal_density(3.0), (-9.0, 9.0), (-2.0, 0.0, 0.4, 3.0)),
    "shape 20": (lp.scalar.GeneralisedNormal(1, 20.0), generalised_normal_density(20.0), (-2.5, 2.5), (-2.0, 0.0, 0.4, 3.0)),
    "skew 0.3": (lp.scalar.SkewNormal(1, 0.3), skew_normal_density(0.3), (-15.0, 15.0), (-2.0, 0.0, 0.4, 3.0)),
    "skew -0.9": (lp.scalar.SkewNormal(1, -0.9), skew_normal_density(-0.9), (-15.0, 15.0), (-2.0, 0.0, 0.4, 3.0)),
    "lognormal 0.3": (lp.scalar.LogNormal(1, 0.3), lognormal_density(0.3), (-3.25, 60.0), (-2.0, -0.4, 0.0)),
    "lognormal 1": (lp.scalar.LogNormal(1, 1.0), lognormal_density(1.0), (-0.7628, 4000.0), (-2.0, -0.4)),
}


@pytest.mark.parametrize(("name", "tilt"), [(name, tilt) for name, case in DENSITIES.items() for tilt in case[3]])
def test_against_the_density(name, tilt):
    mu, density, (low, high), _ = DENSITIES[name]

    def moment(f):
        points = [point for point in (-1.0, 0.0, 1.0, 5.0, 30.0) if low < point < high]
        ends = [low, *points, high]
        return sum(
            integrate.quad(lambda x: f(x) * math.exp(tilt * x) * density(x), a, b, epsabs=1e-13, epsrel=1e-12, limit=400)[0]
            for a, b in itertools.pairwise(ends)
        )

    mass = moment(lambda x: 1.0)
    mean = moment(lambda x: x) / mass
    variance = moment(lambda x: (x - mean) ** 2) / mass
    fourth = moment(lambda x: (x - 0.3) ** 4) / mass
    u = torch.tensor([tilt], dtype=F)
    np.testing.assert_allclose(mu.cgf(u), math.log(mass), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(mu.tilted_mean(u), [mean], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(mu.tilted_covariance(u), [[variance]], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(mu.tilt(u).norm_moment4([0.3]), fourth, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    "mu", [lp.scalar.GeneralisedNormal(1, 2.0), lp.scalar.SkewNormal(1, 0.0), lp.scalar.SkewNormal(1, 1e-18)], ids=str
)
def test_gaussian_member(mu):
    torch.testing.assert_close(mu.cgf(TILTS), TILTS[:, 0] ** 2 / 2, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(mu.tilted_mean(TILTS), TILTS, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(mu.tilted_covariance(TILTS), torch.ones(len(TILTS), 1, 1, dtype=F), rtol=1e-12, atol=0)


def test_one_sign_is_rademacher_and_many_are_gaussian():
    for name in ("cgf", "tilted_mean", "tilted_covariance"):
        one, sign = getattr(lp.scalar.RademacherSum(1, 1), name)(TILTS), getattr(lp.Rademacher(1), name)(TILTS)
        torch.testing.assert_close(one, sign, rtol=1e-15, atol=0)
    near = TILTS[TILTS.abs() < 2, None]
    many = lp.scalar.RademacherSum(1, 10**8)
    torch.testing.assert_close(many.cgf(near), near[:, 0] ** 2 / 2 - near[:, 0] ** 4 / (12 * 10**8), rtol=1e-12, atol=0)
    assert lp.scalar.RademacherSum(2, 9).support_radius == pytest.approx(math.sqrt(18))
    values = lp.scalar.RademacherSum(1, 3).sample(2000, torch.Generator().manual_seed(0)) * math.sqrt(3)
    assert set(values.round(decimals=9).flatten().tolist()) == {-3.0, -1.0, 1.0, 3.0}


def test_shapes_tend_to_laplace_and_to_uniform():
    assert lp.scalar.GeneralisedNormal(2, 1).law == lp.scalar.LaplaceLaw()
    u = torch.tensor([[0.0], [0.5], [1.1]], dtype=F)
    for mu, limit, shapes in ((lp.Laplace(1), 1.0, (1.01, 1.001)), (lp.Uniform(1), None, (100.0, 1000.0))):
        target = mu.tilted_mean(u)
        errors = [float((lp.scalar.GeneralisedNormal(1, shape).tilted_mean(u) - target).abs().max()) for shape in shapes]
        assert errors[1] < errors[0] / 7, limit  # first order in β - 1, and in 1/β
        assert errors[1] < 0.02


def tilted_by_mpmath(shape, tilt):
    """Λ, ∇Λ, ∇²Λ of the generalised normal law, in 40 digits, around the mode of the tilt."""
    with mpmath.workdps(40):
        b, u = mpmath.mpf(shape), mpmath.mpf(tilt)
        a = mpmath.sqrt(mpmath.gamma(1 / b) / mpmath.gamma(3 / b))
        mode = a * (a * u / b) ** (1 / (b - 1))
        fall = lambda x: abs(x / a) ** b - u * x - abs(mode / a) ** b + u * mode  # noqa: E731

        def reach(side, depth):
            low, high = mpmath.mpf("1e-40"), mpmath.mpf("1e40")
            for _ in range(40):
                middle = mpmath.sqrt(low * high)
                low, high = (middle, high) if fall(mode + side * middle) < depth else (low, middle)
            return mode + side * high

        ends = [reach(-1, 60), reach(-1, 8), reach(-1, 1), mode, reach(1, 1), reach(1, 8), reach(1, 60)]
        ends = sorted({*ends, *([mpmath.mpf(0), -a] if ends[0] < -a else [])})
        mass, first, second = (
            mpmath.quad(lambda x, n=n: (x - mode) ** n * mpmath.exp(-fall(x)), ends, maxdegree=7) for n in (0, 1, 2)
        )
        constant = mpmath.log(b / (2 * a * mpmath.gamma(1 / b)))
        value = u * mode - abs(mode / a) ** b + mpmath.log(mass) + constant
        return float(value), float(mode + first / mass), float(second / mass - (first / mass) ** 2)


@pytest.mark.parametrize(
    ("shape", "tilt"), [(1.05, 3.0), (1.5, 0.7), (1.5, 1e4), (2.5, 1.3), (4.0, 50.0), (30.0, 0.5), (200.0, 5.0)]
)
def test_generalised_normal_to_thirteen_digits(shape, tilt):
    value, mean, variance = tilted_by_mpmath(shape, tilt)
    law, u = lp.scalar.GeneralisedNormalLaw(shape), torch.tensor(tilt, dtype=F)
    assert float(law.cgf(u)) == pytest.approx(value, rel=2e-13, abs=2e-13)
    assert float(law.tilted_mean(u)) == pytest.approx(mean, rel=2e-13)
    assert float(law.tilted_variance(u)) == pytest.approx(variance, rel=1e-12)


@pytest.mark.parametrize("x", [-1e6, -1e3, -30.0, -5.0, -4.0, -3.0, -0.5, 0.0, 1.0, 5.0])
def test_log_normal_cdf_and_its_derivatives(x):
    """ζ1 = φ/Φ and ζ2 = -ζ1(x + ζ1), in 60 digits: the cancellation that double precision could not survive."""
    with mpmath.workdps(60):
        mills = mpmath.exp(mpmath.mpf(x) ** 2 / 2) * mpmath.erfc(-mpmath.mpf(x) / mpmath.sqrt(2)) / 2
        first = 1 / (mills * mpmath.sqrt(2 * mpmath.pi))
        expected = [mpmath.log(mills) - mpmath.mpf(x) ** 2 / 2, first, -first * (x + first)]
        expected = [float(value) for value in expected]
    point = torch.tensor(x, dtype=F, requires_grad=True)
    value = log_ndtr(point)
    (slope,) = torch.autograd.grad(value, point, create_graph=True)
    (bend,) = torch.autograd.grad(slope, point)
    assert [float(v.detach()) for v in (value, slope, bend)] == pytest.approx(expected, rel=1e-13, abs=1e-300)


@pytest.mark.parametrize("skew", [-0.99, -0.4, 1e-6, 0.7])
def test_skew_is_the_third_cumulant(skew):
    k1, k2, k3, _ = lp.scalar.SkewNormalLaw(skew).cumulants(torch.zeros((), dtype=F))
    assert float(k1) == pytest.approx(0.0, abs=1e-15)
    assert float(k2) == pytest.approx(1.0, rel=1e-13)
    assert float(k3) == pytest.approx(skew, rel=1e-9)
    assert abs(lp.scalar.SkewNormalLaw(skew).delta) < 1


@settings(deadline=None, derandomize=True, max_examples=12)
@given(st.floats(0.01, 2.5), st.floats(-1e5, 0.0))
def test_lognormal_tilts_lie_between_end_and_mean(scale, tilt):
    law, u = lp.scalar.LogNormalLaw(scale), torch.tensor(tilt, dtype=F)
    mean, variance = float(law.tilted_mean(u)), float(law.tilted_variance(u))
    end = -law.center / law.spread
    assert end * (1 + 1e-12) <= mean <= 1e-12
    assert 0 < variance <= 1 + 1e-9
    step = torch.tensor(tilt * (1 + 1e-4) - 1e-6, dtype=F)
    assert float(law.cgf(step)) >= float(law.cgf(u)) + float(law.tilted_mean(u) * (step - u)) - 1e-9 * abs(float(law.cgf(u)))


FAR_DRAWS = {
    "heavy shape": (lp.scalar.GeneralisedNormalLaw(1.3), [2.0, -6.0]),
    "light shape": (lp.scalar.GeneralisedNormalLaw(12.0), [0.0, -30.0]),
    "skew": (lp.scalar.SkewNormalLaw(0.8), [-40.0, 40.0]),
    "lognormal": (lp.scalar.LogNormalLaw(1.2), [-0.1, -1e4]),
    "signs": (lp.scalar.RademacherSumLaw(7), [-3.0, 0.5]),
}


@pytest.mark.parametrize("name", FAR_DRAWS)
def test_far_tilts_are_drawn_exactly(name):
    law, tilts = FAR_DRAWS[name]
    u = torch.tensor(tilts, dtype=F)
    k1, k2, k3, _ = law.cumulants(u)
    draws = law.sample(u.expand(100_000, -1), torch.Generator().manual_seed(5))
    scaled = (draws - k1) / torch.sqrt(k2)
    expected = torch.stack([torch.zeros(2, dtype=F), torch.ones(2, dtype=F), k3 / k2**1.5])
    assert_sample_mean(torch.stack([scaled, scaled**2, scaled**3], 1), expected)


def test_heavy_shapes_draw_but_have_no_limit():
    mu = lp.scalar.GeneralisedNormal(1, 0.5)
    tokens = mu.sample(400_000, torch.Generator().manual_seed(1))
    assert_sample_mean(tokens, torch.zeros(1, dtype=F))
    width = math.sqrt(math.gamma(2) / math.gamma(6))
    quantiles = torch.quantile(tokens.abs(), torch.tensor([0.25, 0.5, 0.9, 0.99], dtype=F))
    expected = stats.gennorm.ppf([0.625, 0.75, 0.95, 0.995], 0.5, scale=width)
    np.testing.assert_allclose(quantiles, expected, rtol=0.03)
    fourth = math.gamma(10) * math.gamma(2) / math.gamma(6) ** 2
    assert float(mu.norm_moment4([0.0])) == pytest.approx(fourth)
    assert float(mu.cgf([0.0])) == 0
    for function in (mu.cgf, mu.tilted_mean, mu.tilt):
        with pytest.raises(lp.TiltDomainError, match="no exponential moment"):
            function([0.1])


def test_shapes_near_one_say_where_their_cgf_leaves_the_range():
    mu = lp.scalar.GeneralisedNormal(1, 1.01)
    assert float(mu.cgf([30.0])) < math.inf
    with pytest.raises(lp.TiltDomainError):
        mu.cgf([100.0])


REFUSED = {
    "no terms": (lambda: lp.scalar.RademacherSum(1, 0), "terms: got 0"),
    "half a term": (lambda: lp.scalar.RademacherSumLaw(1.5), "terms: got 1.5"),
    "shape zero": (lambda: lp.scalar.GeneralisedNormal(1, 0.0), "shape: got 0"),
    "shape nan": (lambda: lp.scalar.GeneralisedNormal(1, math.nan), "shape: got nan"),
    "shape infinite": (lambda: lp.scalar.GeneralisedNormal(1, math.inf), "shape: got inf"),
    "shape beyond": (lambda: lp.scalar.GeneralisedNormal(1, 1e5), "UniformLaw"),
    "shape one as a law": (lambda: lp.scalar.GeneralisedNormalLaw(1.0), "LaplaceLaw"),
    "skew of text": (lambda: lp.scalar.SkewNormal(1, "left"), "skew: got 'left'"),
    "skew too large": (lambda: lp.scalar.SkewNormal(1, LARGEST_SKEW), "half-normal"),
    "skew nan": (lambda: lp.scalar.SkewNormal(1, math.nan), "skew: got nan"),
    "scale negative": (lambda: lp.scalar.LogNormal(1, -1.0), "scale: got -1"),
    "scale too large": (lambda: lp.scalar.LogNormal(1, 4.0), "scale: got 4"),
    "dim": (lambda: lp.scalar.LogNormal(0, 1.0), "dim: got 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    build, words = REFUSED[name]
    with pytest.raises(lp.InvalidArgumentError, match=words) as caught:
        build()
    assert "allowed: " in str(caught.value)


def test_each_says_its_parameter():
    measures = [
        lp.scalar.RademacherSum(2, 3),
        lp.scalar.GeneralisedNormal(2, 1.5),
        lp.scalar.SkewNormal(2, -0.5),
        lp.scalar.LogNormal(2, 0.5),
    ]
    assert [repr(mu).split(", ")[1] for mu in measures] == ["terms=3)", "shape=1.5)", "skew=-0.5)", "scale=0.5)"]
