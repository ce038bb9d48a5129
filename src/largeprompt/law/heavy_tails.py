"""Softmax over scalar tokens of any law, heavy tails included: exact expectations at every length, by quadrature.

Formula (quad.10) of docs/mathematics/quadrature.md with t = e^{-x}, s = y - x for scores y = uz of density f. φ is the distribution
function of y plus a Gumbel variable, so that a graded set of x serves scores of any size: fine where the kernel or the density
vary, geometric far out. For the largest token the others lie below it: with φ_s = φ - ∫_{s' > s} f(x+s') e^{-e^{s'}} ds',

    E max w = L ∫∫ f(x+s) e^{s-e^s} φ_s^{L-1} ds dx,
    u E(max z - Σ w z) = L(L-1) ∫∫ f(x+s) e^{-e^s} φ_s^{L-2} ∫_{s' < s} (s-s') f(x+s') e^{s'-e^{s'}} ds' ds dx.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.law.density import ScalarDensity, scalar_density
from largeprompt.law.quadrature import NOTHING, Array, drawn, log_survival
from largeprompt.measures import ScalarLaw
from largeprompt.validation import Lengths

Functions = Callable[[Array], Sequence[Array]]  # of a token

NODES = 16  # of a Gauss-Legendre panel
PLACES, MASSES = np.polynomial.legendre.leggauss(NODES)
TOP, FLOOR = 4.2, 44.0  # e^{-e^s} < 1e-28 above TOP; e^s < 1e-19 below -FLOOR
LIGHT = 110.0  # scores beyond which only heavy tails have anything left
RATIO = 1.5  # of neighbouring panels far out
ROWS = 128  # of x at a time
LARGEST_TILT = 1e6
DEFECT = 1e-10  # of the normalisation, beyond which the answer is refused


@dataclasses.dataclass(frozen=True)
class ScalarPrompt:
    """Expectations for prompts of L scalar tokens read with the tilt u; one entry for each length.

    Attributes
    ----------
    collision
        E Y = E Σ w², whose inverse is the effective number of tokens.
    collision_variance, largest_variance
        Variances of Y and of max w over prompts: they know of the rare prompts that a sample may not show.
    mean, mse
        E T_L and E (T_L - center)² for T_L = Σ w z; nan or inf where the moment does not exist.
    largest
        E max w; None unless asked for.
    shortfall
        u·E(max z - T_L), how far the output lies below the largest token; None unless asked for.
    defect
        Largest distance of the computed E Σ w from 1: the error to expect.
    """

    lengths: tuple[int, ...]
    collision: Array
    collision_variance: Array
    mean: Array
    mse: Array
    largest: Array | None
    largest_variance: Array | None
    shortfall: Array | None
    defect: float

    @property
    def effective_tokens(self) -> Array:
        """1/E Y."""
        return 1 / self.collision


LAST_GAP = float((1 - PLACES[-1]) / (PLACES[-1] - PLACES[-2]))  # from the last node to the end of its panel, by the gap before


def _panels(breaks: Array) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights between neighbouring breaks, in a new last axis."""
    half = np.diff(breaks, axis=-1)[..., None] / 2
    return breaks[..., :-1, None] + half * (1 + PLACES), half * MASSES


def _tail_matrix() -> Array:
    """Integral of each Lagrange polynomial of the panel [-1, 1] from a node to 1: shape (node, polynomial)."""
    legendre = np.polynomial.legendre.legvander(PLACES, NODES - 1)
    coefficients = (legendre * MASSES[:, None]).T * (np.arange(NODES) + 0.5)[:, None]  # of each Lagrange polynomial
    integrated = np.polynomial.legendre.legint(coefficients, axis=0)
    ends = np.asarray(np.polynomial.legendre.legval(1.0, integrated))
    return np.asarray(ends[None, :] - np.polynomial.legendre.legval(PLACES, integrated).T)


TAILS = _tail_matrix()


def power_law_from(tail: float, longest: float) -> float:
    """Score from which the moments of a tail x^{-ν-1} are a power law: 0 for light tails, which leave nothing so far out."""
    return 0.0 if math.isinf(tail) else (42 + math.log(longest)) * math.exp(20 / max(tail, 1.0))


def _farthest(law: ScalarDensity, longest: float) -> float:
    """Token beyond which tails that are no power laws leave 1e-16 of a token of so many, and of its square."""
    typical, found = (float(law.upper_quantile(np.array(p / longest))) for p in (0.1, 1e-16))
    for _ in range(4 if math.isinf(law.moments) else 0):
        grown = max(1.0, found / max(typical, law.width)) ** 2
        found = float(law.upper_quantile(np.array(1e-16 / longest / grown)))
    return found


