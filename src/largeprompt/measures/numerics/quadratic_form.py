"""Averages over a quadratic form in a Gaussian vector, exactly, in any dimension: one real integral
with positive weights.

For q = Σ λ_i(ξ_i + m_i)² with ξ ~ N(0, I) the Laplace transform E e^{-sq} = e^{K(s)},

    K(s) = Σ -½ log(1 + 2sλ_i) - sλ_i m_i²/(1 + 2sλ_i),

has its singularities on the real axis, at s <= -1/(2λ_max) = s_min. The density of q is (1/2πi) ∫
e^{sq + K(s)} ds over a curve that leaves them to its left. The rule, (query.1-6) of
docs/mathematics/queries.md: nodes q = -K'(s_0) at points s_0 = s_min + e^τ with τ equidistant, and
for each of them a branch of a hyperbola through its saddle s_0. Under the tilt e^{-sq} the vector
is still Gaussian, so that averages of g(q) times polynomials in ξ have their weights from the same
sums.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
TAIL = 1e-18  # probability that is left out on either side
ACCURACY = 1e-14
SPACING = 0.104  # of points along a curve, in units of its own parameter
STEP, LONGEST = (
    0.25,
    0.1,
    # of τ, in units of the narrowest density, and at most: nodes no further apart in log q, half of
    # it with a mean
)
SEARCHED = 128  # places tried on either side for the ends, which need not be sharp
ROUNDING = 1e-15  # eigenvalues below this fraction of the largest are zero
MOST_COLUMNS = 10**6  # nodes of q
BLOCK = 1 << 22  # complex numbers at a time
LARGE = 1e150  # numbers whose squares are numbers


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class QuadraticFormRule:
    """Nodes q_k and positive weights for averages of g(q) p(x), x = origin + basis η, q =
    constant + Σ λ_i η_i², η_i = ξ_i + m_i.

    Attributes
    ----------
    nodes, weights
        E g(q) = Σ_k g(q_k) weights_k; shape (..., K), nodes rising; a single node where q is a
        constant.
    eigenvalues, shift
        λ and m, shape (..., d).
    curve, density
        s - s_min, in units of 1/λ_max, on the curve through each saddle, and the complex weights
        there, shape (..., K, points). A weight is the sum of the imaginary parts of ``density``
        times the mean of a polynomial under the tilt e^{-sq}.
    origin, basis
        How x, the vector that forms are given in, follows from η; shapes (d',) and (d', d).
    constant
        What the form is where η = 0: of use where the covariance of x is singular, else 0.
    """

    nodes: Array
    weights: Array
    eigenvalues: Array
    shift: Array
    curve: Complex
    density: Complex
    origin: Array
    basis: Array
    constant: float = 0.0

    @property
    def _standard(self) -> Array:
        """Σ λ_iη_i²/λ_max at the nodes."""
        return np.asarray(
            (self.nodes - self.constant)
            / np.maximum(self.eigenvalues.max(-1, keepdims=True), 1e-300)
        )

    @functools.cached_property
    def _unit(self) -> Array:
        """λ/λ_max, shape (..., d); where all are 0, as if the first were not: then q = 0 whatever ξ
        is.
        """
        return _relative(self.eigenvalues)

    def _spread(self, s: Any) -> Any:
        """Variances 1/(1 + 2sλ_i) under the tilts e^{-sq}, shape (..., n, d), s - s_min in units of
        1/λ_max of shape (..., n).
        """
        unit = self._unit[..., None, :]
        return 1 / ((1 - unit) + 2 * unit * s[..., None])

    def _expected(self, s: Any, forms: tuple[Array, ...]) -> Any:
        """Mean of the product of x^TBx over none, one or two forms B under the tilts e^{-sq}; s -
        s_min of shape (..., n).
        """
        if not forms:
            return np.ones_like(s)
        variance = self._spread(s)
        mean = self.origin + (self.shift[..., None, :] * variance) @ self.basis.T
        moved = [self.basis.T @ B @ self.basis for B in forms]
        one = [
            variance @ np.diagonal(M) + ((mean @ B) * mean).sum(-1)
            for M, B in zip(moved, forms, strict=True)
        ]
        if len(forms) == 1:
            return one[0]
        wick = ((variance @ (moved[0] * moved[1].T)) * variance).sum(-1)
        return (
            one[0] * one[1]
            + 2 * wick
            + 4
            * ((mean @ forms[0] @ self.basis) * variance * (mean @ forms[1] @ self.basis)).sum(-1)
        )

    def form_weights(self, *forms: Any) -> Array:
        """Weights for E[g(q) x^TBx] or, with two forms, E[g(q) x^TBx x^TCx], shape (..., K); for
        positive forms they are positive.

        Parameters
        ----------
        *forms
            None, one or two symmetric matrices (d', d') in the coordinates of x.
        """
        checked, count = self._forms(forms), self.curve.shape[-2]
        rows = max(1, BLOCK // (self.curve.shape[-1] * self.eigenvalues.size))
        parts = []
        for first in range(0, count, rows):
            curve, density = (
                self.curve[..., first : first + rows, :],
                self.density[..., first : first + rows, :],
            )
            flat = curve.reshape(*curve.shape[:-2], -1)
            parts.append(
                (density * self._expected(flat, checked).reshape(curve.shape)).imag.sum(-1)
            )
        return np.concatenate(parts, -1)

    def _forms(self, forms: tuple[Any, ...]) -> tuple[Array, ...]:
        if len(forms) > 2:
            raise InvalidArgumentError("forms", str(len(forms)), "none, one or two")
        checked = tuple(np.asarray(B, dtype=np.float64) for B in forms)
        for B in checked:
            if B.shape != (len(self.origin),) * 2 or not np.allclose(
                B, B.T, rtol=1e-9, atol=1e-9 * (1 + np.abs(B).max())
            ):
                raise InvalidArgumentError(
                    "forms", f"shape {B.shape}", f"a symmetric matrix on R^{len(self.origin)}"
                )
        return checked

    @functools.cached_property
    def _variances(self) -> Complex:
        """1/(1 + 2sλ_i) all along the curves, shape (..., n, d)."""
        return np.asarray(self._spread(self.curve.reshape(*self.curve.shape[:-2], -1)))

    def factors(self, values: Array, count: int) -> Array:
        """Averages of g, ``values`` (..., K), times ``count`` factors 1/(1 + 2sλ_i), one axis each:
        (..., d, ..., d), symmetric.

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
            first = (variance[..., :, None] * variance[..., None, :]).reshape(
                *variance.shape[:-1], d * d
            )
        found = (np.swapaxes(first, -1, -2) @ last).imag
        return np.asarray(found.reshape(*found.shape[:-2], *(d,) * count))

    @property
    def defect(self) -> float:
        """Largest relative error of the total weight and of the first two moments of Σ λ_iη_i²,
        which are known.
        """
        if self.nodes.shape[-1] == 1:
            return 0.0
        at = np.full((*self.nodes.shape[:-1], 1), 0.5)  # s = 0
        mean, variance = _cumulants(self._unit, self.shift, at, 2)
        known = [np.ones_like(mean), mean, variance + mean**2]
        found = [(self.weights * self._standard**k).sum(-1, keepdims=True) for k in range(3)]
        return float(
            max(np.abs(one / other - 1).max() for one, other in zip(found, known, strict=True))
        )

    def __repr__(self) -> str:
        return f"QuadraticFormRule(d={self.eigenvalues.shape[-1]}, nodes={self.nodes.shape[-1]})"


