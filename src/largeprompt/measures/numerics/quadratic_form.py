"""Averages over a quadratic form in a Gaussian vector, exactly, in any dimension.

For q = Σ λ_i(ξ_i + m_i)² with ξ ~ N(0, I) the Laplace transform E e^{-sq} = e^{K(s)},

    K(s) = Σ -½ log(1 + 2sλ_i) - sλ_i m_i²/(1 + 2sλ_i),

has its singularities at real s <= -1/(2λ_max) = s_min. The density of q is (1/2πi) ∫ e^{sq + K(s)}
ds over a curve to their right. The rule, (query.1-6) of docs/mathematics/queries.md: nodes
q = -K'(s_0) at s_0 = s_min + e^τ with τ equidistant, and for each a branch of a hyperbola through
its saddle s_0. Under the tilt e^{-sq} the vector is still Gaussian: averages of g(q) times
polynomials in ξ have weights from the same sums.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from largeprompt.errors import InvalidArgumentError

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
TAIL = 1e-18  # probability that is left out on either side
ACCURACY = 1e-14
SPACING = 0.104  # of points along a curve, in units of its own parameter
# of τ, in units of the narrowest density, and at most: nodes no further apart in log q
STEP, LONGEST = 0.25, 0.1
BLOCK = 1 << 22  # complex numbers at a time


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class QuadraticFormRule:
    """Nodes q_k and weights for averages of g(q) p(x), x = origin + basis η, η_i = ξ_i + m_i.

    Attributes
    ----------
    nodes, weights
        E g(q) = Σ_k g(q_k) weights_k; shape (..., K), nodes rising; one node if q is a constant.
    eigenvalues, shift
        λ and m, shape (..., d).
    curve, density
        (s - s_min) λ_max on the curve through each saddle, and complex weights, (..., K, points): a
        weight is Σ Im density·p for the mean p of a polynomial under the tilt e^{-sq}.
    origin, basis
        x from η; shapes (d',) and (d', d).
    """

    nodes: Array
    weights: Array
    eigenvalues: Array
    shift: Array
    curve: Complex
    density: Complex
    origin: Array
    basis: Array

    def _spread(self, s: Any) -> Any:
        """Variances 1/(1 + 2sλ_i) under the tilts e^{-sq}, shape (..., n, d)."""
        unit = _relative(self.eigenvalues)[..., None, :]
        return 1 / ((1 - unit) + 2 * unit * s[..., None])

    def _expected(self, s: Any, form: Array) -> Any:
        """Mean of x^TBx under the tilts e^{-sq}."""
        variance = self._spread(s)
        mean = self.origin + (self.shift[..., None, :] * variance) @ self.basis.T
        moved = self.basis.T @ form @ self.basis
        return variance @ np.diagonal(moved) + ((mean @ form) * mean).sum(-1)

    def form_weights(self, form: Array) -> Array:
        """Weights for E[g(q) x^TBx] with a symmetric B, shape (..., K)."""
        rows = max(1, BLOCK // (self.curve.shape[-1] * self.eigenvalues.size))
        parts = []
        for first in range(0, self.curve.shape[-2], rows):
            at = (..., slice(first, first + rows), slice(None))
            flat = self.curve[at].reshape(*self.curve.shape[:-2], -1)
            expected = self._expected(flat, form).reshape(self.curve[at].shape)
            parts.append((self.density[at] * expected).imag.sum(-1))
        return np.concatenate(parts, -1)

    @functools.cached_property
    def _variances(self) -> Complex:
        """1/(1 + 2sλ_i) all along the curves, shape (..., n, d)."""
        return np.asarray(self._spread(self.curve.reshape(*self.curve.shape[:-2], -1)))

    def factors(self, values: Array, count: int) -> Array:
        """Averages of g, ``values`` (..., K), times ``count`` factors 1/(1 + 2sλ_i), an axis each.

        For m = 0 they are E[g ξ_i²], E[g ξ_i²ξ_j²] and E[g ξ_i²ξ_j²ξ_k²] less Wick's factors: 3 for
        ξ_i⁴ and ξ_i⁴ξ_j², 15 for ξ_i⁶.
        """
        if count == 0:
            return np.asarray((values * self.weights).sum(-1))
        variance, d = self._variances, self.eigenvalues.shape[-1]
        density = (values[..., None] * self.density).reshape(*values.shape[:-1], -1)
        if count == 1:
            return np.asarray((density[..., None, :] @ variance)[..., 0, :].imag)
        last, first = variance * density[..., None], variance
        if count == 3:
            pairs = variance[..., :, None] * variance[..., None, :]
            first = pairs.reshape(*variance.shape[:-1], d * d)
        found = (np.swapaxes(first, -1, -2) @ last).imag
        return np.asarray(found.reshape(*found.shape[:-2], *(d,) * count))

    def __repr__(self) -> str:
        return f"QuadraticFormRule(d={self.eigenvalues.shape[-1]}, nodes={self.nodes.shape[-1]})"


def quadratic_form_rule(
    eigenvalues: Any,
    shift: Any = None,
    *,
    tail: float = TAIL,
    below: float = TAIL,
    accuracy: float = ACCURACY,
) -> QuadraticFormRule:
    """Rule for q = Σ λ_i(ξ_i + m_i)², ξ ~ N(0, I_d); x is η = ξ + m.

    Parameters
    ----------
    eigenvalues, shift
        λ >= 0 and m (0 when left out), shape (..., d); several rules share their number of nodes.
    tail, below
        Bounds of the probability that q lies above the nodes, and below them.
    accuracy
        Relative error that the sums may leave; 1e-10 takes half as many nodes.

    Examples
    --------
    >>> from largeprompt.measures.numerics.quadratic_form import quadratic_form_rule
    >>> rule = quadratic_form_rule([1.0, 0.5, 1e-6])
    >>> print(f"{rule.weights @ rule.nodes:.12f}")
    1.500001000000
    """
    lam = np.asarray(eigenvalues, dtype=np.float64)
    m = np.zeros_like(lam) if shift is None else np.asarray(shift, dtype=np.float64)
    coarse = math.log(ACCURACY) / math.log(accuracy)
    rates, dim = (-math.log(below), -math.log(tail)), lam.shape[-1]
    return _rule(lam, m, rates, np.zeros(dim), np.eye(dim), coarse)


def gaussian_form_rule(
    matrix: Any, covariance: Any, mean: Any = None, *, tail: float = TAIL
) -> QuadraticFormRule:
    """Rule for q = x^TMx, x ~ N(mean, covariance), M positive semidefinite, both (d, d).

    The covariance may be singular; forms are given in the coordinates of x.

    Examples
    --------
    E[e^{-q/2} x_1²] for q = ‖x‖² is half of E e^{-q/2} = 1/2.

    >>> from largeprompt.measures.numerics.quadratic_form import gaussian_form_rule
    >>> rule = gaussian_form_rule(np.eye(2), np.eye(2))
    >>> print(f"{rule.form_weights(np.diag([1.0, 0.0])) @ np.exp(-rule.nodes / 2):.12f}")
    0.250000000000
    """
    M, C = np.asarray(matrix, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
    center = np.zeros(len(C)) if mean is None else np.asarray(mean, dtype=np.float64)
    spread, axes = np.linalg.eigh(C)
    root = axes * np.sqrt(spread.clip(0))
    lam, vectors = np.linalg.eigh(root.T @ M @ root)
    lam = np.where(lam > 1e-15 * lam[-1], lam, 0.0)  # below is rounding
    basis = root @ vectors
    shift = np.where(lam > 0, basis.T @ M @ center / np.where(lam > 0, lam, 1.0), 0.0)
    rule = _rule(lam, shift, (-math.log(tail),) * 2, center - basis @ shift, basis)
    # what the form is where η = 0, of a singular covariance
    constant = max(0.0, float(rule.origin @ M @ rule.origin))
    return dataclasses.replace(rule, nodes=rule.nodes + constant)


def _relative(lam: Array) -> Array:
    """λ/λ_max; where all are 0, as if the first were not: then q = 0 whatever ξ is."""
    largest = lam.max(-1, keepdims=True)
    first = np.arange(lam.shape[-1]) == 0
    return np.where(largest > 0, lam / np.where(largest > 0, largest, 1.0), first)


def _cumulants(unit: Array, shift: Array, s: Array, order: int) -> list[Array]:
    """First cumulants of q/λ_max under the tilts e^{-sq}.

    2^{k-1}(k-1)! Σ r^k (1 + k m²/(1 + 2sλ)), r = λ/(1 + 2sλ).
    """
    unit, square = unit[..., None, :], shift[..., None, :] ** 2
    share = 1 / ((1 - unit) + 2 * unit * s[..., None])
    found = []
    for k in range(1, order + 1):
        total = ((unit * share) ** k * (1 + k * square * share)).sum(-1)
        found.append(2 ** (k - 1) * math.factorial(k - 1) * total)
    return found


def _transform(unit: Array, shift: Array, s: Any) -> Any:
    """K at s - s_min of shape (..., n); equal eigenvalues of a single rule are counted."""
    square: Array = shift**2
    counts: Array = np.ones(unit.shape[-1])
    if unit.ndim == 1:
        unit, back = np.unique(unit, return_inverse=True)
        counts = np.bincount(back).astype(np.float64)
        square = np.asarray(np.bincount(back, square), dtype=np.float64)
    unit, square, found = unit[..., None, :], square[..., None, :], []
    rows = max(1, BLOCK // unit.size)
    for first in range(0, s.shape[-1], rows):
        part = s[..., first : first + rows, None]
        below = (1 - unit) + 2 * unit * part
        shifted = ((part - 0.5) * unit * square / below).sum(-1) if square.any() else 0.0
        found.append(-0.5 * _sum_of_logarithms(below, counts) - shifted)
    return np.concatenate(found, -1)


def _sum_of_logarithms(factors: Any, counts: Array) -> Any:
    """Σ_i counts_i log factors_i over the last axis, arguments in [0, π]."""
    half = factors.shape[-1] // 2
    if not np.iscomplexobj(factors) or not half or not bool((counts == 1).all()):
        return np.log(factors) @ counts
    # two factors need one complex logarithm, the slowest part of all
    pairs = factors[..., :half] * factors[..., half : 2 * half]  # arguments in [0, 2π]
    total = _logarithm(-pairs).sum(-1) + 1j * math.pi * half
    return total + _logarithm(factors[..., 2 * half :]).sum(-1)


def _logarithm(z: Complex) -> Complex:
    """log|z| + i arg z by PyTorch's real functions, ten times as fast as the complex logarithm."""
    x, y = (torch.from_numpy(np.ascontiguousarray(part)) for part in (z.real, z.imag))
    return torch.complex(torch.log(x.square() + y.square()) / 2, torch.atan2(y, x)).numpy()


