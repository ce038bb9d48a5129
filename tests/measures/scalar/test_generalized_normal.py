"""Generalized normal tokens: limits, densities integrated by SciPy and mpmath, exact draws,
refusals.
"""

import math

import mpmath
import numpy as np
import pytest
import torch
from scipy import stats

import largeprompt as lp
from largeprompt.testing import assert_sample_mean

F = torch.float64
TILTS = torch.tensor([[-7.0], [-1.3], [-0.01], [0.0], [0.2], [0.9], [4.0], [300.0]], dtype=F)


def generalized_normal_density(shape):
    width = math.sqrt(math.gamma(1 / shape) / math.gamma(3 / shape))
    assert stats.gennorm.var(shape, scale=width) == pytest.approx(1)
    return lambda x: (
        shape / (2 * width * math.gamma(1 / shape)) * math.exp(-(abs(x / width) ** shape))
    )


DENSITIES = {
    "shape 1.3": (
        lp.scalar.GeneralizedNormal(1, 1.3),
        generalized_normal_density(1.3),
        (-60.0, 60.0),
        (-1.3, 0.0, 0.4, 1.5),
    ),
    "shape 3": (
        lp.scalar.GeneralizedNormal(1, 3.0),
        generalized_normal_density(3.0),
        (-9.0, 9.0),
        (-2.0, 0.0, 0.4, 3.0),
    ),
    "shape 20": (
        lp.scalar.GeneralizedNormal(1, 20.0),
        generalized_normal_density(20.0),
        (-2.5, 2.5),
        (-2.0, 0.0, 0.4, 3.0),
    ),
}


@pytest.mark.parametrize(
    ("name", "tilt"), [(name, tilt) for name, case in DENSITIES.items() for tilt in case[3]]
)
def test_against_the_density(name, tilt, has_density):
    mu, density, ends, _ = DENSITIES[name]
    has_density(mu, density, ends, tilt)


@pytest.mark.parametrize("mu", [lp.scalar.GeneralizedNormal(1, 2.0)], ids=str)
def test_gaussian_member(mu):
    torch.testing.assert_close(mu.cgf(TILTS), TILTS[:, 0] ** 2 / 2, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(mu.tilted_mean(TILTS), TILTS, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        mu.tilted_covariance(TILTS), torch.ones(len(TILTS), 1, 1, dtype=F), rtol=1e-12, atol=0
    )


def test_shapes_tend_to_laplace_and_to_uniform():
    assert lp.scalar.GeneralizedNormal(2, 1).law == lp.scalar.LaplaceLaw()
    u = torch.tensor([[0.0], [0.5], [1.1]], dtype=F)
    for mu, limit, shapes in (
        (lp.Laplace(1), 1.0, (1.01, 1.001)),
        (lp.Uniform(1), None, (100.0, 1000.0)),
    ):
        target = mu.tilted_mean(u)
        errors = [
            float((lp.scalar.GeneralizedNormal(1, shape).tilted_mean(u) - target).abs().max())
            for shape in shapes
        ]
        assert errors[1] < errors[0] / 7, limit  # first order in β - 1, and in 1/β
        assert errors[1] < 0.02


def tilted_by_mpmath(shape, tilt):
    """Λ, ∇Λ, ∇²Λ of the generalized normal law, in 40 digits, around the mode of the tilt."""
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

        ends = [
            reach(-1, 60),
            reach(-1, 8),
            reach(-1, 1),
            mode,
            reach(1, 1),
            reach(1, 8),
            reach(1, 60),
        ]
        ends = sorted({*ends, *([mpmath.mpf(0), -a] if ends[0] < -a else [])})
        mass, first, second = (
            mpmath.quad(lambda x, n=n: (x - mode) ** n * mpmath.exp(-fall(x)), ends, maxdegree=7)
            for n in (0, 1, 2)
        )
        constant = mpmath.log(b / (2 * a * mpmath.gamma(1 / b)))
        value = u * mode - abs(mode / a) ** b + mpmath.log(mass) + constant
        return float(value), float(mode + first / mass), float(second / mass - (first / mass) ** 2)


@pytest.mark.parametrize(
    ("shape", "tilt"),
    [(1.05, 3.0), (1.5, 0.7), (1.5, 1e4), (2.5, 1.3), (4.0, 50.0), (30.0, 0.5), (200.0, 5.0)],
)
def test_generalized_normal_to_thirteen_digits(shape, tilt):
    value, mean, variance = tilted_by_mpmath(shape, tilt)
    law, u = lp.scalar.GeneralizedNormalLaw(shape), torch.tensor(tilt, dtype=F)
    assert float(law.cgf(u)) == pytest.approx(value, rel=2e-13, abs=2e-13)
    assert float(law.derivatives(u, 1)[1]) == pytest.approx(mean, rel=2e-13)
    assert float(law.derivatives(u, 2)[2]) == pytest.approx(variance, rel=1e-12)


@pytest.mark.parametrize(
    ("shape", "tilts"),
    [(1.3, [2.0, -6.0]), (12.0, [0.0, -30.0])],
    ids=["heavy shape", "light shape"],
)
def test_far_tilts_are_drawn_exactly(shape, tilts, draws_its_tilts):
    draws_its_tilts(lp.scalar.GeneralizedNormalLaw(shape), tilts)


def test_heavy_shapes_draw_but_have_no_limit():
    mu = lp.scalar.GeneralizedNormal(1, 0.5)
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
    mu = lp.scalar.GeneralizedNormal(1, 1.01)
    assert float(mu.cgf([30.0])) < math.inf
    with pytest.raises(lp.TiltDomainError):
        mu.cgf([100.0])
