"""N2: the problem that all parts share starts where Theorem 5.1 allows it."""

import dataclasses
import types

import pytest
import torch

from largeprompt.studies.discrete.problem import largest_distance, path_at, problem

F = torch.float64


@pytest.mark.parametrize("kind", ["identity", "toeplitz"])
def test_start_is_balanced_below_the_bound_of_the_theorem(small, kind):
    config = dataclasses.replace(small, covariance=kind)
    task, layer = problem(config)
    d = config.dim
    bound = 2**0.5 / (d**0.25 * float(torch.linalg.eigvalsh(task.covariance)[-1]))
    assert float(layer.V[0, d]) == pytest.approx(0.9 * bound)
    assert float(layer.U.norm()) == pytest.approx(0.9 * bound)
    assert float(task.prior_covariance.trace()) == pytest.approx(1.0)


def test_distance_is_the_largest_over_the_times_and_the_last_may_pass_the_end():
    flow = types.SimpleNamespace(
        theta=lambda time: torch.tensor([time, 0.0], dtype=F) if time <= 1 else 1 / 0
    )
    times = torch.tensor([0.0, 0.5, 1 + 1e-12], dtype=F)
    assert path_at(flow, times, 1.0)[-1, 0] == 1.0
    run = types.SimpleNamespace(
        times=times, parameters=torch.tensor([[0.0, 0.0], [0.5, 0.3], [1.0, 0.1]], dtype=F)
    )
    assert largest_distance(run, flow, 1.0) == pytest.approx(0.3)
