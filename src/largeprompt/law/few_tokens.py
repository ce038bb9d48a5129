"""The softmax-weighted variance of few scalar tokens, C = Σ wx² - (Σ wx)²: how far it is from that of the limit.

C = ½ Σ_{k,l} w_k w_l (x_k - x_l)², so that both of its moments are sums of positive terms over two, three and four distinct tokens.
With c the mean of x under the weights of G_1, v its variance there, g = G_1[1] and μ_j central moments of G_2,

    E C = L(L-1) ∫ φ^{L-2} g² v dτ,
    E C² = ⅙ { L(L-1) ∫ φ^{L-2} (μ_4 μ_0 + 3μ_2²) dτ + L(L-1)(L-2) ∫ φ^{L-3} g² G_2[((x-c)² + v)²] dτ
               + L(L-1)(L-2)(L-3) ∫ φ^{L-4} g⁴ v² dτ },

formula (engine.9) of docs/mathematics/engine.md. The sum over ways to share tokens of (engine.2), centred at the limit, cancels for
short prompts; E (C - Γ)² = E C² - 2Γ E C + Γ² cancels for long ones alone.
"""

import numpy as np

from largeprompt.law.density import ScalarDensity
from largeprompt.law.heavy_tails import ROWS, TOP, inner_grid, lowest, outer_grid
from largeprompt.law.quadrature import NOTHING, Array, drawn, log_survival

UNIT = 1e-14  # of each moment: what rounding leaves of it


def variance_error(law: ScalarDensity, tilt: float, lengths: Array, limit: float) -> tuple[Array, Array]:
    """E (C - Γ)² for tilts > 0, 1 < L < ∞, and what rounding leaves of it, relative."""
    mean, square = np.zeros(len(lengths)), np.zeros(len(lengths))
    grid = outer_grid(law, tilt, float(lengths.max()))
    for start in range(0, len(grid[0]), ROWS):
        x, measure = (each[start : start + ROWS] for each in grid)
        log_phi, g, v, two, three = _parts(x, law, tilt)

        def total(count: int, values: Array, log_phi: Array = log_phi, measure: Array = measure) -> Array:
            """L(L-1)...(L-k+1) ∫ φ^{L-k} of some values over this part of the grid."""
            enough = np.maximum(lengths, count)
            return np.where(lengths >= count, values @ drawn(enough, count, log_phi[:, None], measure[:, None]), 0.0)

        mean += total(2, g**2 * v)
        square += (total(2, two) + total(3, g**2 * three) + total(4, (g**2 * v) ** 2)) / 6
    error = square - 2 * limit * mean + limit**2
    return error, UNIT * (square + 2 * limit * mean + limit**2) / np.maximum(error, 1e-300)


def _parts(x: Array, law: ScalarDensity, tilt: float) -> tuple[Array, Array, Array, Array, Array]:
    """log φ, g, v, μ_4μ_0 + 3μ_2² and G_2[((x-c)² + v)²] at some points of the outer grid."""
    score, s, weights = inner_grid(x, law, tilt)
    token, grown = score / tilt, np.exp(s)
    mass = weights * law.density(token) / tilt

    def total(values: Array) -> Array:
        return np.asarray(values.sum((-2, -1)))

    kept = np.exp(-grown)
    phi = law.lower((x + lowest(x)) / tilt) + total(mass * kept)
    lost = law.upper((x + TOP) / tilt) + total(-mass * np.expm1(-grown))
    once = mass * grown * kept
    twice = once * grown

    def centred(kernel: Array) -> tuple[Array, Array]:
        """Σ kernel, and tokens less their mean under it."""
        whole = total(kernel)
        return whole, token - (total(kernel * token) / np.maximum(whole, 1e-300))[:, None, None]

    g, moved = centred(once)
    v = total(once * moved**2) / np.maximum(g, 1e-300)
    three = total(twice * (moved**2 + v[:, None, None]) ** 2)
    mu0, moved = centred(twice)
    mu2, mu4 = total(twice * moved**2), total(twice * moved**4)
    return np.maximum(log_survival(lost, phi), NOTHING), g, v, mu4 * mu0 + 3 * mu2**2, three
