"""The law of SGD around the flow: third derivatives, spread and stationary excess."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from training_examples import SCALAR, scalar_layer

import largeprompt as lp
from largeprompt.studies.discrete.ensemble import stochastic_ensemble
from largeprompt.studies.discrete.stochastic_gap import _third, stochastic_gap
from largeprompt.training.risk.objective import make_objective

F = torch.float64


def test_third_derivative_along_a_covariance():
    """R = ½(ab - 1)²: ∇³R:P by hand."""
    a, b, P = 0.7, 0.9, torch.tensor([[0.5, 0.1], [0.1, 0.3]], dtype=F)
    objective, *_ = make_objective(SCALAR, scalar_layer(), [math.inf] * 5, "block")
    found = _third(objective.gradient, torch.tensor([a, b], dtype=F), P)
    # ∂R/∂a = ab² - b: its Hessian is [[0, 2b], [2b, 2a]]; ∂R/∂b likewise
    by_hand = [2 * 2 * b * P[0, 1] + 2 * a * P[1, 1], 2 * 2 * a * P[0, 1] + 2 * b * P[0, 0]]
    assert_close(found, torch.tensor([float(x) for x in by_hand], dtype=F), rtol=1e-6, atol=1e-9)


def test_ensemble_of_sgd_spreads_as_predicted():
    """Spread within 5 standard errors of the law at small η/B; repeatable; the stationary excess is
    (η/4B) tr C.
    """
    law = stochastic_gap(
        SCALAR,
        scalar_layer(),
        5,
        2.0,
        torch.Generator().manual_seed(0),
        times=np.linspace(0, 2, 9),
        prompts=4000,
        noise_times=9,
    )
    arguments = (SCALAR, scalar_layer(), 5, 0.02, 100, 64, 200)
    drawn = stochastic_ensemble(*arguments, torch.Generator().manual_seed(1), record=9)
    again = stochastic_ensemble(*arguments, torch.Generator().manual_seed(1), record=9)
    assert torch.equal(drawn.parameters, again.parameters)
    squares = (drawn.parameters[:, -1] - drawn.mean[-1]).square().sum(-1)
    share = 0.02 / 64
    error = math.hypot(float(squares.std()) / math.sqrt(200), share * float(law.spread_error[-1]))
    assert abs(float(drawn.covariance[-1].trace()) - share * float(law.spread[-1])) < 5 * error
    # the wrong batch size
    assert abs(float(drawn.covariance[-1].trace()) - 2 * share * float(law.spread[-1])) > 5 * error
    assert law.stationary_excess(0.02, 64) == pytest.approx(
        share / 4 * float(law.noise[-1].trace())
    )
    assert float(law.risk_deviation(0.02, 64)[-1]) > 0
    assert_close(law.mean(0.02, math.inf), 0.02 * law.descent.displacement)
    assert "StochasticGap" in repr(law)
    assert "200 runs" in repr(drawn)


GENERATOR = torch.Generator()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: stochastic_gap(SCALAR, scalar_layer(), math.inf, 1.0, GENERATOR), "length"),
        (lambda: stochastic_gap(SCALAR, scalar_layer(), 10, 1.0, None), "generator"),
        (lambda: stochastic_gap(SCALAR, scalar_layer(), 10, 1.0, GENERATOR, groups=1), "groups"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(lp.InvalidArgumentError, match=words):
        call()
