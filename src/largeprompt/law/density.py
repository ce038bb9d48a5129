"""Blocks of tokens of which one coordinate is tilted whose law has heavy tails: integrals over the
density of its score.

With t = e^{-x} and scores y = uz of density f, φ is the distribution function of y plus a Gumbel
variable, and

    G_a[h](x) = E[h(z) e^{as - e^s}] = ∫ h((x+s)/u) e^{as - e^s} f(x+s) ds,   s = y - x:

a graded set of x serves scores of any size, fine where the kernel or the density vary, geometric
far out.
"""

import functools
import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from largeprompt.errors import InvalidArgumentError
from largeprompt.law.blocks import CACHED, Blocks, OwnNodes
from largeprompt.law.quadrature import falling_factorial_weight, log_survival
from largeprompt.law.tokens import Array, Independent
from largeprompt.measures.scalar.density import HasDensity, ScalarDensity
from largeprompt.measures.scalar.product import ProductMeasure

PLACES, MASSES = np.polynomial.legendre.leggauss(16)
# from the last node to the end of its panel, by the gap before
LAST_GAP = float((1 - PLACES[-1]) / (PLACES[-1] - PLACES[-2]))
TOP, BOTTOM = 4.2, 44.0  # e^{-e^s} < 1e-28 above TOP; e^s < 1e-19 below -BOTTOM
# panels of s, short where e^{-e^s} turns
EVEN = np.concatenate([np.arange(TOP, -3.5, -0.9), -4.0 - 4.0 * np.arange(11)])
LIGHT = 110.0  # scores beyond which only heavy tails have anything left
RATIO = 1.5  # of neighboring panels far out
# the inner grid doubles from the width of the density to the scores that softmax tells apart
SMALLEST_TILT = 1e-30
LARGEST_TILT = 1e6  # beyond, only the largest token is read
DEFECT = 1e-10  # of the normalization Σ w = 1, beyond which the answer is refused