def outer_grid(law: ScalarDensity, tilt: float, longest: float) -> tuple[Array, Array]:
    """Nodes x and weights: short panels around kinks, even ones over the bulk, geometric ones as far as the tails matter."""
    spread = float(law.upper_quantile(np.array(0.16)) - law.lower_quantile(np.array(0.16))) / 2
    width = tilt * max(law.width, spread)
    step = max(2.0, width / 2)
    ratio = RATIO if math.isinf(law.moments) else min(RATIO, 1 + 2 / law.moments)  # a tail x^-ν varies over lengths x/ν
    sides = []
    for sign, side in ((1.0, law), (-1.0, law.mirrored())):
        far = tilt * _farthest(side, longest if sign > 0 else 1.0)
        bulk = min(max(far, 12 * width), 12 * width if law.moments < math.inf else (80 if sign > 0 else 40) * width)
        beyond = 42 + math.log(longest) if sign > 0 else 12.0  # G_1 falls like e^{-x}, φ on the left faster than any exponential
        far = max(far, power_law_from(law.moments, longest)) if sign > 0 else far
        even = step * np.arange(1, math.ceil((beyond + bulk) / step) + 1)
        count = max(0, math.ceil(math.log(max(far / even[-1], 1.0)) / math.log(ratio)))
        sides.append(np.concatenate([even, even[-1] * ratio ** np.arange(1, count + 1)]))
    short = [tilt * kink + 2.0 * np.arange(-8, 9) for kink in law.kinks]
    points, weights = _panels(np.unique(np.concatenate([-sides[1], [0.0], sides[0], *short])))
    return points.ravel(), weights.ravel()


EVEN = np.concatenate([np.arange(TOP, -3.5, -0.9), -4.0 - 4.0 * np.arange(11)])  # down to -FLOOR, short where e^{-e^s} turns


def lowest(x: Array) -> Array:
    """Where s begins: for light tails the bulk, at s = -x, outweighs what is near s = 0."""
    return np.asarray(-FLOOR - np.clip(x, 0.0, LIGHT))


def inner_grid(x: Array, law: ScalarDensity, tilt: float) -> tuple[Array, Array, Array]:
    """Scores y = x + s, s, and weights for each x, (x, panel, node): longer panels to the left, and graded ones around kinks.

    Nodes are places of y where x is small, so that tokens y/u of small tilts keep their digits, and of s where x is large.
    """
    x, bottom = x[:, None], lowest(x)[:, None]
    moved = np.where(np.abs(x) < 2 * LIGHT, x, 0.0)
    breaks = [moved + EVEN, moved - FLOOR + (bottom + FLOOR) * np.linspace(0, 1, 10)]
    doublings = max(4, math.ceil(math.log2(8 / (tilt * law.width))) + 1)
    reach = np.concatenate([[0.0], tilt * law.width * 2.0 ** np.arange(0, doublings)])
    if law.breaks:
        breaks.append(np.clip(tilt * np.array(law.breaks) - (x - moved), moved + bottom, moved + TOP))
    for kink in law.kinks if not law.breaks else ():
        for graded in (reach, -reach):
            breaks.append(np.clip(tilt * kink - (x - moved) + graded, moved + bottom, moved + TOP))
    places, weights = _panels(np.sort(np.concatenate(breaks, -1), -1))
    return places + (x - moved)[..., None], places - moved[..., None], weights


@dataclasses.dataclass(frozen=True)
class DensityBlocks:
    """Block expectations on a grid of x: log φ, G_1, G_2, G_4 of 1, and G_1, G_2 of some functions of the token, (x, function)."""

    measure: Array
    log_phi: Array
    one: Array
    two: Array
    four: Array
    first: Array
    twice: Array

    def drawn(self, lengths: Array, count: int) -> Array:
        """L(L-1)...(L-k+1) φ^{L-k} dx, shape (x, length)."""
        return np.asarray(drawn(lengths, count, self.log_phi[:, None], self.measure[:, None]))


