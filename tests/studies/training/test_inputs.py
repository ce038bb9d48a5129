"""C5: training on inputs that are not Gaussian."""

import math

import pytest
import torch

import largeprompt as lp
from largeprompt.runs.study import quiet
from largeprompt.studies.training.config import TrainingConfig
from largeprompt.studies.training.inputs import folded, inputs, parabolas
from largeprompt.training import MeasureRegression

F = torch.float64
EYE = torch.eye(2, dtype=F)


@pytest.fixture(scope="module")
def uniform():
    rule = lp.measures.gauss_rule(lp.Uniform(2), 6)
    return MeasureRegression(lp.Uniform(2), EYE, 0.1, rule), rule


@pytest.mark.parametrize("length", [20.0, math.inf])
def test_interpolated_risks_are_the_exact_ones(uniform, length):
    task, rule = uniform
    known = parabolas(task, folded(rule), length, 1.5)
    for a, b in ((0.31, 1.2), (0.9, -0.4)):
        exact = task.block_risk(a * EYE, torch.tensor(b, dtype=F), length)
        torch.testing.assert_close(
            known(torch.tensor([[a, b]], dtype=F))[0], exact, rtol=1e-8, atol=0
        )


def test_folded_atoms_give_the_same_average(uniform):
    _, rule = uniform
    half = folded(rule)
    assert half.count < rule.count / 4
    size = [each.weights @ each.atoms.norm(dim=-1) for each in (half, rule)]
    torch.testing.assert_close(*size)


def test_signs_train_along_their_own_limit():
    config = TrainingConfig(input_lengths=(10, 10_000), input_until=2.0, input_steps=8)
    found = inputs(config, "Rademacher", quiet)
    assert float((found.input_distance[..., 0] / found.input_distance[..., 1]).min()) > 100
    assert float((found.input_gaussian_risk - found.input_limit_risk).max()) > 0.01
