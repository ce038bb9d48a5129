"""The covariance equation along a linearized flow."""

import math

import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch.testing import assert_close
from training_examples import SCALAR, scalar_derivatives, scalar_layer

import largeprompt as lp
from largeprompt.training.gaps.linearized import linearize

F = torch.float64


def test_covariance_equation_against_another_solver():
    """P' = -HP - PH + C along the scalar flow with a C that varies; and symmetric, nonnegative."""
    line = linearize(
        lp.gradient_flow(
            SCALAR,
            scalar_layer(),
            math.inf,
            5.0,
            times=np.linspace(0, 5, 51),
            parametrization="block",
        ),
        0.25,
    )
    C = torch.tensor([[2.0, 0.3], [0.3, 1.0]], dtype=F)
    source = (1 + line.nodes)[..., None, None] * C
    P = line.covariance(source)[line.reported]

    def slope(t, y):
        gradient, H = scalar_derivatives(y[:2])
        M = y[2:].reshape(2, 2)
        return np.concatenate([-gradient, (-H @ M - M @ H + (1 + t) * C.numpy()).ravel()])

    found = solve_ivp(slope, (0, 5), [0.4, 0.5, 0, 0, 0, 0], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(P[-1], found.y[2:, -1].reshape(2, 2), rtol=2e-3)
    assert_close(P, P.mT)
    assert float(torch.linalg.eigvalsh(P).min()) > -1e-12
