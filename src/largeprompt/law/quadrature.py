"""One quadrature for every e^{-tZ} integral: from block expectations of a token to moments of
softmax weights over L tokens.

    E Σ_{distinct l_1..l_k} Π_i w_{l_i}^{a_i} f_i(x_{l_i}) = L(L-1)...(L-k+1)/(n-1)! ∫ φ(τ)^{L-k}
    Π_i G_{a_i}[f_i](τ) dτ, G_a[f](τ) = E[f(x) e^{as - e^s}], s = τ + score, φ = G_0[1], n = Σ a_i:

formulas (quad.1) to (quad.4) of docs/mathematics/quadrature.md. A law of tokens enters by log φ and
its blocks alone.
"""

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from largeprompt.errors import InvalidArgumentError
from largeprompt.measures.score_nodes import SCORE_STEP

Array = NDArray[np.float64]
Values = TypeVar("Values", Array, Tensor)
Result = TypeVar("Result")
Term = tuple[int, int]  # (a, b): Σ_l w_l^a (ξ_l - c)^b, or Σ_l w_l^a w'_l^b for two heads
Product = tuple[Term, ...]  # of such sums
Range = tuple[float, float]  # τ from -below to above

LARGEST_EXPONENT = 6.7  # e^{-e^s} underflows beyond
# what an integrand may still be at the ends of the range, relative to its largest value
EDGE = 1e-16
MOST_NODES = 1_000_000  # of τ
SMALLER = "Scale the query or the tokens, use certificate(...) for a bound, or sample_prompts(...)."
UNDERFLOWN = -1e290  # log of a φ that has underflowed: times zero tokens it is 0


def _set_partitions(items: Sequence[Term]) -> Iterator[list[list[Term]]]:
    """Partitions of a list into unordered blocks."""
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for smaller in _set_partitions(rest):
        for i, block in enumerate(smaller):
            yield [*smaller[:i], [first, *block], *smaller[i + 1 :]]
        yield [[first], *smaller]


@functools.cache
def block_counts(product: Product) -> tuple[tuple[Product, int], ...]:
    """Ways in which the factors of a product of sums over tokens may share tokens.

    Factors that take the same token form a block, whose exponents add up; different blocks take
    distinct tokens. Returns each multiset of blocks with the number of set partitions that give it.

    >>> from largeprompt.law.quadrature import block_counts
    >>> block_counts(((2, 0), (2, 0)))  # Y² = Σ_{l≠m} w_l² w_m² + Σ_l w_l⁴
    ((((2, 0), (2, 0)), 1), (((4, 0),), 1))
    """
    found: Counter[Product] = Counter()
    for partition in _set_partitions(product):
        found[
            tuple(
                sorted((sum(a for a, _ in block), sum(b for _, b in block)) for block in partition)
            )
        ] += 1
    return tuple(sorted(found.items()))


def blocks_of(products: Sequence[Product]) -> list[Term]:
    """All blocks that products ask for."""
    return sorted(
        {block for product in products for blocks, _ in block_counts(product) for block in blocks}
    )


def log_survival(lost: Values, kept: Values) -> Values:
    """log φ from 1 - φ where φ is near one, else from φ itself; of tensors with gradients."""
    if isinstance(lost, Tensor):
        near = lost < 0.5
        return torch.where(
            near,
            torch.log1p(-torch.where(near, lost, 0.0)),
            torch.log(torch.where(near, 1.0, kept).clamp_min(1e-300)),
        )
    with np.errstate(divide="ignore"):
        found = np.where(lost < 0.5, np.log1p(-np.minimum(lost, 0.5)), np.log(kept))
    return np.maximum(found, UNDERFLOWN)


def falling_factorial_weight(length: Any, count: int, log_phi: Values) -> Values:
    """L(L-1)...(L-k+1) φ^{L-k}: k tokens picked, and the others left."""
    length = 1.0 * length  # products of integers overflow
    ways = math.prod(length - i for i in range(count))
    exponent = log_phi * np.maximum(length - count, 0.0)
    return ways * (torch.exp(exponent) if isinstance(exponent, Tensor) else np.exp(exponent))  # type: ignore[no-any-return]


def largest_tau(length: float, widest: float, narrowest: float) -> float:
    """τ beyond which φ^{L-k} < e^{-45} for Gaussian scores of these standard deviations.

    1 - φ >= P(s > 0)(1 - 1/e), and P(s > 0) = Φ(τ/σ) exceeds 80/L there.
    """
    if length < 200:
        return math.inf
    quantile = NormalDist().inv_cdf(80 / length)
    return 1 + max(quantile * widest, quantile * narrowest)


def relative_ends(integrand: Array, axes: int = 1) -> Array:
    """What an integrand (τ, ...) is at both ends of each τ over its largest value: (axis, 2)."""
    size, ends = np.abs(integrand), np.empty((axes, 2))
    for axis in range(axes):
        profile = size.max(axis=tuple(i for i in range(axes) if i != axis))
        largest = profile.max(axis=0) + 1e-300
        ends[axis] = [(profile[end] / largest).max() for end in (0, -1)]
    return ends


def widen(
    evaluate: Callable[[Sequence[Range]], tuple[Result, Array]],
    ranges: Sequence[Range],
    *,
    further: float = 7.0,
    nodes: int = MOST_NODES,
) -> Result:
    """Widen ranges of τ until the relative ends, which ``evaluate`` returns too, are nothing."""
    while True:
        widest = max(below + above for below, above in ranges)
        if not widest <= nodes * SCORE_STEP:
            given, allowed = f"a spread of {widest:.3g} units", f"at most {nodes * SCORE_STEP:.0f}"
            raise InvalidArgumentError("scores", given, allowed, SMALLER)
        result, ends = evaluate(ranges)
        if (ends <= EDGE).all():
            return result
        if not np.isfinite(ends).all():
            given = "block expectations that overflow"
            raise InvalidArgumentError("scores", given, "scores of moderate size", SMALLER)
        ranges = [
            (below + (14.0 if low > EDGE else 0.0), above + (further if high > EDGE else 0.0))
            for (below, above), (low, high) in zip(ranges, ends, strict=True)
        ]


def partition_integrals(
    length: float,
    products: Sequence[Product],
    blocks: Callable[..., tuple[Array, Mapping[Term, Array]]],
    *ranges: Range,
    step: float = SCORE_STEP,
    further: float = 7.0,
) -> Array:
    """E Π_j Σ_l (·) of each product, shape (product, ...), for 1 < L < ∞.

    ``blocks(*ranges)`` returns log φ and the blocks on a grid over the ranges: (τ, ...) for one
    softmax, (τ, τ', ...) for two, each with its own normalization.
    """
    grid = tuple(range(len(ranges)))

    def evaluate(ranges: Sequence[Range]) -> tuple[Array, Array]:
        log_phi, known = blocks(*ranges)
        values, ends = [], np.zeros((len(grid), 2))
        ways = {
            k: falling_factorial_weight(length, k, log_phi)
            for k in range(1, 1 + max(map(len, products)))
            if k <= length
        }
        for product in products:
            orders = math.prod(math.factorial(sum(term[i] for term in product) - 1) for i in grid)
            value: Array = np.zeros(log_phi.shape[len(grid) :])
            for parts, count in block_counts(product):
                if len(parts) <= length:
                    integrand = ways[len(parts)] * math.prod(known[part] for part in parts)
                    ends = np.maximum(ends, relative_ends(integrand, len(grid)))
                    value = value + count / orders * integrand.sum(axis=grid)
            values.append(step ** len(grid) * value)
        return np.stack(values), ends

    return widen(evaluate, ranges, further=further)
