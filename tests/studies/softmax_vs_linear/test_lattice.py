"""One head and a pair with opposite tilts: against the library's optimum, enumeration and draws."""

import math

import numpy as np
import pytest
import torch
from scipy.special import expit

import largeprompt as lp
from largeprompt.studies.softmax_vs_linear.lattice import Lattice
from largeprompt.studies.softmax_vs_linear.opposite import opposite_overlap
from largeprompt.studies.softmax_vs_linear.regression import linear_excess

F = torch.float64


@pytest.mark.parametrize(("dim", "noise", "length"), [(1, 0.0, 7), (3, 0.5, 100), (5, 2.0, 10**6)])
def test_one_head_is_the_librarys_optimum(dim, noise, length):
    eye = torch.eye(dim, dtype=F)
    task = lp.LinearRegression(eye, eye / dim, noise)
    expected = 2 * lp.training.isotropic_optimum(task, length).risk - noise
    found = Lattice.of(length, 40.0 if length < 10 else 12.0).least_excess(dim, noise)
    assert found == pytest.approx(expected, rel=1e-6)


def test_closed_form_of_linear_attention():
    for dim, noise, length in ((1, 0.0, 1), (3, 0.5, 20)):
        eye = torch.eye(dim, dtype=F)
        task = lp.LinearRegression(eye, eye / dim, noise)
        expected = 2 * lp.training.linear_optimum(task, length).risk - noise
        assert linear_excess(dim, noise, length) == pytest.approx(expected, rel=1e-9)


def test_opposite_weights_of_two_tokens():
    """w = sigmoid(σ(ξ_1 - ξ_2)): one dimension, by Gauss and Hermite."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    weights = weights / weights.sum()
    for sigma in (0.3, 1.2):
        first, last = nodes[:, None], nodes
        w = expit(sigma * (first - last))
        x, rest = opposite_overlap(2, np.array([sigma]))
        assert x[0] == pytest.approx(weights @ (2 * w * (1 - w)) @ weights, rel=1e-9)
        s, other = w * first + (1 - w) * last, (1 - w) * first + w * last
        expected = weights @ (s * other) @ weights - x[0]
        assert rest[0] == pytest.approx(expected, rel=1e-8)


def test_vanishing_tilts_are_linear_attention_over_one_token_less():
    for length in (3, 50, 10**9):
        total, mixed, square = Lattice.of(length, 4.0, pair=True).moments(2, 0.3, 3e-3)
        found = total - mixed**2 / square
        assert found == pytest.approx(linear_excess(2, 0.3, length - 1), rel=1e-4)


def test_pairs_of_drawn_prompts():
    d, length, noise, a, count = 2, 10, 0.1, 0.7, 20_000
    total, mixed, square = Lattice.of(length, 6.5, pair=True).moments(d, noise, a)
    b = mixed / square
    generator = torch.Generator().manual_seed(0)
    eye = torch.eye(d, dtype=F)
    tokens, query, answer = lp.LinearRegression(eye, eye / d, noise).sample(
        count, length, generator
    )
    scores = a * (tokens[..., :d] @ query[:, :d, None]).squeeze(-1)
    weights = (torch.softmax(scores, -1) - torch.softmax(-scores, -1)) / 2
    errors = (b * (weights * tokens[..., d]).sum(-1) - answer[:, 0]).square()
    expected = noise + total - mixed**2 / square
    assert abs(float(errors.mean()) - expected) < 5 * float(errors.std()) / math.sqrt(count)
