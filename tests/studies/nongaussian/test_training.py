"""Training on inputs that are not Gaussian (C5): folded rules and flows."""

import json
import math

import numpy as np
import pytest
import torch

import largeprompt as lp
from largeprompt.runs.settings import config_of
from largeprompt.studies.nongaussian import training as nongaussian_training
from largeprompt.studies.nongaussian.study import STUDY

F = torch.float64


def test_folded_rules_have_the_same_risk():
    law, rule = nongaussian_training.inputs_law("mixture", 5)
    task = lp.training.MeasureRegression(law, torch.eye(2, dtype=F), 0.1, rule)
    half, few = (nongaussian_training.folded(rule, signs) for signs in (False, True))
    assert few.count < half.count < rule.count
    A, b = torch.tensor([[0.7, 0.1], [0.2, 0.5]], dtype=F), torch.tensor(1.3, dtype=F)
    torch.testing.assert_close(task.block_risk(A, b, 20, queries=half), task.block_risk(A, b, 20))
    isotropic = 0.7 * torch.eye(2, dtype=F)
    torch.testing.assert_close(
        task.block_risk(isotropic, b, 20, queries=few), task.block_risk(isotropic, b, 20)
    )


def test_training_flows_are_those_of_all_parameters(data):
    """The flow kept to A = aI is that of (A, b) on the whole rule, for the infinite prompt."""
    law, rule = nongaussian_training.inputs_law("Rademacher", 4)
    task = lp.training.MeasureRegression(law, torch.eye(2, dtype=F), 0.1, rule)
    a, b = nongaussian_training.STARTS["moderate tilt"]
    start = torch.tensor([[a, 0.0, 0.0, a, b]], dtype=F)
    split = lp.training.Block(2).split
    path = lp.training.fixed_step_flow(
        lambda theta: task.block_risk(*split(theta)), start, 3.0, 12
    ).states
    found = data.limit_theta.sel(inputs="Rademacher", start="moderate tilt")
    np.testing.assert_allclose(path[:, 0], found, atol=1e-12)


@pytest.mark.parametrize("length", [7.0, math.inf])
def test_risks_between_the_nodes_are_those_of_the_whole_rule(length):
    law, rule = nongaussian_training.inputs_law("uniform", 4)
    task, eye = (
        lp.training.MeasureRegression(law, torch.eye(2, dtype=F), 0.1, rule),
        torch.eye(2, dtype=F),
    )
    pairs = torch.tensor([[0.03, 2.5], [0.61, -0.4], [1.2, 1.3], [1.5, 0.7]], dtype=F)
    known = nongaussian_training.parabolas(
        task, nongaussian_training.folded(rule, signs=True), length, 1.5
    )
    expected = task.block_risk(pairs[:, 0, None, None] * eye, pairs[:, 1], length)
    torch.testing.assert_close(known(pairs), expected, rtol=1e-9, atol=0.0)


def test_flows_that_leave_the_known_sizes_are_followed_further(data, monkeypatch):
    monkeypatch.setattr(nongaussian_training, "REACH", 0.1)
    config = config_of(STUDY, json.loads(data.attrs["config"]))
    law, rule = nongaussian_training.inputs_law("Rademacher", config.nodes)
    task = lp.training.MeasureRegression(law, torch.eye(2, dtype=F), config.noise_variance, rule)
    path = nongaussian_training._isotropic_flow(
        config, task, nongaussian_training.folded(rule, signs=True), 100.0
    )
    assert float(path[..., 0].max()) > 2 * max(a for a, _ in nongaussian_training.STARTS.values())
    np.testing.assert_allclose(
        path, data.flow_theta.sel(inputs="Rademacher", flow_length=100), atol=1e-8
    )
