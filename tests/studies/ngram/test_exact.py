"""Attention over paths about any center and given their end: against enumeration, and the first
order against the exact law.
"""

import itertools

import pytest
import torch
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.studies.ngram.exact import chain_error, chain_expansion

F = torch.float64


def chain(alphabet, order, seed=0):
    return lp.measures.MarkovChain.random(alphabet, order, 1.0, torch.Generator().manual_seed(seed))


def layer(c, seed=1, out=2):
    d = (c.order + 1) * c.alphabet
    generator = torch.Generator().manual_seed(seed)
    return lp.SoftmaxAttention(
        torch.randn(d, d, generator=generator, dtype=F),
        torch.randn(out, d, generator=generator, dtype=F),
    ), torch.randn(3, d, generator=generator, dtype=F)


def enumerated(c, attention, z, length, center, ending=None):
    """E‖T_L - c‖² over every path of L windows, from the library's own attention on the tokens."""
    total = mass = 0.0
    law = c.ngram_law(length + c.order)
    for path in itertools.product(range(c.alphabet), repeat=length + c.order):
        symbols = torch.tensor(path)
        if ending is not None and int(c.context_index(symbols)[-1]) != ending:
            continue
        output = attention(lp.Empirical(c.tokens(symbols, c.order + 1)), z)
        total += float(law[path]) * (output - center).square().sum(-1)
        mass += float(law[path])
    return total / mass


@pytest.mark.parametrize(
    ("alphabet", "order", "length"), [(3, 1, 1), (3, 1, 4), (2, 1, 7), (2, 2, 5), (2, 3, 3)]
)
def test_exact_error_by_enumeration(alphabet, order, length):
    c = chain(alphabet, order)
    attention, z = layer(c)
    limit = attention(c.ngrams(order + 1), z)
    assert_close(
        chain_error(attention, c, z, [length])[0],
        enumerated(c, attention, z, length, limit),
        rtol=1e-11,
        atol=0,
    )
    center = limit + 0.3
    found = chain_error(attention, c, z, [length], center=center, ending=torch.tensor([1, 1, 1]))
    assert_close(
        found[0], enumerated(c, attention, z, length, center, ending=1), rtol=1e-11, atol=0
    )


@pytest.mark.parametrize("order", [1, 2])
def test_first_order_is_the_limit_of_the_exact_law(order):
    """L²(exact - first order) has a limit, with and without a final context: bias, covariance and
    the pull of the end are right.
    """
    c = chain(3, order)
    attention, z = layer(c)
    center = torch.zeros(3, 2, dtype=F)
    for ending in (None, torch.tensor([0, 1, 2])):
        found = chain_expansion(attention, c, z, ending=ending)
        exact = chain_error(attention, c, z, [2**14, 2**16], center=center, ending=ending)
        rest = [
            (exact[i] - found.error(center, length)) * length
            for i, length in enumerate((2**14, 2**16))
        ]
        assert float((rest[1] / rest[0]).abs().max()) < 0.3  # falls like 1/L
        assert float(rest[1].abs().max()) < 0.02 * float(found.constant.max())
    assert_close(
        2**16 * chain_error(attention, c, z, [2**16])[0], found.constant, rtol=0.02, atol=0
    )


def test_independent_tokens_and_symbols_give_the_base_theory():
    c = chain(4, 1)
    attention, z = layer(c)
    found = chain_expansion(attention, c, z)
    base = lp.finite_prompt(attention, c.ngrams(2), z, 1, expansion=True)
    assert_close(found.independent_constant, base.mse)
    assert_close(found.limit, base.limit)
    assert_close(found.rho, 1 / base.effective_tokens)
    # a head that reads the last symbol: overlapping windows of independent symbols are uncorrelated
    # in g, though not independent
    alike = c.independent()
    d = 8
    V = torch.cat([torch.zeros(4, 4, dtype=F), torch.eye(4, dtype=F)], 1)
    query = torch.zeros(d, dtype=F)
    query[1] = 2.0
    head = lp.SoftmaxAttention(torch.eye(d, dtype=F), V)
    apart = chain_expansion(head, alike, query)
    assert_close(apart.covariance, apart.independent, rtol=1e-12, atol=1e-14)
    assert not torch.allclose(
        apart.drift, lp.finite_prompt(head, alike.ngrams(2), query, 1, expansion=True).bias
    )


def test_wider_windows_than_the_order_needs():
    c = chain(3, 1)
    attention, z = layer(c.lifted(2))
    assert_close(
        chain_expansion(attention, c, z).constant,
        chain_expansion(attention, c.lifted(2), z).constant,
        rtol=1e-9,
        atol=0,
    )


def test_a_center_away_from_the_limit_and_a_known_end():
    """At long lengths E‖T_L - c‖² less its limit is first order, given the end of the path too."""
    generator = torch.Generator().manual_seed(5)
    source = lp.measures.MarkovChain.random(3, 1, 1.0, generator)
    U, V, z = (torch.randn(shape, generator=generator, dtype=F) for shape in ((6, 6), (2, 6), (6,)))
    attention = lp.SoftmaxAttention(U, V)
    center = attention(source.ngrams(2), z) + torch.tensor([1e-6, 0.0], dtype=F)
    for ending in (None, torch.tensor(1)):
        found = chain_error(attention, source, z, [10**10], center=center, ending=ending)
        assert_close(
            found[0],
            chain_expansion(attention, source, z, ending=ending).error(center, 1e10),
            rtol=1e-8,
            atol=0,
        )
