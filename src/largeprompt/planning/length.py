"""How long is long enough: the smallest prompt whose error is within a tolerance."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal, Self

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import SoftmaxAttention, affine_limit
from largeprompt.attention.operators import one_head, one_law
from largeprompt.certificates import certificate
from largeprompt.certificates.random_query import query_atoms
from largeprompt.devices import sheltered
from largeprompt.display.tables import plain
from largeprompt.errors import InvalidArgumentError
from largeprompt.law import finite_prompt, regime
from largeprompt.measures import AtomicMeasure, Gaussian, Measure
from largeprompt.planning.average import GROUPS, METHODS, Errors, Method, average_errors, drawn
from largeprompt.planning.search import smallest_length


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PromptLength(float):
    """The length that is needed, a number, with what stands behind it.

    Attributes
    ----------
    length
        Smallest L found within tolerance; ``math.inf`` for 'never'.
    rmse
        Root mean squared error at that length (certified: the root of its bound), or at 10^15 for
        'never' (where the reason says so, a lower bound of it).
    tolerance
        What was asked, as an absolute distance.
    method
        'exact', 'certified' or 'estimate'.
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

    def __repr__(self) -> str:
        words = [f"rmse={plain(self.rmse)}", f"tolerance={plain(self.tolerance)}", self.method]
        if self.effective_tokens is not None:
            words.append(f"effective_tokens={plain(self.effective_tokens)}")
        if self.regime is not None:
            words.append(f"regime='{self.regime}'")
        return f"PromptLength({plain(self.length)}, {', '.join(words)}; {self.reason})"


@sheltered
def prompt_length(
    attention: SoftmaxAttention,
    mu: Measure,
    z: Tensor | Measure,
    tolerance: float,
    method: Method = "exact",
    *,
    relative: bool = False,
    target: Literal["limit", "affine"] = "limit",
    points: int = 4096,
    generator: validation.Randomness | None = None,
) -> PromptLength:
    """Smallest length from which, up to 10^15, the root mean squared error is within tolerance.

    The error usually falls with the length, but need not. Two lengths bound it at all lengths
    between them, (cert.14) and (cert.15) of docs/mathematics/certificates.md. So no length from the
    answer to 10^15 exceeds the tolerance by more than 1e-5 of it, and the length just below the
    answer exceeds it (certified: is not proved to be within it).

    Parameters
    ----------
    attention, mu
        The layer (one head) and the law of the tokens.
    z
        One query (d,), or a law of queries to average over.
    tolerance
        Distance allowed between T_L and the target, in root mean square.
    method
        For one query 'exact' or 'certified'; for a law of queries as in :func:`query_average`.
    relative
        Take the tolerance relative to the norm of the target (its root mean square over queries).
    target
        'limit': the infinite-prompt output T. 'affine': the affine read-out of mean and covariance,
        which tokens that are not Gaussian never reach: (tilt.11) of docs/mathematics/tilting.md.
    points, generator
        Of an estimate, as in :func:`query_average`.

    Examples
    --------
    >>> eye = torch.eye(16, dtype=torch.float64)
    >>> attention, mu = lp.SoftmaxAttention(eye, eye), lp.Gaussian(dim=16)
    >>> z = torch.zeros(16, dtype=torch.float64); z[0] = 2**0.5
    >>> from largeprompt.planning import prompt_length
    >>> answer = prompt_length(attention, mu, z, tolerance=0.05)
    >>> int(answer), answer.regime
    (53084, 'linear')
    >>> queries = lp.Gaussian(0 * z, eye / 8)  # random, of the same mean square
    >>> int(prompt_length(attention, mu, queries, tolerance=0.05))
    72708
    """
    one_head(attention)
    tolerance = validation.positive("tolerance", tolerance)
    relative = validation.flag("relative", relative)
    validation.choice("target", target, ("limit", "affine"))
    question = _question(attention, mu, z, method, target, points, generator)
    if relative:
        size = math.sqrt(question.size)
        if size == 0:
            given, remedy = "True for a target of norm 0", "Use an absolute tolerance."
            raise InvalidArgumentError("relative", given, "a target that is not 0", remedy)
        tolerance *= size
    if question.frozen > tolerance:
        reason = (
            "not within 10^15 tokens: the weights are frozen even there, and the error is "
            f"still at least {question.frozen:.4g}"
        )
        return PromptLength(math.inf, question.frozen, tolerance, method, None, None, reason)

    def errors(lengths: list[int]) -> list[float]:
        found: list[float] = (
            question.errors(lengths).to(torch.float64).clamp_min(0.0).sqrt().tolist()
        )
        return found

    longest = _long_enough(question.bounds, tolerance) if question.bounds else validation.LONGEST
    length, rmse, reason = smallest_length(errors, tolerance, longest)
    gap = math.sqrt(question.gap2)
    if math.isinf(length) and gap > 0 and tolerance <= gap * (1 + 1e-9):
        reason = (
            f"never: the tokens are not Gaussian and the limit itself is {gap:.4g} away from the "
            f"affine read-out, more than the tolerance {tolerance:.4g}"
        )
    if question.spread:
        off = float(question.spread([validation.LONGEST if math.isinf(length) else int(length)])[0])
        reason += (
            f"; an estimate, with a standard error of {off:.2g} of the mean square {rmse**2:.4g}"
        )
    named = tokens = None
    if not math.isinf(length) and not isinstance(z, Measure):
        query = attention._values(mu, z)[1]
        if method == "exact":
            tokens = float(finite_prompt(attention, mu, query, int(length)).effective_tokens)
        if method == "exact" or isinstance(mu, Gaussian):
            u = attention._tilts(query)
            named = regime(float(u @ mu.covariance @ u), length)
    return PromptLength(length, rmse, tolerance, method, named, tokens, reason)


