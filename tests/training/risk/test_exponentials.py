"""Sums of exponentials against the exact law that they stand for."""

import pytest
import torch

from largeprompt.law.weights import weight_moments
from largeprompt.training.risk.exponentials import exponential_sums

F = torch.float64


@pytest.mark.parametrize("length", [1, 2, 30, 10**6, 10**15])
def test_sums_of_exponentials_are_the_exact_law(length):
    """At score variances between those that were fitted; no weight is large, so that none cancels
    another.
    """
    (found,) = exponential_sums([float(length)], 1.0)
    q = torch.linspace(0, 31, 80, dtype=F).square() + 0.123
    f, w3, y2 = weight_moments(length, q.sqrt(), [[(2, 0)], [(3, 0)], [(2, 0), (2, 0)]])
    sums = sum(
        (c @ torch.exp(-torch.outer(s, q + 0 * s[0]))).real
        for s, c in zip(found.exponents, found.weights, strict=True)
    )
    assert found.error < 1e-9
    assert float((sums - torch.stack([f, w3 - y2])).abs().max()) < 2 * found.error + 1e-11
    assert max(float(c.abs().max()) for c in found.weights) < 1e4


@pytest.mark.parametrize("length", [10, 10**15])
def test_sums_are_as_good_for_large_scores(length):
    """Up to a score variance of 2048 on average; 4e-9 where f had a kink at the end
    of its table.
    """
    assert exponential_sums([float(length)], 2048.0)[0].error < 1e-10


@pytest.mark.parametrize("accuracy", [1e-5, 2e-7, 0.0])
def test_no_more_exponentials_than_the_accuracy_asks_for(accuracy):
    """At two lengths with common exponents; real ones alone where that will do."""
    short, long = exponential_sums([10.0, 1000.0], 0.7, accuracy)
    assert all(torch.equal(*pair) for pair in zip(short.exponents, long.exponents, strict=True))
    assert max(short.error, long.error) <= max(accuracy, 1e-11)
    assert (len(short.exponents[1]) == 0) == (accuracy > 1e-8)
