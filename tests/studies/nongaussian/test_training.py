"""Training on inputs that are not Gaussian (C5): folded rules and flows."""

import numpy as np
import torch

import largeprompt as lp
from largeprompt.studies.nongaussian import training as nongaussian_training

F = torch.float64


def test_folded_rules_have_the_same_risk():
    law, rule = nongaussian_training.inputs_law("mixture", 5)
    task = lp.training.MeasureRegression(law, torch.eye(2, dtype=F), 0.1, rule)
    half, few = (nongaussian_training.folded(rule, signs) for signs in (False, True))
    assert few.count < half.count < rule.count
    A, b = torch.tensor([[0.7, 0.1], [0.2, 0.5]], dtype=F), torch.tensor(1.3, dtype=F)
    torch.testing.assert_close(task.block_risk(A, b, 20, queries=half), task.block_risk(A, b, 20))
    isotropic = 0.7 * torch.eye(2, dtype=F)
    torch.testing.assert_close(task.block_risk(isotropic, b, 20, queries=few), task.block_risk(isotropic, b, 20))


def test_training_flows_are_those_of_all_parameters(data):
    """The flow kept to A = aI is that of (A, b) on the whole rule, for the infinite prompt."""
    law, rule = nongaussian_training.inputs_law("Rademacher", 4)
    task = lp.training.MeasureRegression(law, torch.eye(2, dtype=F), 0.1, rule)
    a, b = nongaussian_training.STARTS["moderate tilt"]
    start = torch.tensor([[a, 0.0, 0.0, a, b]], dtype=F)
    split = lp.training.Block(2).split
    path = lp.training.fixed_step_flow(lambda theta: task.block_risk(*split(theta)), start, 3.0, 12).states
    found = data.limit_theta.sel(inputs="Rademacher", start="moderate tilt")
    np.testing.assert_allclose(path[:, 0], found, atol=1e-12)
