"""Adam, its sign flow and its flow with memory."""

import pytest
import torch
from training_examples import SCALAR, scalar_layer

import largeprompt as lp
from largeprompt.training import adam_descent

F = torch.float64


def test_adam_with_a_step_that_is_too_large_is_reported():
    run = adam_descent(SCALAR, scalar_layer(), 20, 40.0, 20, parametrization="block")
    assert run.status == "diverged"
    assert "the step size 40 is too large" in run.message
    assert bool(torch.isfinite(run.parameters).all())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: adam_descent(SCALAR, scalar_layer(), 10, 0.1, 5, betas=(0.9, 1.0)), "betas"),
        (lambda: adam_descent(SCALAR, scalar_layer(), 10, -0.1, 5), "step_size"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(lp.InvalidArgumentError, match=words):
        call()
