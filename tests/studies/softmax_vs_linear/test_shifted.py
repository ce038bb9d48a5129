"""Prompts with a mean of their own: closed forms against drawn prompts, other
integrals and limits.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import largeprompt as lp
from largeprompt.studies.softmax_vs_linear.several_heads import SeveralHeads
from largeprompt.studies.softmax_vs_linear.shifted import ShiftedRegression

F = torch.float64


def vanishing_pair(task, length):
    """Risk of a pair of heads whose tilts vanish: linear attention over one token less on the task
    without shifts.
    """
    return lp.training.linear_optimum(task.pair_task(), length - 1).risk


@pytest.mark.parametrize("length", [4, 15])
def test_drawn_prompts_agree(length):
    """Linear attention, one head and a pair at their read-outs: six comparisons at six standard
    errors.
    """
    task, count, a = ShiftedRegression(2, 0.8, 0.3), 40_000, 0.5
    tokens, query, answer = task.sample(count, length, torch.Generator().manual_seed(length))
    scores = (tokens @ query.unsqueeze(-1)).squeeze(-1)
    y = tokens[..., -1]
    plus, minus = ((torch.softmax(sign * a * scores, -1) * y).sum(-1) for sign in (1, -1))
    pair = SeveralHeads.of(length, (1.0,), odd=True, largest=4.5).best_readouts(task.pair_task(), a)
    cases = [
        (task.linear_gain(length) * (scores * y).mean(-1), task.linear_optimum(length)),
        (task.head_gain(a, length) * plus, float(task.head_risk(a, length))),
        (pair.readouts[0] * (plus - minus) / 2, pair.risk),
    ]
    for read, exact in cases:
        risk = (read - answer[:, 0]).square() / 2
        assert float(risk.mean()) == pytest.approx(
            exact, abs=6 * float(risk.std()) / math.sqrt(count)
        )


@settings(max_examples=20, deadline=None)
@given(d=st.integers(1, 8), noise=st.floats(0, 3), length=st.integers(2, 10**6))
def test_no_shift_is_plain_regression(d, noise, length):
    task, eye = ShiftedRegression(d, 0.0, noise), torch.eye(d, dtype=F)
    plain = lp.LinearRegression(eye, eye / d, noise)
    assert task.linear_optimum(length) == pytest.approx(
        lp.training.linear_optimum(plain, length).risk, rel=1e-12
    )
    assert task.crossing_length() == math.inf


def test_one_head_without_shift_and_its_two_routes():
    task = ShiftedRegression(3, 0.0, 0.2)
    eye = torch.eye(3, dtype=F)
    truth = lp.training.isotropic_optimum(lp.LinearRegression(eye, eye / 3, 0.2), 50)
    assert float(task.head_risk(truth.a, 50)) == pytest.approx(truth.risk, rel=1e-6)
    assert task.head_optimum(50) == pytest.approx(truth.risk, rel=1e-6)
    shifted = ShiftedRegression(2, 1.5, 0.1)
    grid = torch.logspace(-1, 0.3, 20, dtype=F)
    assert shifted.head_optimum(30) == pytest.approx(
        float(shifted.head_risk(grid, 30).min()), rel=1e-3
    )
    assert shifted.head_optimum(30) <= float(shifted.head_risk(grid, 30).min()) + 1e-9


def test_linear_attention_keeps_an_error_and_the_pair_does_not():
    task = ShiftedRegression(3, 0.5, 0.1)
    assert task.linear_optimum(10**12) == pytest.approx(task.linear_optimum(), rel=1e-9)
    assert (
        task.linear_optimum() > 0.1 > vanishing_pair(task, 10**12) == pytest.approx(0.05, rel=1e-9)
    )
    assert task.head_optimum() == 0.05


@pytest.mark.parametrize(("d", "tau", "length"), [(1, 10.0, 10**4), (3, 10.0, 10**6), (1, 1.0, 2)])
def test_the_best_head_is_not_at_the_edge_of_its_lattice(d, tau, length):
    task = ShiftedRegression(d, tau)
    wide = SeveralHeads.of(length, (1.0,), largest=100.0)
    expected = task.head_optimum(length, head=wide)
    assert task.head_optimum(length) == pytest.approx(expected, rel=1e-6)
    assert task.head_optimum(
        length, head=SeveralHeads.of(length, (1.0,), largest=6.0)
    ) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("d", "tau", "noise"), [(1, 0.1, 0.0), (5, 1.0, 1.0), (10, 0.01, 0.0)])
def test_crossing_length_is_where_the_risks_meet(d, tau, noise):
    task = ShiftedRegression(d, tau, noise)
    length = task.crossing_length()
    below, above = math.floor(length), math.ceil(length)
    assert task.linear_optimum(below) < vanishing_pair(task, below)
    assert task.linear_optimum(above) > vanishing_pair(task, above)


def test_small_shifts_cross_at_their_inverse_variance():
    lengths = [ShiftedRegression(4, tau).crossing_length() * tau for tau in (1e-2, 1e-3, 1e-4)]
    np.testing.assert_allclose(lengths, 1.0, rtol=0.02)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0, 1.0), "dim"),
        ((2, -1.0), "shift_variance"),
        ((2, [1.0, 2.0]), "shift_variance"),
        ((2, 1.0, -0.1), "noise_variance"),
    ],
)
def test_bad_input_is_named(arguments, name):
    with pytest.raises(lp.InvalidArgumentError, match=name):
        ShiftedRegression(*arguments)
    task = ShiftedRegression(2, 1.0)
    with pytest.raises(lp.InvalidArgumentError, match="head: got 1 heads, length 10"):
        task.head_optimum(20, head=SeveralHeads.of(10, (1.0,)))
