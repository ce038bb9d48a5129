"""The flows that Adam follows."""

import math

import pytest
import torch
from training_examples import SCALAR, scalar_layer

import largeprompt as lp
from largeprompt.studies.discrete.adam_flow import adam_displacement, adam_flow, mean_lag
from largeprompt.training import adam_descent
from largeprompt.training.risk.objective import make_objective

F = torch.float64


def test_sign_flow_keeps_differences_and_ends_on_the_solutions():
    flow = adam_flow(SCALAR, scalar_layer(0.1, 0.5), math.inf, 2.0, parametrisation="block")
    a, b = flow.parameters[-1].tolist()
    assert b - a == pytest.approx(0.4, abs=1e-4)
    assert a * b == pytest.approx(1, abs=1e-6)


def test_adam_follows_its_flow_with_memory_at_second_order():
    gaps = []
    for eta in (0.02, 0.01):
        flow = adam_flow(
            SCALAR,
            scalar_layer(),
            20,
            1.0,
            step_size=eta,
            epsilon=1e-8,
            tolerance=1e-8,
            parametrisation="block",
        )
        run = adam_descent(SCALAR, scalar_layer(), 20, eta, round(1 / eta), parametrisation="block")
        along = torch.stack([flow.theta(min(1.0, float(time))) for time in run.times])
        gaps.append(float((run.parameters - along).norm(dim=-1).max()))
    assert gaps[1] < 2e-4
    assert math.log2(gaps[0] / gaps[1]) > 1.6


def test_adam_is_the_predicted_distance_from_the_sign_flow():
    """A short memory (β₂ = 0.95) brings the first order within reach of few steps."""
    betas, until = (0.9, 0.95), 0.2
    sign = adam_flow(SCALAR, scalar_layer(), math.inf, until, epsilon=1e-8, parametrisation="block")
    objective, *_ = make_objective(SCALAR, scalar_layer(), math.inf, "block")
    gradients = torch.cat([objective.gradient(theta.unsqueeze(0))[1] for theta in sign.parameters])
    ratios = []
    for eta in (4e-4, 2e-4):
        run = adam_descent(
            SCALAR,
            scalar_layer(),
            math.inf,
            eta,
            round(until / eta),
            betas=betas,
            parametrisation="block",
        )
        predicted = adam_displacement(sign, gradients, eta, betas)[-1]
        ratios.append(float((run.parameters[-1] - sign.parameters[-1]).norm() / predicted.norm()))
    assert 2 * ratios[1] - ratios[0] == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("beta", [0.9, 0.999])
def test_mean_lag_is_the_mean_age(beta):
    for steps in (1, 2, 50, 20_000):
        ages = torch.arange(steps, dtype=F)
        weights = beta**ages
        assert float(mean_lag(beta, torch.tensor(float(steps), dtype=F))) == pytest.approx(
            float((weights * ages).sum() / weights.sum()), rel=1e-6, abs=1e-9
        )


def test_defaults_are_those_of_one_optimiser():
    """Where the gradient vanishes ε matters: the flow with memory has Adam's own unless another is
    given.
    """
    start, options = (
        scalar_layer(),
        {"step_size": 0.01, "times": [0.0, 0.5], "parametrisation": "block"},
    )
    given, left, wide = (
        adam_flow(SCALAR, start, 20, 0.5, **options | extra).parameters[-1]
        for extra in ({"epsilon": 1e-8}, {}, {"epsilon": 1e-3})
    )
    assert torch.equal(given, left)
    assert not torch.equal(left, wide)
    assert adam_flow(SCALAR, start, 20, 0.1, parametrisation="block").config["epsilon"] == 1e-6


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: adam_flow(SCALAR, scalar_layer(), 10, 1.0, step_size=0.0), "step_size"),
        (lambda: adam_flow(SCALAR, scalar_layer(), 10, 1.0, epsilon=0.0), "epsilon"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(lp.InvalidArgumentError, match=words):
        call()
