"""Training the strength of a match: gradients, flows, and the expansion near β = ∞."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.studies.dependent.paths import matching_query, next_symbol_head
from largeprompt.studies.dependent.training import (
    exact_matching_risk,
    flow,
    infinite_gradient,
    matching_expansion,
)


def chain(alphabet, seed=0):
    return lp.measures.MarkovChain.random(alphabet, 1, 1.0, torch.Generator().manual_seed(seed))


def infinite_risk(c, beta):
    """From the library's own attention on the law of a window."""
    limit = next_symbol_head(c)(c.ngrams(2), matching_query(c, torch.arange(c.contexts), beta))
    return float(c.stationary @ (limit - c.rows).square().sum(-1)) / 2


def test_gradient_is_the_slope_of_the_limits_risk():
    chains, step = [chain(3), chain(3, 1)], 1e-4
    for beta in (0.0, 1.4, 5.0):
        up, down = (sum(infinite_risk(c, beta + s) for c in chains) / 2 for s in (step, -step))
        assert infinite_gradient(chains)(beta) == pytest.approx((up - down) / (2 * step), rel=1e-6)


def test_infinite_prompts_drive_beta_up_like_half_the_logarithm_of_time():
    chains = [chain(4), chain(4, 1)]
    expansion, times = matching_expansion(chains), np.array([0.0, 1e7, 1e8])
    found = flow(infinite_gradient(chains), times)
    np.testing.assert_allclose(found[1:], expansion.infinite_flow(times[1:]), atol=0.01)
    at = math.exp(expansion.infinite_flow(expansion.crossover(500.0)))
    assert at == pytest.approx(500 / expansion.pseudo_count)


def test_expansion_finds_the_minimum_and_the_gain_of_the_exact_risk():
    """A and B contain correlations along the path and with its end; a slip would show here."""
    chains = [chain(3, 2)]
    expansion, off = matching_expansion(chains), []
    for length in (2**14, 2**16):
        best = float(expansion.best_beta(length))

        def risk(beta, length=length):
            return 1e5 * float(exact_matching_risk(chains, [beta], [length])[0, 0])

        bracket = (best - 0.1, best + 0.1)
        found = minimize_scalar(risk, bracket=bracket, options={"xtol": 1e-5})
        off.append(abs(found.x - best))
        gain = (risk(25.0) - found.fun) / 1e5 / float(expansion.best_gain(length))
    assert off[1] < 0.4 * off[0] < 0.02
    assert gain == pytest.approx(1, abs=0.02)


def test_exact_risk_tends_to_that_of_the_limit():
    c = chain(3)
    found = exact_matching_risk([c], [0.5, 2.0], [10**12])[0]
    expected = torch.tensor([infinite_risk(c, beta) for beta in (0.5, 2.0)], dtype=torch.float64)
    assert_close(found, expected, rtol=1e-9, atol=0)
