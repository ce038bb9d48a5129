"""Exact risks at every length, against simulation and quadrature."""

import math

import pytest
import torch
from training_examples import KINDS, draw, grid_contexts, random_task, spd

import largeprompt as lp
from largeprompt.training.risk.contexts import context_risk

F = torch.float64


@pytest.mark.parametrize("part", range(8))
def test_against_simulation(part):
    """200 random configurations, d 1-8, L 1-500, softmax and linear: within 6 standard errors (400
    comparisons, 8e-7 in all).
    """
    for seed in range(25 * part, 25 * part + 25):
        d = 1 + seed % 8
        length = [1, 2, 3, 7, 20, 60, 150, 500][(seed // 3) % 8]
        task = random_task(d, seed)
        U, V = draw(d + 1, d + 1, seed=seed + 3) / (d + 1), draw(1, d + 1, seed=seed + 4)
        n = max(1000, 60_000 // length)
        tokens, query, answer = task.sample(n, length, torch.Generator().manual_seed(seed))
        for kind in KINDS:
            loss = (kind(U, V)(lp.Empirical(tokens), query) - answer).square().sum(-1) / 2
            exact = task.risk_estimate(kind(U, V), length)
            error = math.hypot(float(loss.std()) / math.sqrt(n), exact.standard_error)
            assert abs(float(loss.mean()) - exact) < 6 * error, (seed, d, length, kind)


@pytest.mark.parametrize(("d", "nodes"), [(1, 100), (2, 24)])
def test_general_form_against_product_quadrature(d, nodes):
    """Gauss-Hermite grids over w and x_q, good to 1e-10 and 2e-6; closed forms and the infinite
    prompt to rounding.
    """
    task = lp.LinearRegression(
        spd(d, 1), 0.7 * torch.eye(d, dtype=F), 0.3, 1.3 * torch.eye(d, dtype=F)
    )
    U, V = draw(d + 1, d + 1, seed=2) / 3, draw(1, d + 1, seed=3)
    contexts = grid_contexts(task, nodes)
    for kind in KINDS:
        for length in (1, 3, 50, 10**6, math.inf):
            exact = float(context_risk(U[None], V[None], contexts, [float(length)], kind))
            smooth = kind is lp.LinearAttention or length in (1, math.inf)
            assert float(task.risk(kind(U, V), length)) == pytest.approx(
                exact, rel=1e-10 if d == 1 or smooth else 2e-6
            )
