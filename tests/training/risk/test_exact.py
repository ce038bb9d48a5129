"""Exact risks at every length: against simulation, quadrature, each other, and finite differences."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.law import weight_moments
from largeprompt.training import SobolAverage
from largeprompt.training.risk.exact import context_risk
from largeprompt.training.risk.table import WeightTables

F = torch.float64
KINDS = (lp.SoftmaxAttention, lp.LinearAttention)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F)


def spd(d, seed):
    root = draw(d, d, seed=seed) / math.sqrt(d)
    return root @ root.mT + 0.2 * torch.eye(d, dtype=F)


def random_task(d, seed):
    query = spd(d, seed + 2) if seed % 2 else None
    return lp.LinearRegression(spd(d, seed), spd(d, seed + 1) / d, 0.05 + 0.1 * (seed % 5), query)


@pytest.mark.parametrize("length", [1, 2, 10, 1000, 10**6, 10**12])
def test_tables_are_the_exact_law(length):
    q = torch.rand(1, 400, generator=torch.Generator().manual_seed(0), dtype=F) * 30
    q[0, :3] = torch.tensor([0.0, 1e-9, 30.0])
    f, h = WeightTables.reaching([float(length)], 30.0)(q)
    y, w3, y2 = weight_moments(length, q.sqrt(), [[(2, 0)], [(3, 0)], [(2, 0), (2, 0)]])
    assert_close(f, y, rtol=2e-7, atol=0)
    assert float(((h - (w3 - y2)).abs() / y).max()) < 2e-7


def test_tables_have_the_right_slopes():
    q = torch.linspace(0.01, 12, 50, dtype=F)[None].requires_grad_()
    f, h = WeightTables.reaching([50.0], 12.0)(q)
    y, w3, y2, y3, yw, p4 = weight_moments(
        50, q.detach().sqrt(), [[(2, 0)], [(3, 0)], [(2, 0)] * 2, [(2, 0)] * 3, [(2, 0), (3, 0)], [(4, 0)]]
    )
    (slope,) = torch.autograd.grad(f.sum(), q)
    assert_close(slope, y - 4 * w3 + 3 * y2, rtol=1e-4, atol=1e-6)
    (slope,) = torch.autograd.grad(WeightTables.reaching([50.0], 12.0)(q)[1].sum(), q)
    assert_close(slope, 3 * w3 - 2 * y2 - 10 * y3 + 22 * yw - 13 * p4, rtol=1e-3, atol=1e-6)
    assert h.shape == (1, 50)


@pytest.mark.parametrize("part", range(8))
def test_against_simulation(part):
    """200 random configurations, d 1-8, L 1-500, softmax and linear: within 6 standard errors (400 comparisons, 8e-7 in all)."""
    for seed in range(25 * part, 25 * part + 25):
        d = 1 + seed % 8
        length = [1, 2, 3, 7, 20, 60, 150, 500][(seed // 3) % 8]
        task = random_task(d, seed)
        U, V = draw(d + 1, d + 1, seed=seed + 3) / (d + 1), draw(1, d + 1, seed=seed + 4)
        n = max(1500, 120_000 // length)
        tokens, query, answer = task.sample(n, length, torch.Generator().manual_seed(seed))
        for kind in KINDS:
            loss = (kind(U, V)(lp.Empirical(tokens), query) - answer).square().sum(-1) / 2
            exact = task.risk_estimate(kind(U, V), length, average=SobolAverage(1024))
            error = math.hypot(float(loss.std()) / math.sqrt(n), exact.standard_error)
            assert abs(float(loss.mean()) - exact.value) < 6 * error, (seed, d, length, kind)


@pytest.mark.parametrize("d", [1, 2])
def test_general_form_against_product_quadrature(d):
    """Sobol points agree with Gauss-Hermite quadrature within the error that they state; the limit is exact."""
    task = lp.LinearRegression(spd(d, 1), 0.7 * torch.eye(d, dtype=F), 0.3, 1.3 * torch.eye(d, dtype=F))
    U, V = draw(d + 1, d + 1, seed=2) / 2, draw(1, d + 1, seed=3)
    contexts = task.product_contexts(30 if d == 1 else 22)
    for kind in KINDS:
        for length in (1, 3, 50, math.inf):
            exact = float(context_risk(U[None], V[None], contexts, [float(length)], kind))
            found = task.risk_estimate(kind(U, V), length, average=SobolAverage(2048))
            assert abs(found.value - exact) <= 6 * found.standard_error + 2e-4 * exact
            if math.isinf(length):
                assert found.value == pytest.approx(exact, rel=1e-12)


def test_three_forms_agree():
    """General, block and isotropic forms at the same parameters, to 1e-6, by quadrature where there is one."""
    a, b = 0.6, 0.9
    task = lp.LinearRegression([[1.3]], [[0.5]], 0.2)
    U, V = torch.tensor([[a, 0.0], [0.0, 0.0]], dtype=F), torch.tensor([[0.0, b]], dtype=F)
    fine = task.product_contexts(120)
    x = fine.query[:, :1]
    for kind in KINDS:
        for length in (1.0, 5.0, 100.0, 1e6, math.inf):
            general = float(context_risk(U[None], V[None], fine, [length], kind))
            isotropic = float(task.isotropic_risk(torch.tensor([a], dtype=F), torch.tensor([b], dtype=F), length, kind))
            A, scale = torch.tensor([[[a]]], dtype=F), torch.tensor([b], dtype=F)
            excess = torch.stack([task.block_risks(A, scale, x[i : i + 1], [length], kind)[0] for i in range(0, 120)])
            weight = fine.weight.reshape(120, 120).sum(0)
            assert general == pytest.approx(isotropic, abs=1e-6)
            assert float((excess * weight).sum()) == pytest.approx(isotropic, abs=1e-6)


def test_block_form_in_five_dimensions():
    task = lp.LinearRegression(torch.eye(5, dtype=F), torch.eye(5, dtype=F) / 5, 0.1)
    a, b = torch.tensor([0.7], dtype=F), torch.tensor([1.1], dtype=F)
    for length in (5, 100):
        isotropic = float(task.isotropic_risk(a, b, length))
        block = float(
            task.block_risks(
                0.7 * torch.eye(5, dtype=F)[None], b, task.block_queries(SobolAverage(2**14)), [length], lp.SoftmaxAttention
            )
        )
        assert block == pytest.approx(isotropic, rel=1e-3)  # what 2^14 Sobol points leave in five dimensions


def test_gradients():
    task = random_task(2, 3)
    for kind in KINDS:
        for length in (3, 100, math.inf):
            arguments = tuple(t.requires_grad_() for t in (draw(3, 3, seed=1) / 2, draw(1, 3, seed=2)))
            assert torch.autograd.gradcheck(
                lambda U, V, k=kind, n=length: task.risk(k(U, V), n, average=SobolAverage(64)), arguments, rtol=1e-4
            )


def test_runs_lead():
    task = random_task(2, 1)
    U, V = draw(4, 3, 3) / 3, draw(4, 1, 3, seed=1)
    many = task.risk(lp.SoftmaxAttention(U, V), 20)
    assert many.shape == (4,)
    assert_close(many[2], task.risk(lp.SoftmaxAttention(U[2], V[2]), 20))


def test_best_linear_attention_is_the_closed_form():
    """Isotropic, W = I/d: best excess over s² is c/(1+c), c = ((1+s²)d + 1)/L (risks carry the 1/2)."""
    d, length, noise = 4, 40, 0.3
    task = lp.LinearRegression(torch.eye(d, dtype=F), torch.eye(d, dtype=F) / d, noise)
    gain = torch.linspace(0.2, 1.2, 2001, dtype=F)
    risks = task.isotropic_risk(gain, torch.ones_like(gain), length, lp.LinearAttention)
    c = ((1 + noise) * d + 1) / length
    assert float(2 * risks.min() - noise) == pytest.approx(c / (1 + c), rel=1e-5)


@pytest.mark.parametrize(("length", "noise"), [(1, 0.3), (3, 0.3), (20, 0.3), (3, 0.0)])
def test_bayes_risk_is_that_of_the_posterior_mean(length, noise):
    """Against simulation of ridge regression with the true prior, 6 standard errors of both."""
    d = 3
    task = lp.LinearRegression(spd(d, 1), spd(d, 2), noise, spd(d, 3))
    n = 40_000
    tokens, query, answer = task.sample(n, length, torch.Generator().manual_seed(0))
    x, y = tokens[..., :d], tokens[..., d:]
    gain = task.prior_covariance @ x.mT @ torch.linalg.pinv(x @ task.prior_covariance @ x.mT + noise * torch.eye(length, dtype=F))
    loss = ((gain @ y).squeeze(-1) * query[:, :d]).sum(-1, keepdim=True).sub(answer).square().sum(-1) / 2
    assert abs(float(loss.mean()) - task.bayes_risk(length, draws=20_000)) < 6 * 2 * float(loss.std()) / math.sqrt(n)


def test_bayes_risk_tends_to_the_noise():
    task = random_task(3, 2)
    assert task.bayes_risk(10**9) == pytest.approx(task.noise_variance / 2, rel=1e-6)
    assert task.bayes_risk(math.inf) == task.noise_variance / 2
    assert task.bayes_risk(5) > task.bayes_risk(50) > task.noise_variance / 2


def test_token_law_is_that_of_the_samples():
    task, w = random_task(2, 4), torch.tensor([0.5, -1.0], dtype=F)
    law = task.token_law(w)
    tokens = task.draw_tokens(w.expand(1, 2), 200_000, torch.Generator().manual_seed(0))[0]
    assert float((tokens.mT.cov() - law.covariance).abs().max()) < 6.5 * math.sqrt(2 / 200_000) * float(law.covariance.max())


class Classes(lp.training.GaussianTask):
    """Another task in a few lines: two outputs that are the coordinates of w itself, read at a fixed query."""

    token_dim, target_dim = 3, 2

    def __init__(self):
        self.inner = lp.LinearRegression(torch.eye(2, dtype=F), torch.eye(2, dtype=F), 0.1)

    def contexts(self, average):
        inner = self.inner.contexts(average)
        w = inner.covariance[:, 2, :2]  # Σw with Σ = I
        return lp.training.Contexts(inner.covariance, torch.ones_like(inner.query), w, inner.weight, 0.0)

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
        assert abs(float(loss.mean()) - exact.value) < 6 * math.hypot(float(loss.std()) / 200, exact.standard_error)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: lp.LinearRegression([[1.0, 0.0], [0.0, 0.0]], np.eye(2), 0.1), "singular"),
        (lambda: lp.LinearRegression(np.eye(2), -np.eye(2), 0.1), "prior_covariance: got an indefinite"),
        (lambda: lp.LinearRegression(np.eye(2), np.eye(3), 0.1), "prior_covariance: got shape"),
        (lambda: lp.LinearRegression(np.eye(2), np.eye(2), -0.1), "noise_variance: got -0.1"),
        (lambda: lp.LinearRegression(torch.eye(2), torch.eye(2), 0.1), "float64"),
        (lambda: random_task(2, 0).risk(lp.SoftmaxAttention([[1.0]], [[1.0]])), "attention"),
        (lambda: random_task(1, 0).risk(lp.SoftmaxAttention(np.eye(2), np.ones((1, 2))), 0), "length: got 0"),
        (
            lambda: random_task(1, 0).risk(lp.SoftmaxAttention(np.eye(2), np.ones((1, 2))), average=SobolAverage(100)),
            "power of two",
        ),
        (lambda: SobolAverage(0), "points: got 0"),
        (lambda: SobolAverage(seed=-1), "seed: got -1"),
        (lambda: random_task(1, 0).isotropic_risk(torch.ones(1), torch.ones(1), 10, True), "kind: got True"),
        (lambda: random_task(1, 0).isotropic_risk(torch.ones(1), torch.ones(1), 10, "linear"), "kind: got 'linear'"),
        (lambda: random_task(1, 0).sample(0, 3, torch.Generator()), "batch: got 0"),
        (lambda: random_task(1, 0).sample(2, 3, None), "generator"),
        (lambda: random_task(2, 0).isotropic_risk(torch.ones(1), torch.ones(1)), "multiples of the identity"),
        (lambda: random_task(3, 0).product_contexts(20), "nodes"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(lp.InvalidArgumentError, match=words):
        call()
