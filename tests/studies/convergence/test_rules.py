"""Rules about errors, bounds, constants and short prompts change their mind with the data."""

import numpy as np
import pytest
from study_checks import RuleChecks, outcome

from largeprompt.studies.convergence.curves import paper_form
from largeprompt.studies.convergence.rules import common_pair, named_by_tokens
from largeprompt.studies.convergence.study import STUDY

BELOW, ABOVE = (lambda x: 0.5 * x), (lambda x: 2 * x)
ZERO = lambda x: 0 * x  # noqa: E731


class TestRules(RuleChecks):
    study = STUDY
    reactions = (
        ("drawn prompts", "holds", "drawn", {"drawn_length": 2}, ABOVE, "fails"),
        ("drawn prompts", "holds", "spectrum_drawn", {"spectrum": 1}, ABOVE, "fails"),
        ("output's error fall", "holds", "certified", {"length": 3}, BELOW, "fails"),
        ("output's error fall", "holds", "ratio", {"case": 0}, BELOW, "fails"),
        ("output's error fall", "holds", "exact", {"length": -1}, ABOVE, "fails"),
        ("derivatives fall", "holds", "certified", {"length": 3}, BELOW, "fails"),
        ("derivatives fall", "holds", "exact", {"length": -1}, ABOVE, "fails"),
        ("frozen regime", "fails", "first_order", {}, ZERO, "holds"),
        ("frozen regime", "fails", "frozen", {}, lambda x: x & False, "undecided"),
        ("named by effective", "holds", "effective_tokens", {}, lambda x: x**0.8, "fails"),
        ("log-n", "holds", "log_n_factor", {}, lambda x: 1.05 * x, "fails"),
        ("log-n", "holds", "yarn_factor", {"growth": 0}, lambda x: 1.05 * x, "fails"),
        ("explain the error for", "holds", "spectrum_exact", {"spectrum": 1}, ABOVE, "fails"),
        ("alone explain", "fails", "spectrum_exact", {}, lambda x: 0 * x + 1, "holds"),
        ("for all spectra", "fails", "spectrum_c2", {}, lambda x: 0 * x + 1, "fails"),
        ("set the length", "fails", "spectrum_exact", {}, ZERO, "holds"),
        ("over 10 tokens", "fails", "short_exact", {}, ZERO, "fails"),
        ("10 tokens on", "fails", "risk", {}, ZERO, "holds"),
        ("one token suffice", "fails", "short_exact", {"short_length": 0}, ZERO, "holds"),
    )


def test_one_pair_of_constants_is_recognized(data):
    """Curves made of the paper's own form with one pair are fitted by it, and the true ones not."""
    data = data.copy(deep=True)
    assert common_pair(data, "output")[2] > 10
    for quantity, logs, words in (("output", 1, "the output with"), ("jacobian_u", 2, "in U with")):
        assert outcome(STUDY, data, words) == "fails"
        for q in data.score_variance.values:
            made = np.maximum(paper_form(data.length.values, float(q), 0.7, 1.3, logs), 1e-300)
            data.exact.loc[{"score_variance": q, "quantity": quantity}] = made
        assert common_pair(data, quantity)[:2] == (pytest.approx(0.7), pytest.approx(1.3))
        assert outcome(STUDY, data, words) == "holds"


def test_short_prompts_are_enough_where_errors_are_small(data):
    small = data.assign(short_exact=0 * data.short_exact, spectrum_exact=0 * data.spectrum_exact)
    assert outcome(STUDY, small, "over 10 tokens") == "holds"


def test_card_says_that_a_certificate_takes_the_place_of_the_form(data):
    (found,) = [each for each in STUDY.judge(data) if each.claim == "C3" and each.headline]
    most = float((data.certified / data.exact).sel(quantity="output").max())
    assert f"never crossed, at most {most:.2g} times too large" in found.headline


def test_regimes_by_tokens(data):
    part = data.sel(regime_length=[data.regime_length[-1]], regime_variance=[0.0, 40.0])
    assert named_by_tokens(part).values.tolist() == [["linear", "heavy"]]
