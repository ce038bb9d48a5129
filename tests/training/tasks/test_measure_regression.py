"""Regression with inputs from any law: the tilt limit, the exact risk at every length, and flows on
them.
"""

import math

import pytest
import torch

import largeprompt as lp
from largeprompt.testing import TaskContract
from largeprompt.training import MeasureRegression

F = torch.float64
EYE = torch.eye(2, dtype=F)
PRIOR = torch.tensor([[1.0, 0.3], [0.3, 0.6]], dtype=F)
A = torch.tensor([[0.7, 0.2], [-0.1, 0.5]], dtype=F)
B = torch.tensor(1.4, dtype=F)


def block(A, b):
    d = len(A)
    U, V = torch.zeros(d + 1, d + 1, dtype=F), torch.zeros(1, d + 1, dtype=F)
    U[:d, :d], V[0, d] = A, b
    return lp.SoftmaxAttention(U, V)


def limit_risk(task, layer):
    """Infinite-prompt risk of any layer, by nodes of w."""
    return task._limit_risks(layer.U[None], layer.V[None])[0]


@pytest.mark.parametrize(
    "inputs", [lp.Rademacher(2), lp.Uniform(2), lp.scalar.SkewNormal(2, 0.5)], ids=repr
)
def test_block_limit_is_the_full_one(inputs):
    """w averaged out by hand against the operator on tokens with w on a Gauss-Hermite rule."""
    task = lp.training.MeasureRegression(inputs, PRIOR, 0.2, lp.measures.gauss_rule(inputs, 3))
    torch.testing.assert_close(
        task.block_risk(A, B), limit_risk(task, block(A, B)), rtol=1e-10, atol=0
    )


def test_gaussian_inputs_are_the_library_s_regression():
    task = lp.training.MeasureRegression(lp.Gaussian([0.0, 0.0], EYE), PRIOR, 0.2)
    library = lp.LinearRegression(EYE, PRIOR, 0.2)
    torch.testing.assert_close(task.block_risk(A, B), library.risk(block(A, B)), rtol=1e-10, atol=0)
    layer = lp.SoftmaxAttention(0.4 * torch.ones(3, 3, dtype=F), torch.ones(1, 3, dtype=F))
    for length in (9, math.inf):
        assert float(task.risk(layer, length)) == float(library.risk(layer, length))
    by_nodes = float(limit_risk(task, layer))
    assert by_nodes == pytest.approx(float(library.risk(layer)), rel=1e-10)
    small = 0.3 * A
    found, exact = task.block_risk(small, B, 40), library.risk(block(small, B), 40)
    torch.testing.assert_close(found, exact, rtol=2e-4, atol=0)


@pytest.mark.parametrize("length", [1, 5, 60])
def test_exact_risk_is_the_mean_over_drawn_prompts(length):
    """Skewed inputs in R²: every prompt with its own w, noise and query, nothing averaged out."""
    inputs = lp.scalar.SkewNormal(2, 0.6)
    task = lp.training.MeasureRegression(inputs, PRIOR, 0.2, lp.measures.gauss_rule(inputs, 12))
    generator, count = torch.Generator().manual_seed(length), 20_000
    drawn = inputs.sample(count * (length + 1), generator).reshape(count, length + 1, 2)
    tokens, queries = drawn[:, 1:], drawn[:, 0]
    w = torch.randn(count, 2, generator=generator, dtype=F) @ torch.linalg.cholesky(PRIOR).mT
    noise = math.sqrt(0.2) * torch.randn(count, length + 1, generator=generator, dtype=F)
    y = (tokens @ w.unsqueeze(-1)).squeeze(-1) + noise[:, 1:]
    weights = torch.softmax((tokens @ (queries @ A.mT).unsqueeze(-1)).squeeze(-1), -1)
    losses = (B * (weights * y).sum(-1) - (w * queries).sum(-1) - noise[:, 0]).square() / 2
    exact = float(task.block_risk(A, B, length))
    assert abs(float(losses.mean()) - exact) < 6 * float(losses.std()) / math.sqrt(count)


def test_signs_are_fitted_off_the_gaussian_curve():
    task = lp.training.MeasureRegression(lp.Rademacher(2), EYE, 0.1)
    a = torch.tensor(0.9, dtype=F)
    assert float(task.block_risk(a * EYE, 1 / torch.tanh(a))) == pytest.approx(0.05, abs=1e-14)
    assert float(task.block_risk(a * EYE, 1 / a)) > 0.09


def test_risk_differentiates_and_batches():
    task = lp.training.MeasureRegression(lp.Rademacher(2), PRIOR, 0.2)
    both = task.block_risk(torch.stack([A, 0.5 * A]), torch.stack([B, 2 * B]), 9)
    torch.testing.assert_close(both[1], task.block_risk(0.5 * A, 2 * B, 9))

    def risk(theta):
        return task.block_risk(theta[:4].reshape(2, 2), theta[4], 9)

    assert torch.autograd.gradcheck(
        risk, torch.cat([A.reshape(-1), B.reshape(1)]).requires_grad_(), atol=1e-7
    )


