"""The one driver of differential equations: solutions, dense output, endings."""

import math

import numpy as np
import pytest
import scipy.integrate

import largeprompt as lp
from largeprompt.training.dynamics.integrate import integrate, report_times
from largeprompt.training.risk.scores import RiskError

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


def test_report_times():
    assert report_times([2.0, 1.0], 3.0).tolist() == [0.0, 1.0, 2.0]
    assert len(report_times(None, 3.0)) == 201
    for bad in ([], [-1.0], [4.0], [math.nan]):
        with pytest.raises(lp.InvalidArgumentError, match="times"):
            report_times(bad, 3.0)


def test_a_solver_that_fails_is_not_called_finished(monkeypatch):
    steps = []

    def step(self):
        steps.append(self.t)
        return (False, "no such step") if len(steps) > 5 else original(self)

    original = scipy.integrate.DOP853._step_impl
    monkeypatch.setattr(scipy.integrate.DOP853, "_step_impl", step)
    found = integrate(turn, START, 20.0, TIMES)
    assert found.status == "diverged"
    assert "no such step" in found.message
