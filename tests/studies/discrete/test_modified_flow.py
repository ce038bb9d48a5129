"""Gradient descent against the gap to first order and the flow that it follows."""

import math

import numpy as np
import pytest
from training_examples import SCALAR, scalar_layer

import largeprompt as lp
from largeprompt.studies.discrete.modified_flow import modified_flow
from largeprompt.training import descent_gap


@pytest.mark.parametrize("length", [20, math.inf])
def test_descent_is_off_by_the_predicted_amount_and_follows_the_modified_flow(length):
    gap = descent_gap(
        SCALAR, scalar_layer(), length, 4.0, times=np.linspace(0, 4, 41), parametrisation="block"
    )
    ratios, second = [], []
    for eta in (0.1, 0.05):
        run = lp.gradient_descent(
            SCALAR, scalar_layer(), length, eta, round(4 / eta), record=41, parametrisation="block"
        )
        bent = modified_flow(
            SCALAR,
            scalar_layer(),
            length,
            eta,
            4.0,
            times=run.times.numpy(),
            tolerance=1e-8,
            parametrisation="block",
        )
        ratios.append(
            float((run.parameters - gap.flow.parameters).norm(dim=-1).max()) / (eta * gap.supremum)
        )
        second.append(float((run.parameters - bent.parameters).norm(dim=-1).max()))
    assert 2 * ratios[1] - ratios[0] == pytest.approx(1, abs=0.01)
    assert math.log2(second[0] / second[1]) == pytest.approx(2, abs=0.15)
    assert second[0] < 0.3 * 0.1 * gap.supremum


@pytest.mark.parametrize(
    ("call", "words"),
    [(lambda: modified_flow(SCALAR, scalar_layer(), 10, 0.0, 1.0), "step_size: got 0")],
)
def test_bad_input(call, words):
    with pytest.raises(lp.InvalidArgumentError, match=words):
        call()
