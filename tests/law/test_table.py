"""Tables of weight moments: the exact law, its slopes and their own derivatives."""

import math

import pytest
import torch
from torch.testing import assert_close

from largeprompt.law.table import WeightTables
from largeprompt.law.weights import weight_moments

F = torch.float64


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


@pytest.mark.parametrize("length", [1, 2, 10, 1000, 10**6, 10**12])
def test_tables_are_the_exact_law(length):
    q = torch.rand(1, 400, generator=torch.Generator().manual_seed(0), dtype=F) * 30
    q[0, :3] = torch.tensor([0.0, 1e-9, 30.0])
    f, h = WeightTables.reaching([float(length)], 30.0)(q)
    y, w3, y2 = weight_moments(length, q.sqrt(), [[(2, 0)], [(3, 0)], [(2, 0), (2, 0)]])
    assert_close(f, y, rtol=1e-12, atol=0)
    assert float(((h - (w3 - y2)).abs() / y).max()) < 1e-12


def test_tables_have_the_right_slopes():
    q = torch.linspace(0.01, 12, 50, dtype=F)[None].requires_grad_()
    f, h = WeightTables.reaching([50.0], 12.0)(q)
    y, w3, y2, y3, yw, p4 = weight_moments(
        50,
        q.detach().sqrt(),
        [[(2, 0)], [(3, 0)], [(2, 0)] * 2, [(2, 0)] * 3, [(2, 0), (3, 0)], [(4, 0)]],
    )
    (slope,) = torch.autograd.grad(f.sum(), q)
    assert_close(slope, y - 4 * w3 + 3 * y2, rtol=1e-10, atol=0)
    (slope,) = torch.autograd.grad(WeightTables.reaching([50.0], 12.0)(q)[1].sum(), q)
    assert_close(slope, 3 * w3 - 2 * y2 - 10 * y3 + 22 * yw - 13 * p4, rtol=1e-9, atol=1e-12)
    assert h.shape == (1, 50)


@pytest.mark.parametrize("length", [10, 10**9])
def test_second_derivatives_are_exact(length):
    """Against the derivative of the law's own first derivative; 3e-3 off at 10^9
    with cubic cells.
    """
    q = torch.linspace(0.1, 60, 200, dtype=F).requires_grad_()
    y, w3, y2 = weight_moments(length, q.sqrt(), [[(2, 0)], [(3, 0)], [(2, 0), (2, 0)]])
    (second,) = torch.autograd.grad((y - 4 * w3 + 3 * y2).sum(), q)
    found = WeightTables.reaching([float(length)], 60.0).derivatives(q.detach()[None], 2)[0][2][0]
    assert float(((found - second).abs() / y.detach()).max()) < 1e-8


def test_beyond_the_table_one_token_is_read():
    """1 - f falls like the inverse root, and q(1 - f - 6h) + f = E S² tends to the mean square of
    the largest score, L = 2: 1.
    """
    q = torch.tensor([[8000.0, 8200.0, 1e5, 1e6]], dtype=F)
    f, h = WeightTables.reaching([2.0], 1e6)(q)
    assert_close((1 - f) * q.sqrt(), torch.full_like(q, 1 / math.sqrt(math.pi)), rtol=2e-4, atol=0)
    assert_close(q * (1 - f - 6 * h) + f, torch.ones_like(q), rtol=0, atol=2e-2)


@pytest.mark.parametrize("length", [2, 30, 10**15])
def test_beyond_the_table_is_the_exact_law(length):
    """One power of q alone is 1e-8 of 1 - f and more off."""
    q = torch.tensor([[1.63e5, 2e5, 2.49e5]], dtype=F)
    f, h = WeightTables.reaching([float(length)], 3e5)(q)
    y, w3, y2 = weight_moments(length, q[0].sqrt(), [[(2, 0)], [(3, 0)], [(2, 0), (2, 0)]])
    assert_close(f[0], y, rtol=0, atol=1e-10)
    assert_close(h[0], w3 - y2, rtol=0, atol=1e-11)


def test_beyond_the_table_derivatives_are_its_own():
    q = torch.tensor([[1.7e5, 1e6]], dtype=F)
    tables, step = WeightTables.reaching([50.0], 1e6), 1e-3 * q
    ahead, here, behind = (tables.derivatives(at, 2) for at in (q + step, q, q - step))
    for k in (0, 1):
        for order in (0, 1):
            slope = (ahead[k][order] - behind[k][order]) / (2 * step)
            assert_close(here[k][order + 1], slope, rtol=1e-4, atol=0)
