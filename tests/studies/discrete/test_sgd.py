"""N2: the law of SGD around the flow: the noise of gradients, its spread, and many runs."""

import dataclasses
import math

import numpy as np
import torch

import largeprompt as lp
from largeprompt.runs.study import quiet
from largeprompt.studies.discrete.sgd import batches, ensemble, gradient_noise, predicted
from largeprompt.studies.discrete.study import STUDY

TASK = lp.LinearRegression([[1.0]], [[1.0]], 0.0)


def layer(kind=lp.SoftmaxAttention):
    return kind([[0.4, 0.0], [0.0, 0.0]], [[0.0, 0.4]])


def test_noise_of_linear_attention_is_orthogonal_to_its_symmetry():
    """Every prompt keeps U -> cU, V -> V/c, so that (U, -V) has no noise; softmax breaks it."""
    found = {}
    for kind in (lp.SoftmaxAttention, lp.LinearAttention):
        flow = lp.gradient_flow(TASK, layer(kind), 10, 0.1, times=[0.0, 0.1])
        noise = gradient_noise(TASK, flow, 0.0, 10, 400, torch.Generator().manual_seed(0))
        start = flow.parameters[0]
        flat = torch.cat([start[:4], -start[4:]])
        found[kind] = float(flat @ noise.mean(0) @ flat)
        assert noise.shape == (8, 6, 6)
    assert abs(found[lp.LinearAttention]) < 1e-12
    assert found[lp.SoftmaxAttention] > 1e-3


def test_runs_spread_as_predicted_and_repeat():
    """Within 5 standard errors of the law at small η/B, and not of twice the law."""
    times, share = np.linspace(0, 2, 9), 0.02 / 64
    law = predicted(TASK, layer(), 5, times, 4000, torch.Generator().manual_seed(0))
    drawn = (TASK, layer(), 5, 0.02, 100, 64, 200)
    at, theta = ensemble(*drawn, torch.Generator().manual_seed(1), record=9)
    again = ensemble(*drawn, torch.Generator().manual_seed(1), record=9)[1]
    assert torch.equal(theta, again)
    assert at.tolist() == np.round(times / 0.02).__mul__(0.02).tolist()
    squares = (theta[:, -1] - theta[:, -1].mean(0)).square().sum(-1)
    error = math.hypot(float(squares.std()) / math.sqrt(200), share * float(law.spread_error[-1]))
    spread, known = float(squares.mean()), share * float(law.spread[-1])
    assert abs(spread - known) < 5 * error
    assert abs(spread - 2 * known) > 5 * error
    far = law.root_mean_square(0.02, 10**12)  # a batch so large that only descent is left
    torch.testing.assert_close(far, 0.02 * law.displacement.norm(dim=-1), rtol=1e-3, atol=1e-6)


def test_predictions_do_not_depend_on_what_is_measured():
    config = dataclasses.replace(STUDY.quick, noise_prompts=64, sgd_until=0.2)
    first, second = (
        batches(dataclasses.replace(config, batches=((0.05, 16, runs), (0.05, 32, 4))), quiet)
        for runs in (4, 6)
    )
    assert bool((first.predicted_spread == second.predicted_spread).all())
    assert float(first.sgd_spread[0]) != float(second.sgd_spread[0])
