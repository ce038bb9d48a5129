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
    found = numbers.curve(state)
    for length in (1, 1000):
        exact = lp.finite_prompt(here.attention, here.mu, here.z, length)
        assert found.errors[LENGTHS.index(length)] == pytest.approx(
            float(exact.mse) ** 0.5, rel=1e-8
        )
        bound = float(lp.certificate(here.attention, here.mu, here.z, length).bound) ** 0.5
        assert found.proved[LENGTHS.index(length)] == pytest.approx(bound, rel=1e-12)
    assert (found.errors <= found.proved * (1 + 1e-9)).all()


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
    strengths, limit, affine = numbers.read_outs(LawState(law="signs"))
    np.testing.assert_allclose(strengths, np.arange(1, 41) / 10)
    np.testing.assert_allclose(affine, strengths, rtol=1e-12)
    np.testing.assert_allclose(limit, np.tanh(strengths), rtol=1e-12)
    _, limit, affine = numbers.read_outs(LawState(law="gaussian", direction="weak"))
    np.testing.assert_allclose(limit, affine, rtol=1e-12)


def test_laplace_tokens_are_read_up_to_the_root_of_two():
    strengths, limit, _ = numbers.read_outs(LawState(law="laplace", dim=1))
    assert strengths[-1] == 1.4
    np.testing.assert_allclose(limit, strengths / (1 - strengths**2 / 2))


@pytest.mark.parametrize("dim", [1, 2, 8, 32])
@pytest.mark.parametrize("direction", ["strong", "all"])
def test_laplace_tokens_have_all_numbers_at_their_strongest(dim, direction):
    query = {"law": "laplace", "dim": dim, "direction": direction, "strength": 4}
    state = LawState.of(query)
    found = numbers.curve(state)
    assert all(np.isfinite(each).all() for each in (found.errors, found.tokens, found.along))
    assert all(
        np.isfinite(each).all() for each in (*numbers.drawn(state), *numbers.densities(state))
    )
    assert (found.errors <= found.proved).all()


def test_the_length_that_is_enough_is_that_of_the_library():
    state = LawState(tolerance=0.3, **SMALL)
    here = numbers.problem(state)
    for method, found in zip(("exact", "certified"), numbers.enough(state), strict=True):
        known = lp.prompt_length(here.attention, here.mu, here.z, 0.3, method)
        assert int(found) == int(known)
        assert found.rmse <= 0.3


def test_a_longer_prompt_costs_nothing():
    """What only the length changes is computed once: a slider of lengths answers at once."""
    state = LawState(law="uniform")
    numbers.curve(state)
    begin = time.process_time()
    for length in LENGTHS:
        numbers.curve(LawState(law="uniform", length=length))
    assert time.process_time() - begin < 0.02
