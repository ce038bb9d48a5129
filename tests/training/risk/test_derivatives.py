"""Gradient and Hessian by formula, calibrated weights, and closed forms: each against an independent computation."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.training import SobolAverage
from largeprompt.training.risk.average import calibrated_weights
from largeprompt.training.risk.derivatives import layer_derivatives
from largeprompt.training.risk.exact import Contexts, RiskError, context_risk
from largeprompt.training.risk.objective import make_objective
from largeprompt.training.risk.table import WeightTables

F = torch.float64
KINDS = {"softmax": lp.SoftmaxAttention, "linear": lp.LinearAttention}


def task(d=2, noise=0.1, query=None):
    generator = torch.Generator().manual_seed(d)
    root = torch.randn(d, d, generator=generator, dtype=F)
    return lp.LinearRegression(root @ root.mT / d + torch.eye(d, dtype=F) / 2, torch.eye(d, dtype=F) * 0.6, noise, query)


def random_contexts(n, dim, out, generator):
    root = torch.randn(n, dim, dim, generator=generator, dtype=F)
    return Contexts(
        root @ root.mT / dim,
        torch.randn(n, dim, generator=generator, dtype=F),
        torch.randn(n, out, generator=generator, dtype=F),
        torch.full((n,), 1 / n, dtype=F),
        0.3,
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("out", [1, 3])
def test_formulas_agree_with_autograd(kind, out):
    generator = torch.Generator().manual_seed(5)
    lengths, attention, dim = [1.0, 4.0, 300.0, math.inf], KINDS[kind], 3
    contexts = random_contexts(40, dim, out, generator)
    U = 0.6 * torch.randn(4, dim, dim, generator=generator, dtype=F)
    V = torch.randn(4, out, dim, generator=generator, dtype=F)
    found = layer_derivatives(U, V, True, contexts=contexts, lengths=lengths, kind=attention, limit=True)

    def risk(flat):
        return context_risk(flat[:, : dim**2].reshape(U.shape), flat[:, dim**2 :].reshape(V.shape), contexts, lengths, attention)

    flat = torch.cat([U.reshape(4, -1), V.reshape(4, -1)], -1).requires_grad_()
    (slope,) = torch.autograd.grad(risk(flat).sum(), flat, create_graph=True)
    rows = [torch.autograd.grad(slope[:, i].sum(), flat, retain_graph=True)[0] for i in range(flat.shape[-1])]
    assert_close(found.value, risk(flat).detach())
    assert_close(torch.cat([found.in_u.reshape(4, -1), found.in_v.reshape(4, -1)], -1), slope.detach(), rtol=1e-10, atol=1e-12)
    assert_close(found.second, torch.stack(rows, -2), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["full", "block", "factorised"])
def test_hessian_of_every_parametrisation_is_the_slope_of_its_gradient(kind, way):
    d = 2
    start = lp.training.Factorised.default(d + 1, torch.Generator().manual_seed(0))
    U, V = (part[0] for part in start.layer(start.start().unsqueeze(0)))
    if way == "block":
        U, V = torch.nn.functional.pad(U[:d, :d], (0, 1, 0, 1)), torch.nn.functional.pad(V[:, d:], (d, 0))
    objective, theta, _ = make_objective(
        task(), KINDS[kind](U, V), [3, 50, math.inf], start if way == "factorised" else way, SobolAverage(512)
    )
    theta = theta + 0.05 * torch.randn(theta.shape, generator=torch.Generator().manual_seed(1), dtype=F)
    gradient, hessian, step = objective.gradient(theta)[1], objective.hessian(theta), 1e-5
    for i in range(theta.shape[-1]):
        move = torch.zeros_like(theta)
        move[:, i] = step
        assert_close(
            (objective.risks(theta + move) - objective.risks(theta - move)) / (2 * step), gradient[:, i], rtol=1e-6, atol=1e-9
        )
        slope = (objective.gradient(theta + move)[1] - objective.gradient(theta - move)[1]) / (2 * step)
        assert_close(slope, hessian[:, i], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("length", [1, 7, 1e4])
def test_tables_give_their_own_derivatives(length):
    q = torch.linspace(0, 15.9, 300, dtype=F).reshape(1, -1).requires_grad_()
    tables = WeightTables.reaching([length], 16.0)
    exact = tables.derivatives(q.detach(), 2)
    for value, orders in zip(tables(q), exact, strict=True):
        (first,) = torch.autograd.grad(value.sum(), q, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), q, retain_graph=True)
        for mine, theirs in zip(orders, (value, first, second), strict=True):
            assert_close(mine, theirs.detach(), rtol=1e-9, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.floats(0, 1), st.integers(0, 2**31))
def test_linear_attention_has_a_closed_risk(d, noise, seed):
    """Against Gauss-Hermite points for d = 1 and 2 and Sobol points with a stated error for d = 3."""
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(d, d, generator=generator, dtype=F)
    chosen = lp.LinearRegression(
        torch.eye(d, dtype=F) + root @ root.mT, 0.5 * torch.eye(d, dtype=F), noise, torch.eye(d, dtype=F) * 1.3
    )
    U, V = 0.5 * torch.randn(1, d + 1, d + 1, generator=generator, dtype=F), torch.randn(1, 1, d + 1, generator=generator, dtype=F)
    for length in (1.0, 12.0, math.inf):
        closed = chosen.linear_risk(U, V, [length])
        if d < 3:
            assert_close(
                closed, context_risk(U, V, chosen.product_contexts(7), [length], lp.LinearAttention), rtol=1e-9, atol=1e-12
            )
        else:
            sobol = torch.stack(
                [context_risk(U, V, chosen.contexts(SobolAverage(2**13, s)), [length], lp.LinearAttention) for s in range(6)]
            )
            assert abs(float(closed - sobol.mean())) < 12 * float(sobol.std()) / math.sqrt(6) + 1e-9


def test_calibrated_weights_are_positive_and_exact():
    points = torch.randn(600, 4, generator=torch.Generator().manual_seed(0), dtype=F)
    functions = torch.cat([points, points**2 - 1, points[:, :1] * points[:, 1:2]], -1)
    uniform = torch.full((600,), 1 / 600, dtype=F)
    weights = calibrated_weights(functions, uniform)
    assert float(weights.min()) > 0
    assert float(weights.sum()) == pytest.approx(1, abs=1e-14)
    assert float((weights @ functions).abs().max()) < 1e-10
    assert calibrated_weights(functions[:20], uniform[:20] * 30) is None  # too few points
    assert calibrated_weights(points[:, :1].abs() + 1, uniform) is None  # no positive weights do it
    assert calibrated_weights(functions[:, :0], uniform) is None
    dependent = torch.cat([functions, functions @ torch.randn(9, 5, generator=torch.Generator().manual_seed(1), dtype=F)], -1)
    assert_close(calibrated_weights(dependent + 1e-9 * points[:, :1], uniform), weights, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("singular", ["prior", "query"])
def test_singular_laws_are_calibrated_too(singular):
    direction = torch.tensor([1.0, 2.0, 3.0], dtype=F)
    flat, eye = direction.unsqueeze(-1) * direction, torch.eye(3, dtype=F)
    chosen = lp.LinearRegression(eye, flat if singular == "prior" else eye, 0.1, flat if singular == "query" else eye)
    contexts = chosen.contexts(SobolAverage())
    weights = calibrated_weights(chosen.calibration(contexts), contexts.weight)
    assert weights is not None
    U, V = 0.2 * torch.ones(1, 4, 4, dtype=F), 0.3 * torch.ones(1, 1, 4, dtype=F)
    fitted = dataclasses.replace(contexts, weight=weights)
    assert_close(context_risk(U, V, fitted, [math.inf], lp.SoftmaxAttention), chosen.limit_risk(U, V), rtol=1e-8, atol=1e-9)


def test_calibration_makes_the_infinite_prompt_exact_and_helps_the_finite_one():
    chosen = task(2)
    generator = torch.Generator().manual_seed(2)
    U, V = 0.5 * torch.randn(1, 3, 3, generator=generator, dtype=F), torch.randn(1, 1, 3, generator=generator, dtype=F)
    truth = float(context_risk(U, V, chosen.product_contexts(20), [1e4], lp.SoftmaxAttention))
    plain, better = [], []
    for seed in range(12):
        contexts = chosen.contexts(SobolAverage(1024, seed))
        fitted = dataclasses.replace(contexts, weight=calibrated_weights(chosen.calibration(contexts), contexts.weight))
        assert_close(context_risk(U, V, fitted, [math.inf], lp.SoftmaxAttention), chosen.limit_risk(U, V), rtol=1e-10, atol=1e-12)
        plain.append(abs(float(context_risk(U, V, contexts, [1e4], lp.SoftmaxAttention)) - truth))
        better.append(abs(float(context_risk(U, V, fitted, [1e4], lp.SoftmaxAttention)) - truth))
    assert sum(better) < sum(plain) / 3


def test_block_layer_averages_w_out():
    """Query by query against Gauss-Hermite points over w, singular prior and another query law included."""
    chosen = lp.LinearRegression([[1.0, 0.3], [0.3, 0.7]], [[0.5, 0.0], [0.0, 0.0]], 0.2, [[0.9, 0.1], [0.1, 0.4]])
    A, b = torch.tensor([[[0.4, 0.2], [-0.1, 0.5]]], dtype=F), torch.tensor([1.3], dtype=F)
    U, V = torch.nn.functional.pad(A, (0, 1, 0, 1)), torch.tensor([[[0.0, 0.0, 1.3]]], dtype=F)
    grid = chosen.product_contexts(9)
    nodes = torch.linalg.solve(chosen.covariance, grid.covariance[:, :2, 2].mT).mT  # w, once for every x of the grid
    for x in chosen.block_queries(SobolAverage(16)):
        contexts = dataclasses.replace(
            grid, query=torch.nn.functional.pad(x, (0, 1)).expand(len(nodes), 3), target=(nodes @ x).unsqueeze(-1)
        )
        for kind in KINDS.values():
            general = context_risk(U, V, contexts, [15.0], kind)
            assert_close(chosen.block_risks(A, b, x.unsqueeze(0), [15.0], kind), general, rtol=1e-12, atol=0)
    exact = chosen.block_risks(A, b, chosen.quadratic_queries(), [math.inf], lp.SoftmaxAttention)
    assert_close(exact, chosen.limit_risk(U, V))
    assert_close(chosen.block_risks(A, b, chosen.quadratic_queries(), [9.0], lp.LinearAttention), chosen.linear_risk(U, V, [9.0]))


def test_a_risk_below_the_noise_is_refused():
    """Six Sobol dimensions with sixteen points cannot hold large scores: that is an error, not a negative risk."""
    chosen = task(3, noise=0.1)
    U, V = 3 * torch.eye(4, dtype=F), torch.ones(1, 4, dtype=F)
    objective, theta, _ = make_objective(chosen, lp.SoftmaxAttention(U, V), 10, "full", SobolAverage(16))
    shrunk = dataclasses.replace(objective, floor=float(objective.risks(theta)[0]) + 1.0)
    with pytest.raises(RiskError, match=r"below the noise .* Use more points"):
        shrunk.gradient(theta)
