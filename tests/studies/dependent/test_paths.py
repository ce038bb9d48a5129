"""Dependent tokens: the head that scores matches, and exact errors against enumeration."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.studies.dependent.paths import (
    constants,
    matching_query,
    next_symbol_head,
    path_error,
)

F = torch.float64


def chain(alphabet, order, seed=0):
    return lp.measures.MarkovChain.random(alphabet, order, 1.0, torch.Generator().manual_seed(seed))


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 500), st.floats(-3.0, 12.0), st.sampled_from([(5, 1), (3, 2), (2, 3)]))
def test_limit_is_a_mixture_of_skip_grams(seed, beta, size):
    c = chain(*size, seed=seed)
    law, m, r = c.ngram_law(c.order + 1), c.alphabet, c.order
    for q in (0, c.contexts - 1):
        symbols = [q // m ** (r - 1 - i) % m for i in range(r)]
        mixture = 0.0
        for chosen in itertools.product([False, True], repeat=r):
            part = law
            for place in reversed(range(r)):
                part = part.select(place, symbols[place]) if chosen[place] else part.sum(place)
            mixture = mixture + math.expm1(beta) ** sum(chosen) * part
        found = next_symbol_head(c)(c.ngrams(r + 1), matching_query(c, q, beta))
        assert_close(found, mixture / mixture.sum(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("alphabet", "order", "length"), [(2, 1, 6), (3, 1, 4), (2, 2, 5)])
@pytest.mark.parametrize("ending", [None, 1])
def test_errors_about_any_center_and_given_the_end(alphabet, order, length, ending):
    c = chain(alphabet, order)
    head, z = next_symbol_head(c), matching_query(c, 1, [0.0, 1.5])
    center, total, mass = torch.full((2, alphabet), 0.2, dtype=F), 0.0, 0.0
    law = c.ngram_law(length + order)
    for path in itertools.product(range(alphabet), repeat=length + order):
        symbols = torch.tensor(path)
        last = sum(s * alphabet**i for i, s in enumerate(path[: -order - 1 : -1]))
        if ending is None or last == ending:
            output = head(lp.Empirical(c.tokens(symbols, order + 1)), z)
            total = total + float(law[path]) * (output - center).square().sum(-1)
            mass += float(law[path])
    end = None if ending is None else torch.tensor(ending)
    found = path_error(c, z, [length], center=center, ending=end)[0]
    assert_close(found, total / mass, rtol=1e-11, atol=0)


def test_independent_symbols_cost_nothing_though_windows_overlap():
    c = chain(4, 1).independent()
    whole, alone = constants(c, matching_query(c, 1, 2.0))
    assert_close(whole, alone, rtol=1e-12, atol=0)