def quadratic_form_rule(
    eigenvalues: Any,
    shift: Any = None,
    *,
    tail: float = TAIL,
    below: float | None = None,
    accuracy: float = ACCURACY,
) -> QuadraticFormRule:
    """Rule for q = Σ λ_i(ξ_i + m_i)², ξ ~ N(0, I_d).

    Parameters
    ----------
    eigenvalues
        λ >= 0, shape (..., d); several rules at once share their number of nodes.
    shift
        m, of the same shape; 0 when left out.
    tail, below
        Bounds of the probability that q lies above the nodes, and below them (``tail`` when left
        out). A function that is tiny where q is likely and of order one where it is not needs less
        than that fraction above.
    accuracy
        Relative error that the sums may leave; 1e-10 takes half as many nodes.

    Returns
    -------
    QuadraticFormRule
        Nodes and weights, and those of polynomials in η = ξ + m, which is its x.

    Examples
    --------
    >>> from largeprompt.measures.numerics.quadratic_form import quadratic_form_rule
    >>> rule = quadratic_form_rule([1.0, 0.5, 1e-6])
    >>> print(f"{rule.weights @ rule.nodes:.12f}")
    1.500001000000
    """
    lam = np.asarray(eigenvalues, dtype=np.float64)
    if lam.ndim == 0 or not lam.size or not np.isfinite(lam).all() or (lam < 0).any():
        raise InvalidArgumentError(
            "eigenvalues",
            validation.text(eigenvalues),
            "one or more finite numbers that are not negative",
        )
    m = np.zeros_like(lam) if shift is None else np.asarray(shift, dtype=np.float64)
    if m.shape != lam.shape or not np.isfinite(m).all():
        raise InvalidArgumentError(
            "shift", validation.text(shift), "finite numbers, one for each eigenvalue"
        )
    tails = (tail if below is None else below, tail)
    if not all(1e-300 <= each <= 1e-2 for each in tails):
        raise InvalidArgumentError(
            "tail", validation.text(tails), "probabilities from 1e-300 to 0.01"
        )
    if not 1e-14 <= accuracy <= 1e-4:
        raise InvalidArgumentError(
            "accuracy", validation.text(accuracy), "a number from 1e-14 to 1e-4"
        )
    coarse = math.log(ACCURACY) / math.log(accuracy)
    rates = (-math.log(tails[0]), -math.log(tails[1]))
    return _rule(lam, m, rates, np.zeros(lam.shape[-1]), np.eye(lam.shape[-1]), coarse)


