"""C3, C4, E1: rules about errors, bounds and the paper's form change their mind when
the data does.
"""

import numpy as np
import pytest
import torch
from study_checks import RuleChecks, outcome, verdicts

import largeprompt as lp
from largeprompt.studies.convergence.formulas import paper_form
from largeprompt.studies.convergence.rules import bounding_pair, breaks_below, common_pair
from largeprompt.studies.convergence.study import STUDY


class TestRules(RuleChecks):
    study = STUDY
    reactions = (
        (
            "drawn prompts",
            "holds",
            "sampled",
            {"score_variance": 1, "sampled_length": 2},
            lambda x: 2 * x,
            "fails",
        ),
        (
            "of the output stay below",
            "holds",
            "certified",
            {"length": 3},
            lambda x: 0.5 * x,
            "fails",
        ),
        (
            "in U stay below",
            "holds",
            "exact",
            {"length": 3, "quantity": 1},
            lambda x: 1e30 * x,
            "fails",
        ),
        ("of the output fall with", "holds in part", "slope", {}, lambda x: 0 * x - 1, "holds"),
        ("of the output fall with", "holds in part", "slope", {}, lambda x: 0 * x - 2, "fails"),
        ("at L = 1 for the output", "fails", "exact", {"length": 0}, lambda x: 0 * x, "holds"),
        ("frozen", "fails", "first_order", {}, lambda x: 0 * x, "holds"),
    )


def test_bounding_pair_bounds_and_breaks_where_it_says(data):
    c1, c2, _ = bounding_pair(data)
    part = data.exact.sel(quantity="output").sel(length=slice(2, None))
    for q in data.score_variance.values:
        assert np.all(paper_form(part.length, q, c1, c2) >= part.sel(score_variance=q) * (1 - 1e-9))
    small = 0.9 * breaks_below(data, c1, c2)
    eye = torch.eye(4, dtype=torch.float64)
    mu = lp.Gaussian(torch.zeros(4, dtype=torch.float64), eye)
    exact = float(
        lp.finite_prompt(lp.SoftmaxAttention(eye, eye), mu, [small**0.5, 0.0, 0.0, 0.0], 100).mse
    )
    assert float(paper_form(100.0, small, c1, c2)) < exact


def test_one_pair_of_constants_is_recognised(data):
    """Curves made of the paper's own form with one pair are fitted by it, and the true ones are
    not.
    """
    data = data.copy(deep=True)
    assert common_pair(data, "output")[2] > 10
    for quantity, logs in (("output", 1), ("jacobian_u", 2)):
        for q in data.score_variance.values:
            made = np.maximum(paper_form(data.length.values, float(q), 0.7, 1.3, logs), 1e-300)
            data.exact.loc[{"score_variance": q, "quantity": quantity}] = made
    assert common_pair(data, "jacobian_u")[:2] == (pytest.approx(0.7), pytest.approx(1.3))
    asked = "describe the derivative in U"
    assert outcome(STUDY, data, asked) == "holds"


def test_a_pair_that_bounds_smaller_score_variances_too_holds(data):
    """Where no score variance breaks the bound, the verdict says so without a NaN."""
    data = data.copy(deep=True)
    data.exact.loc[{"quantity": "output", "length": 1.0}] = data.score_variance  # tr(Γ) = 0
    found = verdicts(STUDY, data, "upper bound")[0]
    assert found.outcome == "holds"
    assert "nan" not in found.measured


def test_headline_speaks_of_squared_errors_and_of_our_constants(data):
    """The paper gives no constants: what is too large is its form with the pair that bounds these
    curves.
    """
    found = verdicts(STUDY, data, "upper bound")[0].headline
    assert found.startswith("Squared errors finally fall")
    assert (
        "best constants that bound all cases, is up to "
        f"{float(f'{bounding_pair(data)[2]:.3g}'):,.0f} times" in found
    )


def test_frozen_regime_is_undecided_where_there_is_none(data):
    data = data.copy(deep=True)
    data.frozen[:] = False
    assert outcome(STUDY, data, "frozen") == "undecided"
