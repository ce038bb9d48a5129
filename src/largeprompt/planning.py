"""How long is long enough: the smallest prompt whose error is within a tolerance."""

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Literal, Self

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import SoftmaxAttention, affine_limit
from largeprompt.attention.operators import one_head, one_law
from largeprompt.certificates import certificate
from largeprompt.errors import InvalidArgumentError
from largeprompt.law import finite_prompt, finite_prompt_errors, regime
from largeprompt.measures import Gaussian, Measure, sobol_points

SCRAMBLES = 8
SECTIONS = 16
SLACK = 1e-5  # relative: an error above the tolerance by less may go unnoticed


@dataclasses.dataclass(frozen=True)
class QueryAverage:
    """Mean over random queries, with the standard error of the Sobol estimate; lengths lead."""

    mse: Tensor
    standard_error: Tensor
    length: validation.Lengths
    method: str

    def __repr__(self) -> str:
        return f"QueryAverage({self.method}, length={self.length}, mse={self.mse.tolist()} ± {self.standard_error.tolist()})"


def query_average(
    attention: SoftmaxAttention,
    mu: Measure,
    queries: Measure,
    length: validation.Lengths,
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

    Returns
    -------
    QueryAverage
        ``mse`` and its ``standard_error``, one for each length.

    Examples
    --------
    >>> attention, mu = lp.SoftmaxAttention([[0.5]], [[1.0]]), lp.Gaussian([0.0], [[1.0]])
    >>> from largeprompt.planning import query_average
    >>> average = query_average(attention, mu, lp.Gaussian([0.0], [[1.0]]), 100)
    >>> print(f"{float(average.mse):.4f}")
    0.0179
    """
    one_head(attention)
    if not isinstance(queries, Measure):
        raise InvalidArgumentError("queries", type(queries).__name__, "a law of queries, such as Gaussian(mean, covariance)")
    points = validation.integer("points", points)
    if points < 64 or points & (points - 1):
        raise InvalidArgumentError("points", str(points), "a power of two of at least 64")
    estimate = _measure(method)
    lengths, several = validation.lengths("length", length)
    tokens = [int(one) for one in lengths]
    drawn = (sobol_points(queries, points // SCRAMBLES, seed + i) for i in range(SCRAMBLES))
    groups = [estimate(attention, mu, z, tokens).mean(-1) for z in drawn]
    stacked = torch.stack(groups)[..., slice(None) if several else 0]
    return QueryAverage(stacked.mean(0), stacked.std(0) / math.sqrt(SCRAMBLES), length, method)


def _measure(method: str) -> Callable[..., Tensor]:
    """Function of (attention, mu, queries, lengths) that gives the mean squared errors, or bounds of them, shape (length, ...)."""
    if method == "exact":
        return _exact
    if method == "certified":
        return lambda attention, mu, z, length: certificate(attention, mu, z, length).bound
    raise InvalidArgumentError("method", repr(method), "'exact' or 'certified'")


def _exact(attention: SoftmaxAttention, mu: Measure, z: Tensor, lengths: list[int]) -> Tensor:
    try:
        return finite_prompt_errors(attention, mu, z, lengths)
    except InvalidArgumentError as error:
        if error.name != "mu":
            raise
        remedy = "Use method='certified', which bounds the error for any law with a limit."
        raise InvalidArgumentError(error.name, error.given, error.allowed, remedy) from None


@dataclasses.dataclass(frozen=True, eq=False)
class PromptLength(float):
    """The answer to 'how many tokens do I need?': a number, the length, with what stands behind it.

    Attributes
    ----------
    length
        Smallest L found within tolerance; ``math.inf`` for 'never'.
    rmse
        Root mean squared error at that length (certified: the root of its bound), or at 10^15 for 'never': deep in the frozen
        regime of Gaussian tokens a lower bound of it, as the reason then says.
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

    def __new__(cls, length: float, *others: object, **fields: object) -> Self:
        return super().__new__(cls, length)


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
    """Smallest prompt length from which on, up to 10^15 tokens, the root mean squared error is at most ``tolerance``.

    The error usually falls with the length, but need not: a rare token that the limit reads is missing from most short prompts.
    Two lengths bound it at all lengths between them, formulas (cert.14) and (cert.15) of docs/mathematics/certificates.md. Hence
    the guarantee, up to the rounding of the errors: no length from the answer to 10^15 exceeds the tolerance by more than 1e-5 of
    it, and the length just below the answer exceeds it (certified: is not proved to be within it).

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
        Gaussian never reach; then the answer may be 'never', with the gap, (tilt.11) of docs/mathematics/tilting.md.
    points, seed
        For a law of queries: Sobol points and their scrambling.

    Returns
    -------
    PromptLength
        Usable as a number; ``math.inf`` for 'never', with the reason.

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
    one_head(attention)
    tolerance = validation.positive("tolerance", tolerance)
    if target not in ("limit", "affine"):
        raise InvalidArgumentError("target", repr(target), "'limit' or 'affine'")
    estimate = _measure(method)
    if isinstance(z, Measure):
        queries = sobol_points(z, points, seed, name="points")
    else:
        queries = attention._values(mu, z)[1]
        if queries.dim() != 1:
            given, allowed = (
                f"shape {validation.shape_text(queries.shape)}",
                f"one query, shape ({attention.dim},), or a law of queries",
            )
            raise InvalidArgumentError("z", given, allowed, "Loop over the queries.")
    one_law(mu)
    limit = attention(mu, queries)
    matrix, offset = affine_limit(attention, mu)
    aim = limit if target == "limit" else queries @ matrix.mT + offset
    gap2 = float((limit - aim).square().sum(-1).mean())
    if relative:
        size = math.sqrt(float(aim.square().sum(-1).mean()))
        if size == 0:
            given, remedy = "True for a target of norm 0", "Use an absolute tolerance."
            raise InvalidArgumentError("relative", given, "a target that is not 0", remedy)
        tolerance *= size

    def errors(lengths: list[int]) -> list[float]:
        """Root mean squared distance to the aim at each length, or an upper bound of it."""
        if target == "affine" and method == "exact":  # E‖T_L - A‖² = mse + 2 bias·(T - A) + ‖T - A‖²
            law = finite_prompt(attention, mu, queries, lengths)
            squared = law.mse + 2 * (law.bias * (limit - aim)).sum(-1)
            return (squared.reshape(len(lengths), -1).mean(-1) + gap2).clamp_min(0.0).sqrt().tolist()
        mse = estimate(attention, mu, queries, lengths).reshape(len(lengths), -1).mean(-1)
        return (mse.sqrt() + math.sqrt(gap2)).tolist()

    frozen = _frozen_error(attention, mu, queries) if method == "exact" and isinstance(mu, Gaussian) else 0.0
    if frozen > tolerance:
        reason = f"not within 10^15 tokens: the weights are frozen even there, and the error is still at least {frozen:.4g}"
        return PromptLength(math.inf, frozen, tolerance, method, None, None, reason)
    length, rmse, reason = _search(errors, tolerance)
    if math.isinf(length) and target == "affine" and gap2 > 0 and tolerance <= math.sqrt(gap2) * (1 + 1e-9):
        reason = (
            f"never: the tokens are not Gaussian and the limit itself is {math.sqrt(gap2):.4g} away from the affine read-out, "
            f"more than the tolerance {tolerance:.4g}"
        )
    named = tokens = None
    if not math.isinf(length) and not isinstance(z, Measure):
        if method == "exact":
            tokens = float(finite_prompt(attention, mu, queries, int(length)).effective_tokens)
        if method == "exact" or isinstance(mu, Gaussian):
            u = attention._tilts(queries)
            named = regime(float(u @ mu.covariance @ u), length)
    return PromptLength(length, rmse, tolerance, method, named, tokens, reason)


def _frozen_error(attention: SoftmaxAttention, mu: Gaussian, queries: Tensor) -> float:
    """Lower bound of the root mean squared error up to 10^15 Gaussian tokens, 0 unless a score has σ >= 2√(2 ln 10^15) = 16.6.

    Along Γu the output is an average S of L normal variables ξ, so that E S <= E max ξ <= √(2 ln L), and S should be σ. Where it is
    not 0 it is within a factor 2 of the error, whose exact law takes up to minutes there.
    """
    u = attention._tilts(queries)
    shift, most = mu.shift(u), math.sqrt(2 * math.log(validation.LONGEST))
    sigma = (u * shift).sum(-1).clamp_min(0.0).sqrt()
    if float(sigma.max()) < 2 * most:
        return 0.0
    read = (shift @ attention.V.mT).norm(dim=-1) / sigma.clamp_min(most)
    return math.sqrt(float(((sigma - most).clamp_min(0.0) * read).square().mean()))


def _search(errors: Callable[[list[int]], list[float]], tolerance: float) -> tuple[float, float, str]:
    """Length, error there, and why, for :func:`prompt_length`.

    Intervals between powers of two are looked at from the longest on. Each is passed where nothing in it can exceed the tolerance,
    and else cut into sixteen, down to two neighbours.
    """
    known: dict[int, float] = {}

    def learn(lengths: list[int]) -> list[int]:
        known.update(zip(lengths, errors(lengths), strict=True))
        bad = next((one for one in lengths if math.isnan(known[one])), None)
        if bad is not None:
            raise InvalidArgumentError("z", f"an error that is NaN at length {bad}", "scores for which the error is a number")
        return lengths

    grid = learn([*(2**k for k in range(50)), validation.LONGEST])
    if known[grid[-1]] > tolerance:
        return math.inf, known[grid[-1]], f"not within 10^15 tokens: the error is still {known[grid[-1]]:.4g} there"
    intervals = list(itertools.pairwise(grid))
    while intervals:
        low, high = intervals.pop()
        if known[low] <= tolerance and _largest_between(low, high, known) <= tolerance * (1 + SLACK):
            continue
        if high - low == 1:
            return high, known[high], f"error {known[high]:.6g} at L = {high}, {known[low]:.6g} at L = {low}"
        inner = learn(sorted({low + (high - low) * i // SECTIONS for i in range(1, SECTIONS)} - {low, high}))
        intervals += itertools.pairwise([low, *inner, high])
    return 1, known[1], "one token is enough"


def _largest_between(low: int, high: int, known: dict[int, float]) -> float:
    """Upper bound (cert.15) of the error between two lengths, largest where (2L-1)/(L(L-1)) is the slope of the chord."""
    if high - low == 1:
        return known[low]
    if low == 1:  # L(L-1) = 0
        return math.inf
    ends = [2 * math.log(max(known[one], 1e-150)) - math.log(one) - math.log(one - 1) for one in (low, high)]
    fall = (ends[0] - ends[1]) / (high - low)
    peak = ((fall + 2) + math.sqrt(fall**2 + 4)) / (2 * fall) if fall > 0 else high
    peak = min(max(peak, low), high)
    return math.exp((ends[0] - fall * (peak - low) + math.log(peak) + math.log(peak - 1)) / 2)
