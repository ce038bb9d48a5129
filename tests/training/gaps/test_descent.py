"""The gap of descent from the flow, against a problem solved by hand and descent itself."""

import math

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from training_examples import SCALAR, scalar_derivatives, scalar_layer

import largeprompt as lp
from largeprompt.training import descent_gap, modified_flow


def test_first_order_gap_solves_its_equation():
    """δ' = -Hδ - ½H∇R with the gradient and Hessian of the scalar problem written by hand, and
    another solver.
    """
    gap = descent_gap(
        SCALAR, scalar_layer(), math.inf, 6.0, times=[1.0, 3.0, 6.0], parametrisation="block"
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


@pytest.mark.parametrize("length", [20, math.inf])
def test_descent_is_off_by_the_predicted_amount_and_follows_the_modified_flow(length):
    gap = descent_gap(
        SCALAR, scalar_layer(), length, 4.0, times=np.linspace(0, 4, 41), parametrisation="block"
    )
    ratios, second = [], []
    for eta in (0.1, 0.05):
        run = lp.gradient_descent(
            SCALAR, scalar_layer(), length, eta, round(4 / eta), record=41, parametrisation="block"
        )
        bent = modified_flow(
            SCALAR,
            scalar_layer(),
            length,
            eta,
            4.0,
            times=run.times.numpy(),
            tolerance=1e-8,
            parametrisation="block",
        )
        ratios.append(
            float((run.parameters - gap.flow.parameters).norm(dim=-1).max()) / (eta * gap.supremum)
        )
        second.append(float((run.parameters - bent.parameters).norm(dim=-1).max()))
    assert 2 * ratios[1] - ratios[0] == pytest.approx(1, abs=0.01)
    assert math.log2(second[0] / second[1]) == pytest.approx(2, abs=0.15)
    assert second[0] < 0.3 * 0.1 * gap.supremum


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: descent_gap(SCALAR, scalar_layer(), 0, 1.0), "length: got 0"),
        (lambda: descent_gap(SCALAR, scalar_layer(), 10, -1.0), "until: got -1"),
        (lambda: descent_gap(SCALAR, scalar_layer(), 10, 1.0, resolution=0.0), "resolution"),
        (lambda: modified_flow(SCALAR, scalar_layer(), 10, 0.0, 1.0), "step_size: got 0"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(lp.InvalidArgumentError, match=words):
        call()
