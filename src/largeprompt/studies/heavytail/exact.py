"""Exact expectations of the largest token and its weight, over prompts of scalar tokens with any
tails.

The integrals of docs/mathematics/quadrature.md over tokens below a given one, on the grids of
:mod:`largeprompt.law.density`.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from largeprompt.attention import SoftmaxAttention
from largeprompt.law import finite_prompt
from largeprompt.law.blocks import CACHED
from largeprompt.law.density import MASSES, PANEL_NODES, PLACES, inner_grid, outer_grid, survival
from largeprompt.law.quadrature import NOTHING, Array, drawn, log_survival
from largeprompt.measures import Product, ScalarLaw
from largeprompt.measures.scalar.density import HasDensity

ONE = torch.ones(1, 1, dtype=torch.float64)
ATTENTION = SoftmaxAttention(ONE, ONE)


class Extremes(NamedTuple):
    """Expectations over prompts of L tokens read with the tilt u; one entry for each length.

    ``collision`` is E Y = E Σ w², ``largest`` E max w, ``shortfall`` u·E(max z - T_L), how far the
    output lies below the largest token. ``defect`` is the largest distance of the computed E Σ w
    from 1: the error to expect.
    """

    collision: Array
    collision_variance: Array
    largest: Array
    largest_variance: Array
    shortfall: Array
    defect: float


class Output(NamedTuple):
    """Mean and second moment of the output about a center, and E Y; one entry for each length."""

    mean: Array
    mse: Array
    collision: Array


def output(law: ScalarLaw, tilt: float, lengths: Sequence[int], center: float = 0.0) -> Output:
    """The output about any center, with or without a limit; its mean is NaN and its mse infinite
    where they do not exist.
    """
    found = finite_prompt(ATTENTION, Product([law]), tilt * ONE[0], list(lengths))
    mean = found.mean[:, 0].numpy()
    bounded = not isinstance(law, HasDensity) or law.density().moments > 2
    mse = (
        found.covariance[:, 0, 0].numpy() + (mean - center) ** 2
        if bounded
        else np.full(len(mean), math.inf)
    )
    return Output(mean, mse, 1 / found.effective_tokens.numpy())


def _tail_matrix() -> Array:
    """Integral of each Lagrange polynomial of the panel [-1, 1] from a node to 1: shape (node,
    polynomial).
    """
    legendre = np.polynomial.legendre.legvander(PLACES, PANEL_NODES - 1)
    # of each Lagrange polynomial
    coefficients = (legendre * MASSES[:, None]).T * (np.arange(PANEL_NODES) + 0.5)[:, None]
    integrated = np.polynomial.legendre.legint(coefficients, axis=0)
    ends = np.asarray(np.polynomial.legendre.legval(1.0, integrated))
    return np.asarray(ends[None, :] - np.polynomial.legendre.legval(PLACES, integrated).T)


TAILS = _tail_matrix()


def _from_the_right(values: Array, weights: Array) -> Array:
    """∫_{s' > s} at every node, of an integrand given times its weights; empty
    panels add nothing.
    """
    panel = values.sum(-1)
    later = np.cumsum(panel[:, ::-1], axis=-1)[:, ::-1] - panel
    half = weights.sum(-1, keepdims=True) / 2
    heights = np.divide(values * half, weights, out=np.zeros_like(values), where=weights > 0)
    return np.asarray(later[..., None] + heights @ TAILS.T)


def extremes(law: HasDensity, tilt: float, lengths: Sequence[int]) -> Extremes:
    """Expectations over prompts of at least 2 tokens of a law with a density, read with a tilt that
    is not 0.
    """
    size, tokens = abs(tilt), np.array(lengths, dtype=np.float64)
    known = law.density() if tilt > 0 else law.density().mirrored()
    x, measure = outer_grid(known, size, float(tokens.max()))
    rows = max(1, CACHED // inner_grid(x[:1], known, size)[0].size)
    sums = np.zeros((7, len(tokens)))
    for start in range(0, len(x), rows):
        part = slice(start, start + rows)
        score, s, weights = inner_grid(x[part], known, size)
        mass = weights * known.density(score / size) / size
        grown = np.exp(s)
        kept = mass * np.exp(-grown)
        first = kept * grown
        lost, phi = survival(x[part], known, size, mass, s)
        log_phi = np.maximum(log_survival(lost, phi), NOTHING)
        one, two, four = ((first * grown**k).sum((-2, -1)) for k in (0, 1, 3))  # G_1, G_2 and G_4
        once, twice = (drawn(tokens, k, log_phi[:, None], measure[part, None]) for k in (1, 2))
        below = one[:, None, None] - _from_the_right(first, weights)
        below_score = (first * s).sum((-2, -1))[:, None, None] - _from_the_right(first * s, weights)
        pair = kept * np.maximum(s * below - below_score, 0.0)
        log_below = np.log1p(
            -np.minimum(lost[:, None, None] + _from_the_right(kept, weights), 1 - 1e-16)
        )
        sums[:4] += one @ once, two @ once, four @ once, two**2 @ twice
        for i, length in enumerate(tokens):
            others = np.exp((length - 2) * log_below)
            but_one = others * np.exp(log_below)
            sums[4, i] += length * (measure[part] @ (first * but_one).sum((-2, -1)))
            sums[5, i] += length * (measure[part] @ (first * grown * but_one).sum((-2, -1)))
            sums[6, i] += length * (length - 1) * (measure[part] @ (pair * others).sum((-2, -1)))
    whole, collision, fourth, square, largest, largest_square, shortfall = sums
    return Extremes(
        collision,
        np.maximum((fourth + square) / 6 - collision**2, 0.0),
        largest,
        np.maximum(largest_square - largest**2, 0.0),
        shortfall,
        float(np.abs(whole - 1).max()),
    )


def argmax_rate(df: float, scale: float, tilt: float, lengths: Sequence[float]) -> Array:
    """νΓ(2+1/ν)/(u (cL)^{1/ν}), to which 1 - E Y tends for tails P(z > x) ~ c x^{-ν}; here of
    Student-t with ν = df.

    1 - E max w tends to ln 2, u E(max z - T_L) to π²/12 times it: formulas (tail.1-3) of
    docs/mathematics/heavy_tails.md.
    """
    log_c = (
        math.lgamma((df + 1) / 2)
        - math.lgamma(df / 2)
        - math.log(df * math.pi) / 2
        + (df + 1) / 2 * math.log(df)
        - math.log(df)
    )
    # (cL)^{1/ν}
    spread = scale * np.exp((log_c + np.log(np.asarray(lengths, dtype=np.float64))) / df)
    return np.asarray(math.exp(math.log(df) + math.lgamma(2 + 1 / df)) / (abs(tilt) * spread))
