"""Lognormal tokens: density, tilts of one sign and exact draws."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import largeprompt as lp

F = torch.float64


def lognormal_density(scale):
    law = lp.scalar.LogNormalLaw(scale)

    def density(x):
        y = law.center + law.spread * x
        return (
            law.spread
            * math.exp(-((math.log(y) / scale) ** 2) / 2)
            / (y * scale * math.sqrt(2 * math.pi))
        )

    assert density(0.7) == pytest.approx(
        law.spread * stats.lognorm.pdf(law.center + law.spread * 0.7, scale)
    )
    return density


DENSITIES = {
    "lognormal 0.3": (
        lp.scalar.LogNormal(1, 0.3),
        lognormal_density(0.3),
        (-3.25, 60.0),
        (-2.0, -0.4, 0.0),
    ),
    "lognormal 1": (
        lp.scalar.LogNormal(1, 1.0),
        lognormal_density(1.0),
        (-0.7628, 4000.0),
        (-2.0, -0.4),
    ),
}


@pytest.mark.parametrize(
    ("name", "tilt"), [(name, tilt) for name, case in DENSITIES.items() for tilt in case[3]]
)
def test_against_the_density(name, tilt, has_density):
    mu, density, ends, _ = DENSITIES[name]
    has_density(mu, density, ends, tilt)


@settings(deadline=None, derandomize=True, max_examples=12)
@given(st.floats(0.01, 2.5), st.floats(-1e5, 0.0))
def test_lognormal_tilts_lie_between_end_and_mean(scale, tilt):
    law, u = lp.scalar.LogNormalLaw(scale), torch.tensor(tilt, dtype=F)
    _, mean, variance = map(float, law.derivatives(u, 2))
    end = -law.center / law.spread
    assert end * (1 + 1e-12) <= mean <= 1e-12
    assert 0 < variance <= 1 + 1e-9
    step = torch.tensor(tilt * (1 + 1e-4) - 1e-6, dtype=F)
    assert float(law.cgf(step)) >= float(law.cgf(u)) + mean * float(step - u) - 1e-9 * abs(
        float(law.cgf(u))
    )


def test_far_tilts_are_drawn_exactly(draws_its_tilts):
    draws_its_tilts(lp.scalar.LogNormalLaw(1.2), [-0.1, -1e4])
