"""Moments of softmax weights as tensors: checked, batched over the scale, and differentiable in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.law import weights
from largeprompt.law.partitions import Term

MOST_TERMS = 8
LARGEST_POWER = 40
LARGEST_SCALE = 500.0  # checked up to 300; beyond, the lattice takes seconds and more


def _terms(powers: Any) -> tuple[Term, ...]:
    try:
        terms = tuple((int(a), int(b)) for a, b in powers)
        integral = all(a == x and b == y for (a, b), (x, y) in zip(terms, powers, strict=True))
    except (TypeError, ValueError):
        terms, integral = (), False
    large = sum(a + b for a, b in terms) > LARGEST_POWER
    if not integral or not 1 <= len(terms) <= MOST_TERMS or any(a < 1 or b < 0 for a, b in terms) or large:
        allowed = f"one to {MOST_TERMS} pairs of integers (a, b) with a >= 1, b >= 0, {LARGEST_POWER} at most in all"
        raise InvalidArgumentError("powers", repr(powers), allowed, "E Y is powers=[(2, 0)], E S² is [(1, 1), (1, 1)].")
    return terms


def _derivative(terms: tuple[Term, ...]) -> list[tuple[float, tuple[Term, ...]]]:
    """Derivative in σ as a combination of moments, from dw_l/dσ = w_l (ξ_l - S).

    d/dσ Σ w^a(ξ-c)^b = a [Σ w^a (ξ-c)^{b+1} - Σ w^a (ξ-c)^b · Σ w (ξ-c)], the same for every centre c.
    """
    combination: list[tuple[float, tuple[Term, ...]]] = []
    for j, (a, b) in enumerate(terms):
        if (a, b) == (1, 0):
            continue  # the weights sum to one
        others = terms[:j] + terms[j + 1 :]
        combination += [(float(a), ((a, b + 1), *others)), (-float(a), ((a, b), (1, 1), *others))]
    return combination


class _WeightMoments(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scale: Tensor, length: float, center: float, products: tuple[tuple[Term, ...], ...]) -> Tensor:
        ctx.save_for_backward(scale)
        ctx.length, ctx.center, ctx.products = length, center, products
        flat = scale.detach().cpu().to(torch.float64).numpy().reshape(-1)
        unique, back = np.unique(flat, return_inverse=True)
        values = weights.moments(length, unique, np.full_like(unique, center), products)[:, back]
        return torch.from_numpy(values.reshape(len(products), *scale.shape)).to(scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (scale,) = ctx.saved_tensors
        combinations = [_derivative(terms) for terms in ctx.products]
        wanted = sorted({terms for combination in combinations for _, terms in combination})
        total = torch.zeros_like(scale)
        if wanted:
            known = dict(zip(wanted, _moments(scale, ctx.length, ctx.center, tuple(wanted)), strict=True))
            for gradient, combination in zip(gradients[0], combinations, strict=True):
                total = total + gradient * sum(factor * known[terms] for factor, terms in combination)
        return total, None, None, None


def _moments(scale: Tensor, length: float, center: float, products: tuple[tuple[Term, ...], ...]) -> Tensor:
    return _WeightMoments.apply(scale, length, center, products)  # type: ignore[no-any-return, no-untyped-call]


def weight_moments(length: float, scale: Any, products: Sequence[Any], center: float = 0.0) -> Tensor:
    """Several moments at once, sharing the exponentials; shape ``(len(products), *scale.shape)``. See :func:`weight_moment`."""
    value = validation.tensor("scale", scale)
    if bool((value < 0).any()):
        raise InvalidArgumentError("scale", f"{float(value.min()):.6g}", "nonnegative numbers", "The law is even in the scale.")
    if bool((value > LARGEST_SCALE).any()):
        given = f"{float(value.max()):.6g}"
        remedy = "Scores spread so far are argmax: only the largest token is read."
        raise InvalidArgumentError(
            "scale (standard deviation of the scores)", given, f"numbers from 0 to {LARGEST_SCALE:g}", remedy
        )
    centre = validation.tensor("center", center)
    if centre.dim():
        raise InvalidArgumentError("center", f"shape {validation.shape_text(centre.shape)}", "one number")
    if not len(products):
        raise InvalidArgumentError("products", "none", "at least one list of powers")
    tokens = validation.length("length", length, allow_infinity=True)
    return _moments(value, tokens, float(centre), tuple(_terms(powers) for powers in products))


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
