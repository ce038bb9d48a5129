"""Least risks with marked outliers and isotropic covariances: the table and the searches behind the
methods of MarkedOutliers.
"""

import dataclasses
import functools
import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from largeprompt.studies.softmax_vs_linear.token_kinds import ReadOutKinds, softmax_error
from largeprompt.training.tasks.task import chi_rule

Array = NDArray[np.float64]
STEP = 0.1  # of log r, r = ‖x_q‖ in units of √σ_q: the integrand is analytic, and this leaves 1e-15
NODES = 40  # of the Chebyshev interpolation in log(1 + q)
# of a²σσ_q d; the last for prompts of few good tokens
LEAST_TILT, LARGEST_TILT, SHORT_TILT = 2e-3, 4.0, 16.0
FEW_TOKENS = 30


@dataclasses.dataclass(frozen=True)
class OutlierOptimum:
    """Least risk over U = diag(aI, 0, -γ) and v = (0, b, 0), and where it is; ``mark`` γ may be
    infinite.
    """

    risk: float
    a: float
    mark: float
    read_out: float


def _radii(dim: int) -> tuple[Tensor, Tensor]:
    """r² of a chi-distributed r with dim degrees of freedom, and weights."""
    square, density = chi_rule(dim, 38.0, 8.5, STEP)
    return square, density / density.sum()


@functools.lru_cache(maxsize=256)
def _table(length: float, probability: float, mark: float, largest: float) -> tuple[Array, float]:
    """Chebyshev coefficients in y = log(1 + q) of four moments of the weights, P_g and Y_g sums of
    w and w² over good tokens.

    E[P_g - Y_g] = E S_g/σ, E S_g²/q - E Y_g/q, E Y_g and E Y_b, where S_g = Σ_good w ξ: all that
    the isotropic risk is made of.
    """
    top = math.log1p(largest)
    nodes = np.polynomial.chebyshev.chebpts1(NODES)
    q = torch.from_numpy(np.expm1((nodes + 1) / 2 * top))
    offset, tilt = (
        torch.tensor([0.0, 0, 0, -1], dtype=torch.float64),
        torch.tensor([1.0, 0, 0, 1], dtype=torch.float64),
    )
    # of good tokens in the second read-out, of outliers in the third
    spread = torch.eye(4, 2, dtype=torch.float64).roll(1, 0)
    kinds = ReadOutKinds(
        torch.tensor([1 - probability, probability], dtype=torch.float64),
        torch.stack([torch.zeros_like(q), -mark * torch.ones_like(q)], -1),
        torch.stack([q, q], -1),
        offset.reshape(4, 1, 1, 1).expand(4, len(q), 2, 1),
        torch.stack([tilt, 0 * tilt], -1).reshape(4, 1, 2, 1).expand(4, len(q), 2, 1),
        spread.unsqueeze(1).expand(4, len(q), 2),
    )
    pair, good, bad, crossed = softmax_error(length, kinds).numpy()
    fits = [
        np.polynomial.chebyshev.chebfit(nodes, values, NODES - 1)
        for values in ((pair + 1 - crossed) / 2, pair, good, bad)
    ]
    return np.stack(fits), top