@dataclasses.dataclass(frozen=True)
class _Question:
    """What :func:`prompt_length` needs to know of a layer, its tokens and its queries."""

    errors: Errors  # squared distances to the target at lengths
    size: float  # the target's mean square
    bounds: Errors | None = None  # of the errors, falling with the length
    gap2: float = 0.0  # squared distance of target and limit
    frozen: float = 0.0  # a lower bound of the error up to 10^15 tokens
    spread: Errors | None = None  # standard errors of estimates


def _question(
    attention: SoftmaxAttention,
    mu: Measure,
    z: Tensor | Measure,
    method: Method,
    target: str,
    points: int,
    generator: validation.Randomness | None,
) -> _Question:
    matrix, offset = affine_limit(attention, mu)
    one_law(mu)
    if not isinstance(z, Measure):
        query = attention._values(mu, z)[1]
        if query.dim() != 1:
            given = f"shape {validation.shape_text(query.shape)}"
            allowed = f"one query, shape ({attention.dim},), or a law of queries"
            raise InvalidArgumentError("z", given, allowed, "Loop over the queries.")
        validation.choice("method", method, ("exact", "certified"), " for one query")
        weights, places = torch.ones(1, dtype=torch.float64, device=query.device), query[None]
    elif validation.choice("method", method, METHODS) == "estimate":
        places = torch.cat(drawn(z, points, generator))
        weights = torch.full(
            (len(places),), 1 / len(places), dtype=torch.float64, device=places.device
        )
    elif isinstance(z, AtomicMeasure):
        weights, places = query_atoms(z)
    else:
        errors = average_errors(attention, mu, z, method)
        attention._values(mu, z.mean)  # dimension, dtype and device
        center = z.mean @ matrix.mT + offset
        # E‖VΓUz + Vm‖²
        size = float(center.square().sum() + ((matrix @ z.covariance) * matrix).sum())
        bounds = average_errors(attention, mu, z, "certified") if method == "exact" else None
        return _Question(errors, size, bounds)
    return _over_places(attention, mu, places, weights, method, target)


def _over_places(
    attention: SoftmaxAttention,
    mu: Measure,
    places: Tensor,
    weights: Tensor,
    method: Method,
    target: str,
) -> _Question:
    """Finitely many queries, one included, with their weights."""

    def mean(values: Tensor) -> Tensor:
        return values.to(torch.float64) @ weights

    limit = attention(mu, places)
    matrix, offset = affine_limit(attention, mu)
    aim = limit if target == "limit" else places @ matrix.mT + offset
    gap2, size = float(mean((limit - aim).square().sum(-1))), float(mean(aim.square().sum(-1)))

    def bounds(lengths: Sequence[float]) -> Tensor:
        return (
            mean(certificate(attention, mu, places, list(lengths)).bound).sqrt() + math.sqrt(gap2)
        ) ** 2

    def each(lengths: Sequence[float]) -> Tensor:
        # E‖T_L - A‖² = mse + 2 bias·(T - A) + ‖T - A‖²
        law = finite_prompt(attention, mu, places, list(lengths))
        return law.mse + 2 * (law.bias * (limit - aim)).sum(-1) + (limit - aim).square().sum(-1)

    def errors(lengths: Sequence[float]) -> Tensor:
        return mean(each(lengths))

    def spread(lengths: Sequence[float]) -> Tensor:
        found = each(lengths)
        return found.reshape(len(found), GROUPS, -1).mean(-1).std(-1) / math.sqrt(GROUPS)

    if method == "certified":
        return _Question(bounds, size, gap2=gap2)
    frozen = _frozen_error(attention, mu, places, weights) if isinstance(mu, Gaussian) else 0.0
    falling = bounds if isinstance(mu, Gaussian) else None
    return _Question(errors, size, falling, gap2, frozen, spread if method == "estimate" else None)


def _long_enough(bounds: Errors, tolerance: float) -> int:
    """A power of two from which bounds are within the tolerance; 10^15 if none is."""
    low, high = 0, 50  # 2^50 > 10^15
    while low < high:
        middle = (low + high) // 2
        # not a power, which overflows
        if float(bounds([1 << middle])[0]) <= tolerance * tolerance * (1 - 1e-6):
            high = middle
        else:
            low = middle + 1
    return min(1 << low, validation.LONGEST)


def _frozen_error(
    attention: SoftmaxAttention, mu: Gaussian, queries: Tensor, weights: Tensor
) -> float:
    """Lower bound of the error up to 10^15 Gaussian tokens; 0 unless a score has σ >= 16.6.

    Along Γu the output averages L normal variables, so that its mean is at most √(2 ln L), and
    should be σ. The exact law takes up to minutes there.
    """
    u = attention._tilts(queries)
    shift, most = mu.shift(u), math.sqrt(2 * math.log(validation.LONGEST))
    sigma = (u * shift).sum(-1).clamp_min(0.0).sqrt()
    if float(sigma.max()) < 2 * most:
        return 0.0
    read = (shift @ attention.V.mT).norm(dim=-1) / sigma.clamp_min(most)
    return math.sqrt(
        float(((sigma - most).clamp_min(0.0) * read).square().to(torch.float64) @ weights)
    )
