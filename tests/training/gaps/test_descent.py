"""The gap of descent from the flow, against a problem solved by hand and descent itself."""

import math

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from training_examples import SCALAR, scalar_derivatives, scalar_layer

import largeprompt as lp
from largeprompt.training import descent_gap


def test_first_order_gap_solves_its_equation():
    """δ' = -Hδ - ½H∇R with the gradient and Hessian of the scalar problem written by hand, and
    another solver.
    """
    gap = descent_gap(
        SCALAR, scalar_layer(), math.inf, 6.0, times=[1.0, 3.0, 6.0], parametrization="block"
    )

    def slope(_, y):
        gradient, hessian = scalar_derivatives(y[:2])
        return np.concatenate([-gradient, -hessian @ y[2:] - hessian @ gradient / 2])

    found = solve_ivp(
        slope, (0, 6), [0.4, 0.5, 0, 0], "DOP853", t_eval=[0, 1, 3, 6], rtol=1e-11, atol=1e-13
    )
    np.testing.assert_allclose(gap.flow.parameters, found.y[:2].T, atol=1e-7)
    np.testing.assert_allclose(gap.displacement, found.y[2:].T, atol=2e-5)
    np.testing.assert_allclose(gap.hessian[-1], scalar_derivatives(found.y[:2, -1])[1], atol=1e-7)
    assert gap.stable_step == pytest.approx(
        2 / np.linalg.eigvalsh(scalar_derivatives(found.y[:2, -1])[1])[-1], rel=1e-6
    )
    assert gap.stable_step_on_path <= gap.stable_step
    assert "times the step size" in repr(gap)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: descent_gap(SCALAR, scalar_layer(), 0, 1.0), "length: got 0"),
        (lambda: descent_gap(SCALAR, scalar_layer(), 10, -1.0), "until: got -1"),
        (lambda: descent_gap(SCALAR, scalar_layer(), 10, 1.0, resolution=0.0), "resolution"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(lp.InvalidArgumentError, match=words):
        call()
