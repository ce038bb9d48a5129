"""Where softmax's selection pays: least risks with marked outliers, isotropic case, and the line on which both attentions meet."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.law.kinds import ReadOutKinds, softmax_error
from largeprompt.training.tasks.outliers import MarkedOutliers

Array = NDArray[np.float64]
STEP = 0.1  # of log r, r = ‖x_q‖ in units of √σ_q: the integrand is analytic, and this leaves 1e-15
NODES = 40  # of the Chebyshev interpolation in log(1 + q)
LEAST_TILT, LARGEST_TILT, SHORT_TILT = 2e-3, 4.0, 16.0  # of a²σσ_q d; the last for prompts of few good tokens
FEW_TOKENS = 30


@dataclasses.dataclass(frozen=True)
class OutlierOptimum:
    """Least risk over U = diag(aI, 0, -γ) and v = (0, b, 0), and where it is; ``mark`` γ may be infinite."""

    risk: float
    a: float
    mark: float
    read_out: float


@dataclasses.dataclass(frozen=True)
class _Scales:
    """Σ = σI, Σ_q = σ_q I, W = ωI."""

    dim: int
    sigma: float
    query: float
    omega: float
    noise: float

    @property
    def signal(self) -> float:
        """E (w·x_q)²."""
        return self.omega * self.query * self.dim

    @property
    def spread(self) -> float:
        """E y² of good tokens."""
        return self.omega * self.sigma * self.dim + self.noise

    @property
    def relative_noise(self) -> float:
        """s² over the variance of w·x."""
        return self.noise / (self.omega * self.sigma * self.dim)


def _scales(task: MarkedOutliers) -> _Scales:
    if not isinstance(task, MarkedOutliers):
        raise InvalidArgumentError("task", type(task).__name__, "a MarkedOutliers")
    sigma, query, omega = task.regression.isotropic_scales()
    if min(sigma, query, omega) <= 0:
        raise InvalidArgumentError("task", repr(task), "covariances that are positive multiples of the identity")
    return _Scales(task.dim, sigma, query, omega, task.regression.noise_variance)


def _radii(dim: int) -> tuple[Tensor, Tensor]:
    """r² of a chi-distributed r with dim degrees of freedom, and weights."""
    log_r = torch.arange(-38.0 / dim, math.log(8.5 + math.sqrt(dim)), STEP, dtype=torch.float64)
    density = torch.exp(dim * log_r - torch.exp(2 * log_r) / 2)
    return torch.exp(2 * log_r), density / density.sum()


def _check_mark(mark: float) -> None:
    if math.isnan(mark) or mark == -math.inf:
        raise InvalidArgumentError("mark", str(mark), "a finite number, or math.inf")


def isotropic_outlier_risk(task: MarkedOutliers, a: Any, mark: float, read_out: Any, length: Any = math.inf) -> Tensor:
    """Exact softmax risk at U = diag(aI, 0, -γ), v = (0, b, 0), Σ, Σ_q and W multiples of the identity: one integral over ‖x_q‖.

    ``a`` and ``read_out`` are numbers or tensors that broadcast, differentiable; ``mark`` is one number, ``math.inf`` to silence
    the outliers altogether.
    """
    scales = _scales(task)
    length = validation.length("length", length, allow_infinity=True)
    _check_mark(mark)
    tilt, gain = torch.broadcast_tensors(validation.tensor("a", a), validation.tensor("read_out", read_out))
    square, density = _radii(scales.dim)
    size = torch.sqrt(scales.omega * scales.query * square)  # root of E(w·x)² over w

    def spread_out(value: Tensor) -> Tensor:
        return value.reshape(-1, 1).expand(-1, len(square)).reshape(-1)

    alpha, b = spread_out(tilt), spread_out(gain)
    target, r2 = size.repeat(tilt.numel()), square.repeat(tilt.numel())
    none, one = torch.zeros_like(r2), torch.ones_like(r2)
    q = alpha**2 * scales.sigma * scales.query * r2
    kinds = ReadOutKinds(
        torch.tensor([1 - task.probability, task.probability], dtype=torch.float64),
        torch.stack([none, -mark * one], -1),
        torch.stack([q, q], -1),
        -target.reshape(-1, 1, 1).expand(-1, 2, 1),
        torch.stack([b * scales.sigma * alpha * target, none], -1).unsqueeze(-1),
        torch.stack([b**2 * scales.spread, b**2 * task.variance], -1),
    )
    error = softmax_error(length, kinds).reshape(-1, len(square)) @ density
    return (error.reshape(tilt.shape) + scales.noise) / 2


@functools.lru_cache(maxsize=256)
def _table(length: float, probability: float, mark: float, largest: float) -> tuple[Array, float]:
    """Chebyshev coefficients in y = log(1 + q) of four moments of the weights, P_g and Y_g sums of w and w² over good tokens.

    E[P_g - Y_g] = E S_g/σ, E S_g²/q - E Y_g/q, E Y_g and E Y_b, where S_g = Σ_good w ξ: all that the isotropic risk is made of.
    """
    top = math.log1p(largest)
    nodes = np.polynomial.chebyshev.chebpts1(NODES)
    q = torch.from_numpy(np.expm1((nodes + 1) / 2 * top))
    zero, one = torch.zeros_like(q), torch.ones_like(q)

    offset, tilt = torch.tensor([0.0, 0, 0, -1], dtype=torch.float64), torch.tensor([1.0, 0, 0, 1], dtype=torch.float64)
    spread = torch.eye(4, 2, dtype=torch.float64).roll(1, 0)  # of good tokens in the second read-out, of outliers in the third
    kinds = ReadOutKinds(
        torch.tensor([1 - probability, probability], dtype=torch.float64),
        torch.stack([zero, -mark * one], -1),
        torch.stack([q, q], -1),
        offset.reshape(4, 1, 1, 1).expand(4, len(q), 2, 1),
        torch.stack([tilt, 0 * tilt], -1).reshape(4, 1, 2, 1).expand(4, len(q), 2, 1),
        spread.unsqueeze(1).expand(4, len(q), 2),
    )
    pair, good, bad, crossed = softmax_error(length, kinds).numpy()
    fits = [np.polynomial.chebyshev.chebfit(nodes, values, NODES - 1) for values in ((pair + 1 - crossed) / 2, pair, good, bad)]
    return np.stack(fits), top


def _largest_tilt(task: MarkedOutliers, length: float) -> float:
    return LARGEST_TILT if length * (1 - task.probability) >= FEW_TOKENS else SHORT_TILT


def _quotient(task: MarkedOutliers, scales: _Scales, length: float, mark: float, log_tilt: float) -> tuple[float, float]:
    """N and D of 2R = s² + E t² - 2bN + b²D at a²σσ_q d = e^{log_tilt}, from the table."""
    largest = _largest_tilt(task, length) / scales.dim * (8.5 + math.sqrt(scales.dim)) ** 2
    fits, top = _table(length, task.probability, mark, largest)
    square, density = (t.numpy() for t in _radii(scales.dim))
    y = math.exp(log_tilt) / scales.dim  # a²σσ_q
    position = 2 * np.log1p(y * square) / top - 1
    first, pair, good, bad = (np.polynomial.chebyshev.chebval(position, fit) for fit in fits)
    a_sigma = math.sqrt(y * scales.sigma / scales.query)  # aσ
    size = scales.omega * scales.query * square  # E(w·x)²
    numerator = float((density * size * first).sum()) * a_sigma
    denominator = float((density * (size * pair * a_sigma**2 + scales.spread * good + task.variance * bad)).sum())
    return numerator, denominator


def isotropic_outliers(task: MarkedOutliers, length: Any, *, softmax: bool = True, mark: float | None = math.inf) -> OutlierOptimum:
    """Least exact risk over U = diag(aI, 0, -γ), v = (0, b, 0) for covariances that are multiples of the identity.

    Linear attention: with c = {(d(1 + s̃) + 2)/(1 - p) + pτ²/((1 - p)²σω) - 1}/L, s̃ = s²/(σωd), the excess is E t² c/(1 + c), at
    γ = 0: the mark does not help, since Σ c_l y_l is noise that is uncorrelated with all else. Softmax: b is the quotient that
    minimises a parabola, a a search on interpolated moments (then evaluated exactly), at a given γ. The search ends at
    a²σσ_q d = 4, or 16 where there are fewer than 30 good tokens. That end is reached with two or three good tokens only; taking
    the best token alone (a = ∞) is at most 1 % better there (d = 1, two tokens, no outliers or noise), and worse from three on.

    Parameters
    ----------
    length
        From 1 to 10^15, finite.
    mark
        γ: ``math.inf`` silences the outliers, 0 ignores the mark, None searches for the best (seconds).
    """
    scales, length = _scales(task), validation.length("length", length)
    if mark is not None:
        _check_mark(mark)
    if not softmax:
        c = linear_constant(task) / length
        signal, a = scales.signal, math.sqrt(1 / (scales.sigma * scales.query))
        # b (1 - p) aσ (1 + c) = 1
        gain = 1 / ((1 - task.probability) * a * scales.sigma * (1 + c))
        return OutlierOptimum((scales.noise + signal * c / (1 + c)) / 2, a, 0.0, gain)

    chosen = mark if mark is not None else _best_mark(task, scales, length)
    log_tilt, read_out, _ = _least(task, scales, length, chosen)
    a = math.sqrt(math.exp(log_tilt) / (scales.dim * scales.sigma * scales.query))
    return OutlierOptimum(float(isotropic_outlier_risk(task, a, chosen, read_out, int(length))), a, chosen, read_out)


def _least(task: MarkedOutliers, scales: _Scales, length: float, mark: float) -> tuple[float, float, float]:
    """Least risk at a given γ from the table: log(a²σσ_q d), b, and the excess E t² - N²/D."""
    from scipy.optimize import minimize_scalar

    def negative_gain(log_tilt: float) -> float:
        numerator, denominator = _quotient(task, scales, length, mark, log_tilt)
        return -(numerator**2) / denominator

    bounds = (math.log(LEAST_TILT), math.log(_largest_tilt(task, length)))
    found = minimize_scalar(negative_gain, bounds=bounds, method="bounded", options={"xatol": 1e-7})
    numerator, denominator = _quotient(task, scales, length, mark, float(found.x))
    return float(found.x), numerator / denominator, scales.signal + float(found.fun)


def _best_mark(task: MarkedOutliers, scales: _Scales, length: float) -> float:
    """γ of the least risk: silence, or a search around the best of a few."""
    from scipy.optimize import minimize_scalar

    if task.probability == 0:
        return math.inf

    def excess(gamma: float) -> float:
        return _least(task, scales, length, gamma)[2]

    _, best = min((excess(gamma), gamma) for gamma in (math.inf, 8.0, 5.0, 2.0, 0.0, -2.0))
    if math.isinf(best):
        return best
    return float(minimize_scalar(excess, bounds=(best - 3, best + 3), method="bounded", options={"xatol": 0.02}).x)


def linear_constant(task: MarkedOutliers) -> float:
    """L times c, where the best linear attention has excess c/(1 + c) of E(w·x_q)²: exact at every length."""
    scales, p = _scales(task), task.probability
    good = scales.dim * (1 + scales.relative_noise) + 2
    return good / (1 - p) + p * task.variance / ((1 - p) ** 2 * scales.sigma * scales.omega) - 1


def softmax_constant(task: MarkedOutliers, *, mark: float = math.inf) -> float:
    """Limit of L times the relative excess of the best softmax at a given γ, as L grows.

    With ρ = e^{-γ}, P = (1 - p)/(1 - p + pρ) and τ̃² = τ²/(σωd) it is the least over y of

        (1 - 2y)^{-d/2} {[(1 - p)(1 + s̃) + pρ²τ̃²]/y + [(1 - p)(2 - P)² + pρ²P²]/(1 - 2y)}/(1 - p)²,

    from the first order E e^q (...)/L of importance sampling, b taking up the share P of the good tokens. It grows with ρ from 0 on
    as both brackets do, so that silence is best; and at ρ = 1, where the mark is not used, it is above :func:`linear_constant` for
    every p, τ² and s²: (1 - 2y)^{-d/2}/y > d and (1 - p)(1 + 3p) >= (1 - p)(1 + p).
    """
    from scipy.optimize import minimize_scalar

    scales, p = _scales(task), task.probability
    _check_mark(mark)
    rho = math.exp(-mark)
    share = (1 - p) / (1 - p + p * rho)
    wild = task.variance / (scales.sigma * scales.omega * scales.dim)
    noise = (1 - p) * (1 + scales.relative_noise) + p * rho**2 * wild
    signal = (1 - p) * (2 - share) ** 2 + p * (rho * share) ** 2

    def constant(y: float) -> float:
        rest = 1 - 2 * y
        return float(rest ** (-scales.dim / 2) * (noise / y + signal / rest))

    found = minimize_scalar(constant, bounds=(1e-9, 0.5 - 1e-9), method="bounded", options={"xatol": 1e-12})
    return float(found.fun) / (1 - p) ** 2


def crossing_variance(task: MarkedOutliers, length: Any = math.inf) -> float:
    """Outlier variance τ² at which the best linear and the best softmax attention have equal risk; softmax wins beyond it.

    L = ∞: the first-order constants are equal, τ² = σω (1 - p)/p {c_soft - c_lin - p} with c_soft and c_lin those without outliers,
    c_lin = d(1 + s̃) + 1. Finite L: the root between the exact least risks, silenced outliers. 0 where softmax wins at every τ²,
    infinity where it never does (p = 0). The variance of ``task`` itself is not used.
    """
    from scipy.optimize import brentq

    scales, p = _scales(task), task.probability
    tokens: float = validation.length("length", length, allow_infinity=True)
    if p == 0:
        return math.inf
    calm = dataclasses.replace(task, variance=0.0)
    slope = p / ((1 - p) ** 2 * scales.sigma * scales.omega)  # of the linear constant in τ²
    if math.isinf(tokens):
        return max(0.0, (softmax_constant(calm) - linear_constant(calm)) / slope)

    if tokens * math.log(p) < -60:  # no prompt holds outliers alone: softmax does not see τ², and E t² c/(1 + c) is its excess
        relative = (2 * isotropic_outliers(calm, int(tokens)).risk - scales.noise) / scales.signal
        return max(0.0, (tokens * relative / (1 - relative) - linear_constant(calm)) / slope)

    def difference(variance: float) -> float:
        case = dataclasses.replace(task, variance=variance)
        c = linear_constant(case) / tokens
        return scales.signal * c / (1 + c) - _least(case, scales, tokens, math.inf)[2]

    if difference(0.0) >= 0:
        return 0.0
    high = max(1.0, 2 * crossing_variance(task))
    while difference(high) < 0:
        high *= 4
        if high > 1e12 * scales.spread:
            return math.inf
    root: float = brentq(difference, 0.0, high, xtol=1e-12, rtol=1e-9)
    return root
