"""N3: predictions of the heavy-tail study against what is known, shared random numbers, and bad
settings.
"""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.stats import t
from study_checks import stores

import largeprompt as lp
from largeprompt.runs.study import quiet
from largeprompt.studies.heavytail.parts import (
    asymptote,
    ideal_tail_index,
    law_with_tilts,
    rule_of_thumb,
    target,
)
from largeprompt.studies.heavytail.study import STUDY


def test_dataset_is_storable(data, tmp_path):
    stores(STUDY, data, tmp_path)


def test_same_numbers_whatever_the_order_of_cells(data, small):
    again = law_with_tilts(small, "df = 4", quiet)
    whole = data.isel(case=np.flatnonzero((data.law == "df = 4").values))
    np.testing.assert_array_equal(again.sampled, whole.sampled)


def test_student_laws_share_their_random_numbers(small):
    """df = inf and df = 10^9 draw the same tokens, so that differences between laws
    are not noise.
    """
    config = dataclasses.replace(small, dfs=(math.inf, 1e9), lengths=(10,))
    near, far = (law_with_tilts(config, f"df = {df:g}", quiet) for df in config.dfs)
    np.testing.assert_allclose(near.sampled, far.sampled, rtol=1e-6)


def test_asymptotes_meet_the_exact_curves(data):
    for i in range(data.sizes["case"]):
        case = data.isel(case=i)
        ratio = float((case.curve / case.asymptote)[-1])
        if np.isfinite(ratio) and not float(case.df) > 4:
            assert ratio == pytest.approx(1.0, rel=0.02), str(case.law.values)
    participation, mean = asymptote(lp.scalar.LogNormalLaw(0.5), 1.0, np.array([10.0]))
    assert np.isnan(participation).all()
    assert np.isnan(mean).all()


def test_targets_are_limits_where_they_exist():
    assert target(lp.scalar.LaplaceLaw(), 1.0) == pytest.approx(2.0)
    assert target(lp.scalar.LaplaceLaw(), 2.0) == 2.0
    assert target(lp.scalar.StudentTLaw(3.0, 1.0), 0.7) == 0.7
    assert target(lp.scalar.LogNormalLaw(0.5), -1.0) == pytest.approx(
        float(lp.scalar.LogNormal(1, 0.5).tilted_mean([-1.0]))
    )


def test_tail_index_of_laplace_weights_is_known():
    """Weights e^{uz} have tail index u/√2; the estimate leans towards 1/2 by its prior."""
    assert ideal_tail_index(lp.scalar.LaplaceLaw(), 1.2, 10**6) == pytest.approx(
        1.2 / math.sqrt(2), abs=0.01
    )
    assert math.isnan(ideal_tail_index(lp.scalar.LaplaceLaw(), 1.2, 5))


def test_rule_of_thumb_is_a_quantile():
    df = rule_of_thumb(1.0, 1e6)
    quantile = lp.StudentT(1, df).law.scale * torch.tensor(1.0)
    assert float(quantile) * t.isf(1e-6, df) == pytest.approx(math.log(1e6) / 2 + 1, rel=1e-6)
