"""N3: Σ w² against two tokens by double integration, normal tokens, and asymptotes."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

import largeprompt as lp
from largeprompt.law import weight_moment
from largeprompt.studies.heavytail.exact import (
    argmax_rate,
    asymptote,
    spread_of_squared_weights,
    squared_weights,
)

LAWS = {
    "t3": (lp.scalar.StudentTLaw(3.0, 0.6), stats.t(3, scale=0.6)),
    "Cauchy": (lp.scalar.StudentTLaw(1.0, 1.0), stats.t(1)),
    "Laplace": (lp.scalar.LaplaceLaw(), stats.laplace(scale=1 / math.sqrt(2))),
}


@pytest.mark.parametrize("tilt", [0.1, 1.0, 5.0])
def test_the_spread_of_normal_tokens(tilt):
    law, lengths = lp.scalar.StudentTLaw(math.inf, 1.0), [2, 10, 1000, 10**6]
    mean, variance = (
        squared_weights(law, tilt, lengths),
        spread_of_squared_weights(law, tilt, lengths),
    )
    square = [float(weight_moment(length, tilt, [(2, 0), (2, 0)])) for length in lengths]
    np.testing.assert_allclose(variance + mean**2, square, rtol=1e-10)


@pytest.mark.parametrize("name", LAWS)
def test_two_tokens_by_double_integration(name):
    law, known = LAWS[name]
    x = known.ppf((np.arange(1500) + 0.5) / 1500)
    first = 1 / (1 + np.exp(np.clip(-0.8 * (x[:, None] - x), -700, 700)))
    squares = first**2 + (1 - first) ** 2
    assert squared_weights(law, 0.8, [2])[0] == pytest.approx(squares.mean(), abs=5e-5)
    assert spread_of_squared_weights(law, 0.8, [2])[0] == pytest.approx(squares.var(), abs=5e-5)


@pytest.mark.parametrize(("df", "tilt"), [(3.0, 1.0), (1.5, 0.5)])
def test_student_weights_become_argmax_at_the_predicted_rate(df, tilt):
    law, lengths = lp.scalar.StudentTLaw(df, 1.0), np.array([1e10, 1e13])
    rate = argmax_rate(df, 1.0, tilt, lengths)
    assert rate[1] / rate[0] == pytest.approx(1000 ** (-1 / df))
    found = squared_weights(law, tilt, [10**10, 10**13])
    np.testing.assert_allclose(1 - found, rate, rtol=1e-3)
    np.testing.assert_allclose(asymptote(law, tilt, lengths), 1 - rate)


@pytest.mark.parametrize("tilt", [0.5, 0.9, 1.8])
def test_laplace_prompts_tend_to_what_is_predicted(tilt):
    law = lp.scalar.LaplaceLaw()
    found = squared_weights(law, tilt, [10**14])[0]
    assert found == pytest.approx(asymptote(law, tilt, np.array([1e14]))[0], rel=0.03)


def test_argmax_rate_is_the_density_of_a_small_gap():
    """L² ∫ f² e^{-L P(score > y)} dy by direct integration of the tail."""
    df, tilt, length = 2.5, 0.7, 10**8
    gamma = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2))
    c = length * tilt**df * gamma / math.sqrt(df * math.pi) * df ** ((df - 1) / 2)
    rate, _ = integrate.quad(
        lambda v: (df * c * math.exp(-df * v)) ** 2 * math.exp(-c * math.exp(-df * v) - v),
        0,
        40,
        points=[4, 8, 12],
    )
    assert argmax_rate(df, 1.0, tilt, np.array([1e8]))[0] == pytest.approx(rate, rel=1e-6)
