"""Risks of any task of Gaussian tokens, and tasks that a user writes in every dynamics."""

import copy
import math
import pickle

import pytest
import torch
from torch.nn.functional import normalize, pad
from torch.testing import assert_close
from training_examples import KINDS, draw, random_task

import largeprompt as lp

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
        w = average.normal(2)
        query, gamma = torch.ones(len(w), 3, dtype=F), self.inner.token_law(w).covariance
        return lp.training.Contexts(gamma, query, w, average.weights, 0.0)

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
        assert abs(float(loss.mean()) - exact) < 6 * math.hypot(
            float(loss.std()) / 200, exact.standard_error
        )


def test_float32_layers_have_a_risk():
    task = lp.LinearRegression(EYE, EYE, 0.1)
    U, V = 0.3 * torch.eye(3), torch.ones(1, 3)
    double = task.risk(lp.SoftmaxAttention(U.double(), V.double()), 10)
    assert float(task.risk(lp.SoftmaxAttention(U, V), 10)) == pytest.approx(float(double), rel=1e-6)


def test_estimates_by_points_are_of_one_layer():
    task, layer = Classes(), lp.SoftmaxAttention(draw(2, 3, 3, seed=1) / 3, draw(2, 2, 3, seed=2))
    with pytest.raises(lp.InvalidArgumentError, match="allowed: one layer"):
        task.risk_estimate(layer, 15)


def test_an_estimate_is_a_number_with_an_error():
    estimate = lp.training.RiskEstimate(0.25, 1e-4)
    assert estimate == 0.25
    assert repr(estimate) == "RiskEstimate(0.25 ± 0.0001)"
    for copied in (copy.copy(estimate), pickle.loads(pickle.dumps(estimate))):
        assert (copied, copied.standard_error) == (0.25, 1e-4)


def normal(generator, *shape):
    return torch.randn(*shape, generator=generator, dtype=F)


class OwnCovariance(lp.training.GaussianTask):
    """Tokens N(0, I + vvᵀ), a new unit vector v in every prompt; the answer to z is (I + vvᵀ)z."""

    token_dim = target_dim = 2

    def about(self, standard):
        v, z = normalize(standard[:, :2]), standard[:, 2:]
        covariance = torch.eye(2, dtype=F) + v.unsqueeze(-1) * v.unsqueeze(-2)
        return covariance, z, (covariance @ z.unsqueeze(-1)).squeeze(-1)

    def contexts(self, average):
        return lp.training.Contexts(*self.about(average.normal(4)), average.weights, noise=0.0)

    def draw_contexts(self, batch, generator):
        return self.about(normal(generator, batch, 4))

    def draw_tokens(self, contexts, length, generator):
        white = normal(generator, len(contexts), length, 2)
        return white @ torch.linalg.cholesky(contexts).mT


class Bowl(lp.Task):
    """Tokens (x, wx) with x = ±1, so that linear attention reads w exactly and softmax nearly; one
    block, its risk to second order in A as the user has it.
    """

    token_dim, target_dim, answer_noise, block_dim = 2, 1, 0.0, 1

    def layer_risks(self, U, V, length, kind, average):
        a, b = U[:, 0, 0], V[:, 0, 1]
        outside = U[:, 1].square().sum(-1) + V[:, 0, 0].square()
        return ((a * b - 1) ** 2 + outside) / 2

    def draw_contexts(self, batch, generator):
        w, query = normal(generator, batch, 1), normal(generator, batch, 1).sign()
        return w, pad(query, (0, 1)), w * query

    def draw_tokens(self, contexts, length, generator):
        x = normal(generator, len(contexts), length, 1).sign()
        return torch.cat([x, x * contexts.unsqueeze(1)], -1)


CASES = {
    "Gaussian tokens": (OwnCovariance(), torch.eye(2, dtype=F) / 4, torch.eye(2, dtype=F), "full"),
    "its own risk": (Bowl(), [[0.5, 0.0], [0.0, 0.0]], [[0.0, 0.5]], "full"),
    "its own blocks": (Bowl(), [[0.5, 0.0], [0.0, 0.0]], [[0.0, 0.5]], "block"),
}


@pytest.mark.parametrize("kind", [lp.SoftmaxAttention, lp.LinearAttention])
@pytest.mark.parametrize("case", CASES)
def test_every_dynamics_takes_a_user_s_task(case, kind):
    task, U, V, form = CASES[case]
    start, average = kind(U, V), lp.training.SobolAverage(128)
    options = {"parametrization": form, "average": average}
    flow = lp.gradient_flow(task, start, [9, 50], 0.4, tolerance=1e-6, times=[0.4], **options)
    runs = [
        flow,
        lp.gradient_descent(task, start, [9, 50], 0.02, 20, **options),
        lp.training.adam_descent(task, start, 9, 0.02, 20, **options),
        lp.stochastic_gradient_descent(task, start, 9, 0.02, 20, 200, 0, **options),
    ]
    for run in runs:
        assert run.status == "finished"
        assert bool((run.risk[..., -1] < run.risk[..., 0]).all())
        expected = task.risk(run.at(run.times[-1]), 9, average=average)
        assert float(run.risk.reshape(-1, len(run.times))[0, -1]) == pytest.approx(
            float(expected.reshape(-1)[0]), rel=1e-9
        )
    near = {"tolerance": 1e-6, "times": [0.2, 0.4], **options}
    gap = lp.training.descent_gap(task, start, 9, 0.4, **near)
    missed = runs[1].parameters[0, -1] - flow.parameters[0, -1] - 0.02 * gap.displacement[-1]
    assert float(missed.norm()) < 0.1 * 0.02 * gap.supremum
    tube = lp.training.tube(task, start, 9, 0.4, **near)
    assert bool((tube.distance <= 1.001 * tube.envelope + 1e-7).all())


def test_blocks_are_refused_where_a_task_has_none():
    start = lp.SoftmaxAttention(torch.eye(2, dtype=F), torch.eye(2, dtype=F))
    with pytest.raises(lp.InvalidArgumentError, match="'full' for this task"):
        lp.gradient_flow(OwnCovariance(), start, 9, 1.0, parametrization="block")
    with pytest.raises(lp.InvalidArgumentError, match="a task that defines bayes_risk"):
        OwnCovariance().bayes_risk(9)
