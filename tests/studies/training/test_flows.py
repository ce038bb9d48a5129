"""C5, C6, C7: what flows compute, against closed forms; and settings that are refused."""

import math

import numpy as np
import pytest
import torch
from study_checks import SettingChecks

from largeprompt.runs.study import quiet
from largeprompt.studies.training.config import TrainingConfig
from largeprompt.studies.training.flows import STARTS, drift, endpoint, ends, excess, tube
from largeprompt.studies.training.study import STUDY

SMALL = TrainingConfig(
    dim=2,
    lengths=(30, 10_000),
    until=2.0,
    times=5,
    gradient_lengths=(10, 1000),
    gradient_times=(0.0, 0.3),
    excess_dims=(2,),
    excess_decades=4,
    drift_dim=1,
    drift_lengths=(30.0, math.inf),
    drift_until=200.0,
    drift_times=5,
    end_covariances=("toeplitz",),
    end_dims=(2,),
)


class TestSettings(SettingChecks):
    study = STUDY
    refused = (
        "covariance=toeplit",
        "lengths=-5",
        "lengths=100,10",
        "lengths=30,inf",
        "gradient_times=0,1e3",
        "excess_dims=2,2",
        "excess_decades=2",
        "drift_lengths=0",
        "end_dims=0",
        "inputs=mixture",
        "until=nan",
    )


def test_linear_attention_s_gradient_differs_by_one_over_the_length():
    found = tube(SMALL, "linear", quiet)
    distance = found.linear_gradient_distance
    np.testing.assert_allclose(distance[:, 0], 100 * distance[:, 1], rtol=1e-6)
    assert bool((found.linear_distance <= found.linear_envelope + 1e-9).all())


def test_excess_risks_are_the_closed_ones():
    """C7: best linear attention, isotropic, W = I/d, no noise: ½ c/(1+c), c = (d+1)/L."""
    found = excess(SMALL, 2, quiet)
    np.testing.assert_allclose(found.linear_best, found.linear_predicted, rtol=1e-6)
    assert bool((found.softmax_best > found.linear_best).all())
    assert bool((found.softmax_best <= found.softmax_at_limit_endpoint + 1e-12).all())


def test_a_short_prompt_ends_at_its_own_optimum():
    found = drift(SMALL, quiet).isel(drift_time=-1)
    assert float(found.drift_b[0]) == pytest.approx(float(found.drift_optimal_b[0]), rel=1e-4)
    assert float(found.drift_b[1]) == pytest.approx(1.0, rel=1e-5)


def test_every_start_ends_where_the_hyperbola_meets_the_solutions():
    found = ends(SMALL, "toeplitz", 2, quiet)
    assert found.start.values.tolist() == list(STARTS)
    assert float(found.end_b_error.max()) < 1e-6
    assert float(found.end_b.sel(start="balanced, b(0) < 0")) < 0
    sigma = torch.tensor([[1.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
    theorem = float((torch.linalg.inv(sigma) ** 2).sum()) ** 0.25
    assert float(found.end_b.sel(start="balanced")) == pytest.approx(theorem)
    assert endpoint(0.0, theorem**4) == pytest.approx(theorem)
    b = endpoint(1.7, 5.0)
    assert b**2 - 5.0 / b**2 == pytest.approx(1.7)
