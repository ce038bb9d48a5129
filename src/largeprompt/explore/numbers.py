"""Numbers behind the pictures of one prompt: exact, certified and drawn; what only the length
changes is computed once.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from largeprompt import (
    Laplace,
    Rademacher,
    SoftmaxAttention,
    TiltDomainError,
    Uniform,
    affine_limit,
    certificate,
    finite_prompt,
    sample_prompts,
)
from largeprompt.errors import InvalidArgumentError
from largeprompt.explore.code import executed, law_setup
from largeprompt.explore.picture import Array
from largeprompt.explore.state import LENGTHS, LawState
from largeprompt.law import collision_moments

Result = TypeVar("Result")
DRAWN, REPLICAS = (1, 3, 10, 30, 100, 300), 60  # prompts are drawn at these lengths
STRENGTHS = tuple(i / 10 for i in range(1, 41))
# of the scores' standard deviation: densities are smoothed by so much, so that atoms can be drawn
BRUSH = 0.06
SEED = 0
# Certificates are asked at these times the length that is enough.
ABOVE = (1.0, 1.03, 1.06, 1.1, 1.15, 1.2, 1.3, 1.5, 1.8, 2.2, 2.7, 3.3, 4.0, 5.0)
# laws of independent coordinates
INDEPENDENT: dict[str, Any] = {"signs": Rademacher, "uniform": Uniform, "laplace": Laplace}


@dataclasses.dataclass(frozen=True)
class Problem:
    """Layer, law and query of a state; ``unit`` reads the output off along the query, in standard
    deviations of the tokens.
    """

    attention: Any
    mu: Any
    z: Tensor
    unit: Tensor


@dataclasses.dataclass(frozen=True)
class Curve:
    """Exact errors and effective tokens at every length of the slider; errors are None where there
    is no limit.
    """

    errors: Array | None
    tokens: Array
    along: Array  # mean output along the query
    reason: str = ""


def _whatever_the_length(function: Callable[[LawState], Result]) -> Callable[[LawState], Result]:
    """What neither length nor tolerance changes: computed once for all of them."""
    cached = functools.lru_cache(maxsize=256)(function)

    @functools.wraps(cached)
    def found(state: LawState) -> Result:
        return cached(_apart_from_length(state))

    return found


def _apart_from_length(state: LawState) -> LawState:
    return dataclasses.replace(state, length=LawState.length, tolerance=LawState.tolerance)


@_whatever_the_length
def problem(state: LawState) -> Problem:
    """What the code of the state makes."""
    found = executed(law_setup(state))
    z = found["z"]
    return Problem(found["attention"], found["mu"], z, z / state.strength)


def _smaller(state: LawState) -> Problem:
    """A problem with the same error, effective tokens and output along the query, in fewer
    dimensions where there is one.

    A query along one of several independent coordinates does not see the others: these average with
    weights that know nothing of them, and one coordinate with all of their variance has the same
    mean squared error.
    """
    here = problem(state)
    if state.law not in INDEPENDENT or state.direction == "all" or state.dim < 3:
        return here
    seen = int(here.z.abs().argmax())
    variance = here.mu.covariance.diagonal()
    root = torch.stack([variance[seen], variance.sum() - variance[seen]]).sqrt().diag()
    eye = torch.eye(2, dtype=torch.float64)
    return Problem(
        SoftmaxAttention(eye, eye),
        INDEPENDENT[state.law](2).map(root),
        here.z[seen] * eye[0],
        here.unit[seen] * eye[0],
    )


def curve(state: LawState) -> Curve:
    """The exact law at all lengths; where tokens have no limit, only what exists, and only at the
    length of the state.
    """
    found = _curve(state)
    return (
        found
        if isinstance(found, Curve)
        else _without_limit(dataclasses.replace(state, tolerance=LawState.tolerance), found)
    )


@_whatever_the_length
def _curve(state: LawState) -> Curve | str:
    """The curve, or why there is none."""
    here = _smaller(state)
    try:
        here.attention(here.mu, here.z)  # raises where there is no limit
        law = finite_prompt(here.attention, here.mu, here.z, list(LENGTHS))
        return Curve(law.rmse.numpy(), law.effective_tokens.numpy(), (law.mean @ here.unit).numpy())
    except (TiltDomainError, InvalidArgumentError) as error:
        return str(error)


@functools.lru_cache(maxsize=256)
def _without_limit(state: LawState, reason: str) -> Curve:
    here, tokens, along = (
        _smaller(state),
        np.full(len(LENGTHS), np.nan),
        np.full(len(LENGTHS), np.nan),
    )
    place = LENGTHS.index(state.length)
    # sums of coordinates without a limit take too long to follow a slider
    if state.direction != "all" or state.dim == 1:
        law = finite_prompt(here.attention, here.mu, here.z, state.length)
        tokens[place], along[place] = float(law.effective_tokens), float(law.mean @ here.unit)
    return Curve(None, tokens, along, reason)


def proved(state: LawState) -> dict[int, float] | None:
    """Certified root mean squared errors by length: ``LENGTHS``, and a few where the answer may
    lie; None without a limit.
    """
    errors = curve(state).errors
    if errors is None:
        return None
    enough = needed_length(errors, state.tolerance)
    places = [rounded_up(enough * more) for more in ABOVE] if math.isfinite(enough) else []
    return _proved(
        _apart_from_length(state), (*LENGTHS, *(place for place in places if place not in LENGTHS))
    )


@functools.lru_cache(maxsize=1024)
def _proved(state: LawState, lengths: tuple[int, ...]) -> dict[int, float]:
    here, lengths = problem(state), tuple(dict.fromkeys(lengths))
    bounds = certificate(here.attention, here.mu, here.z, list(lengths)).bound.sqrt()
    return dict(zip(lengths, bounds.tolist(), strict=True))


def proved_length(state: LawState) -> float:
    """The least of the lengths in :func:`proved` with a certified error within the tolerance; inf
    if there is none.
    """
    return min(
        (length for length, bound in (proved(state) or {}).items() if bound <= state.tolerance),
        default=math.inf,
    )


def rounded_up(length: float) -> int:
    """The next length of two digits."""
    unit: int = 10 ** max(0, math.floor(math.log10(length)) - 1)
    return math.ceil(length / unit) * unit


def _for_good(errors: Array, tolerance: float) -> int:
    """The first place from which on no error is above the tolerance; the number of errors if the
    last one is.
    """
    above = np.flatnonzero(errors > tolerance)
    return int(above[-1]) + 1 if len(above) else 0


@_whatever_the_length
def drawn(state: LawState) -> tuple[Array, Array] | None:
    """Root mean squared errors of ``REPLICAS`` drawn prompts at each length of ``DRAWN``, and their
    standard errors.
    """
    here = problem(state)
    try:
        samples = sample_prompts(
            here.attention, here.mu, here.z, DRAWN, REPLICAS, torch.Generator().manual_seed(SEED)
        )
        mean, spread = samples.mse(here.attention(here.mu, here.z))
    except TiltDomainError:
        return None
    return mean.sqrt().numpy(), (spread / (2 * mean.sqrt())).numpy()


@_whatever_the_length
def densities(state: LawState) -> tuple[Array, Array, Array | None]:
    """Scores, their density, and the density as the softmax weighs it, e^s p(s)/E e^s; None where
    that has no total.

    By inversion of the characteristic function E e^{(r + it)u·x}, r = 0 and 1, smoothed by a normal
    brush of ``BRUSH`` standard deviations.
    """
    here, sigma = problem(state), state.strength
    u, low, high, tilted = here.z, -4.5 * sigma, 4.5 * sigma, True
    try:
        center, spread = (
            float(each)
            for each in (here.mu.tilted_mean(u) @ u, u @ here.mu.tilted_covariance(u) @ u)
        )
        high = min(max(high, center + 4 * spread**0.5), 16 * sigma)
    except TiltDomainError:
        tilted = False
    places = np.linspace(low, high, 240)
    t = torch.arange(0.0, 4.5 / (BRUSH * sigma), np.pi / (1.2 * (high - low)), dtype=torch.float64)
    waves = torch.exp(-1j * torch.outer(torch.from_numpy(places), t)) * torch.exp(
        -((BRUSH * sigma * t) ** 2) / 2
    )
    waves[:, 0] /= 2  # the trapezoidal rule over t >= 0, twice the real part
    step = float(t[1]) / np.pi

    def density(real: float) -> Array:
        transform = here.mu.complex_cumulants(
            torch.complex(torch.full_like(t, real), t)[:, None] * u, 0
        )[0]
        total = here.mu.cgf(real * u) if real else 0.0
        found: Array = ((waves @ torch.exp(transform - total)).real * step).clamp_min(0.0).numpy()
        return found

    return places, density(0.0), density(1.0) if tilted else None


@_whatever_the_length
def _prompt(state: LawState) -> Array:
    here = problem(state)
    scores: Array = (here.mu.sample(150, torch.Generator().manual_seed(SEED)) @ here.z).numpy()
    return scores


def prompt(state: LawState) -> tuple[Array, Array]:
    """Scores of the first tokens of one drawn prompt, at most 150, and their weights relative to
    the largest among them.
    """
    scores = _prompt(state)[: state.length]
    return scores, np.exp(scores - scores.max())


@_whatever_the_length
def _read_outs(state: LawState) -> tuple[Array, Array]:
    here = problem(state)
    matrix, offset = affine_limit(here.attention, here.mu)
    queries = torch.tensor(STRENGTHS, dtype=torch.float64)[:, None] * here.unit
    limit = np.full(len(STRENGTHS), np.nan)
    low, high = 0, len(STRENGTHS)  # a limit at the first `low` strengths, none from `high` on
    while low < high:
        middle = high if low == 0 and high == len(STRENGTHS) else (low + high + 1) // 2
        try:
            limit[:middle] = (here.attention(here.mu, queries[:middle]) @ here.unit).numpy()
            low = middle
        except TiltDomainError:
            high = middle - 1
    affine: Array = ((queries @ matrix.mT + offset) @ here.unit).numpy()
    return limit, affine


def read_outs(state: LawState) -> tuple[Array, Array]:
    """Infinite prompt and affine read-out along the query, at ``STRENGTHS``; NaN where there is no
    limit.
    """
    return _read_outs(dataclasses.replace(state, strength=LawState.strength))


@functools.cache
def regimes() -> tuple[Array, Array, Array]:
    """Score variances, lengths, and the exact effective tokens of Gaussian scores on that grid."""
    variances, lengths = np.linspace(0.0, 16.0, 41), np.logspace(0, 7, 29).round()
    tokens = [
        1 / collision_moments(int(length), torch.from_numpy(np.sqrt(variances))).collision.numpy()
        for length in lengths
    ]
    return variances, lengths, np.array(tokens)


def needed_length(errors: Array, tolerance: float) -> float:
    """Where the errors at ``LENGTHS`` come below the tolerance for good, by interpolation: good to
    two digits; inf if nowhere.
    """
    from scipy.interpolate import PchipInterpolator

    first = _for_good(errors, tolerance)
    if first in (0, len(errors)):
        return 1.0 if first == 0 else math.inf
    logs = np.log(np.maximum(errors, 1e-300))
    between = PchipInterpolator(np.log(LENGTHS), logs - np.log(tolerance))
    roots = between.roots(extrapolate=False)
    inside = roots[
        (roots >= np.log(LENGTHS[first - 1]) - 1e-12) & (roots <= np.log(LENGTHS[first]) + 1e-12)
    ]
    return float(np.exp(inside[-1])) if len(inside) else float(LENGTHS[first])
