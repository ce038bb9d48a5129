"""The least risk over a and b where everything is a multiple of the identity, against a grid."""

import math

import numpy as np
import pytest
import torch

import largeprompt as lp

F = torch.float64


def grid_minimum(task, length, largest):
    """Least risk on a grid of a and b, all by the exact risk."""
    a = torch.logspace(-2, math.log10(largest), 80, dtype=F)
    b = torch.linspace(0.02, 1.5, 75, dtype=F)
    risks = torch.stack([task.isotropic_risk(a, torch.full_like(a, float(each)), length) for each in b])
    return float(risks.min())


@pytest.mark.parametrize(
    ("d", "noise", "length"), [(1, 0.0, 2), (1, 0.0, 3), (2, 0.0, 2), (3, 0.0, 2), (3, 0.0, 3), (20, 10.0, 2), (20, 10.0, 4)]
)
def test_no_point_of_a_grid_is_better(d, noise, length):
    """Prompts of a few tokens, where a step of the search leads out of the table of the weights."""
    eye = torch.eye(d, dtype=F)
    task = lp.LinearRegression(eye, eye / d, noise)
    found = lp.training.isotropic_optimum(task, length)
    at = task.isotropic_risk(torch.tensor([found.a], dtype=F), torch.tensor([found.b], dtype=F), length)
    assert found.risk == pytest.approx(float(at), rel=1e-12)
    best = grid_minimum(task, length, math.sqrt(2048) / (math.sqrt(d) + 9.2))
    assert found.risk <= best * (1 + 1e-12)
    assert found.risk == pytest.approx(best, rel=1e-2 if d == 1 else 2e-3)  # one input: the best a is beyond this grid


def test_queries_too_rare_to_matter_may_have_any_score():
    """The same integral with and without the queries whose scores are beyond the table."""
    task = lp.LinearRegression([[1.0]], [[1.0]], 0.0)
    a, b = torch.tensor([3.4, 3.6], dtype=F), torch.ones(2, dtype=F)
    risks = task.isotropic_risk(a, b, 3)
    slope = torch.autograd.functional.jacobian(lambda x: task.isotropic_risk(x, b[:1], 3), torch.tensor([3.5], dtype=F))
    assert float(risks.diff()) / 0.2 == pytest.approx(float(slope), rel=1e-2)
    with pytest.raises(lp.LargePromptError, match="run away"):
        task.isotropic_risk(torch.tensor([50.0], dtype=F), b[:1], 3)


def test_linear_attention_in_closed_form():
    for d, noise in ((1, 0.0), (4, 0.5)):
        eye = torch.eye(d, dtype=F)
        task = lp.LinearRegression(eye, eye / d, noise)
        for length in (1, 2, 50):
            found = lp.training.isotropic_optimum(task, length, lp.LinearAttention).risk
            assert found == pytest.approx(lp.training.linear_optimum(task, length).risk, rel=1e-9)
    assert np.isfinite(found)
