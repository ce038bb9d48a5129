"""How far the cumulant ladder of a scalar law converges: up to the zero of E e^{tx} that is nearest
to 0.
"""

import math

import numpy as np
from numpy.typing import NDArray

from largeprompt.measures import Discrete

RADII = 32  # circles looked at
ANGLES = 256
NEWTON = 50
NEGLIGIBLE = 45.0  # -log of the share of an atom that is left out


def ladder_radius(rule: Discrete, largest: float) -> float:
    """Largest tilt up to which the ladder of a law with these atoms converges; ``math.inf`` if that
    is beyond ``largest``.

    The zeros of E e^{tx} within growing circles are counted by the turns of its phase; Newton's
    method finds the first one.

    >>> coin = lp.Discrete([[-1.0], [1.0]], [0.5, 0.5])
    >>> print(f"{ladder_radius(coin, 4.0):.10f}")  # cosh t = 0 at t = iπ/2
    1.5707963268
    """
    x, weights = rule.atoms[:, 0].numpy(), rule.weights.numpy()
    shares = np.log(np.maximum(weights, 1e-300)) + np.outer(np.linspace(-largest, largest, 17), x)
    kept = (shares > shares.max(1, keepdims=True) - NEGLIGIBLE).any(0)
    x, weights = x[kept], weights[kept]

    def tilted(t: NDArray[np.complex128], orders: int = 1) -> list[NDArray[np.complex128]]:
        """E x^n e^{tx} over E e^{Re(t) x}, n from 0."""
        exponent = np.outer(t, x)
        exponent -= np.max(exponent.real, axis=1, keepdims=True)
        grown = np.exp(exponent) * weights
        size = np.abs(grown).sum(1)
        return [(grown @ x**n) / size for n in range(orders)]

    def turns(radius: float, count: int) -> NDArray[np.float64]:
        """Change of phase from each place on the upper half of a circle to the next; the law is
        real.
        """
        values = tilted(radius * np.exp(1j * np.linspace(0.0, math.pi, count)))[0]
        with np.errstate(divide="ignore", invalid="ignore"):  # so far out that every value is 0
            return np.asarray(np.angle(values[1:] / values[:-1]))

    before = 0.0
    for radius in np.linspace(largest / RADII, largest, RADII):
        found = turns(radius, ANGLES)
        found = turns(radius, 16 * ANGLES) if np.abs(found).max() > 2 else found  # a zero is near
        if not np.isfinite(found).all() or np.sum(np.abs(found) > 2) > 2:
            return math.inf
        if abs(found.sum()) > math.pi / 2:  # half a turn for each zero of the full circle
            near = np.outer(
                np.linspace(before, radius, 9), np.exp(1j * np.linspace(0.0, math.pi, ANGLES))
            ).ravel()
            t = near[np.argmin(np.abs(tilted(near)[0]))][None]
            for _ in range(NEWTON):  # on M/M', so that a zero may be multiple
                m0, m1, m2 = tilted(t, 3)
                if abs(m0[0]) < 1e-13:
                    break
                t = t - m0 * m1 / (m1**2 - m0 * m2)
            return float(np.abs(t[0]))
        before = float(radius)
    return math.inf
