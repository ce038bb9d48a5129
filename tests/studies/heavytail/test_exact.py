"""The largest token and its weight: against two tokens by double integration, drawn prompts, and
asymptotes.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import largeprompt as lp
from largeprompt.law import weight_moment
from largeprompt.studies.heavytail.exact import argmax_rate, extremes, output

LAWS = {
    "t3": (lp.scalar.StudentTLaw(3.0, 0.6), stats.t(3, scale=0.6)),
    "Cauchy": (lp.scalar.StudentTLaw(1.0, 1.0), stats.t(1)),
    "Laplace": (lp.scalar.LaplaceLaw(), stats.laplace(scale=1 / math.sqrt(2))),
}


@pytest.mark.parametrize("tilt", [0.1, 1.0, -2.0, 5.0])
def test_the_variance_of_normal_tokens(tilt):
    lengths = [2, 10, 1000, 10**6]
    found = extremes(lp.scalar.StudentTLaw(math.inf, 1.0), tilt, lengths)
    square = [float(weight_moment(length, abs(tilt), [(2, 0), (2, 0)])) for length in lengths]
    np.testing.assert_allclose(found.collision_variance + found.collision**2, square, rtol=1e-10)
    assert found.defect < 1e-13


@pytest.mark.parametrize("name", LAWS)
def test_two_tokens_by_double_integration(name):
    law, known = LAWS[name]
    tilt, p = 0.8, (np.arange(1500) + 0.5) / 1500
    x, y = known.ppf(p)[:, None], known.ppf(p)[None, :]
    first = 1 / (1 + np.exp(np.clip(-tilt * (x - y), -700, 700)))
    found = extremes(law, tilt, [2])
    assert found.collision[0] == pytest.approx((first**2 + (1 - first) ** 2).mean(), abs=5e-5)
    assert found.largest[0] == pytest.approx(np.maximum(first, 1 - first).mean(), abs=5e-5)
    shortfall = tilt * (np.maximum(x, y) - first * x - (1 - first) * y)
    assert found.shortfall[0] == pytest.approx(shortfall.mean(), abs=5e-5)


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
    found = extremes(law, tilt, [length])
    tokens = law.sample(
        torch.zeros(4000, length, dtype=torch.float64), torch.Generator().manual_seed(2)
    )
    scores = tilt * tokens
    weights = torch.softmax(scores, -1)
    drawn = {
        "collision": weights.square().sum(-1),
        "largest": weights.amax(-1),
        "shortfall": scores.amax(-1) - (weights * scores).sum(-1),
    }
    for name, variance in (
        ("collision", found.collision_variance),
        ("largest", found.largest_variance),
    ):
        squares = (drawn[name] - getattr(found, name)[0]).square()
        assert abs(float(squares.mean()) - variance[0]) < 6.5 * float(squares.std()) / 4000**0.5, (
            name
        )
    for name, values in drawn.items():
        assert (
            abs(float(values.mean()) - getattr(found, name)[0])
            < 6.5 * float(values.std()) / 4000**0.5
        ), name


def test_student_weights_become_argmax_at_the_predicted_rate():
    lengths = [10**10, 10**13]
    for df, tilt in ((3.0, 1.0), (1.5, 0.5)):
        found, rate = (
            extremes(lp.scalar.StudentTLaw(df, 1.0), tilt, lengths),
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
        lambda v: (df * c * math.exp(-df * v)) ** 2 * math.exp(-c * math.exp(-df * v) - v),
        0,
        40,
        points=[4, 8, 12],
    )
    assert argmax_rate(df, 1.0, tilt, [length])[0] == pytest.approx(rate, rel=1e-6)


@settings(deadline=None, derandomize=True, max_examples=5)
@given(st.floats(0.8, 30.0), st.floats(0.05, 20.0), st.integers(2, 10**6))
def test_weights_sum_to_one_and_stay_in_range(df, tilt, length):
    found = extremes(lp.scalar.StudentTLaw(df, 1.0), tilt, [length])
    assert found.defect < 1e-11
    y, w = found.collision[0], found.largest[0]
    assert 1 / length <= y <= w <= math.sqrt(y) + 1e-12 <= 1 + 2e-12
    assert found.shortfall[0] >= 0


def test_the_output_about_any_center():
    """E (T_L - c)² moves with c as a mean square does, and is infinite where the tokens have no
    variance.
    """
    law = lp.scalar.StudentTLaw(5.0, 1.0)
    here, there = output(law, 1.0, [2, 100]), output(law, 1.0, [2, 100], center=2.0)
    np.testing.assert_allclose(there.mse, here.mse - 4 * here.mean + 4, rtol=1e-12)
    assert math.isinf(output(lp.scalar.StudentTLaw(2.0, 1.0), 1.0, [10]).mse[0])
