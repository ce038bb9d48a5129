"""Numbers behind the pictures of one prompt: exact, certified and drawn.

What a control does not change is computed once.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from largeprompt import affine_limit, certificate, finite_prompt, prompt_length, sample_prompts
from largeprompt.explore.code import executed, law_setup
from largeprompt.explore.picture import Array
from largeprompt.explore.state import LENGTHS, LawState
from largeprompt.planning import PromptLength

Result = TypeVar("Result")
DRAWN, REPLICAS = (1, 3, 10, 30, 100, 300), 60  # prompts are drawn at these lengths
# of the scores' standard deviation: densities are smoothed by so much, so that atoms can be drawn
BRUSH = 0.06
SEED = 0


def whatever(*names: str) -> Callable[[Callable[[LawState], Result]], Callable[[LawState], Result]]:
    """Compute once for all values of these fields."""
    same: dict[str, Any] = {name: getattr(LawState, name) for name in names}

    def keep(function: Callable[[LawState], Result]) -> Callable[[LawState], Result]:
        cached = functools.lru_cache(maxsize=256)(function)

        @functools.wraps(cached)
        def found(state: LawState) -> Result:
            return cached(dataclasses.replace(state, **same))

        return found

    return keep


@dataclasses.dataclass(frozen=True)
class Problem:
    """Layer, law and query; the output times ``unit`` is in standard deviations of the tokens."""

    attention: Any
    mu: Any
    z: Tensor
    unit: Tensor


@dataclasses.dataclass(frozen=True)
class Curve:
    """Exact and certified errors, effective tokens and mean output along the query, by length."""

    errors: Array
    proved: Array
    tokens: Array
    along: Array


@whatever("length", "tolerance")
def problem(state: LawState) -> Problem:
    """Return what the code of the state makes."""
    found = executed(law_setup(state))
    z = found["z"]
    return Problem(found["attention"], found["mu"], z, z / state.strength)


@whatever("length", "tolerance")
def curve(state: LawState) -> Curve:
    """Return exact law and certificate at all lengths of the slider."""
    here, lengths = problem(state), list(LENGTHS)
    law = finite_prompt(here.attention, here.mu, here.z, lengths)
    bound = certificate(here.attention, here.mu, here.z, lengths).bound
    found = (law.rmse, bound.sqrt(), law.effective_tokens, law.mean @ here.unit)
    return Curve(*(each.numpy() for each in found))


@whatever("length")
def enough(state: LawState) -> tuple[PromptLength, PromptLength]:
    """Return the least lengths for the error wanted, exact and certified: up to half a second."""
    here = problem(state)
    exact, certified = (
        prompt_length(here.attention, here.mu, here.z, state.tolerance, method)
        for method in ("exact", "certified")
    )
    return exact, certified


@whatever("length", "tolerance")
def drawn(state: LawState) -> tuple[Array, Array]:
    """Return root mean squared errors of drawn prompts by length, and their standard errors."""
    here, draws = problem(state), torch.Generator().manual_seed(SEED)
    samples = sample_prompts(here.attention, here.mu, here.z, DRAWN, REPLICAS, draws)
    mean, spread = samples.mse(here.attention(here.mu, here.z))
    return mean.sqrt().numpy(), (spread / (2 * mean.sqrt())).numpy()


@whatever("length", "tolerance")
def densities(state: LawState) -> tuple[Array, Array, Array]:
    """Return scores, their density, and the density as the softmax weighs it, e^s p(s)/E e^s.

    By inversion of the characteristic function E e^{(r + it)u·x}, r = 0 and 1, smoothed by a normal
    brush of ``BRUSH`` standard deviations.
    """
    here, sigma = problem(state), state.strength
    u, low = here.z, -4.5 * sigma
    center, spread = here.mu.tilted_mean(u) @ u, u @ here.mu.tilted_covariance(u) @ u
    high = min(max(-low, float(center + 4 * spread.sqrt())), 16 * sigma)
    places = np.linspace(low, high, 240)
    t = torch.arange(0.0, 4.5 / (BRUSH * sigma), np.pi / (1.2 * (high - low)), dtype=torch.float64)
    waves = torch.exp(-1j * torch.outer(torch.from_numpy(places), t))
    waves = waves * torch.exp(-((BRUSH * sigma * t) ** 2) / 2)
    waves[:, 0] /= 2  # the trapezoidal rule over t >= 0, twice the real part
    step = float(t[1]) / np.pi

    def density(real: float) -> Array:
        along = torch.complex(torch.full_like(t, real), t)[:, None] * u
        transform = here.mu.complex_cumulants(along, 0)[0] - here.mu.cgf(real * u)
        found: Array = ((waves @ torch.exp(transform)).real * step).clamp_min(0.0).numpy()
        return found

    return places, density(0.0), density(1.0)


@whatever("length", "tolerance")
def _scores(state: LawState) -> Array:
    here = problem(state)
    scores: Array = (here.mu.sample(150, torch.Generator().manual_seed(SEED)) @ here.z).numpy()
    return scores


def prompt(state: LawState) -> tuple[Array, Array]:
    """Return scores of the first 150 tokens of a drawn prompt, and weights over the largest."""
    scores = _scores(state)[: state.length]
    return scores, np.exp(scores - scores.max())


@whatever("length", "tolerance", "strength")
def read_outs(state: LawState) -> tuple[Array, Array, Array]:
    """Return strengths, and infinite prompt and affine read-out along the query at each."""
    here = problem(dataclasses.replace(state, strength=1.0))
    strengths = np.arange(1, round(10 * state.strongest) + 1) / 10
    queries = torch.from_numpy(strengths)[:, None] * here.unit
    matrix, offset = affine_limit(here.attention, here.mu)
    limit, affine = here.attention(here.mu, queries), queries @ matrix.mT + offset
    return strengths, (limit @ here.unit).numpy(), (affine @ here.unit).numpy()
