"""Special functions against mpmath: near zero, far out, and where one formula hands over to the
next.
"""

import mpmath
import numpy as np
import pytest
import torch

from largeprompt.measures.numerics.special import (
    interval_derivatives,
    log_gamma,
    log_sum,
    sech2,
    sign_derivatives,
    weighted_softmax,
)

F = torch.float64
POINTS = [1e-160, 1e-8, 1e-3, 0.3, 0.699999, 0.7, 0.999999, 1.0, 1.5, 2.0, 3.0, 17.0, 400.0, 1e4]
EXACT = {
    sign_derivatives: lambda x: mpmath.log(mpmath.cosh(x)),
    interval_derivatives: lambda x: mpmath.log(mpmath.sinh(x) / x),
}


@pytest.mark.parametrize("function", EXACT, ids=lambda f: f.__name__)
@pytest.mark.parametrize("x", POINTS)
def test_derivatives_against_mpmath(function, x):
    """Relative accuracy of the function and its first two derivatives everywhere; of all four to
    their natural scale, 1.
    """
    with mpmath.workdps(500):
        expected = [
            float(mpmath.diff(EXACT[function], mpmath.mpf(x), n, h=mpmath.mpf(10) ** -170))
            for n in range(5)
        ]
    for sign in (1, -1):
        value = [
            float(found) * sign**n
            for n, found in enumerate(function(torch.tensor(sign * x, dtype=F), 4))
        ]
        assert value[:3] == pytest.approx(expected[:3], rel=4e-15, abs=1e-300)
        assert value[3:] == pytest.approx(expected[3:], rel=1e-13, abs=1e-14)


@pytest.mark.parametrize("function", EXACT, ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    "w", [1e-3 + 1e-3j, 0.2 - 0.5j, 0.5 + 0.5j, 2.0 + 3.0j, -1.0 + 0.7j, 30.0 + 40.0j]
)
def test_derivatives_at_complex_points(function, w):
    with mpmath.workdps(60):
        expected = [complex(mpmath.diff(EXACT[function], mpmath.mpc(w), n)) for n in range(5)]
    found = [complex(value) for value in function(torch.tensor(w, dtype=torch.complex128), 4)]
    assert np.exp(found[0] - expected[0]) == pytest.approx(1.0, abs=1e-13)  # up to multiples of 2πi
    assert found[1:] == pytest.approx(expected[1:], rel=1e-12, abs=1e-14)


@pytest.mark.parametrize(
    "z", [1e-3, 0.5, 1.0, 2.0, 7.3, 1e6, 0.3 + 40j, 1 - 3j, 5 + 200j, 0.01 - 0.02j]
)
def test_log_gamma(z):
    with mpmath.workdps(40):
        expected, slope = complex(mpmath.loggamma(z)), complex(mpmath.digamma(z))
    point = torch.tensor(
        z, requires_grad=True, dtype=torch.complex128 if isinstance(z, complex) else F
    )
    value = log_gamma(point)
    assert np.exp(complex(value.detach()) - expected) == pytest.approx(
        1.0, abs=2e-14 * (1 + abs(expected))
    )
    (found,) = torch.autograd.grad(value.real, point)
    assert complex(found.conj()) == pytest.approx(slope, rel=1e-13, abs=1e-13)


def test_sech2():
    for x in (*POINTS, 700.0):
        with mpmath.workdps(400):
            expected = float(1 / mpmath.cosh(mpmath.mpf(x)) ** 2)
        assert float(sech2(torch.tensor(-x, dtype=F))) == pytest.approx(
            expected, rel=4e-15, abs=1e-300
        )


@pytest.mark.parametrize("function", EXACT, ids=lambda f: f.__name__)
def test_derivatives_under_autograd(function):
    x = torch.tensor([-7.0, -1.2, -0.1, 0.0, 0.3, 1.4, 2.5, 30.0], dtype=F, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: function(x, 2), x)
    assert torch.autograd.gradgradcheck(lambda x: function(x, 2), x)


def test_log_sum_with_zero_weights_and_huge_exponents():
    weights = torch.tensor([0.0, 0.25, 0.75], dtype=F, requires_grad=True)
    exponents = torch.tensor([1e5, 1e4, 1e4 - 2], dtype=F, requires_grad=True)
    value = log_sum(weights, exponents)
    np.testing.assert_allclose(value.item(), 1e4 + np.log(0.25 + 0.75 * np.exp(-2)), rtol=1e-15)
    gradients = torch.autograd.grad(value, [weights, exponents])
    assert all(bool(torch.isfinite(g).all()) for g in gradients)
    np.testing.assert_allclose(
        gradients[1], weighted_softmax(weights, exponents).detach(), atol=1e-16
    )
