"""Predictions of the exact theory of one layer: the library's optima, in the right order."""

import numpy as np
import pytest
import torch

import largeprompt as lp
from largeprompt.runs.study import quiet
from largeprompt.studies.trained.study import TrainedConfig
from largeprompt.studies.trained.theory import common_optimum, regression, theory


def test_the_optimum_of_one_length_is_the_librarys_and_of_several_is_least():
    task = regression(TrainedConfig(dim=2))
    one = lp.training.isotropic_optimum(task, 16)
    assert common_optimum(task, [16]) == pytest.approx((one.risk, one.a, one.b), rel=1e-5)
    risk, a, b = common_optimum(task, [16, 32])

    def mean(a, b):
        point = (torch.tensor([a], dtype=torch.float64), torch.tensor([b], dtype=torch.float64))
        return np.mean([float(task.isotropic_risk(*point, length)[0]) for length in (16, 32)])

    assert risk == pytest.approx(mean(a, b), rel=1e-12)
    assert all(mean(a * x, b * y) > risk for x, y in ((1.02, 1), (0.98, 1), (1, 1.02), (1, 0.98)))


def test_predictions_are_in_order():
    data = theory(TrainedConfig(dim=2, test_lengths=(16, 32)), quiet)
    for lower, higher in (
        ("softmax_optimum", "carried"),
        ("linear_optimum", "softmax_optimum"),
        ("bayes", "linear_optimum"),
        ("floor", "bayes"),
    ):
        assert bool((data[lower] < data[higher]).all()), (lower, higher)
    assert float(data.zero_risk) == pytest.approx(0.55)