@dataclasses.dataclass(frozen=True)
class IsotropicOutliers:
    """Marked outliers with probability p and variance τ² where Σ = σI, Σ_q = σ_q I, W = ωI;
    arguments are taken as checked.
    """

    dim: int
    sigma: float
    query: float
    omega: float
    noise: float
    probability: float
    variance: float

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
        """s̃, s² over the variance of w·x."""
        return self.noise / (self.omega * self.sigma * self.dim)

    def risk(self, a: Tensor, mark: float, read_out: Tensor, length: float) -> Tensor:
        """Exact softmax risk, shape of a and the read-out after broadcasting: one integral over
        ‖x_q‖.
        """
        tilt, gain = torch.broadcast_tensors(a, read_out)
        square, density = _radii(self.dim)
        size = torch.sqrt(self.omega * self.query * square)  # root of E(w·x)² over w

        def spread_out(value: Tensor) -> Tensor:
            return value.reshape(-1, 1).expand(-1, len(square)).reshape(-1)

        alpha, b = spread_out(tilt), spread_out(gain)
        target, r2 = size.repeat(tilt.numel()), square.repeat(tilt.numel())
        none, one = torch.zeros_like(r2), torch.ones_like(r2)
        q = alpha**2 * self.sigma * self.query * r2
        kinds = ReadOutKinds(
            torch.tensor([1 - self.probability, self.probability], dtype=torch.float64),
            torch.stack([none, -mark * one], -1),
            torch.stack([q, q], -1),
            -target.reshape(-1, 1, 1).expand(-1, 2, 1),
            torch.stack([b * self.sigma * alpha * target, none], -1).unsqueeze(-1),
            torch.stack([b**2 * self.spread, b**2 * self.variance], -1),
        )
        error = softmax_error(length, kinds).reshape(-1, len(square)) @ density
        return (error.reshape(tilt.shape) + self.noise) / 2

    def linear_optimum(self, length: float) -> OutlierOptimum:
        """Least risk of linear attention, in closed form."""
        c, a = self.linear_constant() / length, math.sqrt(1 / (self.sigma * self.query))
        gain = 1 / ((1 - self.probability) * a * self.sigma * (1 + c))  # b (1 - p) aσ (1 + c) = 1
        return OutlierOptimum((self.noise + self.signal * c / (1 + c)) / 2, a, 0.0, gain)

    def softmax_optimum(self, length: float, mark: float | None) -> OutlierOptimum:
        """Least risk of softmax at a given γ, or at the best: b minimises a parabola, a is
        searched; then evaluated exactly.
        """
        chosen = self._best_mark(length) if mark is None else mark
        log_tilt, gain, _ = self._least(length, chosen)
        a = math.sqrt(math.exp(log_tilt) / (self.dim * self.sigma * self.query))
        point = torch.tensor([a, gain], dtype=torch.float64)
        return OutlierOptimum(float(self.risk(point[0], chosen, point[1], length)), a, chosen, gain)

    def _largest_tilt(self, length: float) -> float:
        return LARGEST_TILT if length * (1 - self.probability) >= FEW_TOKENS else SHORT_TILT

    def _quotient(self, length: float, mark: float, log_tilt: float) -> tuple[float, float]:
        """N and D of 2R = s² + E t² - 2bN + b²D at a²σσ_q d = e^{log_tilt}, from the table."""
        largest = self._largest_tilt(length) / self.dim * (8.5 + math.sqrt(self.dim)) ** 2
        fits, top = _table(length, self.probability, mark, largest)
        square, density = (t.numpy() for t in _radii(self.dim))
        y = math.exp(log_tilt) / self.dim  # a²σσ_q
        position = 2 * np.log1p(y * square) / top - 1
        first, pair, good, bad = (np.polynomial.chebyshev.chebval(position, fit) for fit in fits)
        a_sigma = math.sqrt(y * self.sigma / self.query)  # aσ
        size = self.omega * self.query * square  # E(w·x)²
        numerator = float((density * size * first).sum()) * a_sigma
        denominator = float(
            (density * (size * pair * a_sigma**2 + self.spread * good + self.variance * bad)).sum()
        )
        return numerator, denominator

    def _least(self, length: float, mark: float) -> tuple[float, float, float]:
        """Least risk at a given γ from the table: log(a²σσ_q d), b, and the excess E t² - N²/D."""
        from scipy.optimize import minimize_scalar

        def negative_gain(log_tilt: float) -> float:
            numerator, denominator = self._quotient(length, mark, log_tilt)
            return -(numerator**2) / denominator

        bounds = (math.log(LEAST_TILT), math.log(self._largest_tilt(length)))
        found = minimize_scalar(
            negative_gain, bounds=bounds, method="bounded", options={"xatol": 1e-7}
        )
        numerator, denominator = self._quotient(length, mark, float(found.x))
        return float(found.x), numerator / denominator, self.signal + float(found.fun)

    def _best_mark(self, length: float) -> float:
        """γ of the least risk: silence, or a search around the best of a few."""
        from scipy.optimize import minimize_scalar

        if self.probability == 0:
            return math.inf

        def excess(gamma: float) -> float:
            return self._least(length, gamma)[2]

        _, best = min((excess(gamma), gamma) for gamma in (math.inf, 8.0, 5.0, 2.0, 0.0, -2.0))
        if math.isinf(best):
            return best
        return float(
            minimize_scalar(
                excess, bounds=(best - 3, best + 3), method="bounded", options={"xatol": 0.02}
            ).x
        )

    def linear_constant(self) -> float:
        """cL, formula (sel.6) of docs/mathematics/selection.md."""
        p, good = self.probability, self.dim * (1 + self.relative_noise) + 2
        return good / (1 - p) + p * self.variance / ((1 - p) ** 2 * self.sigma * self.omega) - 1

    def softmax_constant(self, mark: float) -> float:
        """Formula (sel.7)."""
        from scipy.optimize import minimize_scalar

        p, rho = self.probability, math.exp(-mark)
        share = (1 - p) / (1 - p + p * rho)
        wild = self.variance / (self.sigma * self.omega * self.dim)
        noise = (1 - p) * (1 + self.relative_noise) + p * rho**2 * wild
        signal = (1 - p) * (2 - share) ** 2 + p * (rho * share) ** 2

        def constant(y: float) -> float:
            rest = 1 - 2 * y
            return float(rest ** (-self.dim / 2) * (noise / y + signal / rest))

        found = minimize_scalar(
            constant, bounds=(1e-9, 0.5 - 1e-9), method="bounded", options={"xatol": 1e-12}
        )
        return float(found.fun) / (1 - p) ** 2

    def crossing_variance(self, length: float) -> float:
        """τ² at which both attentions have equal least risk: formula (sel.8), or a root between
        exact risks at a finite length.
        """
        from scipy.optimize import brentq

        p, calm = self.probability, dataclasses.replace(self, variance=0.0)
        if p == 0:
            return math.inf
        slope = p / ((1 - p) ** 2 * self.sigma * self.omega)  # of the linear constant in τ²
        first_order = max(0.0, (calm.softmax_constant(math.inf) - calm.linear_constant()) / slope)
        if math.isinf(length):
            return first_order
        # no prompt holds outliers alone: softmax does not see τ², and E t² c/(1 + c) is its excess
        if length * math.log(p) < -60:
            relative = (2 * calm.softmax_optimum(length, math.inf).risk - self.noise) / self.signal
            return max(0.0, (length * relative / (1 - relative) - calm.linear_constant()) / slope)

        def difference(variance: float) -> float:
            case = dataclasses.replace(self, variance=variance)
            c = case.linear_constant() / length
            return self.signal * c / (1 + c) - case._least(length, math.inf)[2]

        if difference(0.0) >= 0:
            return 0.0
        high = max(1.0, 2 * first_order)
        while difference(high) < 0:
            high *= 4
            if high > 1e12 * self.spread:
                return math.inf
        root: float = brentq(difference, 0.0, high, xtol=1e-12, rtol=1e-9)
        return root
