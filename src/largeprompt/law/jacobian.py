"""The mean squared error of the derivative in U, from blocks of one token of orders one to four.

With f = yy^T - Γ, Γ = E yy^T e^s, S = Σ w y and D = Σ w f - SS^T, the error of the softmax-weighted
covariance,

    E tr(A D B D) = E tr(A Σwf B Σwf) - E[S^T A Σwf B S + S^T B Σwf A S] + E[S^T A S · S^T B S],

each a sum over all ways in which its factors may share tokens: formula (engine.2) of
docs/mathematics/engine.md.
"""

import functools
import math

import numpy as np

from largeprompt.errors import InvalidArgumentError
from largeprompt.law.blocks import FLOOR, RELATIVE, ROUNDING, OutputMoments
from largeprompt.law.tokens import Array, Numbers, TokenMoments

LOOSER = 100.0  # the contract of the derivative in U, relative to that of the output
DERIVATIVE_ROUNDING = 2e-15  # of a sum over τ, relative to the sizes of its terms


def _cubed(B: Array, y: TokenMoments) -> Numbers:
    return y.cubed(B)


def jacobian_error(moments: OutputMoments, A: Array, B: Array, limit: Array) -> Array:
    """E tr(A D B D) for symmetric A and B, shape (length,); ``limit`` is Γ."""
    blocks = moments.blocks
    if not all(piece.moments.complete for piece in blocks.pieces(2)):
        allowed = (
            "laws that know four derivatives of their cgf: those of the library, and your "
            "own in up to six dimensions"
        )
        remedy = "Give complex_cumulants(w, order=4), or use jacobian_certificate(...) for a bound."
        raise InvalidArgumentError(
            "jacobian_u_mse", "a law with two derivatives of its cgf", allowed, remedy
        )
    dim, g = blocks.dim, blocks.first
    AG, BG, crossed = A @ limit, B @ limit, A @ limit @ B
    crossed = (crossed + crossed.T) / 2
    quartic = blocks.total(2, lambda y: y.squared_twice(A, B))
    pairs = blocks.total(
        2,
        lambda y: np.stack(
            [np.ones(len(y.mean)), y.squared(A), y.squared(B), y.squared(crossed)], -1
        ),
        (4,),
    )
    lost, a2, b2, c2 = pairs.T
    f1, y2 = blocks.matrices(1), blocks.matrices(2)
    # what G_1 makes of a constant, so that f1 is that of f
    y1 = blocks.total(1, lambda y: np.ones(len(y.mean)))
    f1_size = np.abs(f1) + np.abs(y1)[:, None, None] * np.abs(limit)
    f1 = f1 - y1[:, None, None] * limit
    fa, fb = (blocks.total(2, functools.partial(_cubed, M), (dim,)) for M in (A, B))
    mean2 = blocks.total(2, lambda y: y.mean, (dim,))
    fa, fb = fa - mean2 @ AG, fb - mean2 @ BG  # G_2[f A y], G_2[f B y]
    three = blocks.total(3, lambda y: y.squared_twice(A, B) - y.squared(crossed))
    a3, b3 = (blocks.total(3, functools.partial(_cubed, M), (dim,)) for M in (A, B))
    four = blocks.total(4, lambda y: y.squared_twice(A, B))
    gA, gB = g @ A, g @ B
    along_a, along_b = (gA * g).sum(-1), (gB * g).sum(-1)
    ff, fy, yy = (
        np.einsum("tij,tji->t", A @ one, B @ other) for one, other in ((f1, f1), (f1, y2), (y2, y2))
    )
    gfg, gyg = (np.einsum("ti,tij,tj->t", gA, middle, gB) for middle in (f1, y2))
    squares = (quartic - 2 * c2 + lost * np.trace(AG @ BG), ff)
    crossed_terms = (three, (gB * fa).sum(-1) + (gA * fb).sum(-1) + fy, gfg)
    quadruples = (
        four,
        2 * ((a3 * gB).sum(-1) + (b3 * gA).sum(-1)) + a2 * b2 + 2 * yy,
        a2 * along_b + b2 * along_a + 4 * gyg,
        along_a * along_b,
    )
    # where yy^T hardly varies, as for signs, f is a small difference
    apart = np.abs(quartic) + 2 * np.abs(c2) + np.abs(lost * np.trace(AG @ BG))
    apart2 = 2 * np.einsum("tij,tji->t", np.abs(A @ f1), np.abs(B) @ f1_size)
    weights = [moments.weights(k) for k in (1, 2, 3, 4)]
    total, size = np.zeros(len(moments.lengths)), weights[0] @ apart + weights[1] @ apart2
    for factor, terms in ((1.0, squares), (-1.0, crossed_terms), (1.0 / 6, quadruples)):
        for chosen, term in zip(weights, terms, strict=False):
            total += factor * (chosen @ term)
            size += abs(factor) * (chosen @ np.abs(term))
    rounding = DERIVATIVE_ROUNDING * size
    if blocks.noise is not None:
        sizes = (
            blocks.total_and_size(order, lambda y: y.squared_twice(A, B))[1] for order in (2, 3, 4)
        )
        rounding += ROUNDING * sum(weights[0] @ one for one in sizes)
    scale = (
        moments.collision
        * moments.spread**2
        * math.sqrt(np.linalg.norm(A, 2) * np.linalg.norm(B, 2)) ** 2
    )
    if not bool((rounding <= LOOSER * (RELATIVE * np.abs(total) + FLOOR * scale)).all()):
        given = (
            "weights so concentrated, or tokens whose squares vary so little, that its terms cancel"
        )
        raise InvalidArgumentError(
            "jacobian_u_mse",
            given,
            "errors exact to six digits",
            "Use jacobian_certificate(...) for a bound.",
        )
    return np.maximum(total, 0.0)
