"""The one driver of differential equations: solutions, dense output, endings."""

import math

import numpy as np
import pytest
import scipy.integrate
import torch
from training_examples import SCALAR, scalar_layer

import largeprompt as lp
from largeprompt.training.dynamics.integrate import FixedStep, integrate, report_times
from largeprompt.training.risk.exact import RiskError

START, TIMES = np.array([1.0, 0.0]), np.linspace(0, 2, 5)


def turn(_, y):
    return np.array([-y[1], y[0]])


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, 1e-8),
        ({"method": "BDF", "jac": lambda t, y: np.array([[0.0, -1.0], [1.0, 0.0]])}, 1e-6),
        ({"method": "Radau"}, 1e-6),
    ],
)
def test_solution_and_dense_output(options, error):
    found = integrate(turn, START, 2.0, TIMES, rtol=1e-9, atol=1e-11, **options)
    assert (found.status, found.message) == ("finished", "reached time 2")
    np.testing.assert_array_equal(found.times, TIMES)
    np.testing.assert_allclose(
        found.states, np.stack([np.cos(TIMES), np.sin(TIMES)], -1), atol=error
    )
    np.testing.assert_allclose(found.at(0.7), [math.cos(0.7), math.sin(0.7)], atol=error)
    assert found.completed() is found


def test_fixed_steps_are_of_fourth_order():
    errors = []
    for steps in (10, 20):
        times = np.append(2 / steps * np.arange(steps), 2.0)
        found = integrate(turn, START, 2.0, times, method=FixedStep, steps=steps)
        assert found.states.shape == (steps + 1, 2)
        errors.append(np.abs(found.states[-1] - [math.cos(2), math.sin(2)]).max())
    assert math.log2(errors[0] / errors[1]) == pytest.approx(4, abs=0.2)


def test_every_ending_has_its_status():
    def interrupt(time):
        if time > 0.5:
            raise KeyboardInterrupt

    def run_away(time, y):
        if time > 0.5:
            raise RiskError("gone")
        return turn(time, y)

    converged = integrate(
        turn, START, 2.0, TIMES, ending=lambda time: ("converged", "enough") if time > 0.5 else None
    )
    assert (converged.status, converged.message) == ("converged", "enough")
    assert 0.5 < converged.times[-1] < 2
    assert converged.completed() is converged
    interrupted = integrate(turn, START, 2.0, TIMES, progress=interrupt)
    assert interrupted.status == "interrupted"
    with pytest.raises(KeyboardInterrupt):
        interrupted.completed()
    diverged = integrate(run_away, START, 2.0, TIMES, method="RK45")
    assert (diverged.status, diverged.message) == ("diverged", "gone")
    with pytest.raises(RiskError, match="gone"):
        diverged.completed()
    exploded = integrate(lambda t, y: y**2, np.array([1.0]), 2.0, TIMES, rtol=1e-6)  # 1/(1 - t)
    assert exploded.status == "diverged"
    assert exploded.times[-1] == pytest.approx(1, abs=1e-3)
    first = integrate(lambda t, y: y * np.nan, START, 2.0, TIMES, method=FixedStep, steps=3)
    assert first.status == "diverged"
    np.testing.assert_array_equal(first.states, START[None])
    np.testing.assert_array_equal(first.at(0.0), START)


def test_a_fixed_step_flow_that_is_lost_says_so():
    start = torch.tensor([[9.0], [0.1]], dtype=torch.float64)
    with np.errstate(all="ignore"):
        flow = lp.training.fixed_step_flow(lambda theta: -theta.pow(4).sum(-1), start, 9.0, 9)
    assert flow.status == "diverged"
    assert flow.states.shape == (len(flow.times), 2, 1)
    assert len(flow.times) < 10
    with pytest.raises(RiskError, match="not finite"):
        flow.completed()


def test_a_fixed_step_flow_that_is_interrupted_keeps_what_it_has():
    def risk(theta):
        if float(theta.detach().max()) < 0.8:
            raise KeyboardInterrupt
        return theta.square().sum(-1) / 2

    flow = lp.training.fixed_step_flow(risk, torch.ones(1, 1, dtype=torch.float64), 1.0, 20)
    assert flow.status == "interrupted"
    np.testing.assert_allclose(flow.states[:, 0, 0], np.exp(-flow.times), rtol=1e-7)
    np.testing.assert_allclose(flow.at(flow.times)[0, 0], flow.states[:, 0, 0], rtol=1e-12)


def test_report_times():
    assert report_times([2.0, 1.0], 3.0).tolist() == [0.0, 1.0, 2.0]
    assert len(report_times(None, 3.0)) == 201
    for bad in ([], [-1.0], [4.0], [math.nan]):
        with pytest.raises(lp.InvalidArgumentError, match="times"):
            report_times(bad, 3.0)


@pytest.mark.parametrize("solver", ["DOP853", "Radau"])
def test_a_solver_that_fails_is_not_called_finished(solver, monkeypatch):
    steps = []

    def step(self):
        steps.append(self.t)
        return (False, "no such step") if len(steps) > 5 else original(self)

    original = getattr(scipy.integrate, solver)._step_impl
    monkeypatch.setattr(getattr(scipy.integrate, solver), "_step_impl", step)
    options = {"parametrisation": "block", "method": solver}
    found = lp.gradient_flow(SCALAR, scalar_layer(), 20, 5.0, **options)
    assert found.status == "diverged"
    assert "no such step" in found.message
    assert 0 < float(found.times[-1]) < 5
    assert bool(torch.isfinite(found.risk).all())
    with pytest.raises(lp.LargePromptError, match="no such step"):
        found.completed()
