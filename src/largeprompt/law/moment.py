"""Moments of softmax weights as tensors: checked, batched over the scale, and differentiable in it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.law import weights
from largeprompt.law.quadrature import Array, Product

MOST_TERMS = 8
LARGEST_POWER = 40
LARGEST_SCALE = 500.0  # checked up to 300; beyond, the lattice takes seconds and more

Combination = list[tuple[Any, Product]]  # Σ factor · E product
Evaluate = Callable[[Array, Sequence[Product]], Array]  # moments (product, row) at scales (row, head)
Derivative = Callable[[Product, int, tuple[Tensor, ...]], Combination]  # of a moment in the scale of one head


def integer_pairs(powers: Any) -> Product:
    """Pairs of integers as they are; nothing where they are not."""
    try:
        terms = tuple((int(a), int(b)) for a, b in powers)
        return terms if all(a == x and b == y for (a, b), (x, y) in zip(terms, powers, strict=True)) else ()
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return ()


def _terms(powers: Any) -> Product:
    terms = integer_pairs(powers)
    large = sum(a + b for a, b in terms) > LARGEST_POWER
    if not 1 <= len(terms) <= MOST_TERMS or any(a < 1 or b < 0 for a, b in terms) or large:
        allowed = f"one to {MOST_TERMS} pairs of integers (a, b) with a >= 1, b >= 0, {LARGEST_POWER} at most in all"
        raise InvalidArgumentError("powers", validation.text(powers), allowed, "E Y is powers=[(2, 0)], E S² is [(1, 1), (1, 1)].")
    return terms


def _derivative(terms: Product, *_: Any) -> Combination:
    """Derivative in σ as a combination of moments: formula (quad.9) of docs/mathematics/quadrature.md."""
    combination: Combination = []
    for j, (a, b) in enumerate(terms):
        if (a, b) == (1, 0):
            continue  # the weights sum to one
        others = terms[:j] + terms[j + 1 :]
        combination += [(float(a), ((a, b + 1), *others)), (-float(a), ((a, b), (1, 1), *others))]
    return combination


class _Moments(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, evaluate: Evaluate, derivative: Derivative, products: tuple[Product, ...], *scales: Tensor) -> Tensor:
        ctx.save_for_backward(*scales)
        ctx.arguments = evaluate, derivative, products
        rows = torch.stack(scales, -1).detach().cpu().to(torch.float64).numpy().reshape(-1, len(scales))
        unique, back = np.unique(rows, axis=0, return_inverse=True)
        values = evaluate(unique, products)[:, back.reshape(-1)]
        return torch.from_numpy(values.reshape(len(products), *scales[0].shape)).to(scales[0])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        scales = ctx.saved_tensors
        evaluate, derivative, products = ctx.arguments
        results: list[Tensor | None] = [None, None, None]
        for head in range(len(scales)):
            if not ctx.needs_input_grad[head + 3]:
                results.append(None)
                continue
            combinations = [derivative(product, head, scales) for product in products]
            wanted = tuple(sorted({terms for combination in combinations for _, terms in combination}))
            total = torch.zeros_like(scales[head])
            if wanted:
                known = dict(zip(wanted, moments(evaluate, derivative, wanted, *scales), strict=True))
                for gradient, combination in zip(gradients[0], combinations, strict=True):
                    total = total + gradient * sum(factor * known[terms] for factor, terms in combination)
            results.append(total)
        return tuple(results)


def moments(evaluate: Evaluate, derivative: Derivative, products: tuple[Product, ...], *scales: Tensor) -> Tensor:
    """Moments as functions of scales, all of one shape, whose derivatives are combinations of moments of the same kind."""
    return _Moments.apply(evaluate, derivative, products, *scales)  # type: ignore[no-any-return, no-untyped-call]


def slopes_at_zero(length: float, products: Sequence[Product]) -> list[float]:
    """Derivatives in q = σ² at σ = 0 of moments that are even in σ: half the second derivative in σ."""
    twice = [[(f * g, deeper) for f, terms in _derivative(product) for g, deeper in _derivative(terms)] for product in products]
    wanted = sorted({terms for combination in twice for _, terms in combination})
    known = dict(zip(wanted, weights.moments(length, np.zeros(1), np.zeros(1), wanted)[:, 0], strict=True))
    return [sum(factor * float(known[terms]) for factor, terms in combination) / 2 for combination in twice]


def weight_moments(length: float, scale: Any, products: Sequence[Any], center: float = 0.0) -> Tensor:
    """Several moments at once, sharing the exponentials; shape ``(len(products), *scale.shape)``. See :func:`weight_moment`.

    >>> from largeprompt.law.moment import weight_moments
    >>> weight_moments(4, 0.0, [[(2, 0)], [(3, 0)]])  # without scores every weight is 1/L
    tensor([0.2500, 0.0625], dtype=torch.float64)
    """
    value = validation.tensor("scale", scale)
    if bool((value < 0).any()):
        raise InvalidArgumentError("scale", f"{float(value.min()):.6g}", "nonnegative numbers", "The law is even in the scale.")
    if bool((value > LARGEST_SCALE).any()):
        given, allowed = f"{float(value.max()):.6g}", f"numbers from 0 to {LARGEST_SCALE:g}"
        remedy = "Scores spread so far are argmax: only the largest token is read."
        raise InvalidArgumentError("scale (standard deviation of the scores)", given, allowed, remedy)
    centre = validation.tensor("center", center)
    if centre.dim():
        raise InvalidArgumentError("center", f"shape {validation.shape_text(centre.shape)}", "one number")
    products = validation.listed("products", products, "lists of powers")
    if not products:
        raise InvalidArgumentError("products", "none", "at least one list of powers")
    tokens = validation.length("length", length, allow_infinity=True)

    def evaluate(scales: Array, products: Sequence[Product]) -> Array:
        return weights.moments(tokens, scales[:, 0], np.full(len(scales), float(centre)), products)

    return moments(evaluate, _derivative, tuple(_terms(powers) for powers in products), value)


def weight_moment(length: float, scale: Any, powers: Any, center: float = 0.0) -> Tensor:
    """E Π_j Σ_l w_l^{a_j} (ξ_l - c)^{b_j} for w = softmax(σξ), ξ_1..ξ_L standard normal.

    Exact up to rounding: relative error below 2e-12 against 40-digit arithmetic for lengths 2 to 10^15, scales 0.05 to 10 and up to
    four terms, and below 1e-10 in identities up to scale 40, unless the terms of the moment themselves cancel. The cost does not
    depend on the length.

    Parameters
    ----------
    length
        L, an integer from 1 to 10^15, or ``math.inf``.
    scale
        σ >= 0, the standard deviation of the scores; a number, an array or a tensor, differentiable.
    powers
        Pairs (a_j, b_j), a_j >= 1, b_j >= 0: [(2, 0)] is E Y = E Σ w², [(3, 0)] is E Σ w³, [(1, 1)] is E S = E Σ w ξ.
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
    return weight_moments(length, scale, [powers], center)[0]
