"""The cumulant ladder: the limit of attention as a power series in the tilt, and how far it converges.

Formula (tilt.10) of docs/mathematics/tilting.md, whose first two rungs are the affine read-out.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures.base import Measure
from largeprompt.measures.finite.laws import Discrete

RADII = 32  # circles looked at
ANGLES = 256
NEWTON = 50
NEGLIGIBLE = 45.0  # -log of the share of an atom that is left out


def cumulant_ladder(mu: Measure, u: Tensor) -> Tensor:
    """First four rungs κ_n/(n-1)! of u·∇Λ(u) = κ1 + κ2 + κ3/2 + κ4/6 + ..., κ_n the cumulants of the score u·x.

    Parameters
    ----------
    mu
        One law, without batch dimensions.
    u
        Tilts, shape (..., d).

    Returns
    -------
    Tensor
        Shape (..., 4); in one dimension divide by u for the rungs of ∇Λ.

    Examples
    --------
    tanh u = u - u³/3 + ...:

    >>> lp.measures.cumulant_ladder(lp.Rademacher(1), [0.5]) / 0.5
    tensor([ 0.0000,  0.5000,  0.0000, -0.0417], dtype=torch.float64)
    """
    if not isinstance(mu, Measure) or mu.batch_shape:
        raise InvalidArgumentError("mu", validation.text(mu), "one law, without batch dimensions")
    u = mu._tilts(u)
    cumulants = mu.directional_cumulants(u.reshape(-1, mu.dim))
    return torch.stack([k / math.factorial(n) for n, k in enumerate(cumulants)], -1).reshape(*u.shape[:-1], 4)


def ladder_radius(rule: Discrete, direction: Tensor | None = None, *, largest: float = 4.0) -> float:
    """Largest t up to which the ladder converges for the tilts t·direction; ``math.inf`` if that is beyond ``largest``.

    The zeros of E e^{t u·x} within growing circles are counted by the turns of its phase; Newton's method finds the first one.

    Parameters
    ----------
    rule
        The law as atoms: a Discrete law, or the :func:`gauss_rule` of another (without a number of nodes: its tails matter here).
    direction
        Shape (d,); may be left out in one dimension.
    largest
        Radius up to which zeros are looked for.

    Examples
    --------
    >>> print(f"{lp.measures.ladder_radius(lp.Discrete([[-1.0], [1.0]], [0.5, 0.5])):.10f}")  # cosh t = 0 at t = iπ/2
    1.5707963268
    """
    largest = validation.positive("largest", largest)
    if not isinstance(rule, Discrete) or rule.batch_shape:
        raise InvalidArgumentError("rule", validation.text(rule), "one Discrete law", "Use gauss_rule(mu) for other laws.")
    if direction is None and rule.dim > 1:
        raise InvalidArgumentError("direction", "None", f"a direction in R^{rule.dim}")
    along = torch.ones(1, dtype=rule.dtype, device=rule.device) if direction is None else direction
    x = (rule.atoms @ validation.shaped("direction", along, (rule.dim,), like=rule.atoms)).cpu().numpy()
    shares = np.log(np.maximum(rule.weights.cpu().numpy(), 1e-300)) + np.outer(np.linspace(-largest, largest, 17), x)
    kept = (shares > shares.max(1, keepdims=True) - NEGLIGIBLE).any(0)
    x, weights = x[kept], rule.weights.cpu().numpy()[kept]
    # the law is real: the lower half mirrors the upper one; a finer one where a zero is near
    circle, fine = (np.exp(1j * np.linspace(0.0, math.pi, count)) for count in (ANGLES, 16 * ANGLES))

    def tilted(t: NDArray[np.complex128], orders: int = 1) -> list[NDArray[np.complex128]]:
        """E x^n e^{tx} over E e^{Re(t) x}, n from 0 on."""
        exponent = np.outer(t, x)
        exponent -= np.max(exponent.real, axis=1, keepdims=True)
        grown = np.exp(exponent) * weights
        size = np.abs(grown).sum(1)
        return [(grown @ x**n) / size for n in range(orders)]

    def turned(radius: float) -> NDArray[np.float64]:
        turns = _turns(tilted(radius * circle)[0])
        return _turns(tilted(radius * fine)[0]) if np.abs(turns).max() > 2 else turns

    before = 0.0
    for radius in np.linspace(largest / RADII, largest, RADII):
        turns = turned(radius)
        trusted = bool(np.isfinite(turns).all()) and np.sum(np.abs(turns) > 2) <= 2  # but next to a zero
        if trusted and abs(turns.sum()) > math.pi / 2:  # half a turn for each zero of the full circle
            while abs(turns.sum()) > 2.5 * math.pi and radius - before > 1e-6 * radius:  # more than a pair: the first of them
                middle = (before + radius) / 2
                inner = turned(middle)
                before, radius, turns = (before, middle, inner) if abs(inner.sum()) > math.pi / 2 else (middle, radius, turns)
            near = (np.linspace(before, radius, 9)[:, None] * circle).ravel()
            t = near[np.argmin(np.abs(tilted(near)[0]))][None]
            for _ in range(NEWTON):  # on M/M', so that a zero may be multiple
                m0, m1, m2 = tilted(t, 3)
                if abs(m0[0]) < 1e-13:
                    break
                t = t - m0 * m1 / (m1**2 - m0 * m2)
            return float(np.abs(t[0]))
        if not trusted or np.abs(turns).max() > 2:
            allowed = f"at most {before:g} for this law" if before else "smaller radii for this law"
            raise InvalidArgumentError("largest", f"{largest:g}", allowed, "Its phase turns too fast beyond.")
        before = float(radius)
    return math.inf


def _turns(values: NDArray[np.complex128]) -> NDArray[np.float64]:
    """Change of phase from each value to the next."""
    with np.errstate(divide="ignore", invalid="ignore"):  # so far out that every value is 0
        turns: NDArray[np.float64] = np.angle(values[1:] / values[:-1])
    return turns
