"""How long is long enough: the smallest prompt whose error is within a tolerance."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import SoftmaxAttention, affine_limit
from largeprompt.certificates import certificate
from largeprompt.errors import InvalidArgumentError
from largeprompt.law import finite_prompt, finite_prompt_errors, regime
from largeprompt.measures import Gaussian, Measure, sobol_points

SCRAMBLES = 8
SECTIONS = 16


@dataclasses.dataclass(frozen=True)
class QueryAverage:
    """Mean over random queries, with the standard error of the Sobol estimate; lengths lead."""

    mse: Tensor
    standard_error: Tensor
    length: Any
    method: str

    def __repr__(self) -> str:
        return f"QueryAverage({self.method}, length={self.length}, mse={self.mse.tolist()} ± {self.standard_error.tolist()})"


def query_average(
    attention: SoftmaxAttention,
    mu: Measure,
    queries: Measure,
    length: Any,
    *,
    method: Literal["exact", "certified"] = "exact",
    points: int = 1024,
    seed: int = 0,
) -> QueryAverage:
    """E‖T_L - T‖² (or its certificate) averaged over a random query: the quantity of the paper's Proposition 3.1 (claim C3).

    Parameters
    ----------
    attention, mu, length
        As for :func:`finite_prompt`; one head.
    queries
        Law of the queries, Gaussian or GaussianMixture.
    method
        'exact' (Gaussian and mixture tokens) or 'certified' (any tokens).
    points
        Sobol points in all, a power of two of at least 64; split over eight scramblings, which give the standard error.
    seed
        Of the scramblings.

    Examples
    --------
    >>> attention, mu = lp.SoftmaxAttention([[0.5]], [[1.0]]), lp.Gaussian([0.0], [[1.0]])
    >>> from largeprompt.planning import query_average
    >>> average = query_average(attention, mu, lp.Gaussian([0.0], [[1.0]]), 100)
    >>> print(f"{float(average.mse):.4f}")
    0.0179
    """
    if not isinstance(attention, SoftmaxAttention) or attention.heads:
        raise InvalidArgumentError("attention", repr(attention), "SoftmaxAttention with one head", "Loop over the heads.")
    if not isinstance(queries, Measure):
        raise InvalidArgumentError("queries", type(queries).__name__, "a law of queries, such as Gaussian(mean, covariance)")
    points = validation.integer("points", points)
    if points < 64 or points & (points - 1):
        raise InvalidArgumentError("points", str(points), "a power of two of at least 64")
    estimate = _measure(method)
    lengths, several = validation.lengths("length", length)
    tokens = [int(one) for one in lengths]
    groups = [
        estimate(attention, mu, sobol_points(queries, points // SCRAMBLES, seed + i), tokens).mean(-1) for i in range(SCRAMBLES)
    ]
    stacked = torch.stack(groups)[..., slice(None) if several else 0]
    return QueryAverage(stacked.mean(0), stacked.std(0) / math.sqrt(SCRAMBLES), length, method)


def _measure(method: str) -> Callable[..., Tensor]:
    if method == "exact":
        return finite_prompt_errors
    if method == "certified":
        return lambda attention, mu, z, length: certificate(attention, mu, z, length).bound
    raise InvalidArgumentError("method", repr(method), "'exact' or 'certified'")


@functools.total_ordering
@dataclasses.dataclass(frozen=True, eq=False)
class PromptLength:
    """The answer to 'how many tokens do I need?', usable as a number.

    Attributes
    ----------
    length
        Smallest L found within tolerance; ``math.inf`` for 'never'.
    rmse
        Root mean squared error at that length (certified: the root of its bound).
    tolerance
        What was asked, as an absolute distance.
    method
        'exact' or 'certified'.
    regime
        Regime at that length, for one query.
    effective_tokens
        1/E Y at that length, for one query and the exact method; otherwise None.
    reason
        Why this is the answer, in words.
    """

    length: float
    rmse: float
    tolerance: float
    method: str
    regime: str | None
    effective_tokens: float | None
    reason: str

    def __float__(self) -> float:
        return float(self.length)

    def __int__(self) -> int:
        return int(self.length)

    def __eq__(self, other: object) -> bool:
        return float(self) == float(other) if isinstance(other, int | float | PromptLength) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return float(self) < float(other) if isinstance(other, int | float | PromptLength) else NotImplemented

    def __hash__(self) -> int:
        return hash(float(self))


def prompt_length(
    attention: SoftmaxAttention,
    mu: Measure,
    z: Tensor | Measure,
    tolerance: float,
    method: Literal["exact", "certified"] = "exact",
    *,
    relative: bool = False,
    target: Literal["limit", "affine"] = "limit",
    points: int = 256,
    seed: int = 0,
) -> PromptLength:
    """Smallest prompt length from which on the root mean squared error is at most ``tolerance``.

    The error usually falls with the length, but need not (a rare token that the limit reads is missing from most short prompts), so
    the search goes over all powers of two up to 10^15, and then between the last one outside the tolerance and the next.

    Parameters
    ----------
    attention, mu
        The layer (one head) and the law of the tokens.
    z
        One query (d,), or a law of queries to average over.
    tolerance
        Distance allowed between T_L and the target, in root mean square.
    method
        'exact' (Gaussian and mixture tokens) or 'certified' (any law with a limit).
    relative
        Take the tolerance relative to the norm of the target (for a law of queries: its root mean square).
    target
        'limit': the infinite-prompt output T. 'affine': the affine read-out of mean and covariance, which tokens that are not
        Gaussian never reach; then the answer may be 'never', with the gap.
    points, seed
        For a law of queries: Sobol points and their scrambling.

    Examples
    --------
    >>> eye = torch.eye(16, dtype=torch.float64)
    >>> attention, mu = lp.SoftmaxAttention(eye, eye), lp.Gaussian(torch.zeros(16, dtype=torch.float64), eye)
    >>> z = torch.zeros(16, dtype=torch.float64); z[0] = 2**0.5
    >>> from largeprompt.planning import prompt_length
    >>> answer = prompt_length(attention, mu, z, tolerance=0.05)
    >>> int(answer), answer.regime
    (53084, 'linear')
    """
    if not isinstance(attention, SoftmaxAttention) or attention.heads:
        raise InvalidArgumentError("attention", repr(attention), "SoftmaxAttention with one head", "Loop over the heads.")
    tolerance = validation.positive("tolerance", tolerance)
    if target not in ("limit", "affine"):
        raise InvalidArgumentError("target", repr(target), "'limit' or 'affine'")
    estimate = _measure(method)
    if isinstance(z, Measure):
        queries = sobol_points(z, points, seed, name="points")
    else:
        queries = attention._values(mu, z)[1]
        if queries.dim() != 1:
            given = f"shape {validation.shape_text(queries.shape)}"
            raise InvalidArgumentError(
                "z", given, f"one query, shape ({attention.dim},), or a law of queries", "Loop over the queries."
            )
    if mu.batch_shape:
        raise InvalidArgumentError("mu", repr(mu), "one law, without batch dimensions", "Loop over the laws.")
    limit = attention(mu, queries)
    matrix, offset = affine_limit(attention, mu)
    aim = limit if target == "limit" else queries @ matrix.mT + offset
    gap2 = float((limit - aim).square().sum(-1).mean())
    if relative:
        size = math.sqrt(float(aim.square().sum(-1).mean()))
        if size == 0:
            raise InvalidArgumentError(
                "relative", "True for a target of norm 0", "a target that is not 0", "Use an absolute tolerance."
            )
        tolerance *= size

    def errors(lengths: list[int]) -> list[float]:
        """Root mean squared distance to the aim at each length, or an upper bound of it."""
        if target == "affine" and method == "exact":  # E‖T_L - A‖² = mse + 2 bias·(T - A) + ‖T - A‖²
            law = finite_prompt(attention, mu, queries, lengths)
            squared = law.mse + 2 * (law.bias * (limit - aim)).sum(-1)
            return (squared.reshape(len(lengths), -1).mean(-1) + gap2).clamp_min(0.0).sqrt().tolist()
        mse = estimate(attention, mu, queries, lengths).reshape(len(lengths), -1).mean(-1)
        return (mse.sqrt() + math.sqrt(gap2)).tolist()

    length, rmse, reason = _search(errors, tolerance)
    if math.isinf(length):
        if target == "affine" and gap2 > 0 and tolerance <= math.sqrt(gap2) * (1 + 1e-9):
            reason = (
                f"never: the tokens are not Gaussian and the limit itself is {math.sqrt(gap2):.4g} away from the affine read-out, "
                f"more than the tolerance {tolerance:.4g}"
            )
        return PromptLength(math.inf, rmse, tolerance, method, None, None, reason)
    if isinstance(z, Measure):
        return PromptLength(length, rmse, tolerance, method, None, None, reason)
    u = attention.tilts(queries)
    variance = float(u @ mu.covariance @ u)
    tokens = float(finite_prompt(attention, mu, queries, int(length)).effective_tokens) if method == "exact" else None
    named = regime(variance, length) if isinstance(mu, Gaussian) or method == "exact" else None
    return PromptLength(length, rmse, tolerance, method, named, tokens, reason)


def _search(errors: Callable[[list[int]], list[float]], tolerance: float) -> tuple[float, float, str]:
    """Length, error there, and why: the last power of two outside the tolerance, then sixteen points at a time up to the next."""
    grid = [*(2**k for k in range(50)), validation.LONGEST]
    found = errors(grid)
    outside = [i for i, error in enumerate(found) if not error <= tolerance]
    if not outside:
        return 1, found[0], "one token is enough"
    if outside[-1] == len(grid) - 1:
        return math.inf, found[-1], f"not within 10^15 tokens: the error is still {found[-1]:.4g} there"
    low, high = grid[outside[-1]], grid[outside[-1] + 1]
    at_low, at_high = found[outside[-1]], found[outside[-1] + 1]
    while high - low > 1:
        inner = sorted({low + (high - low) * i // SECTIONS for i in range(1, SECTIONS)} - {low, high})
        values = errors(inner)
        last = max((i for i, error in enumerate(values) if not error <= tolerance), default=-1)
        if last >= 0:
            low, at_low = inner[last], values[last]
        if last + 1 < len(inner):
            high, at_high = inner[last + 1], values[last + 1]
    return high, at_high, f"error {at_high:.6g} at L = {high}, {at_low:.6g} at L = {low}"
