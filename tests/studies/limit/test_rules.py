"""C1, C2, N1: verdicts change their mind when the data does."""

import numpy as np
from study_checks import RuleChecks

from largeprompt.studies.lengths import first_below
from largeprompt.studies.limit.study import STUDY


class TestRules(RuleChecks):
    study = STUDY
    reactions = (
        ("singular", "holds", "identity_error", {"kind": 1}, lambda x: x + 1e-8, "fails"),
        ("one operator", "holds", "prompt_error", {}, lambda x: x + 1e-8, "fails"),
        ("one operator", "holds", "identity_error", {"kind": 2}, lambda x: x + 1e-8, "fails"),
        ("one operator", "holds", "nodes_error", {"nodes": -1}, lambda x: x + 1e-8, "fails"),
        ("Is the limit affine", "fails", "gap", {}, lambda x: 0 * x, "holds"),
        ("their own law", "holds", "exact", {"law": 1, "length": 2}, lambda x: 1e3 * x, "fails"),
        ("their own law", "holds", "exact", {"length": -1}, lambda x: 0.5 * x, "fails"),
        ("their own law", "holds", "affine", {"law": 1}, lambda x: 1.1 * x, "fails"),
        ("their own law", "holds", "family_affine", {}, lambda x: 1.1 * x, "fails"),
        ("as predicted", "holds", "scaling_gap", {"step": 0}, lambda x: 1.2 * x, "fails"),
        ("third and fourth", "holds in part", "cumulants", {}, lambda x: 3 * x, "fails"),
        ("drawn prompts", "holds", "drawn", {"law": 4}, lambda x: 1.2 * x, "fails"),
    )


def test_headline_says_both_of_other_tokens(data):
    said = " ".join(each.headline for each in STUDY.judge(data) if each.claim == "N1")
    assert "converge to a limit of their own, which is not linear" in said


def test_gap_shows_from_a_known_length(data):
    """Signs at tilt 1: from eight tokens on, by the exact law."""
    (found,) = [each for each in STUDY.judge(data) if "their own law" in each.asked]
    assert "the gap shows from L = 2" in found.measured
    signs = data.sel(family="Rademacher sum", tilt=1.0).isel(member=0)
    errors = np.sqrt(signs.family_exact) / signs.family_gap
    assert 7 < float(first_below(errors, 1.0, "family_length", between=True)) <= 8
