"""N2: fits of exponents and intercepts find what they should."""

import numpy as np
import pytest
from study_checks import outcome as outcome_of

from largeprompt.studies.discrete.formulas import usual
from largeprompt.studies.discrete.sgd_rules import exponents, intercept
from largeprompt.studies.discrete.study import STUDY


def outcome(data, words):
    return outcome_of(STUDY, data, words)


def test_fits_find_what_they_should(data):
    """Made spreads: a law that is right but for 40 η/B; gaps exactly like √(η/B)."""
    noise = data.batch_step_size / data.batch_size
    made = data.assign(
        sgd_spread=data.predicted_spread * (1 + 40 * noise),
        sgd_spread_error=0.01 * data.predicted_spread,
        sgd_gap=np.sqrt(noise),
        sgd_gap_error=0.01 * np.sqrt(noise),
    )
    a, _, c, _ = intercept(made)
    assert (a, c) == (pytest.approx(1), pytest.approx(40))
    found = exponents(made)
    assert found["batch_size"][0] == pytest.approx(-0.5)
    assert found["batch_step_size"][0] == pytest.approx(0.5)
    assert outcome(made, "proportional") == "holds"
    assert (
        outcome(made.assign(sgd_gap=noise, sgd_gap_error=0.01 * noise), "proportional") == "fails"
    )
    assert usual(data) == 5e-3
