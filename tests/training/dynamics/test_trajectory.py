"""A trajectory: its times, its dataset and what lies between its times."""

import math

import pytest
import torch
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.training import SobolAverage

F = torch.float64


def blocks(d, alpha=0.3, kind=lp.SoftmaxAttention):
    """Balanced start of the paper's Theorem 5.1: ‖A‖_F = b = α, A a multiple of the identity."""
    U, V = torch.zeros(d + 1, d + 1, dtype=F), torch.zeros(1, d + 1, dtype=F)
    U[:d, :d], V[0, d] = alpha * torch.eye(d, dtype=F) / math.sqrt(d), alpha
    return kind(U, V)


def noiseless(covariance):
    d = covariance.shape[0]
    return lp.LinearRegression(covariance, torch.eye(d, dtype=F), 0.0)


def test_trajectory_has_times_dataset_and_dense_output():
    task = noiseless(torch.eye(1, dtype=F))
    flow = lp.gradient_flow(
        task, blocks(1), 50, 2.0, parametrisation="block", average=SobolAverage(64), times=[0.5, 1.0], tolerance=1e-6
    )
    assert flow.times.tolist() == [0.0, 0.5, 1.0, 2.0]
    assert flow.dataset.attrs["status"] == "finished"
    assert list(flow.dataset.parameter.values) == ["A[0, 0]", "b"]
    assert_close(flow.theta(1.0), flow.parameters[2])
    assert "length=50" in repr(flow)
    descent = lp.gradient_descent(task, blocks(1), 50, 0.1, 10, parametrisation="block", average=SobolAverage(64))
    assert_close(descent.theta(0.25), (descent.parameters[2] + descent.parameters[3]) / 2)
    with pytest.raises(lp.InvalidArgumentError, match="time: got 3"):
        flow.at(3.0)