def _blocks(
    x: Array, measure: Array, law: ScalarDensity, tilt: float, functions: Functions, extremes: bool
) -> tuple[DensityBlocks, dict[str, Array]]:
    """Block expectations at some x, and what the largest token needs on the grid of s."""
    score, s, weights = inner_grid(x, law, tilt)
    token = score / tilt
    mass = weights * law.density(token) / tilt
    grown = np.exp(s)
    kept = np.exp(-grown)
    once = mass * grown * kept  # e^{s - e^s} f ds

    def total(values: Array) -> Array:
        return np.asarray(values.sum((-2, -1)))

    phi = law.lower((x + lowest(x)) / tilt) + total(mass * kept)
    lost = law.upper((x + TOP) / tilt) + total(-mass * np.expm1(-grown))
    log_phi = np.maximum(log_survival(lost, phi), NOTHING)
    twice, read = once * grown, functions(token)
    first, second = (np.stack([total(kernel * each) for each in read], -1) for kernel in (once, twice))
    blocks = DensityBlocks(measure, log_phi, total(once), total(twice), total(once * grown**3), first, second)
    if not extremes:
        return blocks, {}
    above = _from_the_right(mass * kept, weights)
    below = blocks.one[:, None, None] - _from_the_right(once, weights)
    below_score = total(once * s)[:, None, None] - _from_the_right(once * s, weights)
    return blocks, {
        "log_phi": np.log1p(-np.minimum(lost[:, None, None] + above, 1 - 1e-16)),
        "first": once,
        "first_twice": twice,
        "pair": mass * kept * np.maximum(s * below - below_score, 0.0),
    }


def _from_the_right(values: Array, weights: Array) -> Array:
    """∫_{s' > s} at every node, of an integrand given times its weights; empty panels add nothing."""
    panel = values.sum(-1)
    later = np.cumsum(panel[:, ::-1], axis=-1)[:, ::-1] - panel
    half = weights.sum(-1, keepdims=True) / 2
    heights = np.divide(values * half, weights, out=np.zeros_like(values), where=weights > 0)
    return np.asarray(later[..., None] + heights @ TAILS.T)


def scalar_prompt(
    law: ScalarLaw | ScalarDensity, tilt: float, lengths: Lengths, *, center: float = 0.0, extremes: bool = False
) -> ScalarPrompt:
    """Exact expectations for softmax attention over L i.i.d. scalar tokens, whatever their tails.

    Parameters
    ----------
    law
        Law of a token: StudentTLaw, LaplaceLaw, LogNormalLaw, or a :class:`~largeprompt.law.density.ScalarDensity`.
    tilt
        u: the score of token z is uz. Up to 10^6 in size, and not 0.
    lengths
        Prompt lengths from 2 to 10^15; the cost is that of one.
    center
        What the output is compared with in ``mse``.
    extremes
        Also compute ``largest`` and ``shortfall``, at a cost for each length.

    Returns
    -------
    ScalarPrompt
        E Σ w² and its variance, E T_L, its mean squared error; one entry for each length.

    Examples
    --------
    The effective number of tokens of a Student-t prompt first grows with the length, then falls to 1: only the largest is read.

    >>> from largeprompt.law import scalar_prompt
    >>> prompt = scalar_prompt(lp.StudentT(1, 4.0).law, 1.0, [10, 1000, 10**5, 10**10])
    >>> prompt.effective_tokens.round(2)
    array([4.81, 6.29, 1.43, 1.02])
    """
    found, _ = validation.lengths("lengths", lengths)
    if min(found) < 2:
        raise InvalidArgumentError("lengths", f"{min(found):g}", "2 to 10^15", "One token has the weight 1.")
    tilt, extremes = validation.number("tilt", tilt), validation.flag("extremes", extremes)
    size = abs(tilt)
    if not 1e-152 <= size <= LARGEST_TILT:
        raise InvalidArgumentError(
            "tilt", validation.text(tilt), "a number other than 0, of size at most 10^6", "At 0 every weight is 1/L."
        )
    known = law if isinstance(law, ScalarDensity) else scalar_density(law)
    side = 1.0 if tilt > 0 else -1.0
    known = known if side > 0 else known.mirrored()
    tokens, center = np.array(found), validation.number("center", center)
    sums = {name: np.zeros_like(tokens) for name in ("largest", "largest_twice", "shortfall")}
    blocks = density_blocks(known, size, tokens, lambda token: [side * token, token**2], [1, 2], sums if extremes else None)
    once, twice = (blocks.drawn(tokens, k) for k in (1, 2))
    collision = blocks.two @ once
    square = blocks.twice[:, 1] - 2 * center * blocks.twice[:, 0] + center**2 * blocks.two
    moved = blocks.first[:, 0] - center * blocks.one
    return ScalarPrompt(
        tuple(int(length) for length in tokens),
        collision,
        np.maximum((blocks.four @ once + blocks.two**2 @ twice) / 6 - collision**2, 0.0),
        blocks.first[:, 0] @ once if known.moments > 1 else np.full_like(tokens, math.nan),
        square @ once + moved**2 @ twice if known.moments > 2 else np.full_like(tokens, math.inf),
        sums["largest"] if extremes else None,
        np.maximum(sums["largest_twice"] - sums["largest"] ** 2, 0.0) if extremes else None,
        sums["shortfall"] if extremes else None,
        float(np.abs(blocks.one @ once - 1).max()),
    )


