"""Sums over distinct tokens: how a product of power sums splits into integrals."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence

Term = tuple[int, int]  # (a, b): Σ_l w_l^a (ξ_l - c)^b


def _set_partitions(items: Sequence[Term]) -> Iterator[list[list[Term]]]:
    """All partitions of a list into unordered blocks."""
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for smaller in _set_partitions(rest):
        for i, block in enumerate(smaller):
            yield [*smaller[:i], [first, *block], *smaller[i + 1 :]]
        yield [[first], *smaller]


@functools.cache
def block_counts(terms: tuple[Term, ...]) -> tuple[tuple[tuple[Term, ...], int], ...]:
    """Ways in which the factors of Π_j Σ_l w_l^{a_j} (ξ_l - c)^{b_j} may share tokens.

    Factors that take the same token form a block, whose exponents add up; different blocks take distinct tokens. Returns each
    multiset of blocks with the number of set partitions that give it.

    >>> from largeprompt.law.partitions import block_counts
    >>> block_counts(((2, 0), (2, 0)))  # Y² = Σ_{l≠m} w_l² w_m² + Σ_l w_l⁴
    ((((2, 0), (2, 0)), 1), (((4, 0),), 1))
    """
    found: Counter[tuple[Term, ...]] = Counter()
    for partition in _set_partitions(terms):
        blocks = tuple(sorted((sum(a for a, _ in block), sum(b for _, b in block)) for block in partition))
        found[blocks] += 1
    return tuple(sorted(found.items()))
