"""Q3: the head that scores matches: against the library's attention, its derivatives, its flow, and
the expansion near β = ∞.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.studies.ngram import task as ngram

F = torch.float64


def chain(alphabet, order, seed=0):
    return lp.measures.MarkovChain.random(alphabet, order, 1.0, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("alphabet", "order"), [(4, 1), (3, 2), (2, 3)])
def test_shares_give_what_attention_gives(alphabet, order):
    """A finite prompt (Empirical) and an infinite one (Discrete), every query, through the
    library's own operator.
    """
    c = chain(alphabet, order)
    head, query = ngram.next_symbol_head(c), torch.arange(c.contexts)
    symbols = c.sample(40 + order, 1, torch.Generator().manual_seed(1)).expand(c.contexts, -1)
    for beta in (0.0, 1.3, 5.0):
        z = ngram.matching_query(c, query, beta)
        assert_close(
            ngram.attend(ngram.limit_shares(c), beta),
            head(c.ngrams(order + 1), z),
            rtol=1e-12,
            atol=1e-14,
        )
        shares, asked = ngram.drawn_shares(c, symbols, 40, query)
        assert torch.equal(asked, query)
        assert_close(
            ngram.attend(shares, beta),
            head(lp.Empirical(c.tokens(symbols[0], order + 1)), z),
            rtol=1e-12,
            atol=1e-14,
        )
    shares, asked = ngram.drawn_shares(c, symbols, 30)
    assert int(asked[0]) == int(c.context_index(symbols[0, : 30 + order])[-1])
    assert_close(shares.sum((1, 2)), torch.ones(c.contexts, dtype=F))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 500), st.floats(-3.0, 12.0), st.sampled_from([(5, 1), (3, 2), (2, 3)]))
def test_limit_is_a_mixture_of_skip_grams(seed, beta, size):
    c = chain(*size, seed=seed)
    found = ngram.attend(ngram.limit_shares(c), beta)
    for q in (0, c.contexts - 1):
        assert_close(found[q], ngram.skip_gram_mixture(c, q, beta), rtol=1e-9, atol=1e-12)


def test_gate_at_order_one():
    c, beta = chain(5, 1), 2.5
    gate = c.stationary * math.expm1(beta) / (1 + c.stationary * math.expm1(beta))
    expected = (1 - gate).unsqueeze(-1) * c.ngram_law(1) + gate.unsqueeze(-1) * c.rows
    assert_close(ngram.attend(ngram.limit_shares(c), beta), expected, rtol=1e-13, atol=1e-15)


def test_infinite_strength_is_the_empirical_ngram_with_its_back_off():
    c = chain(3, 1)
    symbols = torch.tensor([[0, 1, 0, 2, 0, 1, 0], [0, 1, 0, 1, 0, 1, 2]])
    shares, asked = ngram.drawn_shares(c, symbols, 6)
    assert asked.tolist() == [0, 2]
    found = ngram.attend(shares, math.inf)
    assert_close(found[0], torch.tensor([0.0, 2 / 3, 1 / 3], dtype=F))
    # symbol 2 was never followed: the unigram
    assert_close(found[1], torch.tensor([2 / 6, 3 / 6, 1 / 6], dtype=F))
    assert_close(ngram.attend(shares, 40.0), found)
    # additive smoothing towards the unigram, with a = L/(e^β - 1)
    beta, counts = 1.7, torch.tensor([0.0, 2.0, 1.0], dtype=F)
    a, unigram = 6 / math.expm1(beta), shares[0].sum(0)
    assert_close(ngram.attend(shares, beta)[0], (counts + a * unigram) / (3 + a))


def test_risk_derivatives_by_autodiff():
    risk = ngram.MatchingRisk.infinite([chain(3, 2), chain(3, 2, seed=1)])
    beta = torch.tensor(1.4, dtype=F, requires_grad=True)
    value = (
        (ngram.attend(risk.shares, beta) - risk.targets).square().sum(-1) / 2 @ risk.weights
    ).sum()
    (first,) = torch.autograd.grad(value, beta, create_graph=True)
    (second,) = torch.autograd.grad(first, beta)
    _, _, bend = risk.terms(1.4)
    assert risk.value(1.4) == pytest.approx(value.item(), rel=1e-12)
    assert risk.gradient(1.4) == pytest.approx(first.item(), rel=1e-11)
    assert float(bend @ risk.weights) == pytest.approx(second.item(), rel=1e-10)


def test_flow_solves_its_equation():
    times = np.array([0.0, 0.5, 1.0, 7.0])
    np.testing.assert_allclose(
        ngram.flow(lambda beta: beta - 3.0, 0.0, times),
        3 - 3 * np.exp(-times),
        rtol=1e-7,
        atol=1e-8,
    )


def test_infinite_prompts_drive_beta_up_like_half_the_logarithm_of_time():
    chains = [chain(4, 1), chain(4, 1, seed=1)]
    expansion, risk = ngram.matching_expansion(chains), ngram.MatchingRisk.infinite(chains)
    assert 2 * risk.value(14.0) * math.exp(28.0) == pytest.approx(expansion.curvature, rel=1e-4)
    times = np.array([0.0, 1e7, 1e8])
    np.testing.assert_allclose(
        ngram.flow(risk.gradient, 0.0, times)[1:], expansion.infinite_flow(times[1:]), atol=0.01
    )
    assert math.exp(expansion.infinite_flow(expansion.crossover(500.0))) == pytest.approx(
        500 / expansion.pseudo_count
    )


@pytest.mark.parametrize(("alphabet", "order"), [(3, 1), (2, 2)])
def test_expansion_finds_the_minimum_and_the_gain_of_the_exact_risk(alphabet, order):
    """A and B contain correlations along the path and with its end; any slip in them would show
    here to first order.
    """
    chains = [chain(alphabet, order, seed=2)]
    expansion = ngram.matching_expansion(chains)
    off = []
    for length in (2**14, 2**16):
        best = float(expansion.best_beta(length))

        def risk(beta, length=length):
            return float(ngram.exact_matching_risk(chains, [beta], [length])[0, 0])

        found = minimize_scalar(
            lambda b, r=risk: 1e5 * r(b), bracket=(best - 0.1, best + 0.1), options={"xtol": 1e-5}
        )
        off.append(abs(found.x - best))
        gain = (risk(25.0) - risk(found.x)) / float(expansion.best_gain(length))
    assert off[1] < 0.4 * off[0] < 0.02
    assert gain == pytest.approx(1, abs=0.02)


def test_first_order_risk_is_the_limit_of_the_exact_one():
    chains, betas = [chain(3, 1), chain(3, 1, seed=1)], [0.0, 2.0, 6.0]
    infinite = torch.tensor(
        [ngram.MatchingRisk.infinite(chains).value(beta) for beta in betas], dtype=F
    )
    exact = ngram.exact_matching_risk(chains, betas, [2**14])[0]
    assert_close(
        (exact - infinite) * 2**14,
        ngram.first_order_matching_risk(chains, betas),
        rtol=3e-3,
        atol=0,
    )


def test_optimum_and_its_standard_error():
    """Against the minimum by another method; the error bar against the spread over disjoint sets of
    prompts.
    """
    c, length = chain(3, 1, seed=3), 100
    symbols = c.sample(length + 1, 8000, torch.Generator().manual_seed(0))
    shares, asked = ngram.drawn_shares(c, symbols, length)
    parts = [
        ngram.MatchingRisk(s, c.rows[q], torch.full((400,), 1 / 400, dtype=F))
        for s, q in zip(shares.split(400), asked.split(400), strict=True)
    ]
    found = [part.optimum() for part in parts]
    assert found[0][0] == pytest.approx(
        minimize_scalar(parts[0].value, bounds=(0, 8), options={"xatol": 1e-9}).x, abs=1e-5
    )
    spread = np.std([best for best, _ in found], ddof=1)
    assert 0.5 < np.mean([error for _, error in found]) / spread < 2.0
    never = ngram.MatchingRisk.infinite([c])
    assert never.optimum() == (math.inf, pytest.approx(math.nan, nan_ok=True))


def test_refusals():
    c = chain(3, 1)
    with pytest.raises(lp.InvalidArgumentError, match="9 \\+ 1 symbols"):
        ngram.drawn_shares(c, torch.zeros(2, 9, dtype=torch.int64), 9)
    with pytest.raises(lp.InvalidArgumentError, match="length: got 0"):
        ngram.drawn_shares(c, torch.zeros(2, 9, dtype=torch.int64), 0)
