"""Factorized parameters and what is conserved along their flow."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from training_examples import blocks, toeplitz

import largeprompt as lp

F = torch.float64


def test_factorized_parameters_follow_the_chain_rule():
    task = lp.LinearRegression(toeplitz(2), torch.eye(2, dtype=F) / 2, 0.1)
    model = lp.training.Factorized.default(3, torch.Generator().manual_seed(0))
    U, V = model.layer(model.start()[None])
    assert_close(U[0], model.K.mT @ model.Q / math.sqrt(3))
    flow = lp.gradient_flow(
        task, lp.SoftmaxAttention(U[0], V[0]), [10, 100], 3.0, parametrization=model, tolerance=1e-7
    )
    assert flow.to_xarray().sizes == {"length": 2, "time": 201, "parameter": 30}
    # ‖K‖² - ‖Q‖², at every length
    assert float((flow.conserved - flow.conserved[:, :1]).abs().max()) < 1e-6
    assert bool((flow.risk[:, -1] < flow.risk[:, 0]).all())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda t, a: lp.training.Factorized(np.eye(2), np.eye(3), np.eye(2), np.ones((1, 2))),
            "Q: got shape",
        )
    ],
)
def test_bad_input(call, words):
    task = lp.LinearRegression([[1.0]], [[1.0]], 0.1)
    with pytest.raises(lp.InvalidArgumentError, match=words):
        call(task, blocks(1))