def test_blocks_are_kept_by_the_flow():
    """Derivatives of the full infinite-prompt risk outside the blocks vanish at block parameters,
    for skewed inputs too.
    """
    task = lp.training.MeasureRegression(
        lp.scalar.SkewNormal(2, 0.6),
        PRIOR,
        0.2,
        lp.measures.gauss_rule(lp.scalar.SkewNormal(2, 0.6), 3),
    )
    layer = block(A, B)
    U, V = layer.U.clone().requires_grad_(), layer.V.clone().requires_grad_()
    in_u, in_v = torch.autograd.grad(limit_risk(task, lp.SoftmaxAttention(U, V)), (U, V))
    assert max(float(part.abs().max()) for part in (in_u[2], in_u[:, 2], in_v[0, :2])) < 1e-12
    assert float(in_u[:2, :2].abs().max()) > 1e-3


def test_numbers_and_batches_of_one_part_broadcast():
    task, several = (
        lp.training.MeasureRegression(lp.Rademacher(2), PRIOR, 0.1),
        torch.tensor([0.5, 1.0], dtype=F),
    )
    for length in (7, math.inf):
        each = torch.stack([task.block_risk(A, b, length) for b in several])
        torch.testing.assert_close(task.block_risk(A, several, length), each)
        torch.testing.assert_close(task.block_risk(A, 1.0, length), each[1])


def test_inputs_without_a_rule_are_refused_by_their_name():
    with pytest.raises(lp.InvalidArgumentError, match=r"inputs: got LaplaceLaw.*rule=.*no limit"):
        MeasureRegression(lp.Laplace(1), [[1.0]], 0.1)


def test_bad_input():
    with pytest.raises(lp.InvalidArgumentError, match="inputs"):
        lp.training.MeasureRegression(torch.eye(2), EYE, 0.1)
    with pytest.raises(lp.InvalidArgumentError, match="prior_covariance"):
        lp.training.MeasureRegression(lp.Rademacher(3), EYE, 0.1)
    with pytest.raises(lp.InvalidArgumentError, match="noise_variance"):
        lp.training.MeasureRegression(lp.Rademacher(2), EYE, -0.1)
    with pytest.raises(lp.InvalidArgumentError, match="rule"):
        lp.training.MeasureRegression(
            lp.Rademacher(2), EYE, 0.1, lp.measures.gauss_rule(lp.Rademacher(1), 2)
        )
    task = lp.training.MeasureRegression(lp.Rademacher(2), EYE, 0.1)
    with pytest.raises(lp.InvalidArgumentError, match="length"):
        task.block_risk(A, B, 0)
    for arguments, words in (
        ((A, "x"), "b: got str"),
        (("x", B), "A: got str"),
        ((A[:1], B), r"A: got shape \(1, 2\)"),
        ((torch.zeros(3, 2, 2, dtype=F), torch.zeros(2, dtype=F)), "A and b: got"),
    ):
        for length in (10, math.inf):
            with pytest.raises(lp.InvalidArgumentError, match=words):
                task.block_risk(*arguments, length)
    with pytest.raises(lp.InvalidArgumentError, match="queries"):
        task.block_risk(A, B, queries=lp.measures.gauss_rule(lp.Rademacher(1), 2))


def test_gaussian_inputs_are_exact():
    """a = 4, L = 1000, where ten nodes were 5 % off: the closed form of the Gaussian task, not the
    rule.
    """
    one = torch.eye(1, dtype=F)
    task = MeasureRegression(lp.Gaussian([0.0], [[1.0]]), one, 0.1)
    U, V = torch.diag(torch.tensor([4.0, 0.0], dtype=F)), torch.tensor([[0.0, 0.5]], dtype=F)
    truth = float(lp.LinearRegression(one, one, 0.1).risk(lp.SoftmaxAttention(U, V), 1000))
    assert float(task.block_risk(4 * one, 0.5, 1000)) == truth
    assert float(task.risk(lp.SoftmaxAttention(U, V), 1000)) == truth


def test_rules_state_their_error():
    """Uniform inputs: the estimate covers the difference to a rule of 80 nodes."""
    one = torch.eye(1, dtype=F)
    inputs = lp.Uniform(1)
    found = MeasureRegression(inputs, one, 0.1).risk_estimate(block(4 * one, 0.5), 1000)
    fine = MeasureRegression(inputs, one, 0.1, lp.measures.gauss_rule(inputs, 80)).block_risk(
        4 * one, 0.5, 1000
    )
    assert 0 < abs(found - float(fine)) < found.standard_error < 1e-6
    signs = MeasureRegression(lp.Rademacher(1), one, 0.1).risk_estimate(block(one, 1.0), 9)
    assert signs.standard_error < 1e-12


