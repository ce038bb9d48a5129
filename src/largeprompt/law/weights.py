"""Moments of softmax weights over Gaussian scores, by quadrature, at a cost that does not depend on
the length.

E Π_j Σ_l w_l^{a_j} (ξ_l - c)^{b_j}, w = softmax(σξ), from G_ab(τ) = E[(ξ - c)^b e^{as - e^s}], s =
τ + σξ: formulas (quad.5) to (quad.9) of docs/mathematics/quadrature.md. Arrays first, on lattices;
then tensors: checked, batched, and differentiable in σ.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import ndtr
from torch import Tensor

from largeprompt import validation
from largeprompt.devices import sheltered
from largeprompt.errors import InvalidArgumentError
from largeprompt.law.quadrature import (
    LARGEST_EXPONENT,
    Array,
    Product,
    Range,
    Term,
    block_counts,
    blocks_of,
    largest_tau,
    log_survival,
    partition_integrals,
)
from largeprompt.measures.score_nodes import NORMAL_REACH, SCORE_STEP

# 1 - φ, φ and G_ab on a grid of τ for a batch of settings: (τ, setting)
Expected = tuple[Array, Array, dict[Term, Array]]

# from this scale on the lattice of τ serves for s as well: the trapezoid rule in ξ needs steps
# below 0.55
WIDE = SCORE_STEP / 0.55
# from this scale on τ has a lattice of its own, of so many nodes for each σ
FAR, FAR_NODES = 30.0, 40
NARROW_STEP = 0.5  # of ξ for narrow score laws
SCALES_AT_ONCE = 64
FEW = 6  # settings
WINDOW_ROWS = 64  # of the window matrix at a time: what stays in the cache
MOST_TERMS = 8
LARGEST_POWER = 40
LARGEST_SCALE = 500.0  # checked up to 300; beyond, the lattice takes seconds and more

Combination = list[tuple[Any, Product]]  # Σ factor · E product
# moments (product, row) at scales (row, head)
Evaluate = Callable[[Array, Sequence[Product]], Array]
# of a moment in the scale of one head
Derivative = Callable[[Product, int, tuple[Tensor, ...]], Combination]


class Scores(NamedTuple):
    """Gaussian scores ℓ + σξ of each setting, arrays (setting,), and the center c of the moments of
    ξ.
    """

    level: Array
    scale: Array
    center: Array


def block_expectations(
    start: float, count: int, scores: Scores, needed: Sequence[Term]
) -> Expected:
    """1 - φ, φ and G_ab at τ = start, start + SCORE_STEP, ... for scores below FAR wide; ``needed``
    is sorted.
    """
    wide = scores.scale >= WIDE
    if wide.all() or not wide.any():
        return (_wide if wide.all() else _narrow)(start, count, scores, needed)
    parts = [
        block_expectations(start, count, Scores(*(part[one] for part in scores)), needed)
        for one in (wide, ~wide)
    ]
    back = np.argsort(np.concatenate([np.flatnonzero(wide), np.flatnonzero(~wide)]))
    lost, kept = np.hstack([part[0] for part in parts]), np.hstack([part[1] for part in parts])
    return (
        lost[:, back],
        kept[:, back],
        {term: np.hstack([part[2][term] for part in parts])[:, back] for term in needed},
    )


def _wide(start: float, count: int, scores: Scores, needed: Sequence[Term]) -> Expected:
    """Use one lattice for τ and s: each expectation is a product of a window matrix, shared by all
    settings, with a kernel.
    """
    level, scale, center = scores
    reach, highest = NORMAL_REACH * scale, max(a for a, _ in needed)
    high = min(
        (level + reach + highest * scale**2).max(),
        max((level + reach).max(), LARGEST_EXPONENT - start),
    )
    left, right = math.floor((level - reach).min() / SCORE_STEP), math.ceil(high / SCORE_STEP)
    # (s - τ - ℓ)/σ, shape (v, setting)
    xi = (SCORE_STEP * np.arange(left, right + 1)[:, None] - level) / scale
    kernel = np.exp(-(xi**2) / 2) * (SCORE_STEP / math.sqrt(2 * math.pi)) / scale
    # beyond, all are 0 or 1 already
    s = np.minimum(start + SCORE_STEP * np.arange(left, right + count), LARGEST_EXPONENT + 1)
    grown = np.exp(s)
    functions: list[tuple[Array, Array]] = [(-np.expm1(-grown), kernel), (np.exp(-grown), kernel)]
    for a, group in itertools.groupby(needed, key=lambda term: term[0]):
        functions.append(
            (
                np.exp(a * s - grown),
                np.hstack([kernel * (xi - center) ** b if b else kernel for _, b in group]),
            )
        )
    results = [np.zeros((count, weight.shape[1])) for _, weight in functions]
    if len(scale) <= FEW:  # no window matrix to share
        for j, ((values, weight), result) in enumerate(zip(functions, results, strict=True)):
            if j == 1 and results[0].max() < 0.5:
                result[:] = 1 - results[0]  # φ itself is needed only where it is small
                continue
            for i, column in enumerate(weight.T):
                result[:, i] = np.correlate(values, column, "valid")
    else:
        windows = [
            np.lib.stride_tricks.sliding_window_view(values, right - left + 1)
            for values, _ in functions
        ]
        # mass of the kernel from each v on
        beyond = np.vstack([np.cumsum(kernel[::-1], axis=0)[::-1], np.zeros_like(scale)])
        for row in range(0, count, WINDOW_ROWS):
            rows = min(WINDOW_ROWS, count - row)
            # beyond the largest exponent every function is 0, except 1 - e^{-e^s}, which is 1 there
            width = min(
                right - left + 1,
                max(0, math.floor((LARGEST_EXPONENT - start) / SCORE_STEP) - row - left + 1),
            )
            if width:
                for window, (_, weight), result in zip(windows, functions, results, strict=True):
                    result[row : row + rows] = window[row : row + rows, :width] @ weight[:width]
            results[0][row : row + rows] += beyond[width]
    blocks = np.split(np.hstack(results[2:]), len(needed), axis=1)
    return results[0], results[1], dict(zip(needed, blocks, strict=True))


def _narrow(start: float, count: int, scores: Scores, needed: Sequence[Term]) -> Expected:
    """For σ below the lattice step: a trapezoid rule in ξ itself, one exponential for every (τ,
    setting, ξ).
    """
    level, scale, center = scores
    highest = max(a for a, _ in needed)
    count_xi = math.ceil((NORMAL_REACH + highest * scale.max()) / NARROW_STEP)
    xi = NARROW_STEP * np.arange(-count_xi, count_xi + 1)
    weight = np.exp(-(xi**2) / 2) * (NARROW_STEP / math.sqrt(2 * math.pi))
    # (τ, setting, 1)
    t = np.exp(start + level + SCORE_STEP * np.arange(count)[:, None])[:, :, None]
    growth = np.exp(scale[:, None] * xi)  # e^{σξ}, (setting, ξ)
    survival = np.exp(-t * growth)
    values = {
        (a, b): t[:, :, 0] ** a
        * np.einsum("tsx,sx->ts", survival, weight * growth**a * (xi - center[:, None]) ** b)
        for a, b in needed
    }
    return -np.expm1(-t * growth) @ weight, survival @ weight, values


def _far(start: float, count: int, step: float, scores: Scores, needed: Sequence[Term]) -> Expected:
    """For scores much wider than the softmax: blocks vary with τ on the scale of σ, and need few τ;
    s keeps its own lattice.

    1 - e^{-e^s} is a normal distribution function, whose average over the scores is known, and a
    rest that vanishes on both sides.
    """
    s = np.arange(-42.0, 9.5, SCORE_STEP)
    grown, tau = np.exp(s), start + step * np.arange(count)
    rest = -np.expm1(-grown) - ndtr(s)
    lost, values = (
        np.empty((count, len(scores.scale))),
        {term: np.empty((count, len(scores.scale))) for term in needed},
    )
    for i, (level, scale, middle) in enumerate(zip(*scores, strict=True)):
        xi = (s - tau[:, None] - level) / scale  # (τ, s)
        kernel = np.exp(-(xi**2) / 2) * (SCORE_STEP / math.sqrt(2 * math.pi) / scale)
        lost[:, i] = ndtr((tau + level) / math.hypot(1.0, scale)) + kernel @ rest
        for a, b in needed:
            values[a, b][:, i] = (kernel * (xi - middle) ** b if b else kernel) @ np.exp(
                a * s - grown
            )
    return lost, np.maximum(1 - lost, 0.0), values


def _normal_moments(mean: Array, highest: int) -> list[Array]:
    """E(ξ + mean)^b for b = 0..highest."""
    moments = [np.ones_like(mean), mean]
    for b in range(2, highest + 1):
        moments.append(mean * moments[-1] + (b - 1) * moments[-2])
    return moments[: highest + 1]


def _without_tilt(length: float, center: Array, products: Sequence[Product]) -> Array:
    """Scale 0, or one token: all weights are 1/L and the ξ are independent, so the sum over
    partitions is exact.
    """
    results = []
    for terms in products:
        total = sum(a for a, _ in terms)
        moments = _normal_moments(-center, sum(b for _, b in terms))
        value = np.zeros_like(center)
        for blocks, ways in block_counts(terms):
            ratio = math.prod(
                max(length - i, 0.0) / length for i in range(len(blocks))
            ) * length ** (len(blocks) - total)
            value = value + ways * ratio * math.prod(moments[b] for _, b in blocks)
        results.append(value)
    return np.stack(results)


def _endless(scales: Array, center: Array, products: Sequence[Product]) -> Array:
    """Length infinity: Σ w (ξ - c)^b tends to the tilted moment, ξ ~ N(σ, 1), and Σ w^a (·) to 0
    for a >= 2.
    """
    highest = max(b for terms in products for _, b in terms)
    moments = _normal_moments(scales - center, highest)
    zero = np.zeros_like(scales)
    return np.stack(
        [math.prod(moments[b] if a == 1 else zero for a, b in terms) for terms in products]
    )


def _integrate(length: float, scales: Array, center: Array, products: Sequence[Product]) -> Array:
    """Quadrature for 0 < σ and 1 < L < ∞; scales of one kind, narrow, wide or far."""
    needed, scores = blocks_of(products), Scores(np.zeros_like(scales), scales, center)
    far = scales.min() >= FAR
    step = float(scales.min()) / FAR_NODES if far else SCORE_STEP
    lowest = min(sum(a for a, _ in terms) for terms in products)
    sigma = float(scales.max())
    below = math.log(length) + min(1.5 * sigma**2, 10 * sigma) + 44.0 / lowest
    above = min(5 + 10.5 * sigma, largest_tau(length, sigma, float(scales.min())))

    def blocks(span: Range) -> tuple[Array, dict[Term, Array]]:
        count = math.ceil(sum(span) / step) + 1
        expected = (
            _far(-span[0], count, step, scores, needed)
            if far
            else block_expectations(-span[0], count, scores, needed)
        )
        lost, kept, values = expected
        return log_survival(lost, kept), values

    return partition_integrals(
        length, products, blocks, (below, above), step=step, further=7.0 + sigma
    )


def lattice_moments(
    length: float, scales: Array, center: Array, products: Sequence[Product]
) -> Array:
    """E Π_j Σ_l w_l^{a_j} (ξ_l - c)^{b_j} for several products at once: shape (product, scale) for
    scales of shape (scale,).
    """
    results = np.empty((len(products), len(scales)))
    if length == 1:
        return _without_tilt(length, center, products)
    if math.isinf(length):
        return _endless(scales, center, products)
    for chosen in (
        scales == 0,
        (scales > 0) & (scales < WIDE),
        (scales >= WIDE) & (scales < FAR),
        scales >= FAR,
    ):
        # neighbouring scales together, so that the ranges fit all of a batch
        order = np.flatnonzero(chosen)[np.argsort(scales[chosen])]
        for batch in np.array_split(order, max(1, math.ceil(len(order) / SCALES_AT_ONCE))):
            if not len(batch):
                continue
            if scales[batch[0]] == 0:
                results[:, batch] = _without_tilt(length, center[batch], products)
            else:
                results[:, batch] = _integrate(length, scales[batch], center[batch], products)
    return results


def integer_pairs(powers: Any) -> Product:
    """Pairs of integers as they are; nothing where they are not."""
    try:
        terms = tuple((int(a), int(b)) for a, b in powers)
        return (
            terms
            if all(a == x and b == y for (a, b), (x, y) in zip(terms, powers, strict=True))
            else ()
        )
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return ()


def _terms(powers: Any) -> Product:
    terms = integer_pairs(powers)
    large = sum(a + b for a, b in terms) > LARGEST_POWER
    if not 1 <= len(terms) <= MOST_TERMS or any(a < 1 or b < 0 for a, b in terms) or large:
        allowed = (
            f"one to {MOST_TERMS} pairs of integers (a, b) with a >= 1, b >= 0, "
            f"{LARGEST_POWER} at most in all"
        )
        raise InvalidArgumentError(
            "powers",
            validation.text(powers),
            allowed,
            "E Y is powers=[(2, 0)], E S² is [(1, 1), (1, 1)].",
        )
    return terms


def _derivative(terms: Product, *_: Any) -> Combination:
    """Derivative in σ as a combination of moments: formula (quad.9) of
    docs/mathematics/quadrature.md.
    """
    combination: Combination = []
    for j, (a, b) in enumerate(terms):
        if (a, b) == (1, 0):
            continue  # the weights sum to one
        others = terms[:j] + terms[j + 1 :]
        combination += [(float(a), ((a, b + 1), *others)), (-float(a), ((a, b), (1, 1), *others))]
    return combination


class _Moments(torch.autograd.Function):
    @staticmethod
    def forward(
        evaluate: Evaluate, _: Derivative, products: tuple[Product, ...], *scales: Tensor
    ) -> Tensor:
        rows = (
            torch.stack(scales, -1)
            .detach()
            .cpu()
            .to(torch.float64)
            .numpy()
            .reshape(-1, len(scales))
        )
        unique, back = np.unique(rows, axis=0, return_inverse=True)
        values = evaluate(unique, products)[:, back.reshape(-1)]
        return torch.from_numpy(values.reshape(len(products), *scales[0].shape)).to(scales[0])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.arguments = inputs[:3]
        ctx.save_for_backward(*inputs[3:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        scales = ctx.saved_tensors
        evaluate, derivative, products = ctx.arguments
        results: list[Tensor | None] = [None, None, None]
        for head, scale in enumerate(scales):
            combinations = (
                [derivative(product, head, scales) for product in products]
                if ctx.needs_input_grad[head + 3]
                else []
            )
            wanted = tuple(
                sorted({terms for combination in combinations for _, terms in combination})
            )
            known = (
                dict(zip(wanted, moments(evaluate, derivative, wanted, *scales), strict=True))
                if wanted
                else {}
            )
            total = torch.zeros_like(scale)
            for gradient, combination in zip(gradients[0], combinations, strict=False):
                total = total + gradient * sum(
                    factor * known[terms] for factor, terms in combination
                )
            results.append(total)
        return tuple(results)


def moments(
    evaluate: Evaluate, derivative: Derivative, products: tuple[Product, ...], *scales: Tensor
) -> Tensor:
    """Moments as functions of scales, all of one shape, whose derivatives are combinations of
    moments of the same kind.
    """
    return _Moments.apply(evaluate, derivative, products, *scales)  # type: ignore[no-any-return, no-untyped-call]


def slopes_at_zero(length: float, products: Sequence[Product]) -> list[float]:
    """Derivatives in q = σ² at σ = 0 of moments that are even in σ: half the second derivative in
    σ.
    """
    twice = [
        [(f * g, deeper) for f, terms in _derivative(product) for g, deeper in _derivative(terms)]
        for product in products
    ]
    wanted = sorted({terms for combination in twice for _, terms in combination})
    known = dict(
        zip(wanted, lattice_moments(length, np.zeros(1), np.zeros(1), wanted)[:, 0], strict=True)
    )
    return [
        sum(factor * float(known[terms]) for factor, terms in combination) / 2
        for combination in twice
    ]


def checked_scale(scale: Any) -> Tensor:
    """Check the standard deviation of scores."""
    value = validation.tensor("scale", scale)
    if bool((value < 0).any()):
        raise InvalidArgumentError(
            "scale",
            f"{float(value.min()):.6g}",
            "nonnegative numbers",
            "The law is even in the scale.",
        )
    if bool((value > LARGEST_SCALE).any()):
        given, allowed = f"{float(value.max()):.6g}", f"numbers from 0 to {LARGEST_SCALE:g}"
        remedy = "Scores spread so far are argmax: only the largest token is read."
        raise InvalidArgumentError(
            "scale (standard deviation of the scores)", given, allowed, remedy
        )
    return value


def weight_moments(
    length: float, scale: Any, products: Sequence[Any], center: float = 0.0
) -> Tensor:
    """Several moments at once, sharing the exponentials; shape ``(len(products), *scale.shape)``;
    arguments are trusted.

    >>> from largeprompt.law.weights import weight_moments
    >>> weight_moments(4, 0.0, [[(2, 0)], [(3, 0)]])  # without scores every weight is 1/L
    tensor([0.2500, 0.0625], dtype=torch.float64)
    """

    def evaluate(scales: Array, products: Sequence[Product]) -> Array:
        return lattice_moments(length, scales[:, 0], np.full(len(scales), center), products)

    value = scale if isinstance(scale, Tensor) else torch.as_tensor(scale, dtype=torch.float64)
    return moments(
        evaluate, _derivative, tuple(tuple(map(tuple, powers)) for powers in products), value
    )


@sheltered
def weight_moment(length: float, scale: Any, powers: Any, center: float = 0.0) -> Tensor:
    """E Π_j Σ_l w_l^{a_j} (ξ_l - c)^{b_j} for w = softmax(σξ), ξ_1..ξ_L standard normal.

    Exact up to rounding: relative error below 2e-12 against 40-digit arithmetic for lengths 2 to
    10^15, scales 0.05 to 10 and up to four terms, and below 1e-10 in identities up to scale 40,
    unless the terms of the moment themselves cancel. The cost does not depend on the length.

    Parameters
    ----------
    length
        L, an integer from 1 to 10^15, or ``math.inf``.
    scale
        σ >= 0, the standard deviation of the scores; a number, an array or a tensor,
        differentiable.
    powers
        Pairs (a_j, b_j), a_j >= 1, b_j >= 0: [(2, 0)] is E Y = E Σ w², [(3, 0)] is E Σ w³, [(1, 1)]
        is E S = E Σ w ξ.
    center
        c.

    Returns
    -------
    Tensor
        Of the shape of ``scale``, float64 unless ``scale`` is a tensor of another dtype.

    Examples
    --------
    >>> from largeprompt.law import weight_moment
    >>> print(f"{weight_moment(10, 1.0, [(2, 0)]):.12f}")
    0.194687393695
    >>> sigma = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)
    >>> mean_of_S = weight_moment(10**12, sigma, [(1, 1)])
    >>> torch.allclose(mean_of_S, sigma * (1 - weight_moment(10**12, sigma, [(2, 0)])), rtol=1e-13)
    True
    """
    tokens, scale = validation.length("length", length, allow_infinity=True), checked_scale(scale)
    return weight_moments(tokens, scale, [_terms(powers)], validation.number("center", center))[0]
