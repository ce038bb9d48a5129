"""The law of attention over tokens whose score has a known density: coordinates with heavy tails, and where contours are refused.

Blocks are integrals over the density of the score (:mod:`largeprompt.law.heavy_tails`, for sums of coordinates
:mod:`largeprompt.law.heavy_sums`); tokens without exponential moments have no limit, and the numbers are those of T_L itself.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from largeprompt.errors import InvalidArgumentError, NoMomentError, TiltDomainError
from largeprompt.law.blocks import LEAST_DIGITS, OutputMoments
from largeprompt.law.density import has_density, scalar_density
from largeprompt.law.heavy_sums import can_add, groups_of, score_of
from largeprompt.law.heavy_tails import DensityBlocks, density_blocks
from largeprompt.law.tokens import Array
from largeprompt.measures import GeneralisedNormalLaw, Measure
from largeprompt.measures.scalar.product import ProductMeasure, ScalarLaw

SMALLEST_TILT = 1e-7  # of a coordinate without exponential moments
UNIT = 1e-15  # rounding of a difference


def has_limit(law: Measure, tilts: Tensor) -> Tensor:
    """Whether the cgf is finite at each tilt of shape (n, d)."""
    try:
        return torch.isfinite(law.cgf(tilts))
    except TiltDomainError:
        alone = [has_limit(law, tilt) for tilt in tilts.split(1)] if len(tilts) > 1 else [torch.zeros(1, dtype=torch.bool)]
        return torch.cat(alone)


def has_score_density(law: Measure, u: Tensor) -> bool:
    """Whether coordinates without a closed cgf, whose tilts may bend too far for contours, have a score with a known density."""
    if not isinstance(law, ProductMeasure):
        return False
    laws = [tilted_law(law, int(index)) for index in torch.nonzero(u)]
    return any(isinstance(one, GeneralisedNormalLaw) for one in laws) and can_add(laws)


def digits_left(moments: OutputMoments, limit: Array) -> OutputMoments:
    """Refuse a bias that is too small a difference of mean and limit."""
    lost = UNIT * np.abs(limit) / np.where(limit == 0, 1.0, np.abs(moments.bias) + 1e-300)
    if not lost.max() <= LEAST_DIGITS:
        given, remedy = f"a bias of which rounding leaves {lost.max():.1g}", "Ask about shorter prompts, or use certificate(...)."
        raise InvalidArgumentError("length", given, "a bias exact to eight digits", remedy)
    return moments


def heavy_below(law: Measure, u: Tensor) -> bool:
    """Whether low scores have no exponential moment, which short prompts feel, and a density is there to use instead."""
    if not isinstance(law, ProductMeasure) or int((u != 0).sum()) != 1 or float(u.abs().max()) < 1e-3:
        return False
    return law.tilt_range(u)[0] > -0.1 and has_density(tilted_law(law, int(torch.nonzero(u)[0])))


def has_scalar_density(law: Measure, u: Tensor) -> bool:
    """Whether tokens are scalars of a law whose density is known, and the weights vary."""
    return isinstance(law, ProductMeasure) and law.dim == 1 and float(u.abs().max()) > 1e-3 and has_density(tilted_law(law, 0))


def tilted_law(law: ProductMeasure, index: int) -> ScalarLaw:
    """The law of one coordinate."""
    return next(scalar for scalar, indices in law.groups if index in indices)


def _moment(value: Callable[[], Tensor], dim: int, missing: float) -> Array:
    """A moment of each coordinate, or what stands for one that does not exist."""
    try:
        return value().numpy()
    except NoMomentError:
        return np.full(dim, missing)


def by_density(law: Measure, u: Tensor, lengths: Sequence[float]) -> OutputMoments:
    """A product law by the density of its score; coordinates that are not tilted do not move the weights.

    With a limit T the numbers are those of T_L - T, without one those of T_L itself.
    """
    if not isinstance(law, ProductMeasure) or any(math.isinf(length) for length in lengths):
        law.cgf(u)  # raises, and says that there is no limit
    assert isinstance(law, ProductMeasure)
    used = [int(index) for index in torch.nonzero(u).flatten()]
    scalars, tilts = [tilted_law(law, index) for index in used], u[used].numpy()
    if len(used) > 1 and not can_add(scalars):
        given = f"a tilt of {len(used)} coordinates of {law!r} without an exponential moment"
        allowed = (
            "tilts inside the domain of the cgf, along one coordinate, or of signs and coordinates with a symmetric density "
            "(Student-t, generalised normal, Laplace, uniform), whose sums alone are known"
        )
        raise TiltDomainError("z", given, allowed, "Average over drawn prompts: sample_prompts(...).")
    if len(used) and float(np.abs(tilts).min()) < SMALLEST_TILT:
        allowed = f"0 or at least {SMALLEST_TILT:g}: the mean, of the size of u, is what is left of tokens of both signs"
        raise InvalidArgumentError(
            "z", f"a tilt of {np.abs(tilts).min():.3g} on {law!r}", allowed, "Set it to 0, at which the weights are 1/L."
        )
    long = np.array([length for length in lengths if length > 1])
    own_mean = _moment(lambda: law.mean, law.dim, math.nan)
    own_spread = _moment(lambda: law.covariance.diagonal(), law.dim, math.inf)
    centre = law.tilted_mean(u).numpy() if bool(has_limit(law, u[None])) else np.zeros(law.dim)
    blocks = _density_blocks(scalars, tilts, long, 1) if len(long) else None
    once = blocks.drawn(long, 1) if blocks else np.zeros((0, 0))
    bias, collision = np.tile(own_mean, (len(lengths), 1)), np.ones(len(lengths))
    rows = [row for row, length in enumerate(lengths) if length > 1]
    if blocks:
        found = once.T @ blocks.first[:, : len(used)]
        bias[np.ix_(rows, used)] = np.where(np.isnan(own_mean[used]), np.nan, found)
        collision[rows] = blocks.two @ once
    means = np.nan_to_num(bias)
    bias = bias - centre

    @functools.cache
    def second() -> Array:
        found = np.zeros((len(lengths), law.dim, law.dim))
        found[:, range(law.dim), range(law.dim)] = collision[:, None] * own_spread  # which may be infinite
        if len(long) and np.isfinite(own_spread[used]).all():
            blocks = _density_blocks(scalars, tilts, long, 2)
            once, twice = (blocks.drawn(long, k) for k in (1, 2))
            i, j = np.triu_indices(len(used))
            for column, row in enumerate(rows):
                m = means[row, used]
                crossed = blocks.twice[:, i] * m[j] + blocks.twice[:, j] * m[i]
                pair = blocks.twice[:, len(used) :] - crossed + blocks.two[:, None] * m[i] * m[j]
                moved = blocks.first[:, : len(used)] - blocks.one[:, None] * m
                spread = once[:, column] @ pair + twice[:, column] @ (moved[:, i] * moved[:, j])
                found[row, np.array(used)[i], np.array(used)[j]] = found[row, np.array(used)[j], np.array(used)[i]] = spread
        return found + bias[:, :, None] * bias[:, None, :]

    def unknown(*_: Array) -> Array:
        raise AssertionError("moments beyond the second are not asked of a density")

    return OutputMoments(
        bias, collision, lambda B: np.einsum("lij,ij->l", second(), B), second, unknown, unknown, np.zeros(len(bias))
    )


def _density_blocks(scalars: Sequence[ScalarLaw], tilts: Array, lengths: Array, order: int) -> DensityBlocks:
    """Blocks of the tilted coordinates, and where order = 2 of their products i <= j after them."""
    sizes, sides, count = np.abs(tilts), np.sign(tilts), len(tilts)
    if count == 1:
        density = scalar_density(scalars[0]) if tilts[0] > 0 else scalar_density(scalars[0]).mirrored()
        return density_blocks(density, float(sizes[0]), lengths, lambda token: [sides[0] * token, token**2], [1, 2])
    steps = [float(size) for size in sizes]
    score, groups = score_of(scalars, steps, float(lengths.max()), order), groups_of(scalars, steps)
    numbers = range(1, len(score.coefficients))
    blocks = density_blocks(
        score.as_density(), 1.0, lengths, lambda y: list(score.at(y, numbers)), [1 if n <= len(groups) else 2 for n in numbers]
    )
    each = _from_groups(groups, count, order)
    i, j = np.triu_indices(count)
    each *= np.concatenate([1 / tilts, 1 / (tilts[i] * tilts[j])])[: each.shape[1]]
    return dataclasses.replace(blocks, first=blocks.first @ each, twice=blocks.twice @ each)


def _from_groups(groups: Sequence[Sequence[int]], count: int, order: int) -> Array:
    """Matrix from moments of groups, S_g, then S_g S_h and Σ a_i² of each, to those of coordinates a_i, then a_i a_j, i <= j.

    In a group of n equal coordinates E[a_i | s] = E[S | s]/n and E[a_i a_j | s] = E[S² - Σ a_k² | s]/(n(n-1)).
    """
    number, sizes = len(groups), [len(group) for group in groups]
    owner = {index: g for g, group in enumerate(groups) for index in group}
    rows = {pair: number + k for k, pair in enumerate(itertools.combinations_with_replacement(range(number), 2))}
    i, j = np.triu_indices(count)
    found = np.zeros((number + (len(rows) + number if order == 2 else 0), count + (len(i) if order == 2 else 0)))
    for index, g in owner.items():
        found[g, index] = 1 / sizes[g]
    for column, (a, b) in enumerate(zip(i, j, strict=True), start=count) if order == 2 else ():
        g, h = sorted((owner[int(a)], owner[int(b)]))
        squares = number + len(rows) + g
        if a == b:
            found[squares, column] = 1 / sizes[g]
        elif g == h:
            found[rows[g, g], column] = 1 / (sizes[g] * (sizes[g] - 1))
            found[squares, column] = -found[rows[g, g], column]
        else:
            found[rows[g, h], column] = 1 / (sizes[g] * sizes[h])
    return found