def test_flows_like_every_other_task():
    """Signs, infinite prompt: the flow in blocks ends where b tanh a = 1; the full one stays in the
    blocks; others are refused.
    """
    task = MeasureRegression(lp.Rademacher(1), torch.eye(1, dtype=F), 0.1)
    start = lp.SoftmaxAttention([[0.5, 0.0], [0.0, 0.0]], [[0.0, 0.5]])
    for form in ("block", "full"):
        flow = lp.gradient_flow(task, start, math.inf, 60.0, parametrization=form, tolerance=1e-6)
        end = flow.at(60.0)
        assert float(end.V[0, 1] * torch.tanh(end.U[0, 0])) == pytest.approx(1.0, abs=1e-5)
        assert float(flow.risk[-1]) == pytest.approx(0.05, abs=1e-9)


@pytest.mark.parametrize("form", ["full", "block"])
@pytest.mark.parametrize("kind", [lp.SoftmaxAttention, lp.LinearAttention])
def test_every_dynamics_takes_it(kind, form):
    """Signs: flow, descent, SGD, Adam, gap and tube, from a start in blocks and, for all
    parameters, from one that is not.
    """
    task, options = MeasureRegression(lp.Rademacher(1), [[1.0]], 0.1), {"parametrization": form}
    across = 0.2 if form == "full" else 0.0
    start = kind([[0.5, 0.0], [across, 0.0]], [[across, 0.5]])
    runs = [
        lp.gradient_flow(task, start, [6, math.inf], 0.4, tolerance=1e-4, times=[0.4], **options),
        lp.gradient_descent(task, start, [6, math.inf], 0.1, 4, **options),
        lp.training.adam_descent(task, start, 6, 0.05, 4, **options),
        lp.stochastic_gradient_descent(task, start, 6, 0.05, 4, 200, 0, **options),
    ]
    for run in runs:
        assert run.status == "finished"
        assert bool((run.risk[..., -1] < run.risk[..., 0]).all())
    flow, descent = runs[0].parameters[0, -1], runs[1].parameters[0, -1]
    short = {"tolerance": 1e-4, "times": [0.2, 0.4], **options}
    gap = lp.training.descent_gap(task, start, 6, 0.4, **short)
    missed = descent - flow - 0.1 * gap.displacement[-1]
    assert float(missed.norm()) < 0.3 * 0.1 * gap.supremum
    tube = lp.training.tube(task, start, 6, 0.4, **short)
    assert bool((tube.distance <= 1.001 * tube.envelope + 1e-6).all())


class TestSigns(TaskContract):
    """Layers that are not in blocks too; nodes of w and the noise leave errors that are stated."""

    task, size = MeasureRegression(lp.Rademacher(1), [[0.5]], 0.2), 0.3
    lengths, draws = (1, 3), 40_000


def test_symmetric_laws_need_half_of_the_queries():
    """The whole rule, given as other queries, has the same risk; a law that is not symmetric keeps
    all of its own.
    """
    task = MeasureRegression(lp.Uniform(2), torch.eye(2, dtype=F), 0.2)
    assert 2 * task._queries.count == task._atoms.count
    A, b = torch.tensor([[0.9, 0.2], [-0.3, 0.5]], dtype=F), torch.tensor(0.8, dtype=F)
    few = lp.Discrete(
        *(part[:40] for part in (task._atoms.atoms, torch.full((400,), 1 / 40, dtype=F)))
    )
    both = lp.Discrete(
        torch.cat([few.atoms, -few.atoms]), torch.cat([few.weights, few.weights]) / 2
    )
    risks = [task.block_risk(A, b, 7, queries=queries) for queries in (few, both)]
    torch.testing.assert_close(*risks, rtol=1e-12, atol=0)
    skewed = MeasureRegression(
        lp.Discrete(torch.tensor([[-1.0], [2.0]], dtype=F), torch.tensor([2 / 3, 1 / 3], dtype=F)),
        [[1.0]],
        0,
    )
    assert skewed._queries is skewed._atoms


@pytest.mark.parametrize(("length", "noise"), [(1, 0.5), (4, 0.5), (200, 0.1)])
def test_bayes_risk_on_signs_is_that_of_counting(length, noise):
    """x² = 1: the posterior variance is 1/(1 + L/s²) whatever is drawn."""
    found = MeasureRegression(lp.Rademacher(1), [[1.0]], noise).bayes_risk(length)
    assert found == pytest.approx((noise + 1 / (1 + length / noise)) / 2, rel=1e-12)
    assert found.standard_error < 1e-12


def test_bayes_risk_of_drawn_prompts_is_the_exact_one_for_gaussian_inputs():
    inputs = lp.Gaussian([0.0], [[1.0]])
    rule = lp.measures.gauss_rule(inputs, 20)
    drawn = MeasureRegression(inputs, [[1.0]], 0.3, rule).bayes_risk(30)
    exact = MeasureRegression(inputs, [[1.0]], 0.3).bayes_risk(30)
    assert drawn.standard_error < 1e-4 * drawn
    assert exact.standard_error == 0
    assert abs(drawn - exact) < 6 * drawn.standard_error
