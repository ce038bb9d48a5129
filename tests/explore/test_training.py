"""Flows of the training tab."""

import numpy as np
import pytest
import torch

import largeprompt as lp
from largeprompt.explore.state import TrainingState
from largeprompt.explore.training import flows

STATE = TrainingState(attention="linear", dim=2, until=10.0)


def test_flows_start_and_end_where_the_library_says():
    found = flows(STATE)
    eye = torch.eye(2, dtype=torch.float64)
    task = lp.LinearRegression(eye, eye / 2, 0.1)
    U, V = torch.zeros(3, 3, dtype=torch.float64), torch.zeros(1, 3, dtype=torch.float64)
    U[:2, :2], V[0, 2] = 0.3 * eye, 0.3
    layer = lp.LinearAttention(U, V)
    for length, risk in zip(found.lengths, found.risks, strict=True):
        assert risk[0] == pytest.approx(float(task.risk(layer, length)), rel=1e-9)
        best = lp.training.linear_optimum(task, length).risk
        assert best * (1 - 1e-9) <= risk[-1] < 1.05 * best
    assert found.floor == pytest.approx(0.05)
    assert found.bayes == tuple(task.bayes_risk(length) for length in found.lengths)


def test_distances_stay_in_their_tubes_and_shrink_with_the_length():
    found = flows(STATE)
    # the solver's tolerance is 1e-4
    assert (found.distances <= found.envelopes * (1 + 1e-3) + 1e-6).all()
    assert (np.diff(found.distances.max(1)) < 0).all()
    assert (found.risks[:, -1] > found.limit_risks[-1]).all()
