"""Numbers of the first tab, against the library's own and against closed forms."""

import math
import time

import numpy as np
import pytest
from scipy import stats

import largeprompt as lp
from largeprompt.explore import numbers
from largeprompt.explore.state import LAWS, LENGTHS, LawState

SMALL = {"dim": 2, "strength": 1.2}


@pytest.mark.parametrize("law", LAWS)
def test_errors_are_those_of_the_library(law):
    state = LawState(law=law, direction="all", **SMALL)
    here = numbers.problem(state)
    found, proved = numbers.curve(state), numbers.proved(state)
    for length in (1, 1000):
        exact = lp.finite_prompt(here.attention, here.mu, here.z, length)
        assert found.errors[LENGTHS.index(length)] == pytest.approx(
            float(exact.mse) ** 0.5, rel=1e-8
        )
        bound = float(lp.certificate(here.attention, here.mu, here.z, length).bound) ** 0.5
        assert proved[length] == pytest.approx(bound, rel=1e-12)
    assert (found.errors <= np.array([proved[length] for length in LENGTHS]) * (1 + 1e-9)).all()


@pytest.mark.parametrize("law", ["signs", "uniform", "laplace"])
@pytest.mark.parametrize("direction", ["strong", "weak"])
def test_coordinates_that_the_query_does_not_see_are_told_by_one(law, direction):
    state = LawState(law=law, direction=direction, dim=5, strength=1.2, decay=0.7)
    here, found = numbers.problem(state), numbers.curve(state)
    exact = lp.finite_prompt(here.attention, here.mu, here.z, list(LENGTHS))
    np.testing.assert_allclose(found.errors, exact.rmse, rtol=1e-8)
    np.testing.assert_allclose(found.tokens, exact.effective_tokens, rtol=1e-8)
    np.testing.assert_allclose(found.along, exact.mean @ here.unit, rtol=1e-8)


@pytest.mark.parametrize(
    ("law", "tolerance"),
    [("gaussian", 0.06), ("gaussian", 0.2), ("gaussian", 1.0), ("clusters", 0.5), ("signs", 0.1)],
)
def test_proved_length_is_proved_and_at_most_a_quarter_above_the_least(law, tolerance):
    state = LawState(law=law, tolerance=tolerance, **SMALL)
    here = numbers.problem(state)
    certified = int(lp.prompt_length(here.attention, here.mu, here.z, tolerance, "certified"))
    assert certified <= numbers.proved_length(state) <= 1.25 * certified


def test_proved_length_at_the_ends():
    few = LawState(law="signs", dim=1, strength=0.1, tolerance=1.0)
    here = numbers.problem(few)
    assert numbers.proved_length(few) == int(
        lp.prompt_length(here.attention, here.mu, here.z, 1.0, "certified")
    )
    assert numbers.proved_length(LawState(strength=4.0, tolerance=0.02)) == math.inf
    # the weights have no variance
    assert numbers.proved_length(LawState(law="laplace", dim=1, strength=1.2)) == math.inf
    # no limit
    assert numbers.proved_length(LawState(law="laplace", dim=1, strength=2.0)) == math.inf


def test_drawn_errors_agree_with_the_exact_ones():
    """Six comparisons, each within 6 standard errors of the mean square; seed fixed, rate of false
    alarms below 1e-6.
    """
    state = LawState(law="signs", **SMALL)
    mean, spread = numbers.drawn(state)
    exact = numbers.curve(state).errors[[LENGTHS.index(length) for length in numbers.DRAWN]]
    assert (abs(mean**2 - exact**2) <= 6 * 2 * mean * spread).all()


def test_density_of_gaussian_scores_is_shifted_by_the_softmax():
    """N(0, σ²) becomes N(σ², σ²); the brush widens both by 1 + BRUSH²."""
    state = LawState(strength=1.5)
    places, density, tilted = numbers.densities(state)
    width = 1.5 * math.sqrt(1 + numbers.BRUSH**2)
    np.testing.assert_allclose(density, stats.norm.pdf(places, 0.0, width), atol=1e-4)
    np.testing.assert_allclose(tilted, stats.norm.pdf(places, 1.5**2, width), atol=1e-4)