def density_blocks(
    law: ScalarDensity,
    tilt: float,
    lengths: Array,
    functions: Functions,
    growth: Sequence[int],
    extremes: dict[str, Array] | None = None,
) -> DensityBlocks:
    """Block expectations of functions of the token for prompts of these lengths, tilt > 0; sums for the largest token are added up.

    Functions grow like the powers ``growth`` of the token. The law is refused where the weights do not sum to one.
    """
    found, grid = [], outer_grid(law, tilt, float(lengths.max()))
    for start in range(0, len(grid[0]), ROWS):
        x, weights = (each[start : start + ROWS] for each in grid)
        blocks, inner = _blocks(x, weights, law, tilt, functions, extremes is not None)
        found.append(blocks)
        for i, length in enumerate(lengths if extremes is not None else []):
            assert extremes is not None
            left = np.exp((length - 2) * inner["log_phi"])
            but_one = left * np.exp(inner["log_phi"])
            extremes["largest"][i] += length * (weights @ (inner["first"] * but_one).sum((-2, -1)))
            extremes["largest_twice"][i] += length * (weights @ (inner["first_twice"] * but_one).sum((-2, -1)))
            extremes["shortfall"][i] += length * (length - 1) * (weights @ (inner["pair"] * left).sum((-2, -1)))
    names = [field.name for field in dataclasses.fields(DensityBlocks)]
    whole = DensityBlocks(*(np.concatenate([getattr(part, name) for part in found]) for name in names))
    defect = float(np.abs(whole.one @ whole.drawn(lengths, 1) - 1).max())
    if not defect < DEFECT:
        given, remedy = (
            f"a density whose weights sum to 1 ± {defect:.1g}",
            "Take a smaller tilt; of a density of your own, give kinks, breaks and width.",
        )
        raise InvalidArgumentError("law", given, f"errors below {DEFECT:g}", remedy)
    _add_tails(whole, grid[0], law.moments, growth)
    return whole


def _add_tails(blocks: DensityBlocks, x: Array, tail: float, growth: Sequence[int]) -> None:
    """Add what a tail x^{-ν-1} leaves beyond the last panel to the last node, where all other tokens lie below for certain.

    ∫_{X > x} E[z^m e^{as - e^s}] dX with z^m f ∝ X^{m-ν-1} is (x̂/x̂_n)^{m-ν} x̂_n/(ν-m) times its value at the node x_n, but for
    terms of order 1/x²: x̂ = x + ψ(a) is where the kernel e^{as - e^s} has its mean.
    """
    end = x[-1] + (x[-1] - x[-2]) * LAST_GAP
    for block, mean in ((blocks.first, -np.euler_gamma), (blocks.twice, 1 - np.euler_gamma)):
        for column, power in enumerate(growth):
            if power < tail < math.inf:
                last = x[-1] + mean
                beyond = math.exp((power - tail) * math.log((end + mean) / last)) * last / (tail - power)
                block[-1, column] *= 1 + beyond / blocks.measure[-1]


def argmax_rate(df: float, scale: float, tilt: float, lengths: Sequence[float]) -> Array:
    """νΓ(2+1/ν)/(u (cL)^{1/ν}), to which 1 - E Y tends for tails P(z > x) ~ c x^{-ν}; here of Student-t with ν = df.

    1 - E max w tends to ln 2, u E(max z - T_L) to π²/12 times it: formulas (tail.1-3) of docs/mathematics/heavy_tails.md.
    """
    log_c = (
        math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - math.log(df * math.pi) / 2 + (df + 1) / 2 * math.log(df) - math.log(df)
    )
    spread = scale * np.exp((log_c + np.log(np.asarray(lengths, dtype=np.float64))) / df)  # (cL)^{1/ν}
    return np.asarray(math.exp(math.log(df) + math.lgamma(2 + 1 / df)) / (abs(tilt) * spread))