def gaussian_form_rule(
    matrix: Any, covariance: Any, mean: Any = None, *, tail: float = TAIL
) -> QuadraticFormRule:
    """Rule for q = x^TMx, x ~ N(mean, covariance).

    Parameters
    ----------
    matrix
        M, shape (d, d), symmetric and positive semi-definite.
    covariance
        Of x, shape (d, d); it may be singular.
    mean
        Of x; 0 when left out.
    tail
        As for :func:`quadratic_form_rule`.

    Returns
    -------
    QuadraticFormRule
        Whose forms are given in the coordinates of x.

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
    if M.ndim != 2 or M.shape != C.shape or M.shape != (len(center),) * 2:
        raise InvalidArgumentError("matrix", f"shape {M.shape}", "(d, d), as the covariance")
    spread, axes = np.linalg.eigh(C)
    root = axes * np.sqrt(spread.clip(0))
    lam, vectors = np.linalg.eigh(root.T @ M @ root)
    if lam[0] < -1e-9 * max(lam[-1], 1e-300):
        raise InvalidArgumentError(
            "matrix", f"an eigenvalue {lam[0]:.3g}", "a positive semi-definite matrix"
        )
    lam = np.where(lam > ROUNDING * lam[-1], lam, 0.0)
    basis = root @ vectors
    shift = np.where(lam > 0, basis.T @ M @ center / np.where(lam > 0, lam, 1.0), 0.0)
    rule = _rule(lam, shift, (-math.log(tail),) * 2, center - basis @ shift, basis)
    constant = max(0.0, float(rule.origin @ M @ rule.origin))
    return (
        dataclasses.replace(rule, nodes=rule.nodes + constant, constant=constant)
        if constant
        else rule
    )


def _relative(lam: Array) -> Array:
    largest = lam.max(-1, keepdims=True)
    first = np.arange(lam.shape[-1]) == 0
    return np.where(largest > 0, lam / np.where(largest > 0, largest, 1.0), first)


def _cumulants(unit: Array, shift: Array, s: Array, order: int) -> list[Array]:
    """First cumulants of q/λ_max under the tilts e^{-sq}: 2^{k-1}(k-1)! Σ r^k (1 + k m²/(1 + 2sλ)),
    r = λ/(1 + 2sλ).
    """
    unit, square = unit[..., None, :], shift[..., None, :] ** 2
    share = 1 / ((1 - unit) + 2 * unit * s[..., None])
    return [
        2 ** (k - 1)
        * math.factorial(k - 1)
        * ((unit * share) ** k * (1 + k * square * share)).sum(-1)
        for k in range(1, order + 1)
    ]


def _transform(unit: Array, shift: Array, s: Any) -> Any:
    """K at s - s_min of shape (..., n); equal eigenvalues are counted, not repeated, where there is
    one rule.
    """
    square: Array = shift**2
    counts: Array = np.ones(unit.shape[-1])
    if unit.ndim == 1:
        distinct = np.unique(unit)
        back = np.searchsorted(distinct, unit)
        unit = distinct
        square, counts = (
            np.asarray(np.bincount(back, each), dtype=np.float64) for each in (square, counts)
        )
    unit, square, found = unit[..., None, :], square[..., None, :], []
    rows = max(1, BLOCK // unit.size)
    for first in range(0, s.shape[-1], rows):
        part = s[..., first : first + rows, None]
        below = (1 - unit) + 2 * unit * part
        value = -0.5 * _sum_of_logarithms(below, counts)
        found.append(
            value - ((part - 0.5) * unit * square / below).sum(-1) if square.any() else value
        )
    return np.concatenate(found, -1)


def _sum_of_logarithms(factors: Any, counts: Array) -> Any:
    """Σ_i counts_i log factors_i over the last axis. Arguments lie in [0, π], so that two factors
    need one complex logarithm.
    """
    pairs, d = np.iscomplexobj(factors) and bool((counts == 1).all()), factors.shape[-1]
    if not pairs or d == 1:
        return np.log(factors) @ counts
    half = factors[..., : d // 2] * factors[..., d // 2 : d // 2 * 2]  # arguments in [0, 2π]
    total = _logarithm(-half).sum(-1) + 1j * math.pi * (d // 2)
    return total + _logarithm(factors[..., -1]) if d % 2 else total


def _logarithm(z: Complex) -> Complex:
    """log|z| + i arg z by PyTorch's real functions, which are ten times as fast as the complex
    logarithm; |z| up to 1e150.
    """
    if np.abs(z.real).max() > LARGE or np.abs(z.imag).max() > LARGE:
        return np.log(z)
    x, y = (torch.from_numpy(np.ascontiguousarray(part)) for part in (z.real, z.imag))
    return torch.complex(torch.log(x.square() + y.square()) / 2, torch.atan2(y, x)).numpy()


def _exponent(unit: Array, shift: Array, s: Array) -> Array:
    """sq + K(s) at q = -K'(s): the logarithm of Chernoff's bound, zero at s = 0 and falling on both
    sides.
    """
    return np.asarray((s - 0.5) * _cumulants(unit, shift, s, 1)[0] + _transform(unit, shift, s))


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
        nothing = np.full((*batch, 1, 1), 0.5, dtype=np.complex128)  # s = 0
        return QuadraticFormRule(
            np.zeros((*batch, 1)),
            np.ones((*batch, 1)),
            lam,
            shift,
            nothing,
            1j * np.ones_like(nothing),
            origin,
            basis,
        )
    # the largest eigenvalue alone leaves no more than e^{-rates} beyond these
    outer = np.array([-math.log(4 * rates[1] + 8), 2 * rates[0] + 1]) * np.ones((*batch, 2))
    tried = outer[..., None] * np.geomspace(1e-4, 1, SEARCHED)  # (..., 2, n), outwards from s = 0
    fallen = _exponent(unit, shift, np.exp(tried.reshape(*batch, -1)) / 2).reshape(tried.shape)
    beyond = fallen < -np.array(rates[::-1])[:, None]
    beyond[..., -1] = True
    ends = np.take_along_axis(tried, beyond.argmax(-1)[..., None], -1)
    low, high = ends[..., 0, :], ends[..., 1, :]
    trial = np.exp(low + (high - low) * np.linspace(0, 1, 65)) / 2
    narrowest = (1 / (np.sqrt(_cumulants(unit, shift, trial, 2)[1]) * trial)).min()
    count = (
        math.ceil(
            float((high - low).max())
            / (coarse * min(LONGEST / (2 if shift.any() else 1), STEP * narrowest))
        )
        + 1
    )
    if count > MOST_COLUMNS:
        given, allowed = (
            "a mean that is very far out, in units of the spread",
            f"at most {MOST_COLUMNS} nodes of q",
        )
        raise InvalidArgumentError(
            "queries", given, allowed, "Ask about that one query instead of its law."
        )
    s = np.exp(high - (high - low) * np.linspace(0, 1, count)) / 2  # (..., K), from s_min on
    q, variance, third = _cumulants(unit, shift, s, 3)
    width, lean = variance**-0.5, third / (3 * variance**1.5)
    # on it e^{sq + K(s)} falls at least like e^{-(cosh - 1)/2}
    reach = math.acosh(1 + 2 * -math.log(ACCURACY) / coarse)
    spacing = coarse * SPACING
    along = np.arange(spacing / 2, reach, spacing)
    curve = s[..., None] + width[..., None] * (
        1j * np.sinh(along) - 2 * lean[..., None] * np.sinh(along / 2) ** 2
    )
    speed = width[..., None] * (1j * np.cosh(along) - lean[..., None] * np.sinh(along))
    exponent = (curve - 0.5) * q[..., None] + _transform(
        unit, shift, curve.reshape(*batch, -1)
    ).reshape(curve.shape)
    step = (high - low) / (count - 1) * variance * s * (spacing / math.pi)
    density = np.exp(exponent) * speed * step[..., None]
    nodes = q * lam.max(-1, keepdims=True)
    return QuadraticFormRule(nodes, density.imag.sum(-1), lam, shift, curve, density, origin, basis)
