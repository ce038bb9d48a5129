"""Curves by length are the library's own numbers; draws are judged by exact spreads."""

import math

import numpy as np
import pytest
import torch
import xarray as xr
from matplotlib.figure import Figure
from study_checks import drawn

import largeprompt as lp
from largeprompt.studies import lengths

EYE = torch.eye(3, dtype=torch.float64)
ATTENTION = lp.SoftmaxAttention(EYE, EYE[:2] + 0.5)
GAUSSIAN = lp.Gaussian([0.5, 0.0, 0.0], [[2.0, 0.3, 0.0], [0.3, 1.0, 0.0], [0.0, 0.0, 0.5]])
Z = torch.tensor([[0.8, -0.2, 0.4], [0.1, 0.1, 0.0]], dtype=torch.float64)


def curves(mu, replicas, seed=0):
    generator = torch.Generator().manual_seed(seed)
    options = {"drawn": (1, 10, 40), "replicas": replicas, "generator": generator}
    return lengths.error_curves(ATTENTION, mu, Z, (1, 10, 100), "query", certified=True, **options)


def test_curves_are_those_of_the_library():
    data = curves(GAUSSIAN, 500)
    law = lp.finite_prompt(ATTENTION, GAUSSIAN, Z, [1, 10, 100])
    np.testing.assert_array_equal(data.exact, law.mse)
    assert bool((data.certified >= data.exact * (1 - 1e-12)).all())
    assert data.first_order.dims == ("length", "query")
    np.testing.assert_allclose(data.exact_at_drawn[:2], data.exact[:2], rtol=1e-12)


def test_spread_of_squared_errors_is_exact_for_gaussian_tokens():
    """L = 1: T_1 - T is N(-VΓu, VΓV^T), and ‖N(a, C)‖² has variance 2 tr C² + 4 a·Ca."""
    exact = lengths.squared_error_spread(ATTENTION, GAUSSIAN, Z, (1, 10, 40))
    V, covariance = ATTENTION.V, GAUSSIAN.covariance
    C, a = V @ covariance @ V.mT, Z @ covariance @ V.mT
    one = 2 * (C @ C).trace() + 4 * ((a @ C) * a).sum(-1)
    torch.testing.assert_close(exact[0], one.sqrt(), rtol=1e-11, atol=0)
    found = lp.sampling.sample_prompts(ATTENTION, GAUSSIAN, Z, (1, 10, 40), 20_000, 1).outputs
    squared = (found - ATTENTION(GAUSSIAN, Z)).square().sum(-1)
    torch.testing.assert_close(squared.std(1), exact, rtol=0.1, atol=0)


def test_draws_of_other_laws_need_enough_replicas():
    assert bool(curves(lp.Rademacher(3), 100).drawn_error.isnull().all())
    assert bool(curves(lp.Rademacher(3), lengths.ENOUGH).drawn_error.notnull().all())


RULE = lengths.drawn_agrees("C3", "Do drawn prompts agree?", headline="They do.", otherwise="No.")


@pytest.mark.parametrize("seed", range(5))
def test_draws_agree_with_their_own_law(seed):
    found = RULE(curves(GAUSSIAN, 300, seed))
    assert (found.outcome, found.headline) == ("holds", "They do.")
    assert "drawn means 6" in found.measured


def test_wrong_draws_do_not():
    data = curves(GAUSSIAN, 300)
    assert RULE(data.assign(drawn=1.5 * data.drawn)).outcome == "fails"
    assert RULE(data.assign(drawn=data.drawn * math.nan)).outcome == "undecided"
    fixed = data.assign(drawn_error=0 * data.drawn_error)  # nothing varies
    assert RULE(fixed.assign(drawn=data.exact_at_drawn)).outcome == "holds"
    assert RULE(fixed).outcome == "fails"


def test_probabilities_of_skewed_means_are_right():
    """Means of ten squared normal variables: of 4000 the least likely is not rarer than it is."""
    squares = np.random.default_rng(0).standard_normal((4000, 10)) ** 2
    each = [lengths.least_likely(one, 1.0, math.sqrt(0.2)) for one in squares.mean(1)]
    assert np.mean(np.asarray(each) < 0.01) == pytest.approx(0.01, abs=0.005)


def test_first_lengths():
    length = np.array([1.0, 10.0, 100.0, 1000.0])
    errors = xr.DataArray(
        [[4.0, 1.0, 2.0, 0.5], [1.0, 1.0, 1.0, 1.0], [9.0, 9.0, 9.0, 9.0]],
        coords={"length": length},
        dims=("case", "length"),
    )
    assert lengths.first_below(errors, 1.0).values.tolist() == [1000.0, 1.0, math.inf]
    between = lengths.first_below(errors, 1.0, between=True).values
    np.testing.assert_allclose(between, [10**2.5, 1.0, math.inf])
    falling = xr.DataArray(1 / length, coords={"length": length}, dims="length")
    assert float(lengths.first_below(falling, 1 / 30, between=True)) == pytest.approx(30.0)


def test_panel_draws_the_curves_that_are_there():
    data = curves(GAUSSIAN, 100).isel(query=0)
    axes, colored = Figure().subplots(1, 2)
    lengths.length_panel(axes, data)
    assert {line.get_label() for line in axes.lines} >= {"exact", "first order", "certified"}
    assert drawn(axes, data.exact)
    assert drawn(axes, data.certified)
    lengths.length_panel(colored, data, 3, label="a law", root=True)
    assert drawn(colored, np.sqrt(data.exact))
    assert not drawn(colored, np.sqrt(data.certified))
    assert colored.get_legend_handles_labels()[1] == ["a law"]