def panels(breaks: Array) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights between neighboring breaks, in a new last axis."""
    half = np.diff(breaks, axis=-1)[..., None] / 2
    return breaks[..., :-1, None] + half * (1 + PLACES), half * MASSES


def _farthest(law: ScalarDensity, longest: float) -> float:
    """Token beyond which light tails leave 1e-16 of a token, and of its square."""
    typical, found = (float(law.upper_quantile(np.array(p / longest))) for p in (0.1, 1e-16))
    for _ in range(4 if math.isinf(law.moments) else 0):
        grown = max(1.0, found / max(typical, law.width)) ** 2
        found = float(law.upper_quantile(np.array(1e-16 / longest / grown)))
    return found


def outer_grid(law: ScalarDensity, tilt: float, longest: float) -> tuple[Array, Array]:
    """Nodes x and weights: short panels at kinks, even ones in the bulk, then geometric."""
    spread = float(law.upper_quantile(np.array(0.16)) - law.lower_quantile(np.array(0.16))) / 2
    width = tilt * max(law.width, spread)
    step = max(2.0, width / 3)
    heavy = math.isfinite(law.moments)
    # a tail x^-ν varies over lengths x/ν
    ratio = min(RATIO, 1 + 2 / law.moments) if heavy else RATIO
    sides = []
    for sign, side in ((1.0, law), (-1.0, law.mirrored())):
        far = tilt * _farthest(side, longest if sign > 0 else 1.0)
        bulk = min(max(far, 12 * width), 12 * width if heavy else (80 if sign > 0 else 40) * width)
        # G_1 falls like e^{-x}, φ on the left faster than any exponential
        beyond = 42 + math.log(longest) if sign > 0 else 12.0
        if sign > 0 and heavy:  # as far as the moments of a tail x^{-ν-1} are no power law
            far = max(far, (42 + math.log(longest)) * math.exp(20 / max(law.moments, 1.0)))
        even = step * np.arange(1, math.ceil((beyond + bulk) / step) + 1)
        count = max(0, math.ceil(math.log(max(far / even[-1], 1.0)) / math.log(ratio)))
        sides.append(np.concatenate([even, even[-1] * ratio ** np.arange(1, count + 1)]))
    short = [tilt * kink + 2.0 * np.arange(-8, 9) for kink in law.kinks]
    points, weights = panels(
        np.unique(np.concatenate([-sides[1], [0.0], sides[0], *short, tilt * np.array(law.breaks)]))
    )
    return points.ravel(), weights.ravel()


def lowest(x: Array) -> Array:
    """Where s begins: for light tails the bulk, at s = -x, outweighs what is near s = 0."""
    return np.asarray(-BOTTOM - np.clip(x, 0.0, LIGHT))


def inner_grid(x: Array, law: ScalarDensity, tilt: float) -> tuple[Array, Array, Array]:
    """Scores y = x + s, s, and weights for each x, (x, panel, node): longer panels to the left, and
    graded ones around kinks.

    Nodes are places of y where x is small, so that tokens y/u of small tilts keep their digits, and
    of s where x is large.
    """
    x, bottom = x[:, None], lowest(x)[:, None]
    moved = np.where(np.abs(x) < 2 * LIGHT, x, 0.0)
    breaks = [moved + EVEN, moved - BOTTOM + (bottom + BOTTOM) * np.linspace(0, 1, 10)]
    doublings = max(4, math.ceil(math.log2(8 / (tilt * law.width))) + 1)
    reach = np.concatenate([[0.0], tilt * law.width * 2.0 ** np.arange(0, doublings)])
    if law.breaks:
        breaks.append(
            np.clip(tilt * np.array(law.breaks) - (x - moved), moved + bottom, moved + TOP)
        )
    for kink in law.kinks if not law.breaks else ():
        for graded in (reach, -reach):
            breaks.append(np.clip(tilt * kink - (x - moved) + graded, moved + bottom, moved + TOP))
    places, weights = panels(np.sort(np.concatenate(breaks, -1), -1))
    return places + (x - moved)[..., None], places - moved[..., None], weights


def survival(
    x: Array, law: ScalarDensity, tilt: float, mass: Array, s: Array
) -> tuple[Array, Array]:
    """1 - φ and φ at each x, from the masses of the inner grid and the tails beyond it."""
    grown = np.exp(s)
    kept = law.lower((x + lowest(x)) / tilt) + (mass * np.exp(-grown)).sum((-2, -1))
    return law.upper((x + TOP) / tilt) - (mass * np.expm1(-grown)).sum((-2, -1)), kept


def tail_factor(x: Array, weights: Array, tail: float, power: int, order: int) -> float:
    """What the last node of G_order[z^power] counts for, as the tail x^{-ν-1} goes on beyond the
    last panel.

    ∫_{X > x} E[z^m e^{as - e^s}] dX with z^m f ∝ X^{m-ν-1} is (x̂/x̂_n)^{m-ν} x̂_n/(ν-m) times its
    value at the node x_n, but for terms of order 1/x²: x̂ = x + ψ(a) is where the kernel e^{as -
    e^s} has its mean.
    """
    if not power < tail < math.inf:
        return 1.0
    mean = (-np.euler_gamma, 1 - np.euler_gamma)[order - 1]
    last, end = x[-1] + mean, x[-1] + (x[-1] - x[-2]) * LAST_GAP + mean
    return 1 + float(
        math.exp((power - tail) * math.log(end / last)) * last / (tail - power) / weights[-1]
    )


def density_blocks(
    law: ProductMeasure, u: Tensor, center: Array, lengths: Sequence[float], cumulants: int
) -> Blocks:
    """Blocks of a product of which one coordinate is tilted, u of shape (d,)."""
    index = int(torch.nonzero(u))
    tilt = float(u[index])
    size, side = abs(tilt), math.copysign(1.0, tilt)
    if not SMALLEST_TILT <= size <= LARGEST_TILT:
        allowed = f"0, or sizes from {SMALLEST_TILT:g} to {LARGEST_TILT:g}"
        raise InvalidArgumentError(
            "z", f"a tilt of {tilt:.3g} on {law!r}", allowed, "At 0 all weights are 1/L."
        )
    scalar = law.coordinate(index)
    assert isinstance(scalar, HasDensity)
    known = scalar.density() if side > 0 else scalar.density().mirrored()
    x, measure = outer_grid(known, size, max(lengths))
    rows = max(1, CACHED // (inner_grid(x[:1], known, size)[0].size * law.dim))
    parts = [slice(start, min(start + rows, len(x))) for start in range(0, len(x), rows)]
    others = _other_cumulants(law, index, cumulants)

    @functools.cache
    def mass(start: int) -> Array:
        """f dy at the nodes of a part, the expensive one of its arrays."""
        score, _, weights = inner_grid(x[start : start + rows], known, size)
        return weights * known.density(score / size) / size

    def pieces(order: int) -> Iterator[OwnNodes]:
        for part in parts:
            score, s, _ = inner_grid(x[part], known, size)
            kernel = (mass(part.start) * np.exp(order * s - np.exp(s))).reshape(len(s), -1)
            if part.stop == len(x) and order <= 2:
                kernel[-1] *= tail_factor(x, measure, known.moments, order, order)
            mean = np.zeros((kernel.size, law.dim))
            mean[:, index] = side * score.ravel() / size - center[index]
            yield OwnNodes(
                part,
                kernel,
                Independent(mean, *(np.broadcast_to(each, mean.shape) for each in others)),
            )

    found = [
        survival(x[part], known, size, mass(part.start), inner_grid(x[part], known, size)[1])
        for part in parts
    ]
    lost, kept = (np.concatenate(each) for each in zip(*found, strict=True))
    blocks = Blocks(measure, log_survival(lost, kept), pieces, law.dim)
    tokens = np.array(lengths, dtype=np.float64)[:, None]
    weights = falling_factorial_weight(tokens, 1, blocks.log_phi) * measure
    one = blocks.total(1, lambda y: np.ones(len(y.mean)))
    defect = float(np.abs(weights @ one - 1).max())
    if not defect < DEFECT:
        remedy = "Take a smaller tilt; of a density of your own, give kinks, breaks and width."
        raise InvalidArgumentError(
            "mu",
            f"a density whose weights sum to 1 ± {defect:.1g}",
            f"errors below {DEFECT:g}",
            remedy,
        )
    return blocks


def _other_cumulants(law: ProductMeasure, index: int, count: int) -> Array:
    """Cumulants of coordinates not tilted, from the second; infinite ones left out."""
    found, zero = np.zeros((count - 1, law.dim)), torch.zeros(1, dtype=torch.float64)
    for i in range(law.dim):
        scalar = law.coordinate(i)
        if i != index and not (isinstance(scalar, HasDensity) and scalar.density().moments <= 2):
            found[:, i] = [float(k) for k in scalar.derivatives(zero, count)[2:]]
    return found
