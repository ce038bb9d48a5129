"""The contexts that a chain visits for ever, against high powers of its matrix."""

import pytest
import torch

import largeprompt as lp
from largeprompt.measures.numerics.recurrence import recurrent_contexts

F = torch.float64


def of_order_one(rows):
    """P with the symbol itself as the next context."""
    P = torch.tensor(rows, dtype=F)
    return P, torch.arange(len(P)).expand_as(P)


@pytest.mark.parametrize(
    "rows",
    [
        [[0.5, 0.5], [0.5, 0.5]],
        [[0.5, 0.25, 0.25], [0.0, 0.4, 0.6], [0.0, 0.6, 0.4]],
        [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.5, 0.5]],
        [[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], [0.3, 0.7, 0.0]],
    ],
)
def test_contexts_are_those_of_positive_probability_in_the_long_run(rows):
    P, successors = of_order_one(rows)
    far = torch.linalg.matrix_power(P, 2**12)
    assert torch.equal(recurrent_contexts(P, successors), far[0] > 1e-9)


def test_tiny_probabilities_are_possible_steps():
    """From the graph of steps, not from eigenvalues: 1e-300 is a step."""
    assert recurrent_contexts(*of_order_one([[1 - 1e-16, 1e-300], [1.0, 0.0]])).all()


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[1.0, 0.0], [0.0, 1.0]], "2 classes of contexts"),
        ([[0.0, 1.0], [1.0, 0.0]], "periodic chain of period 2"),
        ([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]], "periodic chain of period 3"),
    ],
)
def test_chains_without_one_limit_are_refused(rows, words):
    with pytest.raises(lp.InvalidArgumentError, match=f"transition: got a.*{words}"):
        recurrent_contexts(*of_order_one(rows))
