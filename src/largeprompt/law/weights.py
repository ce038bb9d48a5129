"""Moments of softmax weights over Gaussian scores, by quadrature, at a cost that does not depend on
the length.

E Π_j Σ_l w_l^{a_j} (ξ_l - c)^{b_j}, w = softmax(σξ), from G_ab(τ) = E[(ξ - c)^b e^{as - e^s}], s =
τ + σξ: formulas (quad.5) to (quad.9) of docs/mathematics/quadrature.md. Arrays first, on lattices;
then tensors: checked, batched, and differentiable in σ.
"""

import itertools
import math
from collections.abc import Sequence
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

NARROW_STEP = 0.5  # of ξ for narrow score laws: the trapezoid rule needs steps below 0.55
WIDE = SCORE_STEP / NARROW_STEP  # scales from which the lattice of τ serves for s as well
FAR = 30.0  # scales from which blocks vary with τ on the scale of σ
SCALES_AT_ONCE = 64
FEW = 6  # settings that do not share a window matrix
WINDOW_ROWS = 64  # of the window matrix at a time: what stays in the cache
MOST_TERMS, LARGEST_POWER = 8, 40  # beyond, set partitions take minutes and powers lose digits
LARGEST_SCALE = 500.0  # checked up to 300; beyond, the lattice takes seconds and more

Combination = list[tuple[float, Product]]  # Σ factor · E product


class Scores(NamedTuple):
    """Gaussian scores ℓ + σξ of each setting, (setting,), and the center c of moments of ξ."""

    level: Array
    scale: Array
    center: Array


def block_expectations(
    start: float, count: int, scores: Scores, needed: Sequence[Term]
) -> Expected:
    """1 - φ, φ and G_ab, ``needed`` sorted, at τ = start, start + SCORE_STEP, ..., below FAR.

    All scales are narrow, or all are wide.
    """
    return (_wide if scores.scale.min() >= WIDE else _narrow)(start, count, scores, needed)


def _wide(start: float, count: int, scores: Scores, needed: Sequence[Term]) -> Expected:
    """One lattice for τ and s: window matrices, shared by all settings, times a kernel."""
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
        for (values, weight), result in zip(functions, results, strict=True):
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
            rows = slice(row, min(row + WINDOW_ROWS, count))
            # beyond the largest exponent every function is 0, except 1 - e^{-e^s}, which is 1
            width = math.floor((LARGEST_EXPONENT - start) / SCORE_STEP) - row - left + 1
            width = min(right - left + 1, max(0, width))
            for window, (_, weight), result in zip(windows, functions, results, strict=True):
                result[rows] = window[rows, :width] @ weight[:width]
            results[0][rows] += beyond[width]
    blocks = np.split(np.hstack(results[2:]), len(needed), axis=1)
    return results[0], results[1], dict(zip(needed, blocks, strict=True))


