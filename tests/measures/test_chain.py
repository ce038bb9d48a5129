"""Markov chains: stationary law, spectrum, windows, exact covariances of additive functionals,
paths, and refusals.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.testing import assert_sample_mean

F = torch.float64


def chain(alphabet, order, seed=0, concentration=1.0):
    return lp.measures.MarkovChain.random(
        alphabet, order, concentration, torch.Generator().manual_seed(seed)
    )


def functional(c, k, rows=2, seed=5):
    return torch.randn(rows, c.alphabet**k, generator=torch.Generator().manual_seed(seed), dtype=F)


def paths(c, length):
    """Every path with its probability, by multiplying transitions one by one."""
    for path in itertools.product(range(c.alphabet), repeat=length):
        probability = c.stationary[path[: c.order]]
        for t in range(c.order, length):
            probability = probability * c.transition[path[t - c.order : t + 1]]
        yield path, float(probability)


@settings(deadline=None, max_examples=30)
@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_two_symbols_have_closed_forms(a, b):
    """P = [[1-a, a], [b, 1-b]]: π = (b, a)/(a+b), λ₂ = 1-a-b, and Σ_k Cov(1[x_0=1], 1[x_k=1]) =
    π₀π₁(1+λ)/(1-λ).
    """
    c = lp.measures.MarkovChain([[1 - a, a], [b, 1 - b]])
    assert_close(c.stationary, torch.tensor([b, a], dtype=F) / (a + b))
    eigenvalue = 1 - a - b
    assert c.relaxation_time == pytest.approx(1 / (1 - abs(eigenvalue)))
    expected = a * b / (a + b) ** 2 * (1 + eigenvalue) / (1 - eigenvalue)
    assert float(c.long_run_covariance([[0.0, 1.0]])) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("alphabet", "order"), [(3, 1), (20, 1), (4, 2), (3, 3)])
def test_stationary_law_and_windows(alphabet, order):
    c = chain(alphabet, order)
    assert c.order == order
    assert c.alphabet == alphabet
    pi = c.stationary.flatten()
    assert_close(pi @ c.matrix, pi, rtol=1e-13, atol=1e-15)
    assert_close(c.matrix.sum(1), torch.ones(c.contexts, dtype=F))
    for k in range(1, order + 3):
        wide = c.ngram_law(k + 1)
        assert_close(wide.sum(-1), c.ngram_law(k))
        assert_close(wide.sum(0), c.ngram_law(k))  # stationary: both ends may be forgotten
    law = c.ngrams(2)
    assert law.atoms.shape == (alphabet**2, 2 * alphabet)
    assert_close(law.mean[:alphabet], c.ngram_law(1))
    assert_close(law.mean[alphabet:], c.ngram_law(1))
    assert abs(c.eigenvalues[0] - 1) < 1e-10
    assert c.relaxation_time == pytest.approx(1 / (1 - float(c.eigenvalues[1].abs())))
    assert repr(c).startswith(f"MarkovChain(alphabet={alphabet}, order={order}")


@pytest.mark.parametrize(
    ("alphabet", "order", "k", "length"),
    [(3, 1, 2, 5), (2, 2, 3, 6), (3, 1, 1, 6), (2, 1, 3, 6), (2, 3, 2, 5)],
)
def test_finite_length_covariance_by_enumeration(alphabet, order, k, length):
    c = chain(alphabet, order, seed=3)
    f, g = functional(c, k), functional(c, min(k, 2), rows=1, seed=6)
    means, weights = [], []
    place = lambda window: int(  # noqa: E731
        sum(s * alphabet ** (len(window) - 1 - i) for i, s in enumerate(window))
    )
    for path, probability in paths(c, length + max(k, order) - 1):
        both = [
            h[:, [place(path[t : t + w]) for t in range(length)]].mean(1)
            for h, w in ((f, k), (g, min(k, 2)))
        ]
        means.append(torch.cat(both))
        weights.append(probability)
    means, weights = torch.stack(means), torch.tensor(weights, dtype=F)
    assert float(weights.sum()) == pytest.approx(1, abs=1e-12)
    away = means - weights @ means
    expected = length * away.mT @ (away * weights.unsqueeze(-1))
    assert_close(c.long_run_covariance(f, length=length), expected[:2, :2], rtol=1e-10, atol=1e-12)
    assert_close(
        c.long_run_covariance(f, g, length=length), expected[:2, 2:], rtol=1e-10, atol=1e-12
    )


def test_long_run_covariance_is_the_limit_and_does_not_depend_on_the_order_that_is_claimed():
    c = chain(3, 2)
    f = functional(c, 3)
    limit = c.long_run_covariance(f)
    near = [
        (c.long_run_covariance(f, length=length) - limit).abs().max() for length in (10**3, 10**4)
    ]
    assert float(near[1]) < 0.11 * float(near[0])
    assert_close(c._lifted(4).long_run_covariance(f), limit, rtol=1e-10, atol=1e-12)
    lags = c.lagged_covariance(f)
    law = c.ngram_law(3).flatten()
    centered = f - (f @ law).unsqueeze(-1)
    assert_close(limit, (centered * law) @ centered.mT + lags + lags.mT)
    batch = torch.stack([f, 2 * f])
    assert_close(c.long_run_covariance(batch), torch.stack([limit, 4 * limit]))


def test_independent_symbols_have_no_memory():
    c = chain(4, 1).independent()
    assert c.relaxation_time == pytest.approx(1.0)
    assert float(c.lagged_covariance(functional(c, 1)).abs().max()) < 1e-14
    assert_close(c.stationary, chain(4, 1).stationary)


@settings(deadline=None, max_examples=30)
@given(st.floats(0.0, 0.95))
def test_lazy_chain_keeps_its_law_and_moves_its_eigenvalues(holding):
    base = chain(4, 1)
    c = base.lazy(holding)
    assert_close(c.stationary, base.stationary, rtol=1e-10, atol=1e-12)
    expected = torch.sort((holding + (1 - holding) * base.eigenvalues).abs()).values
    assert_close(torch.sort(c.eigenvalues.abs()).values, expected, rtol=1e-9, atol=1e-9)


def test_simulation_agrees_with_the_exact_variance():
    """Squared centered means of paths at a false-alarm rate of 1e-9, and the frequency of every
    window.
    """
    c, length = chain(3, 2, seed=1).lazy(0.5), 200
    f = functional(c, 3, rows=1)
    symbols = c.sample(length + 2, 20_000, torch.Generator().manual_seed(0))
    index = symbols[:, :-2] * 9 + symbols[:, 1:-1] * 3 + symbols[:, 2:]
    means = f[0][index].mean(1) - f[0] @ c.ngram_law(3).flatten()
    assert_sample_mean(means.unsqueeze(-1), torch.zeros(1, dtype=F))
    expected = c.long_run_covariance(f, length=length)[0] / length
    assert_sample_mean(means.square().unsqueeze(-1), expected)
    assert (
        float(expected)
        > 1.2
        * float((f - f @ c.ngram_law(3).flatten()).square() @ c.ngram_law(3).flatten())
        / length
    )
    windows = torch.nn.functional.one_hot(index[:, 100], 27).to(F)
    assert_sample_mean(windows, c.ngram_law(3).flatten())


def test_paths_use_possible_steps_only_and_come_back_with_the_seed():
    P = torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], [0.3, 0.7, 0.0]], dtype=F)
    c = lp.measures.MarkovChain(P)
    symbols = c.sample(500, 200, torch.Generator().manual_seed(3))
    assert symbols.dtype == torch.int64
    assert bool((P[symbols[:, :-1], symbols[:, 1:]] > 0).all())
    assert torch.equal(symbols, c.sample(500, 200, torch.Generator().manual_seed(3)))
    assert c.sample(1, 4, torch.Generator()).shape == (4, 1)
    lazy = c.lazy(0.9).sample(300, 50, torch.Generator().manual_seed(0))
    assert (lazy[:, 1:] == lazy[:, :-1]).double().mean() > 0.8


def test_contexts_that_are_left_for_good_have_probability_zero():
    c = lp.measures.MarkovChain([[0.5, 0.25, 0.25], [0.0, 0.4, 0.6], [0.0, 0.6, 0.4]])
    assert float(c.stationary[0]) == 0
    assert_close(c.stationary, torch.tensor([0.0, 0.5, 0.5], dtype=F))
    assert not bool((c.sample(100, 100, torch.Generator().manual_seed(0)) == 0).any())
    # 00 never occurs
    second = lp.measures.MarkovChain(torch.tensor([[0.0, 1.0], [0.5, 0.5]], dtype=F))._lifted(2)
    assert float(second.stationary[0, 0]) == 0
    assert_close(second.stationary.sum(0), torch.tensor([1 / 3, 2 / 3], dtype=F))


def test_tokens_are_one_hot_windows():
    c = chain(3, 1)
    tokens = c.tokens(torch.tensor([[2, 0, 1, 1]]), 2)
    assert tokens.shape == (1, 3, 6)
    assert tokens[0, 0].tolist() == [0, 0, 1, 1, 0, 0]
    assert tokens[0, 2].tolist() == [0, 1, 0, 0, 1, 0]
    far = c.ngrams(2)
    index = torch.arange(9)
    assert_close(far.atoms, c.tokens(torch.stack([index // 3, index % 3], -1), 2)[:, 0])


@settings(max_examples=20, deadline=None)
@given(st.floats(0.02, 20.0), st.integers(0, 1000))
def test_random_rows_follow_the_dirichlet_law(concentration, seed):
    c = chain(3, 2, seed, concentration)
    assert_close(c.transition.sum(-1), torch.ones(3, 3, dtype=F))


def test_random_rows_have_dirichlet_moments():
    """E p² = (α + 1)/(m(mα + 1)) for Dirichlet(α, ..., α), small and large α."""
    for concentration in (0.3, 2.0):
        generator = torch.Generator().manual_seed(0)
        rows = torch.cat(
            [
                lp.measures.MarkovChain.random(3, 3, concentration, generator).rows
                for _ in range(300)
            ]
        )
        expected = (concentration + 1) / (3 * (3 * concentration + 1))
        assert_sample_mean(rows.square(), torch.full((3,), expected, dtype=F))


HALF = [[0.5, 0.5], [0.5, 0.5]]
BAD = {
    "a number": (lambda: lp.measures.MarkovChain(1.0), "transition: got shape"),
    "not square": (lambda: lp.measures.MarkovChain([[0.5, 0.5]]), "transition: got shape"),
    "one symbol": (lambda: lp.measures.MarkovChain([[1.0]]), "transition: got shape"),
    "rows": (lambda: lp.measures.MarkovChain([[0.5, 0.6], [0.5, 0.5]]), "sum to 1.1"),
    "negative": (lambda: lp.measures.MarkovChain([[1.5, -0.5], [0.5, 0.5]]), "negative"),
    "nan": (lambda: lp.measures.MarkovChain([[math.nan, 0.5], [0.5, 0.5]]), "NaN"),
    "reducible": (
        lambda: lp.measures.MarkovChain([[1.0, 0.0], [0.0, 1.0]]),
        "a reducible chain: 2 classes",
    ),
    "periodic": (
        lambda: lp.measures.MarkovChain([[0.0, 1.0], [1.0, 0.0]]),
        "a periodic chain of period 2",
    ),
    "too many contexts": (
        lambda: lp.measures.MarkovChain(np.full((20, 20, 20, 20), 0.05)),
        r"20\^3 contexts",
    ),
    "alphabet": (
        lambda: lp.measures.MarkovChain.random(1, 1, 1.0, torch.Generator()),
        "alphabet: got 1",
    ),
    "order": (lambda: lp.measures.MarkovChain.random(2, 0, 1.0, torch.Generator()), "order: got 0"),
    "concentration": (
        lambda: lp.measures.MarkovChain.random(2, 1, 0.0, torch.Generator()),
        "concentration: got 0",
    ),
    "generator": (lambda: lp.measures.MarkovChain.random(2, 1, 1.0, "seed"), "generator: got str"),
    "holding": (lambda: lp.measures.MarkovChain(HALF).lazy(1.0), "holding: got 1.0"),
    "window": (lambda: lp.measures.MarkovChain(HALF).ngrams(0), "k: got 0"),
    "length": (
        lambda: lp.measures.MarkovChain(HALF).sample(0, 1, torch.Generator()),
        "length: got 0",
    ),
    "replicas": (
        lambda: lp.measures.MarkovChain(HALF).sample(1, 0, torch.Generator()),
        "replicas: got 0",
    ),
    "functional": (
        lambda: lp.measures.MarkovChain(HALF).long_run_covariance([[1.0, 2.0, 3.0]]),
        r"f: got shape \(1, 3\)",
    ),
    "functional of no rows": (
        lambda: lp.measures.MarkovChain(HALF).lagged_covariance([1.0, 2.0]),
        r"f: got shape \(2,\)",
    ),
    "second functional": (
        lambda: lp.measures.MarkovChain(HALF).long_run_covariance([[1.0, 2.0]], [[1.0]]),
        "g: got shape",
    ),
    "symbols": (
        lambda: lp.measures.MarkovChain(HALF).tokens(torch.tensor([0, 2]), 1),
        "symbols: got",
    ),
    "fractions": (
        lambda: lp.measures.MarkovChain(HALF).tokens(torch.tensor([0.5]), 1),
        "symbols: got",
    ),
    "short path": (
        lambda: lp.measures.MarkovChain(HALF).tokens(torch.tensor([0]), 2),
        "at least k = 2",
    ),
    "random order": (
        lambda: lp.measures.MarkovChain.random(2, 40, 1.0, torch.Generator()),
        "at most 4096 contexts",
    ),
    "windows beyond memory": (lambda: lp.measures.MarkovChain(HALF).ngrams(30), "k: got 30"),
    "law beyond memory": (
        lambda: lp.measures.MarkovChain(HALF).ngram_law(10**9),
        "k: got 1000000000",
    ),
    "paths beyond memory": (
        lambda: lp.measures.MarkovChain(HALF).sample(10**12, 1, torch.Generator()),
        "length: got 1 paths of 10000",
    ),
    "text for symbols": (
        lambda: lp.measures.MarkovChain(HALF).tokens("abc", 1),
        "symbols: got 'abc'",
    ),
    "symbol alone": (lambda: lp.measures.MarkovChain(HALF).tokens(1, 1), "symbols: got one number"),
    "booleans": (
        lambda: lp.measures.MarkovChain(HALF).tokens([True, False], 1),
        "symbols: got torch.bool",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_refusals_name_the_argument(case):
    call, message = BAD[case]
    with pytest.raises(lp.InvalidArgumentError, match=message):
        call()


def test_chains_that_fall_apart_up_to_rounding():
    """Small concentrations: the relaxation time is infinite, and what needs a solution is refused
    by name or is finite.
    """
    infinite = refused = 0
    for seed in range(40):
        for concentration in (0.01, 1e-3):
            try:
                found = lp.measures.MarkovChain.random(
                    3, 1, concentration, torch.Generator().manual_seed(seed)
                )
            except lp.InvalidArgumentError:
                continue
            assert repr(found).startswith("MarkovChain(alphabet=3")
            infinite += math.isinf(found.relaxation_time)
            try:
                assert bool(torch.isfinite(found.long_run_covariance([[0.0, 0.0, 1.0]])).all())
            except lp.InvalidArgumentError as error:
                refused += "reducible up to rounding" in str(error)
    assert infinite > 0
    assert refused > 0
