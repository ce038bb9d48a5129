"""Special functions against mpmath: near zero, far out, and where one formula hands over to the next."""

import mpmath
import numpy as np
import pytest
import torch

from largeprompt.measures.numerics.special import (
    langevin,
    langevin_derivative,
    log_cosh,
    log_sinhc,
    sech2,
    weighted_logsumexp,
    weighted_softmax,
)

F = torch.float64
POINTS = [1e-160, 1e-8, 1e-3, 0.3, 0.999999, 1.0, 1.5, 1.999999, 2.0, 3.0, 17.0, 400.0, 1e4, 1e100]
EXACT = {
    log_cosh: lambda x: mpmath.log(mpmath.cosh(x)) if x < 1e5 else x - mpmath.log(2),
    sech2: lambda x: 1 / mpmath.cosh(x) ** 2 if x < 1e5 else mpmath.mpf(0),
    log_sinhc: lambda x: mpmath.log(mpmath.sinh(x) / x) if x < 1e5 else x - mpmath.log(2 * x),
    langevin: lambda x: mpmath.coth(x) - 1 / x,
    langevin_derivative: lambda x: 1 / x**2 - (1 / mpmath.sinh(x) ** 2 if x < 1e5 else 0),
}


@pytest.mark.parametrize("function", EXACT, ids=lambda f: f.__name__)
@pytest.mark.parametrize("x", POINTS)
def test_scalar_functions(function, x):
    with mpmath.workdps(400):
        expected = EXACT[function](mpmath.mpf(x))
    for sign in (1, -1):
        odd = -1 if sign < 0 and function is langevin else 1
        value = function(torch.tensor(sign * x, dtype=F)).item()
        assert value == pytest.approx(odd * float(expected), rel=2e-15, abs=1e-320)


@pytest.mark.parametrize("function", EXACT, ids=lambda f: f.__name__)
def test_scalar_functions_under_autograd(function):
    x = torch.tensor([-7.0, -1.2, -0.1, 0.0, 0.3, 1.4, 2.5, 30.0], dtype=F, requires_grad=True)
    assert torch.autograd.gradcheck(function, x)
    assert torch.autograd.gradgradcheck(function, x)


def test_weighted_logsumexp_with_zero_weights_and_huge_exponents():
    weights = torch.tensor([0.0, 0.25, 0.75], dtype=F, requires_grad=True)
    exponents = torch.tensor([1e5, 1e4, 1e4 - 2], dtype=F, requires_grad=True)
    value = weighted_logsumexp(weights, exponents)
    np.testing.assert_allclose(value.item(), 1e4 + np.log(0.25 + 0.75 * np.exp(-2)), rtol=1e-15)
    gradients = torch.autograd.grad(value, [weights, exponents])
    assert all(bool(torch.isfinite(g).all()) for g in gradients)
    np.testing.assert_allclose(gradients[1], weighted_softmax(weights, exponents).detach(), atol=1e-16)
