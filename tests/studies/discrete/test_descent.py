"""N2: the shared start, gradient descent against its law, and the largest stable step."""

import dataclasses
import math
import types

import pytest
import torch

import largeprompt as lp
from largeprompt.runs.study import quiet
from largeprompt.studies.discrete import descent
from largeprompt.studies.discrete.config import path_at, problem
from largeprompt.studies.discrete.study import STUDY

F = torch.float64
SMALL = dataclasses.replace(STUDY.quick, until=1.5, times=11, step_sizes=(0.1, 0.05), settled=60.0)


@pytest.mark.parametrize("kind", ["identity", "toeplitz"])
def test_start_is_balanced_below_the_bound_of_the_theorem(kind):
    task, layer = problem(dataclasses.replace(SMALL, covariance=kind))
    bound = 2**0.5 / (2**0.25 * float(torch.linalg.eigvalsh(task.covariance)[-1]))
    assert float(layer.V[0, 2]) == pytest.approx(0.9 * bound)
    assert float(layer.U.norm()) == pytest.approx(0.9 * bound)
    assert float(task.prior_covariance.trace()) == pytest.approx(1.0)


def test_the_last_time_of_a_run_may_pass_the_end():
    flow = types.SimpleNamespace(
        theta=lambda time: torch.tensor([time], dtype=F) if time <= 1 else 1 / 0
    )
    assert path_at(flow, torch.tensor([0.5, 1 + 1e-12]), 1.0).tolist() == [[0.5], [1.0]]


def test_descent_is_the_predicted_distance_from_the_flow():
    found = descent.descent(SMALL, math.inf, quiet)
    ratio = found.gap / (found.predicted_gap * found.step_size)
    assert float(2 * ratio[1] - ratio[0]) == pytest.approx(1, abs=0.02)


def test_an_interrupted_descent_is_not_taken_for_a_finished_one(monkeypatch):
    def stop(step):
        if step > 2:
            raise KeyboardInterrupt

    whole = lp.gradient_descent
    monkeypatch.setattr(
        descent,
        "gradient_descent",
        lambda *given, **options: whole(*given, progress=stop, **options),
    )
    with pytest.raises(KeyboardInterrupt, match="interrupted after step"):
        descent.descent(SMALL, math.inf, quiet)


def test_deviations_grow_by_the_power_of_their_step():
    """On ½‖θ‖² a step η multiplies θ by 1 - η."""
    bowl = types.SimpleNamespace(gradient=lambda theta: (theta.square().sum(-1) / 2, theta))
    near = torch.tensor([[0.0, 0.0], [1e-6, 2e-6]], dtype=F)
    steps = torch.tensor([0.5, 1.99, 2.01], dtype=F)
    found = descent.descend_near(bowl, near, steps, torch.tensor([1.0, 0.0], dtype=F))
    torch.testing.assert_close(found, (1 - steps).abs() ** descent.STEPS, rtol=1e-9, atol=1e-60)


def test_the_largest_stable_step_is_found_by_bisection():
    found = descent.stability(SMALL, math.inf, quiet)
    assert float(found.measured_stable_step) == pytest.approx(float(found.stable_step), rel=2e-3)
    assert float(found.growth_beyond) > 10
