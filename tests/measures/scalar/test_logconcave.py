"""Laws that are log-concave: one that is not in the library, the logistic law, from its density
alone against its closed forms.
"""

import math

import pytest
import torch

import largeprompt as lp
from largeprompt.measures.scalar.logconcave import LogConcaveLaw

F = torch.float64


class Logistic(LogConcaveLaw):
    """Density e^{-y}/(1 + e^{-y})², whose cgf log(πu/sin πu) ends at |u| = 1."""

    domain = (-1.0, 1.0)

    def _exponent(self, u, y):
        return u * y - y.abs() - 2 * torch.log1p(torch.exp(-y.abs()))

    def mode(self, u):
        return torch.log1p(u) - torch.log1p(-u)

    def height(self, u, mode):
        return self._exponent(u, mode)

    def fall(self, u, mode, offset):
        return self._exponent(u, mode) - self._exponent(u, mode + offset)


@pytest.mark.parametrize("u", [-0.999, -0.5, -1e-3, 0.2, 0.9, 0.9999])
def test_cgf_and_cumulants_of_the_logistic_law(u):
    """Λ = log(πu/sin πu), Λ' = 1/u - π cot πu, Λ'' = π²/sin² πu - 1/u²."""
    tilt, angle = torch.tensor(u, dtype=F), math.pi * u
    k1, k2, k3, k4 = (float(value) for value in Logistic().derivatives(tilt, 4)[1:])
    assert float(Logistic().cgf(tilt)) == pytest.approx(
        math.log(angle / math.sin(angle)), rel=1e-9, abs=1e-13
    )
    assert k1 == pytest.approx(1 / u - math.pi / math.tan(angle), rel=1e-9)
    assert k2 == pytest.approx(
        math.pi**2 / math.sin(angle) ** 2 - 1 / u**2, rel=1e-6 if abs(u) < 0.01 else 1e-9
    )
    step = 1e-4 * (1 - abs(u))
    near = [
        [
            float(value)
            for value in Logistic().derivatives(torch.tensor(u + sign * step, dtype=F), 4)[1:]
        ]
        for sign in (-1, 1)
    ]
    # each is the slope of the one before
    assert k3 == pytest.approx((near[1][1] - near[0][1]) / (2 * step), rel=1e-5, abs=1e-6)
    assert k4 == pytest.approx((near[1][2] - near[0][2]) / (2 * step), rel=1e-5, abs=1e-6)


def test_moments_at_the_origin():
    k1, k2, k3, k4 = (
        float(value) for value in Logistic().derivatives(torch.zeros((), dtype=F), 4)[1:]
    )
    assert (k1, k3) == pytest.approx((0.0, 0.0), abs=1e-13)
    assert (k2, k4) == pytest.approx((math.pi**2 / 3, 2 * math.pi**4 / 15), rel=1e-12)


def test_derivatives_of_every_order_by_autograd():
    u = torch.tensor(0.4, dtype=F, requires_grad=True)
    value = Logistic().cgf(u)
    for expected in Logistic().derivatives(u.detach(), 4)[1:]:
        (value,) = torch.autograd.grad(value, u, create_graph=True)
        assert float(value.detach()) == pytest.approx(float(expected), rel=1e-10)


def test_tilts_are_drawn_exactly(draws_its_tilts):
    draws_its_tilts(Logistic(), [-0.6, 0.5])


def test_tilts_beyond_the_domain_are_refused():
    with pytest.raises(lp.TiltDomainError, match="u: got the entry 1 on"):
        lp.Product([Logistic()]).cgf([1.0])
