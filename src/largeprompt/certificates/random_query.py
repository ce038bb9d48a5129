"""The certificate of a random query, averaged without sampling: section 7 of
docs/mathematics/certificates.md.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit, gammaln, loggamma
from torch import Tensor

from largeprompt import validation
from largeprompt.certificates.ingredients import EPS
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures import AtomicMeasure, Gaussian, GaussianMixture, Measure

Array = NDArray[np.float64]
# the ray on which Γ is bounded, and how far the line is followed: e^{-48} is left
ANGLE, REACH = 1.5, 32.0
SHARE = 0.9  # of the way to the edge of the domain that the error of the sum is read off at
AIM = 1e-17  # error of the sum that is aimed at; what it is gets added
MOST = 1 << 22  # nodes times dimensions; beyond, the closed form (cert.18) has to do
# of exponents, as fractions of their range
PLACES = np.array([0.0, *expit(np.linspace(-14, 14, 113)), 1.0])


def _one(queries: Measure) -> None:
    if queries.batch_shape:
        raise InvalidArgumentError(
            "queries",
            validation.text(queries),
            "one law of queries, without batch dimensions",
            "Loop over the laws.",
        )


def gaussian_parts(queries: Gaussian | GaussianMixture) -> list[tuple[float, Gaussian]]:
    """Weights and Gaussian components of a law of queries, in double precision."""
    _one(queries)
    law = queries.to(torch.float64)
    if isinstance(law, Gaussian):
        return [(1.0, law)]
    return [
        (float(w), Gaussian(m, C))
        for w, m, C in zip(law.weights, law.means, law.covariances, strict=True)
        if w > 0
    ]


def query_atoms(queries: AtomicMeasure) -> tuple[Tensor, Tensor]:
    """Weights, in double precision, and places of finitely many queries."""
    _one(queries)
    points = queries.points
    weights = (
        points.new_full((len(points),), 1 / len(points))
        if queries.weights is None
        else queries.weights
    )
    return weights.to(torch.float64), points


def score_forms(
    U: Tensor, covariance: Tensor, V: Tensor, unit: float = 0.0
) -> tuple[Array, Array, float]:
    """M = U^TΓU and B = U^TΓV^TVΓU, for the score variance z^TMz of a query and ‖VΓUz‖² = z^TBz;
    and tr VΓV^T.

    Each raised by what rounding may have taken off it, (cert.20), if ``unit`` is its unit.
    """
    shift, scale, eye = (
        covariance @ U,
        covariance.diagonal().clamp_min(0.0).sqrt(),
        torch.eye(len(U)).to(U),
    )
    read, scores, most = (
        V @ shift,
        (scale @ U.abs()).square().sum(),
        (V.abs() @ scale).square().sum(),
    )
    M, B = (
        U.mT @ shift + unit * scores * eye,
        (1 + unit) * read.mT @ read + 2 * unit * scores * most * eye,
    )
    return M.cpu().numpy(), B.cpu().numpy(), float(((V @ covariance) * V).sum() + unit * most)


class QueryTransform:
    """Φ(t) = E[e^{tq}(τ + z^TBz)] for z ~ N(m_z, C), q = z^TMz, τ a constant: what bounds for a
    random query are made of.

    With z = m_z + Rξ in the basis in which R^TMR is diagonal, q = Σ λ_iξ_i² + 2 b·ξ + q_0, and the
    tilt e^{tq} makes ξ_i normal with variance 1/(1 - 2tλ_i) and mean 2tb_i/(1 - 2tλ_i). Eigenvalues
    are rounded up, which only raises the bound.
    """

    def __init__(self, M: Array, B: Array, constant: float, queries: Gaussian) -> None:
        mean, covariance = queries.mean.cpu().numpy(), queries.covariance.cpu().numpy()
        spread, axes = np.linalg.eigh((covariance + covariance.T) / 2)
        root = axes * np.sqrt(spread.clip(0))
        values, vectors = np.linalg.eigh(root.T @ M @ root)
        basis = root @ vectors
        self.eigenvalues = values.clip(0) + 8 * len(mean) * EPS * max(values[-1], 0.0)
        self.slope, self.origin = basis.T @ M @ mean, max(0.0, float(mean @ M @ mean))
        self.form, self.pull = basis.T @ B @ basis, basis.T @ B @ mean
        self.constant = constant + max(0.0, float(mean @ B @ mean))

    @property
    def edge(self) -> float:
        """Φ(t) is finite for Re t below this, infinity where the score variance is a constant."""
        largest = float(self.eigenvalues.max())
        return 1 / (2 * largest) if largest > 1e-300 else math.inf

    def __call__(self, t: Any) -> tuple[Any, Any]:
        """Exponent and form, Φ = form · e^{exponent}, at numbers t of shape (n,), real or complex,
        left of the edge.
        """
        share = 1 / (1 - 2 * t[:, None] * self.eigenvalues)
        form = self.constant + share @ np.diagonal(self.form)
        if self.slope.any():  # not for queries of mean 0
            mean = 2 * t[:, None] * self.slope * share
            form = form + 2 * mean @ self.pull + ((mean @ self.form) * mean).sum(-1)
        return t * self.origin + 2 * t**2 * (share @ self.slope**2) + np.log(share).sum(
            -1
        ) / 2, form

    def at_one(self) -> tuple[float, float]:
        """E e^q and Φ(1)/E e^q; infinite where the average is."""
        if self.edge <= 1:
            return math.inf, 1.0
        exponent, form = self(np.ones(1))
        return math.exp(min(float(exponent[0]), 709.0)), float(form[0])

    def logarithm(self, t: Array) -> Array:
        """log Φ at real t; -infinity where nothing is read."""
        exponent, form = self(t)
        with np.errstate(divide="ignore"):
            return np.asarray(exponent + np.log(form))


def random_query_bounds(transform: QueryTransform, lengths: Sequence[float]) -> tuple[Array, Array]:
    """Upper bounds (cert.17) and (cert.18) of E‖T_L - T‖² over Gaussian tokens and a Gaussian
    query, at lengths L >= 1.

    Returns the bounds, and the part of each that bounds the error of the sum, of its ends and of
    rounding.
    """
    right = min(1.0, transform.edge)
    c = right * PLACES[1:-1]
    last = 1.0 if transform.edge > 1 else math.sqrt(2 * transform.edge + 0.25) - 0.5
    # p - 1, below the edge of Φ(p(p-1)/2)
    a = last * (PLACES if transform.edge > 1 else PLACES[:-1])
    tilted, plain = transform.logarithm(a * (a + 1) / 2), transform.logarithm(c)
    if math.isinf(tilted[0]):
        return np.zeros(len(lengths)), np.zeros(len(lengths))
    results = []
    for length in lengths:
        closed = math.exp(min(700.0, float((tilted - a * math.log(length)).min())))
        level = plain - c * math.log(length) + gammaln(c) + np.log(1 / (1 - c) + c / length)
        found = _line(transform, length, float(c[level.argmin()]), right, float(level.min()))
        results.append(found if found[0] < closed else (closed, 0.0))
    bounds, added = np.array(results).T
    return bounds, added


def _line(
    transform: QueryTransform, length: float, c: float, right: float, level: float
) -> tuple[float, float]:
    """(cert.17): the trapezoid sum along Re t = c, with the bounds of its error; and these alone.
    Infinite if it needs too many.
    """
    sides = np.array([(1 - SHARE) * c, c + SHARE * (right - c)])
    logs = transform.logarithm(sides) - sides * math.log(length)
    weight = _line_integral(sides) / (1 - sides) + _line_integral(sides + 1) / length
    # ∫|f|/2π on either side, in units of e^level, as all below
    size = np.exp(logs - level) * weight / (2 * math.pi)
    distance = np.abs(sides - c)
    step = float((2 * math.pi * distance / np.log1p(size / AIM)).min())
    count = math.ceil(REACH / step) if step > 0 else 0
    if not 0 < count * len(transform.eigenvalues) <= MOST:
        return math.inf, 0.0
    t = c + 1j * step * np.arange(count + 1)
    exponent, form = transform(t)
    exponent = exponent + loggamma(t) - t * math.log(length) - level
    terms = np.exp(exponent) * form * (1 / (1 - t) + t / length) * (step / math.pi)
    terms[0] /= 2
    rounding = (
        8
        * EPS
        * (
            np.abs(terms)
            * (64 + np.abs(exponent) + np.abs(t) * (math.log(length) + transform.origin))
        ).sum()
    )
    aliased = (size / np.expm1(np.minimum(2 * math.pi * distance / step, 700.0))).sum()
    # beyond the last node: |Γ(t)| <= Γ(c) cos(φ)^{-c} e^{-φω}, and Φ is largest on the real axis
    here = math.exp(float(transform.logarithm(np.array([c]))[0]) - c * math.log(length) - level) / (
        math.pi * ANGLE
    )
    gamma = math.exp(math.lgamma(c) - c * math.log(math.cos(ANGLE)) - ANGLE * step * count)
    cut = here * gamma * (1 / (1 - c) + c / (math.cos(ANGLE) * length))
    added = aliased + cut + rounding
    return math.exp(level) * float(terms.real.sum() + added), math.exp(level) * float(added)


def _line_integral(c: Array) -> Array:
    """∫|Γ(c + iω)| dω <= π √(2Γ(2c + 2) 4^{-c-1}/c): Cauchy and Schwarz, and Parseval."""
    return np.asarray(
        math.pi * np.exp((gammaln(2 * c + 2) - (c + 1) * math.log(4) + np.log(2 / c)) / 2)
    )
