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
from largeprompt.certificate import certificate
from largeprompt.errors import InvalidArgumentError
from largeprompt.law import finite_prompt, regime
from largeprompt.measures import Gaussian, Measure, sobol_points

SCRAMBLES = 8


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
    if attention.heads:
        raise InvalidArgumentError("attention", repr(attention), "one head", "Loop over the heads.")
    if validation.integer("points", points) < 64:
        raise InvalidArgumentError("points", str(points), "a power of two of at least 64")
    estimate = _measure(method)
    groups = [
        estimate(attention, mu, sobol_points(queries, points // SCRAMBLES, seed + i), length).mean(-1) for i in range(SCRAMBLES)
    ]
    stacked = torch.stack(groups)
    return QueryAverage(stacked.mean(0), stacked.std(0) / math.sqrt(SCRAMBLES), length, method)


def _measure(method: str) -> Callable[..., Tensor]:
    if method == "exact":
        return lambda attention, mu, z, length: finite_prompt(attention, mu, z, length).mse
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

    def __lt__(self, other: float | PromptLength) -> bool:
        return float(self) < float(other)

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
    """Smallest prompt length whose root mean squared error is at most ``tolerance``.

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
        queries = sobol_points(z, points, seed)
    else:
        queries = attention._values(mu, z)[1]
        if queries.dim() != 1:
            given = f"shape {validation.shape_text(queries.shape)}"
            raise InvalidArgumentError(
                "z", given, f"one query, shape ({attention.dim},), or a law of queries", "Loop over the queries."
            )
    limit = attention(mu, queries)
    matrix, offset = affine_limit(attention, mu)
    aim = limit if target == "limit" else queries @ matrix.mT + offset
    gap2 = float((limit - aim).square().sum(-1).mean())
    if relative:
        tolerance *= math.sqrt(float(aim.square().sum(-1).mean()))

    @functools.cache
    def error(length: int) -> float:
        """Root mean squared distance to the aim, or an upper bound of it."""
        mse = estimate(attention, mu, queries, length)
        if target == "limit":
            return math.sqrt(float(mse.mean()))
        if method == "exact":  # E‖T_L - A‖² = mse + 2 bias·(T - A) + ‖T - A‖²
            cross = (finite_prompt(attention, mu, queries, length).bias * (limit - aim)).sum(-1)
            return math.sqrt(max(0.0, float((mse + 2 * cross).mean()) + gap2))
        return math.sqrt(float(mse.mean())) + math.sqrt(gap2)

    length, reason = _search(error, tolerance)
    if math.isinf(length):
        if target == "affine" and gap2 > 0 and tolerance <= math.sqrt(gap2) * (1 + 1e-9):
            reason = (
                f"never: the tokens are not Gaussian and the limit itself is {math.sqrt(gap2):.4g} away from the affine read-out, "
                f"more than the tolerance {tolerance:.4g}"
            )
        return PromptLength(math.inf, error(validation.LONGEST), tolerance, method, None, None, reason)
    if isinstance(z, Measure):
        return PromptLength(length, error(int(length)), tolerance, method, None, None, reason)
    u = attention.tilts(queries)
    variance = float(u @ mu.covariance @ u)
    tokens = float(finite_prompt(attention, mu, queries, int(length)).effective_tokens) if method == "exact" else None
    named = regime(variance, length) if isinstance(mu, Gaussian) or method == "exact" else None
    return PromptLength(length, error(int(length)), tolerance, method, named, tokens, reason)


def _search(error: Callable[[int], float], tolerance: float) -> tuple[float, str]:
    """Double until within tolerance, then bisect; assumes that the error falls with the length, as it does."""
    if error(1) <= tolerance:
        return 1, "one token is enough: the tolerance exceeds the spread of the tokens"
    low, high = 1, 2
    while error(high) > tolerance:
        if high >= validation.LONGEST:
            return math.inf, f"not within 10^15 tokens: the error is still {error(validation.LONGEST):.4g} there"
        low, high = high, min(high * 2, validation.LONGEST)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if error(middle) <= tolerance else (middle, high)
    return high, f"error {error(high):.6g} at L = {high}, {error(high - 1):.6g} at L = {high - 1}"
