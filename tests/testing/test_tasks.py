"""Every task of the library through the one contract."""

import torch

import largeprompt as lp
from largeprompt.studies.softmax_vs_linear.outliers import MarkedOutliers
from largeprompt.studies.softmax_vs_linear.single_location import SingleLocationRegression
from largeprompt.testing import TaskContract
from largeprompt.training import SobolAverage

F = torch.float64
COVARIANCE = torch.tensor([[1.0, 0.3], [0.3, 0.6]], dtype=F)


class TestLinearRegression(TaskContract):
    task = lp.LinearRegression(
        COVARIANCE, torch.eye(2, dtype=F) / 2, 0.2, 0.7 * torch.eye(2, dtype=F)
    )


class TestSingleLocation(TaskContract):
    task = SingleLocationRegression(dim=3, spike=4.0, noise_variance=0.3)


class TestSingleLocationWithoutSpike(TaskContract):
    task = SingleLocationRegression(dim=2, spike=0.0)


class TestMarkedOutliers(TaskContract):
    task = MarkedOutliers(
        lp.LinearRegression([[0.8]], [[1.0]], 0.2, [[1.2]]), probability=0.3, variance=3.0
    )
    average = SobolAverage(64)
