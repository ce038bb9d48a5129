"""The factor on the scores that keeps the effective number of tokens."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial.hermite_e import hermegauss
from scipy.optimize import brentq

import largeprompt as lp
from largeprompt.planning import log_n_scaling, longrope_scaling, yarn_scaling


def collision_by_points(length, variance, points=60):
    """E Σ w² by Gauss-Hermite points for every score: a sum over points**length terms."""
    nodes, weights = hermegauss(points)
    scores = np.stack(np.meshgrid(*[nodes * math.sqrt(variance)] * length), 0)
    mass = np.prod(np.meshgrid(*[weights / weights.sum()] * length), 0)
    exponentials = np.exp(scores - scores.max(0))
    return float((mass * (exponentials**2).sum(0) / exponentials.sum(0) ** 2).sum())


@pytest.mark.parametrize("variance", [0.3, 1.0])
def test_factor_between_two_and_three_tokens_by_points(variance):
    kept = collision_by_points(2, variance)
    factor = brentq(lambda c: collision_by_points(3, c * c * variance) - kept, 1.0, 6.0, xtol=1e-12)
    assert float(lp.length_scaling(3, 2, variance)) == pytest.approx(factor, rel=1e-6)


def test_factors_at_8192_tokens():
    """Values of a separate program, with the rules that people found by trial beside them."""
    length = 8192 * np.array([2, 8, 32, 128])
    known = {
        1.0: [1.302, 1.758, 2.122, 2.437],
        2.5: [1.134, 1.368, 1.573, 1.760],
        4.5: [1.087, 1.249, 1.397, 1.535],
        10.0: [1.062, 1.178, 1.286, 1.387],
        14.3: [1.056, 1.161, 1.259, 1.351],
    }
    factors = lp.length_scaling(length, 8192, np.array(list(known))[:, None]).numpy()
    np.testing.assert_allclose(factors, list(known.values()), atol=6e-4)
    np.testing.assert_allclose(log_n_scaling(length, 8192), [1.077, 1.231, 1.385, 1.538], atol=6e-4)
    np.testing.assert_allclose(yarn_scaling(length, 8192), [1.143, 1.459, 1.813, 2.206], atol=6e-4)


@settings(max_examples=12)
@given(st.integers(2, 10**6), st.integers(2, 10**6), st.floats(0.01, 50))
def test_effective_tokens_are_kept_and_factors_compose(first, more, variance):
    """E Y stays, and two steps make one."""
    longer, longest = first + more, first + 3 * more
    step = lp.length_scaling(longer, first, variance)
    kept = float(lp.output_scale(longer, step**2 * variance))
    assert kept == pytest.approx(float(lp.output_scale(first, variance)), rel=1e-10)
    both = float(step * lp.length_scaling(longest, longer, step**2 * variance))
    assert both == pytest.approx(float(lp.length_scaling(longest, first, variance)), rel=1e-8)


def test_a_shorter_prompt_takes_the_inverse_factor():
    factor = float(lp.length_scaling(1000, 100, 2.0))
    back = float(lp.length_scaling(100, 1000, 2.0 * factor**2))
    assert factor * back == pytest.approx(1.0, rel=1e-10)


@pytest.mark.parametrize("scale", [2, 8])
def test_first_orders(scale):
    """Many tokens: sqrt(1 + ln s/σ²). One token: ln L/ln L0 to the power one half, slowly."""
    factor = float(lp.length_scaling(scale * 10**14, 10**14, 1.0))
    assert factor == pytest.approx(math.sqrt(1 + math.log(scale)), rel=1e-5)
    frozen = float(lp.length_scaling(scale * 10**14, 10**14, 2000.0))
    assert frozen == pytest.approx(
        math.sqrt(math.log(scale * 1e14) / math.log(1e14)), rel=0.02 * math.log(scale)
    )


def test_rules_are_the_exact_factor_for_one_variance():
    """d ln c/d ln s at s = 1: 1/(2σ²) is 1/ln L0 where σ² = (ln L0)/2, and 0.2 where σ² = 2.5."""
    reference, longer = 10**13, 10**13 + 10**10
    step = math.log(longer / reference)
    for variance, rule in ((math.log(reference) / 2, log_n_scaling), (2.5, yarn_scaling)):
        exact = math.log(float(lp.length_scaling(longer, reference, variance))) / step
        assert math.log(float(rule(longer, reference))) / step == pytest.approx(exact, rel=0.05)


def test_rules_below_the_reference():
    assert float(longrope_scaling(100, 1000)) == float(yarn_scaling(100, 1000)) == 1.0
    assert float(log_n_scaling(100, 1000)) == pytest.approx(2 / 3)


def test_output_scale():
    expected = [0.19699, 0.051336, 0.012878]
    np.testing.assert_allclose(lp.output_scale([64, 1024, 16384], 1.0), expected, rtol=5e-5)
    np.testing.assert_allclose(lp.output_scale([1, 4, 9], 0.0), [1, 1 / 2, 1 / 3], rtol=1e-13)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((1, 100, 1.0), r"length: got 1; allowed: at least 2"),
        ((100, 1, 1.0), r"reference_length: got 1"),
        ((10.5, 100, 1.0), r"length: got 10\.5"),
        ((200, 100, 0.0), r"score_variance: got 0; allowed: positive"),
        ((200, 100, -1.0), r"score_variance: got -1"),
        ((200, 100, 1e9), r"score_variance: got 1e\+09"),
        ((200, 100, math.nan), r"score_variance"),
        ((50, 100, 0.01), r"length: got 50; allowed: more than the 100 tokens"),
        (([10, 20, 30], 100, [1.0, 2.0]), r"length, reference_length and score_variance"),
        ((10**15, 2, 2500.0), r"keeps the deviation of the scores below 500"),
    ],
)
def test_wrong_arguments(arguments, said):
    with pytest.raises(lp.InvalidArgumentError, match=said):
        lp.length_scaling(*arguments)


def test_arrays_broadcast():
    factors = lp.length_scaling([[20], [40]], 10, [0.5, 1.0, 2.0])
    assert factors.shape == (2, 3)
    for (i, length), (j, variance) in itertools.product(
        enumerate([20, 40]), enumerate([0.5, 1.0, 2.0])
    ):
        assert factors[i, j] == pytest.approx(float(lp.length_scaling(length, 10, variance)))
