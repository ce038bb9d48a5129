"""Every task of the library through the one contract."""

import torch

import largeprompt as lp
from largeprompt.testing import TaskContract

F = torch.float64
COVARIANCE = torch.tensor([[1.0, 0.3], [0.3, 0.6]], dtype=F)


class TestLinearRegression(TaskContract):
    task = lp.LinearRegression(
        COVARIANCE, torch.eye(2, dtype=F) / 2, 0.2, 0.7 * torch.eye(2, dtype=F)
    )


class TestSingleLocation(TaskContract):
    task = lp.training.SingleLocationRegression(dim=3, spike=4.0, noise_variance=0.3)


class TestSingleLocationWithoutSpike(TaskContract):
    task = lp.training.SingleLocationRegression(dim=2, spike=0.0)


class TestMarkedOutliers(TaskContract):
    task = lp.training.MarkedOutliers(
        lp.LinearRegression([[0.8]], [[1.0]], 0.2, [[1.2]]), probability=0.3, variance=3.0
    )
    average = lp.training.SobolAverage(64)