@pytest.mark.parametrize("law", ["clusters", "signs", "uniform", "sphere"])
def test_densities_have_mass_one_and_the_means_of_the_law(law):
    state = LawState(law=law, direction="all", **SMALL)
    here, (places, density, tilted) = numbers.problem(state), numbers.densities(state)
    step = places[1] - places[0]
    for found, mean in ((density, 0.0), (tilted, float(here.mu.tilted_mean(here.z) @ here.z))):
        assert found.sum() * step == pytest.approx(1.0, abs=1e-3)
        assert (places * found).sum() * step == pytest.approx(mean, abs=2e-3)


def test_read_outs_of_signs_saturate_and_gaussian_ones_do_not():
    strengths = np.array(numbers.STRENGTHS)
    limit, affine = numbers.read_outs(LawState(law="signs"))
    np.testing.assert_allclose(affine, strengths, rtol=1e-12)
    np.testing.assert_allclose(limit, np.tanh(strengths), rtol=1e-12)
    limit, affine = numbers.read_outs(LawState(law="gaussian", direction="weak"))
    np.testing.assert_allclose(limit, affine, rtol=1e-12)


def test_laplace_tokens_have_a_limit_up_to_the_root_of_two():
    limit, _ = numbers.read_outs(LawState(law="laplace", dim=1))
    known = np.array(numbers.STRENGTHS) < math.sqrt(2)
    assert (np.isfinite(limit) == known).all()
    np.testing.assert_allclose(
        limit[known],
        np.array(numbers.STRENGTHS)[known] / (1 - np.array(numbers.STRENGTHS)[known] ** 2 / 2),
    )
    state = LawState(law="laplace", dim=1, strength=2.0, length=30)
    found = numbers.curve(state)
    assert found.errors is None
    assert "no infinite-prompt limit" in found.reason
    assert 1 < found.tokens[LENGTHS.index(30)] < 30
    assert numbers.proved(state) is None
    assert numbers.drawn(state) is None
    assert numbers.densities(state)[2] is None


def test_laplace_tokens_in_all_directions_are_left_out_without_a_limit():
    found = numbers.curve(LawState(law="laplace", dim=4, strength=4.0, direction="all", length=30))
    assert found.errors is None
    assert np.isnan(found.tokens).all()


def test_a_limit_at_the_very_edge_is_none():
    """Laplace tilts of 4/√8, which is √2 but for rounding."""
    assert (
        numbers.curve(LawState(law="laplace", dim=8, strength=4.0, direction="all")).errors is None
    )


@pytest.mark.parametrize(
    ("law", "tolerance"), [("gaussian", 0.2), ("clusters", 0.5), ("signs", 0.1), ("sphere", 0.06)]
)
def test_needed_length_is_good_to_two_digits(law, tolerance):
    state = LawState(law=law, **SMALL)
    here = numbers.problem(state)
    exact = float(lp.prompt_length(here.attention, here.mu, here.z, tolerance))
    assert numbers.needed_length(numbers.curve(state).errors, tolerance) == pytest.approx(
        exact, rel=0.02, abs=1.0
    )


def test_needed_length_at_the_ends():
    errors = 1 / np.sqrt(LENGTHS)
    assert numbers.needed_length(errors, 2.0) == 1.0
    assert numbers.needed_length(errors, 1e-9) == math.inf
    assert numbers.needed_length(errors, 0.01) == pytest.approx(1e4, rel=1e-6)


def test_regimes_are_the_effective_tokens_of_gaussian_scores():
    variances, lengths, tokens = numbers.regimes()
    here = numbers.problem(LawState(dim=1, strength=2.0))
    row, column = list(lengths).index(1e4), list(variances).index(4.0)
    assert tokens[row, column] == pytest.approx(
        float(lp.finite_prompt(here.attention, here.mu, here.z, 10_000).effective_tokens), rel=1e-6
    )


def test_a_longer_prompt_costs_nothing():
    """What only the length changes is computed once: a slider of lengths answers at once."""
    state = LawState(law="uniform")
    numbers.curve(state)
    begin = time.process_time()
    for length in LENGTHS:
        numbers.curve(LawState(law="uniform", length=length))
    assert time.process_time() - begin < 0.02
