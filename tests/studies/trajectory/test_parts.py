"""C5, C7: excess risks known in closed form, the lengths that they need, and settings that are
refused.
"""

import math

import numpy as np
import pytest
from study_checks import refuses, stores

from largeprompt.studies.trajectory.parts import crossing
from largeprompt.studies.trajectory.study import STUDY


def test_dataset_is_storable(tubes, tmp_path):
    stores(STUDY, tubes, tmp_path)


def test_excess_risks_are_the_closed_ones(tubes):
    """C7: best linear attention, isotropic, W = I/d, no noise: ½ c/(1+c), c = (d+1)/L; softmax
    stays above it.
    """
    np.testing.assert_allclose(tubes.linear_best, tubes.linear_predicted, rtol=1e-6)
    assert bool((tubes.softmax_best > tubes.linear_best).all())
    assert bool((tubes.softmax_best <= tubes.softmax_at_limit_endpoint + 1e-12).all())
    needed = float(tubes.needed_length_linear.sel(epsilon=1e-2)[0])
    assert needed == pytest.approx(3 / (0.02 / 0.98), rel=0.02)  # interpolated between half decades


def test_lengths_of_a_target_met_at_once_or_never():
    lengths = np.array([10.0, 100.0, 1000.0])
    found = crossing(lengths, np.array([0.05, 0.005, 0.0005]), np.array([0.1, 0.01, 1e-5]))
    assert found[:2] == [10.0, pytest.approx(50.1, rel=0.01)]
    assert math.isnan(found[2])
    again = crossing(lengths, np.array([0.005, 0.05, 0.0005]), np.array([0.01]))
    assert 100 < again[0] < 1000  # the last crossing counts


@pytest.mark.parametrize(
    "word",
    [
        "covariance=toeplit",
        "lengths=-5",
        "lengths=100,10",
        "lengths=30,inf",
        "lengths=",
        "dim=0",
        "excess_dims=0",
        "excess_dims=2,2",
        "excess_decades=5,1",
        "targets=0",
        "until=nan",
        "points=9",  # the query is averaged exactly
    ],
)
def test_bad_settings_are_refused(word):
    refuses(STUDY, word)
