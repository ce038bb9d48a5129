"""Risks of any task of Gaussian tokens: batches of runs, gradients, vector answers, single
precision.
"""

import math

import pytest
import torch
from torch.testing import assert_close
from training_examples import KINDS, draw, random_task

import largeprompt as lp
from largeprompt.training import SobolAverage

F = torch.float64

EYE = torch.eye(2, dtype=F)


def test_gradients():
    task = random_task(2, 3)
    for kind in KINDS:
        for length in (3, 100, math.inf):
            arguments = tuple(
                t.requires_grad_() for t in (draw(3, 3, seed=1) / 2, draw(1, 3, seed=2))
            )
            assert torch.autograd.gradcheck(
                lambda U, V, k=kind, n=length: task.risk(k(U, V), n), arguments, rtol=1e-4
            )


def test_runs_lead():
    task = random_task(2, 1)
    U, V = draw(4, 3, 3) / 3, draw(4, 1, 3, seed=1)
    many = task.risk(lp.SoftmaxAttention(U, V), 20)
    assert many.shape == (4,)
    assert_close(many[2], task.risk(lp.SoftmaxAttention(U[2], V[2]), 20))


class Classes(lp.training.GaussianTask):
    """Another task in a few lines: two outputs that are the coordinates of w itself, read at a
    fixed query.
    """

    token_dim, target_dim = 3, 2

    def __init__(self):
        self.inner = lp.LinearRegression(torch.eye(2, dtype=F), torch.eye(2, dtype=F), 0.1)

    def contexts(self, average):
        inner = self.inner.contexts(average)
        w = inner.covariance[:, 2, :2]  # Σw with Σ = I
        return lp.training.Contexts(
            inner.covariance, torch.ones_like(inner.query), w, inner.weight, 0.0
        )

    def draw_contexts(self, batch, generator):
        w, _, _ = self.inner.draw_contexts(batch, generator)
        return w, torch.ones(batch, 3, dtype=F), w

    def draw_tokens(self, contexts, length, generator):
        return self.inner.draw_tokens(contexts, length, generator)


def test_another_task_with_vector_answers():
    task, U, V = Classes(), draw(3, 3, seed=1) / 3, draw(2, 3, seed=2)
    tokens, query, answer = task.sample(40_000, 15, torch.Generator().manual_seed(0))
    for kind in KINDS:
        loss = (kind(U, V)(lp.Empirical(tokens), query) - answer).square().sum(-1) / 2
        exact = task.risk_estimate(kind(U, V), 15)
        assert abs(float(loss.mean()) - exact.value) < 6 * math.hypot(
            float(loss.std()) / 200, exact.standard_error
        )


def test_float32_layers_have_a_risk():
    task = lp.LinearRegression(EYE, EYE, 0.1)
    U, V = 0.3 * torch.eye(3), torch.ones(1, 3)
    double = task.risk(lp.SoftmaxAttention(U.double(), V.double()), 10)
    assert float(task.risk(lp.SoftmaxAttention(U, V), 10)) == pytest.approx(float(double), rel=1e-6)


def test_estimates_by_points_are_of_one_layer_and_say_how_many_points_were_taken():
    task, layer = Classes(), lp.SoftmaxAttention(draw(2, 3, 3, seed=1) / 3, draw(2, 2, 3, seed=2))
    with pytest.raises(lp.InvalidArgumentError, match="allowed: one layer"):
        task.risk_estimate(layer, 15)
    few = SobolAverage(2**16)
    with pytest.raises(
        lp.training.RiskError,
        match="at best with 131072 points; a tolerance of 1e-14 is out of reach",
    ):
        task.risk(layer, 15, average=few, tolerance=1e-14)
