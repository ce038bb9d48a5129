"""The least risk over a and b where everything is a multiple of the identity, against a grid."""

import math

import numpy as np
import pytest
import torch
from training_examples import blocks, noiseless, toeplitz

import largeprompt as lp

F = torch.float64


def grid_minimum(task, length, largest):
    """Least risk on a grid of a with the best b of each, in which the risk is a parabola."""
    a = torch.logspace(-2, math.log10(largest), 80, dtype=F)
    none, one, two = (
        task.isotropic_risk(a, torch.full_like(a, b), length) for b in (0.0, 1.0, 2.0)
    )
    bend = two - 2 * one + none
    return float((none - (4 * one - 3 * none - two).square() / (8 * bend)).min())


@pytest.mark.parametrize(
    ("d", "noise", "length"),
    [(1, 0.0, 2), (1, 0.0, 3), (2, 0.0, 2), (3, 0.0, 2), (3, 0.0, 3), (20, 10.0, 2), (20, 10.0, 4)],
)
def test_no_point_of_a_grid_is_better(d, noise, length):
    """Prompts of a few tokens, where a step of the search leads out of the table of the weights."""
    eye = torch.eye(d, dtype=F)
    task = lp.LinearRegression(eye, eye / d, noise)
    found = lp.training.isotropic_optimum(task, length)
    at = task.isotropic_risk(
        torch.tensor([found.a], dtype=F), torch.tensor([found.b], dtype=F), length
    )
    assert found.risk == pytest.approx(float(at), rel=1e-12)
    best = grid_minimum(task, length, math.sqrt(2048) / (math.sqrt(d) + 9.2))
    assert found.risk <= best * (1 + 1e-12)
    # one input: the best a is beyond this grid
    assert found.risk == pytest.approx(best, rel=1e-2 if d == 1 else 2e-3)


def test_queries_too_rare_to_matter_may_have_any_score():
    """The same integral with and without the queries whose scores are beyond the table."""
    task = lp.LinearRegression([[1.0]], [[1.0]], 0.0)
    a, b = torch.tensor([3.4, 3.6], dtype=F), torch.ones(2, dtype=F)
    risks = task.isotropic_risk(a, b, 3)
    slope = torch.autograd.functional.jacobian(
        lambda x: task.isotropic_risk(x, b[:1], 3), torch.tensor([3.5], dtype=F)
    )
    assert float(risks.diff()) / 0.2 == pytest.approx(float(slope), rel=1e-2)
    with pytest.raises(
        lp.LargePromptError, match=r"a score variance of 2\.5e\+03; risks are computed up to 2048"
    ):
        task.isotropic_risk(torch.tensor([50.0], dtype=F), b[:1], 3)


def test_two_tokens_and_one_input():
    """The best a, 16.3, is where softmax nearly takes the larger of the two scores."""
    task = lp.LinearRegression([[1.0]], [[1.0]], 0.0)
    found = lp.training.isotropic_optimum(task, 2)
    assert found.risk == pytest.approx(0.3975712469, rel=1e-8)
    assert grid_minimum(task, 2, 8.87) > 1.0012 * found.risk
    assert grid_minimum(task, 2, 44.0) == pytest.approx(found.risk, rel=1e-3)


@pytest.mark.parametrize(("d", "least"), [(1, 365), (2, 509), (3, 648), (5, 921), (10, 1593)])
def test_least_length_of_a_hundredth(d, least):
    task = lp.LinearRegression(torch.eye(d, dtype=F), torch.eye(d, dtype=F) / d, 0.0)
    long, short = (
        lp.training.isotropic_optimum(task, length).risk for length in (least, least - 1)
    )
    assert long <= 0.01 < short


def test_linear_attention_in_closed_form():
    for d, noise in ((1, 0.0), (4, 0.5)):
        eye = torch.eye(d, dtype=F)
        task = lp.LinearRegression(eye, eye / d, noise)
        for length in (1, 2, 50):
            found = lp.training.isotropic_optimum(task, length, lp.LinearAttention).risk
            assert found == pytest.approx(lp.training.linear_optimum(task, length).risk, rel=1e-9)
    assert np.isfinite(found)


def test_isotropic_optimum_is_where_the_flow_ends():
    """Softmax: the block flow from the balanced start ends there; a worse point is worse; bad input
    is refused.
    """
    task = noiseless(torch.eye(2, dtype=F))
    found = lp.training.isotropic_optimum(task, 30)
    flow = lp.gradient_flow(
        task,
        blocks(2),
        30,
        4000.0,
        parametrization="block",
        tolerance=1e-7,
        gradient_tolerance=1e-8,
    )
    assert flow.status == "converged"
    assert found.risk == pytest.approx(float(flow.risk[-1]), rel=1e-8)
    assert float(flow.at(float(flow.times[-1])).V[0, 2]) == pytest.approx(found.b, rel=1e-3)
    near = task.isotropic_risk(
        torch.tensor([found.a * 1.02], dtype=F), torch.tensor([found.b], dtype=F), 30
    )
    assert float(near) > found.risk
    with pytest.raises(lp.InvalidArgumentError, match="multiples of the identity"):
        lp.training.isotropic_optimum(noiseless(toeplitz(2)), 30)
    with pytest.raises(lp.InvalidArgumentError, match="start"):
        lp.training.isotropic_optimum(task, 30, start=(-1.0, 1.0))
    with pytest.raises(lp.InvalidArgumentError, match="length"):
        lp.training.isotropic_optimum(task, 0)
