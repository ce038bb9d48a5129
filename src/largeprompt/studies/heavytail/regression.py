"""In-context regression with one scalar input of any symmetric law, heavy tails included: exact
risk at every length.

Tokens (x, y), y = wx + noise of variance s², w ~ N(0, 1) in each prompt; query x_q of the law of x;
answer y_q = w x_q + noise. With the block parameters U = diag(a, 0), v = (0, b), which the flow
keeps, the layer says b Σ_l softmax(a x_q x)_l y_l. With T_L = Σ w_l x_l and Y = Σ w_l² at the tilt
a x_q,

    2R(a, b) = s² + E x_q² - 2b P(a) + b² Q(a),    P = E x_q E T_L,   Q = E [E T_L² + s² E Y],

where the inner expectations are those of :func:`largeprompt.finite_prompt`. They need the second
moment of x: for tails of index 2 or less E T_L² is infinite, and the risk is infinite for every b
≠ 0.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError, NoMomentError
from largeprompt.measures import LaplaceLaw, StudentTLaw
from largeprompt.measures.scalar.density import ScalarDensity
from largeprompt.studies.heavytail.exact import output
from largeprompt.training.dynamics.flow import BLOW_UP
from largeprompt.training.risk.exact import RiskError

Array = NDArray[np.float64]
# spline good to 1e-5
TILTS = np.concatenate(
    [np.logspace(-3, -1.5, 4), np.logspace(-1.25, 1.25, 20), np.logspace(1.5, 4, 7)]
)
STRENGTHS = np.logspace(-3, 2, 101)  # of a


class ScalarOptimum(NamedTuple):
    """Where a risk is least, or where descent has come: a, b and the risk there."""

    a: float
    b: float
    risk: float


@dataclasses.dataclass(frozen=True)
class ScalarRegression:
    """Regression on a scalar input at one length.

    Parameters
    ----------
    law
        Law of the inputs, symmetric, with a second moment: StudentTLaw with df > 2, or LaplaceLaw.
    length
        L, at least 2.
    noise_variance
        s².

    Examples
    --------
    >>> from largeprompt.studies.heavytail.regression import ScalarRegression
    >>> gaussian = ScalarRegression(lp.scalar.StudentTLaw(math.inf, 1.0), 100, 0.1)
    >>> print(f"{gaussian.risk(0.5, 1.5):.4f}")
    0.1072
    """

    law: StudentTLaw | LaplaceLaw
    length: int
    noise_variance: float

    def __post_init__(self) -> None:
        if not isinstance(self.law, StudentTLaw | LaplaceLaw):
            raise InvalidArgumentError("law", repr(self.law), "StudentTLaw or LaplaceLaw")
        if self.law.density().moments <= 2:
            raise NoMomentError(
                "risk",
                repr(self.law),
                "df > 2",
                "Its outputs have no second moment: the risk is infinite.",
            )
        object.__setattr__(self, "length", validation.integer("length", self.length, minimum=2))
        object.__setattr__(
            self, "noise_variance", validation.positive("noise_variance", self.noise_variance)
        )

    @functools.cached_property
    def _queries(self) -> tuple[Array, Array]:
        """Nodes and weights of the size of the query: panels that double, as far as the second
        moment reaches.
        """
        law: ScalarDensity = self.law.density()
        far = float(law.upper_quantile(np.array(1e-28)))
        breaks = np.concatenate(
            [[0.0], law.width * 2.0 ** np.arange(-4, math.ceil(math.log2(far / law.width)) + 1)]
        )
        nodes, weights = np.polynomial.legendre.leggauss(12)
        half = np.diff(breaks)[:, None] / 2
        points = breaks[:-1, None] + half * (1 + nodes)
        return points.ravel(), (2 * half * weights * law.density(points)).ravel()

    @functools.cached_property
    def _moments(self) -> Any:
        """log E T_L, log E T_L² and log E Y as a spline in the logarithm of the tilt."""
        from scipy.interpolate import CubicSpline

        values = np.log([np.concatenate(output(self.law, tilt, [self.length])) for tilt in TILTS])
        return CubicSpline(np.log(TILTS), values)

    def _averages(self, a: Array) -> tuple[Array, Array]:
        """P and Q at each a > 0, by the spline of the moments."""
        x, weights = self._queries
        tilts = a[:, None] * x
        inside = np.clip(tilts, TILTS[0], TILTS[-1])
        mean, square, collision = np.moveaxis(np.exp(self._moments(np.log(inside))), -1, 0)
        mean = mean * np.minimum(tilts / TILTS[0], 1.0)  # linear below the table, constant above
        return (mean * x) @ weights, (square + self.noise_variance * collision) @ weights

    @functools.cached_property
    def _curves(self) -> Any:
        """log P and log Q as a spline in log a."""
        from scipy.interpolate import CubicSpline

        return CubicSpline(np.log(STRENGTHS), np.log(np.stack(self._averages(STRENGTHS), -1)))

    @functools.cached_property
    def spread(self) -> float:
        """E x_q²."""
        x, weights = self._queries
        return float(x**2 @ weights)

    def risk(self, a: Any, b: Any) -> Any:
        """R(a, b), ½ E(answer - y_q)²; arrays broadcast. a between 0.001 and 100 in size."""
        a, b = (
            validation.tensor(name, x, finite=False).double().numpy()
            for name, x in (("a", a), ("b", b))
        )
        if not bool(((np.abs(a) >= STRENGTHS[0]) & (np.abs(a) <= STRENGTHS[-1])).all()):
            raise InvalidArgumentError(
                "a", f"{a}", f"{STRENGTHS[0]:g} to {STRENGTHS[-1]:g} in size"
            )
        p, q = np.moveaxis(np.exp(self._curves(np.log(np.abs(a)))), -1, 0)
        return (self.noise_variance + self.spread - 2 * b * np.sign(a) * p + b**2 * q) / 2

    def optimum(self) -> ScalarOptimum:
        """The a > 0 and b of least risk: b = P/Q, and a that makes P²/Q largest."""
        from scipy.optimize import minimize_scalar

        def lost(log_a: float) -> float:
            log_p, log_q = self._curves(log_a)
            return float(log_q - 2 * log_p)

        grid = np.log(STRENGTHS)
        start = int(np.argmin([lost(each) for each in grid]))
        bounds = (grid[max(start - 1, 0)], grid[min(start + 1, len(grid) - 1)])
        a = math.exp(
            minimize_scalar(lost, bounds=bounds, method="bounded", options={"xatol": 1e-8}).x
        )
        p, q = np.exp(self._curves(math.log(a)))
        return ScalarOptimum(a, float(p / q), float(self.risk(a, p / q)))

    def descend(self, a: float, b: float, step_size: float, steps: int) -> ScalarOptimum:
        """Gradient descent on the exact risk from a > 0, which stays within 0.001 to 100, and b.

        Raises :class:`RiskError` where the step size is too large, as the risk blows up.
        """
        b, step_size = validation.number("b", b), validation.positive("step_size", step_size)
        steps = validation.integer("steps", steps, minimum=0)
        a = validation.positive("a", a)
        largest = BLOW_UP * max(1.0, float(self.risk(a, b)))
        for step in range(1, steps + 1):
            log_a = math.log(a)
            p, q = np.exp(self._curves(log_a))
            slope_p, slope_q = np.array([p, q]) * self._curves(log_a, 1) / a
            a, b = a - step_size * (-b * slope_p + b**2 * slope_q / 2), b - step_size * (-p + b * q)
            a = min(max(a, STRENGTHS[0]), STRENGTHS[-1])
            if not b * b * q <= largest:
                raise RiskError(
                    f"descend: diverged at step {step}: the step size {step_size:g} is too large."
                )
        return ScalarOptimum(float(a), float(b), float(self.risk(a, b)))
