"""Ratios and logarithms of Bessel functions against mpmath, on both sides of every switch."""

import mpmath
import pytest
import torch

from largeprompt.measures.numerics.bessel import bessel_ratio, log_hyp0f1

F = torch.float64


@pytest.mark.parametrize("order", [-0.5, 0.0, 0.5, 1.0, 9.5, 47.5, 48.0, 63.0, 999.0, 4999.0])
def test_bessel_functions(order):
    """Orders of dimensions 1 to 10,000; arguments on both sides of every switch."""
    for k in (
        1e-100,
        1e-6,
        0.05,
        1.0,
        2 * (order + 1) ** 0.5,
        2.001 * (order + 1) ** 0.5,
        7.0,
        48.0,
        99.0,
        order + 30.0,
        3e3,
        2e4,
    ):
        y = k * k
        with mpmath.workdps(60):
            whole = mpmath.mpf(y) / 4
            numerator, denominator = (
                mpmath.hyp0f1(order + 2, whole),
                mpmath.hyp0f1(order + 1, whole),
            )
            ratio, logarithm = numerator / denominator / (2 * (order + 1)), mpmath.log(denominator)
        at = torch.tensor(y, dtype=F)
        assert bessel_ratio(at, order).item() == pytest.approx(float(ratio), rel=4e-15)
        assert log_hyp0f1(at, order).item() == pytest.approx(float(logarithm), rel=4e-15)


@pytest.mark.parametrize("order", [-0.5, 0.5, 30.0, 4999.0])
def test_bessel_functions_very_far_out(order):
    """I_{ν+1}/I_ν = 1 - (ν + 1/2)/k + ..., so k B_ν -> 1; and log 0F1 ~ k."""
    k = 1e12
    assert k * bessel_ratio(torch.tensor(k * k, dtype=F), order).item() == pytest.approx(
        1 - (order + 0.5) / k, rel=1e-14
    )
    assert log_hyp0f1(torch.tensor(k * k, dtype=F), order).item() == pytest.approx(k, rel=1e-6)


def test_bessel_functions_under_autograd():
    y = torch.tensor([0.0, 0.5, 3.9, 8.1, 100.0, 2e4], dtype=F, requires_grad=True)
    for function in (bessel_ratio, log_hyp0f1):
        assert torch.autograd.gradcheck(lambda t, f=function: f(t, 1.0), y)
        assert torch.autograd.gradgradcheck(lambda t, f=function: f(t, 1.0), y)