def _narrow(start: float, count: int, scores: Scores, needed: Sequence[Term]) -> Expected:
    """Trapezoid rule in ξ itself, one exponential for every (τ, setting, ξ)."""
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
    """Few τ, ``step`` apart, while s keeps its own lattice.

    1 - e^{-e^s} is a normal distribution function, whose average is known, and a rest that
    vanishes on both sides.
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


def _independent(length: float, mean: Array, products: Sequence[Product]) -> Array:
    """Weights 1/L of independent ξ - c ~ N(mean, 1): scale 0, one token, or L = ∞ and the tilt."""
    results = []
    for terms in products:
        total = sum(a for a, _ in terms)
        moments = _normal_moments(mean, sum(b for _, b in terms))
        value = np.zeros_like(mean)
        for blocks, ways in block_counts(terms):
            if math.isinf(length):
                ratio = float(len(blocks) == total)
            else:
                ratio = math.prod(max(length - i, 0.0) / length for i in range(len(blocks)))
                ratio *= length ** (len(blocks) - total)
            value = value + ways * ratio * math.prod(moments[b] for _, b in blocks)
        results.append(value)
    return np.stack(results)


def _integrate(length: float, scales: Array, center: Array, products: Sequence[Product]) -> Array:
    """Quadrature for 0 < σ and 1 < L < ∞; scales are narrow, wide or far, all of them."""
    needed, scores = blocks_of(products), Scores(np.zeros_like(scales), scales, center)
    far = scales.min() >= FAR
    step = float(scales.min()) / 40 if far else SCORE_STEP
    lowest = min(sum(a for a, _ in terms) for terms in products)
    sigma = float(scales.max())
    below = math.log(length) + min(1.5 * sigma**2, 10 * sigma) + 44.0 / lowest
    above = min(5 + 10.5 * sigma, largest_tau(length, sigma, float(scales.min())))

    def blocks(span: Range) -> tuple[Array, dict[Term, Array]]:
        count = math.ceil(sum(span) / step) + 1
        lost, kept, values = (
            _far(-span[0], count, step, scores, needed)
            if far
            else block_expectations(-span[0], count, scores, needed)
        )
        return log_survival(lost, kept), values

    return partition_integrals(
        length, products, blocks, (below, above), step=step, further=7.0 + sigma
    )


def lattice_moments(
    length: float, scales: Array, center: Array, products: Sequence[Product]
) -> Array:
    """E Π_j Σ_l w_l^{a_j} (ξ_l - c)^{b_j} of each product, (product, scale)."""
    if length == 1 or math.isinf(length):
        return _independent(length, -center if length == 1 else scales - center, products)
    results = np.empty((len(products), len(scales)))
    for chosen in (
        scales == 0,
        (scales > 0) & (scales < WIDE),
        (scales >= WIDE) & (scales < FAR),
        scales >= FAR,
    ):
        # neighboring scales together, so that the ranges fit all of a batch
        order = np.flatnonzero(chosen)[np.argsort(scales[chosen])]
        for batch in np.array_split(order, math.ceil(len(order) / SCALES_AT_ONCE) or 1):
            if len(batch):
                results[:, batch] = (
                    _integrate(length, scales[batch], center[batch], products)
                    if scales[batch[0]]
                    else _independent(length, -center[batch], products)
                )
    return results


def _terms(powers: Any) -> Product:
    try:
        terms = tuple((int(a), int(b)) for a, b in powers)
        whole = all(a == x and b == y for (a, b), (x, y) in zip(terms, powers, strict=True))
    except (TypeError, ValueError, RuntimeError, OverflowError):
        terms, whole = (), False
    large = sum(a + b for a, b in terms) > LARGEST_POWER
    right = whole and 1 <= len(terms) <= MOST_TERMS and all(a >= 1 and b >= 0 for a, b in terms)
    if large or not right:
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


def _derivative(terms: Product) -> Combination:
    """Derivative in σ: formula (quad.9) of docs/mathematics/quadrature.md."""
    combination: Combination = []
    for j, (a, b) in enumerate(terms):
        if (a, b) == (1, 0):
            continue  # the weights sum to one
        others = terms[:j] + terms[j + 1 :]
        combination += [(float(a), ((a, b + 1), *others)), (-float(a), ((a, b), (1, 1), *others))]
    return combination


class _Moments(torch.autograd.Function):
    """Moments at scales, whose derivatives are combinations of moments."""

    @staticmethod
    def forward(
        length: float, center: float, products: tuple[Product, ...], scale: Tensor
    ) -> Tensor:
        scales = scale.detach().to("cpu", torch.float64).numpy()
        unique, back = np.unique(scales, return_inverse=True)
        values = lattice_moments(length, unique, np.full(len(unique), center), products)
        values = values[:, back.reshape(-1)].reshape(len(products), *scale.shape)
        return torch.from_numpy(values).to(scale)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.question = inputs[:3]
        ctx.save_for_backward(inputs[3])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (scale,), (length, center, products) = ctx.saved_tensors, ctx.question
        combinations = [_derivative(product) for product in products]
        wanted = sorted({terms for combination in combinations for _, terms in combination})
        total = torch.zeros_like(scale)
        if wanted:
            known = dict(zip(wanted, weight_moments(length, scale, wanted, center), strict=True))
            for gradient, combination in zip(gradients[0], combinations, strict=True):
                for factor, terms in combination:
                    total = total + gradient * factor * known[terms]
        return None, None, None, total


def slopes_at_zero(length: float, products: Sequence[Product]) -> list[float]:
    """Derivatives in q = σ² at σ = 0 of moments even in σ: half the second derivative in σ."""
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
    """Several moments at once, sharing the exponentials, shape ``(product, *scale.shape)``.

    >>> from largeprompt.law.weights import weight_moments
    >>> weight_moments(4, 0.0, [[(2, 0)], [(3, 0)]])  # without scores every weight is 1/L
    tensor([0.2500, 0.0625], dtype=torch.float64)
    """
    value = scale if isinstance(scale, Tensor) else torch.as_tensor(scale, dtype=torch.float64)
    terms = tuple(tuple(map(tuple, powers)) for powers in products)
    return _Moments.apply(length, center, terms, value)  # type: ignore[no-any-return, no-untyped-call]


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
