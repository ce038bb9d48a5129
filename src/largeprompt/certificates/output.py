"""Rigorous upper bounds on E‖T_L - T‖², with every constant given, for any length; proofs:
docs/mathematics/certificates.md.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import SoftmaxAttention
from largeprompt.attention.operators import one_head, one_law
from largeprompt.certificates import split
from largeprompt.certificates.ingredients import (
    Ingredients,
    TiltedMoments,
    binary_exponent,
    nan_to_inf,
    positive,
    rescaled,
    unit,
)
from largeprompt.certificates.random_query import (
    QueryTransform,
    gaussian_parts,
    query_atoms,
    random_query_bounds,
    score_forms,
)
from largeprompt.devices import sheltered
from largeprompt.display.by_length import ByLength
from largeprompt.display.tables import plain
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures import AtomicMeasure, Gaussian, GaussianMixture, Measure


def outward(bound: Tensor) -> Tensor:
    """Round a bound away from the truth, by more than the rounding of the sums it is made of."""
    return bound * (1 + 1024 * torch.finfo(bound.dtype).eps)


def widened(
    attention: SoftmaxAttention, mu: Measure, z: validation.ArrayLike
) -> tuple[SoftmaxAttention, Measure, Tensor]:
    """Layer, law and queries, checked, in double precision, in which certificates are computed."""
    if not isinstance(attention, SoftmaxAttention):
        raise InvalidArgumentError("attention", type(attention).__name__, "SoftmaxAttention")
    _, query = attention._values(mu, z)
    double = torch.float64
    layer = SoftmaxAttention(attention.U.detach().to(double), attention.V.detach().to(double))
    return layer, mu if mu.dtype == double else mu.to(double), query.detach().to(double)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Certificate(ByLength):
    """A proved upper bound, with its pieces.

    Shapes: lengths lead (nothing for a single length), then heads, then queries.

    Attributes
    ----------
    bound
        Upper bound of E‖T_L - T‖².
    leading
        The part that falls like 1/L: (ρ/L) times the variance of the tilt by 2u around T.
    remainder
        ``bound`` minus what the leading part and its corrections give: the price of a small
        normalizer.
    theta
        The level below which the normalizer counts as small; 1 where none is needed.
    rho
        ρ = e^{Λ(2u) - 2Λ(u)}; a prompt must be longer than that to be read well. Infinite where
        Λ(2u) is.
    length
        L, a number or a tuple.
    reason
        In words, which bound was taken; for one length and one query a string, else an array of
        strings.
    jacobian_v_bound
        Upper bound of E‖dT_L/dV - dT/dV‖², from :func:`jacobian_certificate`, whose ``bound`` is
        that of the derivative in U.
    """

    bound: Tensor
    leading: Tensor
    remainder: Tensor
    theta: Tensor
    rho: Tensor
    length: float | tuple[float, ...]
    reason: Any
    # E‖N‖², where the error is N/D; None where it is not of that form
    numerator: Tensor | None = None
    jacobian_v_bound: Tensor | None = None

    _size: ClassVar[str] = "bound"
    _numbers: ClassVar[dict[str, str]] = {
        "bound": "upper bound of the mean squared error",
        "rmse": "upper bound of the root mean squared error",
        "leading": "part of the bound that falls like 1/L",
        "remainder": "price of a small normalizer",
        "theta": "level below which the normalizer counts as small",
        "rho": "tokens above which a prompt is read well",
        "reason": "which bound was taken",
    }

    @property
    def rmse(self) -> Tensor:
        """√bound, which √E‖T_L - T‖² does not exceed, shape (...)."""
        return self.bound.sqrt()

    def tail(self, distance: Any) -> Tensor:
        """Upper bound of P(‖T_L - T‖ > distance), formula (cert.11) of
        docs/mathematics/certificates.md.
        """
        t = validation.tensor("distance", distance, like=self.bound).detach()
        if not bool((t > 0).all()):
            raise InvalidArgumentError("distance", f"{float(t.min()):.6g}", "positive numbers")
        markov = self.bound / t**2
        if self.numerator is None:
            return outward(markov).clamp_max(1.0)
        lengths = torch.as_tensor(self.length, dtype=self.bound.dtype, device=self.bound.device)
        lengths = lengths.reshape(lengths.shape + (1,) * (self.bound.dim() - lengths.dim()))
        theta = torch.linspace(0.02, 0.995, 196, dtype=self.bound.dtype, device=self.bound.device)
        theta = theta.reshape(-1, *(1,) * max(self.bound.dim(), t.dim()))
        probability = (
            torch.exp(-lengths * (1 - theta) ** 2 / (2 * self.rho))
            + self.numerator / (theta * t) ** 2
        )
        candidates = torch.where(torch.isfinite(self.rho), probability, torch.inf).amin(0)
        return outward(torch.minimum(candidates, markov)).clamp_max(1.0)

    def _columns(self) -> dict[str, Any]:
        return {"rmse": self.rmse, "rho": self.rho, "reason": self.reason}

    def _curve(self) -> dict[str, Any]:
        return {"label": "certified", "ls": "--"}

    def __repr__(self) -> str:
        if self.bound.dim():
            return self._summary()
        needed = (
            f"; read well beyond rho = {plain(self.rho)} tokens" if math.isfinite(self.rho) else ""
        )
        return (
            f"Certificate(length={plain(self.length)}, rmse <= {float(self.rmse):.4g}, "
            f"{self.reason}{needed})"
        )


def gaussian_collision_bound(score_variance: Tensor, length: float) -> Tensor:
    """Bound of E Y for Gaussian scores, (cert.1) and (cert.16) of docs/mathematics/certificates.md,
    x = e^{σ²}.

    The smaller of (x/L)(1 - (1 - 1/x)^L) and, for 1 <= p <= 2, L^{1-p} x^{p(p-1)/2}, least at p =
    1/2 + ln L/σ².
    """
    small, log_length = torch.exp(-score_variance), math.log(length)  # 1/x
    log_power = length * torch.log1p(-small)
    ratio = -torch.expm1(log_power) / (length * small)
    ratio = torch.where(length * small < 1e-280, torch.ones_like(small), ratio)
    a = (log_length / score_variance - 0.5).nan_to_num(1.0).clamp(0.0, 1.0)  # p - 1
    return torch.minimum(ratio, torch.exp(a * ((a + 1) * score_variance / 2 - log_length)))


@sheltered
@torch.no_grad()
def certificate(
    attention: SoftmaxAttention,
    mu: Measure,
    z: validation.ArrayLike | Measure,
    length: validation.Lengths,
) -> Certificate:
    """Rigorous upper bound of E‖T_L - T‖² for a prompt of L independent tokens, any law, any
    L >= 1.

    Formulas of docs/mathematics/certificates.md: (cert.2) for Gaussian tokens, else the smallest of
    (cert.4), (cert.6), (cert.8) and (cert.9) that the law allows; (cert.17) and (cert.18) for
    Gaussian tokens and a random Gaussian query. Bounds are numbers: no gradient flows through them.

    Parameters
    ----------
    attention
        The layer.
    mu
        The law of the tokens.
    z
        Queries, shape ``(*queries, d)``; or the law of a random query, over which the error is
        averaged: Gaussian or a Gaussian mixture if the tokens are Gaussian, finitely many queries
        (``Discrete``, ``Empirical``) for any tokens.
    length
        L >= 1, or several, which then lead the shape of every result.

    Returns
    -------
    Certificate
        With ``bound``, its pieces, ``rho``, the ``reason`` in words, and ``tail(distance)``.

    Raises
    ------
    TiltDomainError
        Where the cgf is infinite at u itself: there is no limit to be close to.

    Examples
    --------
    >>> from largeprompt.certificates import certificate
    >>> attention = lp.SoftmaxAttention([[1.0]], [[1.0]])
    >>> certificate(attention, lp.Gaussian([0.0], [[1.0]]), [1.0], length=1000)
    Certificate(length=1000, rmse <= 0.07373, closed form for Gaussian tokens; ...)
    >>> certificate(attention, lp.Laplace(1), [0.3], length=1000).reason
    'split bound, second order, theta = 0.72'
    """
    if isinstance(z, Measure):
        return _random_query(attention, mu, z, length)
    layer, law, queries = widened(attention, mu, z)
    lengths, several = validation.lengths("length", length)
    u, (values, _) = layer._tilts(queries), layer._values(law, queries)
    parts = (
        _gaussian(law, u, values, lengths)
        if isinstance(law, Gaussian)
        else _general(layer, law, u, lengths)
    )
    found = assemble(parts, lengths, several, mu.dtype)
    return dataclasses.replace(found, numerator=found.leading)


def _random_query(
    attention: SoftmaxAttention, mu: Measure, queries: Measure, length: validation.Lengths
) -> Certificate:
    """Average over the law of a query: exact sums over finitely many, (cert.17) and (cert.18) for
    Gaussian tokens and queries.
    """
    one_head(attention)
    lengths, several = validation.lengths("length", length)
    if isinstance(queries, AtomicMeasure):
        weights, points = query_atoms(queries)
        each = certificate(attention, mu, points, lengths)
        columns = (each.bound, each.leading, each.remainder, each.theta, each.rho)
        parts = list(
            zip(
                *(nan_to_inf(column.to(torch.float64) @ weights) for column in columns), strict=True
            )
        )
        reason = f"average over {len(points)} queries"
    elif isinstance(mu, Gaussian) and isinstance(queries, Gaussian | GaussianMixture):
        layer, law, _ = widened(attention, mu, queries.mean)
        one_law(law)
        exponent = binary_exponent(layer.V, (-2, -1))
        forms = score_forms(layer.U, law.covariance, layer.V * torch.exp2(-exponent), unit(law.dim))
        total = np.zeros((len(lengths), 5))
        for weight, component in gaussian_parts(queries):
            transform = QueryTransform(*forms, component)
            (first, form), ones = transform.at_one(), np.ones(len(lengths))
            bounds, added = random_query_bounds(transform, lengths)
            total += weight * np.stack(
                [bounds, first * form / np.array(lengths), added, ones, first * ones], -1
            )
        rows = torch.from_numpy(total).to(mu.device)
        parts = [(*(rescaled(number, exponent) for number in row[:3]), *row[3:]) for row in rows]
        reason = "average over a Gaussian query"
    else:
        given, remedy = (
            f"a random query, {queries!r}, over {mu!r}",
            "Use certificate(...) at one query, or query_average(..., method='estimate'), which is "
            "no bound.",
        )
        allowed = (
            "Gaussian tokens with a Gaussian or GaussianMixture query, or finitely many queries"
        )
        raise InvalidArgumentError("z", given, allowed, remedy)
    return assemble(
        [(*row, np.array(reason, dtype=object)) for row in parts], lengths, several, mu.dtype
    )


def assemble(
    parts: Sequence[tuple[Any, ...]], lengths: Sequence[float], several: bool, dtype: torch.dtype
) -> Certificate:
    """Certificate from (bound, leading, remainder, theta, rho, reasons) for each length."""
    *numbers, reasons = zip(*parts, strict=True)
    place: Any = slice(None) if several else 0
    columns = (torch.stack(list(column))[place] for column in numbers)
    bound, leading, remainder, theta, rho = (
        positive(column.to(dtype), column) for column in columns
    )
    reason = np.stack(reasons)[place]
    length = tuple(lengths) if several else lengths[0]
    return Certificate(outward(bound), leading, remainder, theta, rho, length, reason)


def _gaussian(
    mu: Gaussian, u: Tensor, values: Tensor, lengths: Sequence[float]
) -> list[tuple[Any, ...]]:
    exponent = binary_exponent(values, (-2, -1))
    values, shift, error = (
        values * torch.exp2(-exponent)[..., None, None],
        mu.shift(u),
        unit(mu.dim),
    )
    scale = mu.covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0.0).sqrt()
    # tr VΓV^T
    t, spread = (
        (u.abs() * scale).sum(-1, keepdim=True),
        ((values @ mu.covariance) * values).sum(dim=(-2, -1)),
    )
    read, most = (
        (values @ shift.unsqueeze(-1)).squeeze(-1),
        (values.abs() @ scale.unsqueeze(-1)).squeeze(-1),
    )
    # rounded outward as (cert.20) says
    score_variance = (u * shift).sum(-1).clamp_min(0.0) + error * t.squeeze(-1) ** 2
    size = spread + error * most.square().sum(-1) + (read.abs() + error * t * most).square().sum(-1)
    rho = torch.exp(score_variance).expand(size.shape)
    one, zero = torch.ones_like(size), torch.zeros_like(size)
    reason = np.full(tuple(size.shape), "closed form for Gaussian tokens", dtype=object)
    return [
        (
            rescaled(gaussian_collision_bound(score_variance, length) * size, exponent),
            rescaled(nan_to_inf(rho / length * size), exponent),
            *(zero, one, rho, reason),
        )
        for length in lengths
    ]


def _general(
    attention: SoftmaxAttention, mu: Measure, u: Tensor, lengths: Sequence[float]
) -> list[tuple[Any, ...]]:
    """Loop over heads (they differ in V), vectorised over the queries of each."""
    one_law(mu)
    heads = math.prod(attention.heads)
    queries = u.shape[len(attention.U.shape) - 2 : -1]
    tilts = u.expand(*attention.heads, *queries, mu.dim).reshape(heads, -1, mu.dim)
    matrices = attention.V.expand(*attention.heads, *attention.V.shape[-2:]).reshape(
        heads, *attention.V.shape[-2:]
    )
    per_head = []
    for tilt, V in zip(tilts, matrices, strict=True):
        moments, exponent = TiltedMoments(mu, tilt), binary_exponent(V, (-2, -1))
        parts, exponent = (
            Ingredients(moments, V * torch.exp2(-exponent)),
            exponent + moments.exponent,
        )
        found = [split.bound(parts, one) for one in lengths]
        per_head.append(
            [(*(rescaled(number, exponent) for number in part[:3]), *part[3:]) for part in found]
        )
    shape = (*attention.heads, *queries)
    results = []
    for found in zip(*per_head, strict=True):
        *numbers, reasons = zip(*found, strict=True)
        results.append(
            (
                *(torch.stack(list(column)).reshape(shape) for column in numbers),
                np.stack(reasons).reshape(shape),
            )
        )
    return results
