"""C3: the regimes on the grid, the critical number of tokens, and the settings."""

import math

import numpy as np
import pytest
from study_checks import SettingChecks

import largeprompt as lp
from largeprompt.studies.phase_diagram.rules import named_by_tokens
from largeprompt.studies.phase_diagram.study import STUDY


def test_phase_diagram_shows_the_regimes(data):
    tokens = data.effective_tokens
    np.testing.assert_allclose(tokens.sel(score_variance=0.0), data.length)
    assert 1 < float(tokens.sel(score_variance=40.0, length=100.0, method="nearest")) < 2
    # linear regime: 1/E Y = L e^{-σ²}(1 + O(ρ²/L))
    assert float(tokens.sel(score_variance=10.0, length=1e12)) == pytest.approx(
        1e12 * math.exp(-10), rel=1e-2
    )
    assert str(data.regime.sel(score_variance=10.0, length=1e12).values) == "linear"


def test_critical_number_of_tokens(data):
    """At α = 1 the effective tokens tend to √(π ln L): within 8 % at L = 10^6, nearer at 10^12."""
    errors = []
    for length in (10**6, 10**12):
        tokens = 1 / float(lp.weight_moment(length, math.sqrt(2 * math.log(length)), [(2, 0)]))
        errors.append(abs(tokens / math.sqrt(math.pi * math.log(length)) - 1))
    assert errors[1] < errors[0] < 0.08
    assert set(np.unique(named_by_tokens(data))) == {"linear", "heavy", "frozen"}


class TestSettings(SettingChecks):
    study = STUDY
    refused = ("variances=0", "lengths=-5", "largest_variance=-1", "longest=0", "longest=inf")
