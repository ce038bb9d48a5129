"""Gradient descent and stochastic descent on the exact risk: orders, gradients of drawn prompts,
endings.
"""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from training_examples import blocks, noiseless, toeplitz

import largeprompt as lp
from largeprompt.training.dynamics.objective import Objective

F = torch.float64


EYE = torch.eye(2, dtype=F)


def test_descent_tends_to_the_flow_at_first_order():
    task = noiseless(toeplitz(2))
    flow = lp.gradient_flow(task, blocks(2), 100, 4.0, parametrization="block")
    gaps = [
        float(
            (
                lp.gradient_descent(
                    task, blocks(2), 100, eta, round(4 / eta), parametrization="block"
                ).parameters[-1]
                - flow.theta(4.0)
            ).norm()
        )
        for eta in (0.04, 0.02, 0.01)
    ]
    slopes = np.log2(np.array(gaps[:-1]) / gaps[1:])
    np.testing.assert_allclose(slopes, 1.0, atol=0.1)


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_stochastic_descent_learns_and_repeats(optimizer):
    task = lp.LinearRegression(torch.eye(2, dtype=F), torch.eye(2, dtype=F) / 2, 0.1)
    runs = [
        lp.stochastic_gradient_descent(
            task,
            blocks(2),
            20,
            0.02,
            150,
            64,
            torch.Generator().manual_seed(3),
            parametrization="block",
            optimizer=optimizer,
        )
        for _ in range(2)
    ]
    assert torch.equal(runs[0].parameters, runs[1].parameters)
    assert float(runs[0].risk[-1]) < float(runs[0].risk[0])
    flow = lp.gradient_flow(task, blocks(2), 20, 3.0, parametrization="block", tolerance=1e-6)
    if optimizer == "SGD":  # 150 steps of 0.02 are time 3; noise of order sqrt(0.02·3/64)
        assert float((runs[0].parameters[-1] - flow.theta(3.0)).norm()) < 0.15


def test_steps_that_are_too_large_are_reported_and_leave_no_nan():
    task = noiseless(toeplitz(2))
    for length in (100, math.inf):
        run = lp.gradient_descent(task, blocks(2), length, 50.0, 100, parametrization="block")
        assert run.status == "diverged"
        assert "too large" in run.message
        assert bool(torch.isfinite(run.parameters).all() & torch.isfinite(run.risk).all())
    drawn = lp.stochastic_gradient_descent(
        task, blocks(2), 20, 50.0, 30, 16, torch.Generator().manual_seed(0), parametrization="block"
    )
    assert drawn.status == "diverged"
    assert bool(torch.isfinite(drawn.parameters).all() & torch.isfinite(drawn.risk).all())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t, a: lp.gradient_descent(t, a, 10, 0.0, 5), "step_size: got 0"),
        (lambda t, a: lp.gradient_descent(t, a, 10, 0.1, 0), "steps: got 0"),
        (
            lambda t, a: lp.stochastic_gradient_descent(t, a, 10, 0.1, 5, 0, torch.Generator()),
            "batch_size: got 0",
        ),
        (
            lambda t, a: lp.stochastic_gradient_descent(
                t, a, math.inf, 0.1, 5, 2, torch.Generator()
            ),
            "length",
        ),
        (lambda t, a: lp.stochastic_gradient_descent(t, a, 10, 0.1, 5, 2, None), "generator"),
        (
            lambda t, a: lp.stochastic_gradient_descent(
                t, a, 10, 0.1, 5, 2, torch.Generator(), optimizer="Lion"
            ),
            "optimizer",
        ),
    ],
)
def test_bad_input(call, words):
    task = lp.LinearRegression([[1.0]], [[1.0]], 0.1)
    with pytest.raises(lp.InvalidArgumentError, match=words):
        call(task, blocks(1))


def test_an_interrupted_descent_keeps_its_last_step():
    task = lp.LinearRegression(EYE, EYE, 0.1)
    start = lp.SoftmaxAttention(
        0.1 * torch.eye(3, dtype=F), torch.tensor([[0.0, 0.0, 0.1]], dtype=F)
    )

    def stop(step):
        if step == 7:
            raise KeyboardInterrupt

    runs = [
        lp.gradient_descent(task, start, 20, 0.01, 100, record=2, progress=stop),
        lp.stochastic_gradient_descent(
            task, start, 20, 0.01, 100, 8, torch.Generator().manual_seed(0), record=2, progress=stop
        ),
    ]
    for run in runs:
        assert run.status == "interrupted"
        assert "after step 7" in run.message
        assert float(run.times[-1]) == pytest.approx(0.07)
        with pytest.raises(KeyboardInterrupt):
            run.completed()


@pytest.mark.parametrize("descent", [lp.gradient_descent, lp.training.adam_descent])
def test_a_step_takes_one_evaluation_of_the_risk(descent, monkeypatch):
    """Twenty steps, all recorded: twenty-one gradients give steps, risks and norms."""
    task, calls = lp.LinearRegression([[1.0]], [[1.0]], 0.1), []
    attention = lp.SoftmaxAttention([[0.3, 0.0], [0.0, 0.0]], [[0.0, 0.3]])
    plain = Objective.gradient
    monkeypatch.setattr(
        Objective, "gradient", lambda self, theta: calls.append(theta) or plain(self, theta)
    )
    run = descent(task, attention, 50, 0.01, 20, parametrization="block")
    assert len(calls) == 21
    risk, gradient = plain(run.objective, run.parameters[7:8])
    assert_close(run.risk[7], risk[0], rtol=1e-13, atol=0.0)
    assert_close(run.gradient_norm[7], gradient[0].norm(), rtol=1e-14, atol=0.0)