def _ends(unit: Array, shift: Array, rates: tuple[float, float]) -> tuple[Array, Array]:
    """τ where Chernoff's bound sq + K(s), q = -K'(s), has fallen to the rates, on either side."""
    batch = unit.shape[:-1]
    # the largest eigenvalue alone leaves no more than e^{-rates} beyond these
    outer = np.array([-math.log(4 * rates[1] + 8), 2 * rates[0] + 1]) * np.ones((*batch, 2))
    tried = outer[..., None] * np.geomspace(1e-4, 1, 128)  # (..., 2, n), outwards from s = 0
    s = np.exp(tried.reshape(*batch, -1)) / 2
    bound = (s - 0.5) * _cumulants(unit, shift, s, 1)[0] + _transform(unit, shift, s)
    beyond = bound.reshape(tried.shape) < -np.array(rates[::-1])[:, None]
    beyond[..., -1] = True
    ends = np.take_along_axis(tried, beyond.argmax(-1)[..., None], -1)
    return ends[..., 0, :], ends[..., 1, :]


def _rule(
    lam: Array,
    shift: Array,
    rates: tuple[float, float],
    origin: Array,
    basis: Array,
    coarse: float = 1.0,
) -> QuadraticFormRule:
    batch, unit = lam.shape[:-1], _relative(lam)
    if not (lam * (1 + shift**2)).any():
        one, s = np.ones((*batch, 1)), np.full((*batch, 1, 1), 0.5 + 0j)  # s = 0
        return QuadraticFormRule(0 * one, one, lam, shift, s, 2j * s, origin, basis)
    low, high = _ends(unit, shift, rates)
    trial = np.exp(low + (high - low) * np.linspace(0, 1, 65)) / 2
    narrowest = (1 / (np.sqrt(_cumulants(unit, shift, trial, 2)[1]) * trial)).min()
    # half of it with a mean
    step = coarse * min(LONGEST / (2 if shift.any() else 1), STEP * narrowest)
    count = math.ceil(float((high - low).max()) / step) + 1
    if count > 10**6:
        given = "a mean that is very far out, in units of the spread"
        remedy = "Ask about that one query instead of its law."
        raise InvalidArgumentError("queries", given, "at most 1e6 nodes of q", remedy)
    s = np.exp(high - (high - low) * np.linspace(0, 1, count)) / 2  # (..., K), from s_min on
    q, variance, third = _cumulants(unit, shift, s, 3)
    width, lean = variance[..., None] ** -0.5, (third / (3 * variance**1.5))[..., None]
    # on it e^{sq + K(s)} falls at least like e^{-(cosh - 1)/2}
    reach = math.acosh(1 + 2 * -math.log(ACCURACY) / coarse)
    spacing = coarse * SPACING
    along = np.arange(spacing / 2, reach, spacing)
    curve = s[..., None] + width * (1j * np.sinh(along) - 2 * lean * np.sinh(along / 2) ** 2)
    speed = width * (1j * np.cosh(along) - lean * np.sinh(along))
    value = _transform(unit, shift, curve.reshape(*batch, -1)).reshape(curve.shape)
    weight = (high - low) / (count - 1) * variance * s * (spacing / math.pi)
    density = np.exp((curve - 0.5) * q[..., None] + value) * speed * weight[..., None]
    nodes = q * lam.max(-1, keepdims=True)
    return QuadraticFormRule(nodes, density.imag.sum(-1), lam, shift, curve, density, origin, basis)
