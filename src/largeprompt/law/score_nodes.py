"""Laws as sums over real nodes of the score: atoms, mixtures of Gaussians, the sphere, one coordinate that is tilted alone."""

import functools
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from largeprompt.errors import InvalidArgumentError
from largeprompt.law.quadrature import LARGEST_EXPONENT, REACH, check_spread
from largeprompt.law.quadrature import STEP as SCORE_STEP
from largeprompt.law.tokens import Array, Common, Independent, TokenMoments
from largeprompt.law.weights import NARROW_STEP
from largeprompt.measures import GaussianMixture, Measure, Sphere
from largeprompt.measures.finite.atoms import AtomicMeasure
from largeprompt.measures.numerics.bessel import cosine_reach
from largeprompt.measures.scalar.logconcave import LogConcaveLaw, panel_rule
from largeprompt.measures.scalar.product import ProductMeasure, ScalarLaw

ELEMENTS = 2**18  # of the largest array while nodes are read: what stays in the cache
DEEPEST = 100.0  # -log of the probability of a node, tilted or not, that is left out
PANEL, LOWEST, MOST_LEVELS = 2.0, -500.0, 10_000  # of the score, by which panels of a density are cut
TOUCHING = 1e-6  # distance from a kink, relative to the width of the law, at which a panel does not end
GAUSS = np.polynomial.legendre.leggauss(20)

Nodes = tuple[Array, Array, TokenMoments]  # log p_j, s_j and the moments of y at each


@functools.singledispatch
def score_nodes(mu: Measure, u: Tensor, limit: Array | None, cgf: float, reach: float) -> Sequence[Nodes]:
    """Groups of nodes of a law along the tilt u, with scores less Λ(u), for τ up to ``reach``; TypeError where it has none.

    Moments are those of tokens less their limit, or of the tokens themselves where none is given.
    """
    raise TypeError(f"{mu!r} has no nodes along a tilt")


@score_nodes.register
def _(mu: AtomicMeasure, u: Tensor, limit: Array | None, cgf: float, reach: float) -> Sequence[Nodes]:
    points = mu.points.numpy()
    with np.errstate(divide="ignore"):
        log_mass = np.full(len(points), -math.log(len(points))) if mu.weights is None else np.log(mu.weights.numpy())
    scores = points @ u.numpy() - cgf
    weights = np.exp(log_mass + scores)
    moved = points
    if limit is not None:  # x - T around the atom that is read most, of which T may keep only the last digits
        moved = points - points[weights.argmax()]
        moved -= weights @ moved / weights.sum()
    parts = (slice(start, start + ELEMENTS // 512) for start in range(0, len(points), ELEMENTS // 512))
    return [(log_mass[part], scores[part], Common(moved[part])) for part in parts]


@score_nodes.register
def _(mu: GaussianMixture, u: Tensor, limit: Array | None, cgf: float, reach: float) -> Sequence[Nodes]:
    """Given its component a token is m + eξ + r, e = Γu/σ, with score u·m + σξ and r ~ N(0, Γ - ee^T) independent of it."""
    found, tilt = [], u.numpy()
    weights, means, covariances = (part.numpy() for part in (mu.weights, mu.means, mu.covariances))
    shifts = covariances @ tilt
    moved = means
    if limit is not None:  # m - T around the component that is read most, of which T may keep only the last digits
        share = weights * np.exp(np.where(weights > 0, means @ tilt + shifts @ tilt / 2 - cgf, 0.0))
        moved = means - means[share.argmax()]
        moved -= share @ (moved + shifts) / share.sum()
    for weight, mean, away, shift, covariance in zip(weights, means, moved, shifts, covariances, strict=True):
        if weight == 0:
            continue
        sigma = math.sqrt(max(float(tilt @ shift), 0.0))
        check_spread(sigma)
        e = shift / sigma if sigma > 0 else np.zeros_like(shift)
        level = float(tilt @ mean) - cgf
        xi: Array = np.zeros(1)
        log_mass: Array = np.zeros(1)
        if sigma > 0:
            step = min(NARROW_STEP, SCORE_STEP / sigma)
            # G_1 for small t, unlike the others, does not die out beyond the largest exponent: it needs the whole law tilted once
            top = min(REACH + 2 * sigma, max(REACH + sigma, (LARGEST_EXPONENT + reach - level) / sigma))
            xi = np.asarray(step * np.arange(-math.ceil(REACH / step), math.ceil(top / step) + 1))
            log_mass = -(xi**2) / 2 + math.log(step / math.sqrt(2 * math.pi))
        moments = Common(away + xi[:, None] * e, covariance - np.outer(e, e))
        found.append((log_mass + math.log(weight), level + sigma * xi, moments))
    return found


@score_nodes.register
def _(mu: Sphere, u: Tensor, limit: Array | None, cgf: float, reach: float) -> Sequence[Nodes]:
    """x = r(c û + √(1-c²) ω): the cosine c has density ∝ (1-c²)^{(d-3)/2} and ω is uniform on the sphere across u."""
    dim, radius, tilt = mu.dim, float(mu.support_radius), u.numpy()
    size = float(np.linalg.norm(tilt))
    check_spread(radius * size)
    axis = tilt / size if size > 0 else np.eye(dim)[0]
    if dim == 1:
        y, cosine, log_mass = np.zeros(2), np.array([-1.0, 1.0]), np.full(2, -math.log(2.0))
    else:
        # c = tanh y: the density in y is ∝ cosh(y)^{1-d}, smooth, and an even grid of y is a trapezoid rule
        # tilts by up to 2u move the mode of y to sinh y cosh y = 2r|u|/(d-1)
        end = cosine_reach(dim - 1) + math.asinh(4 * radius * size / (dim - 1)) / 2
        count = max(200, math.ceil(10 * end), math.ceil(20 * (radius * size + 1) * min(end, 4.0) / (1 + 0.1 * math.sqrt(dim))))
        y = np.linspace(-end, end, 2 * count + 1)
        cosine, log_mass = np.tanh(y), -(dim - 1) * np.logaddexp(y, -y)
        log_mass -= np.logaddexp.reduce(log_mass)
    across = np.eye(dim) - np.outer(axis, axis)
    rest = (radius / np.cosh(y)) ** 2
    m = max(dim - 1, 1)
    away = radius * cosine[:, None] * axis
    if limit is not None:
        away -= limit
        if dim == 1:  # of the sign that is read T may keep only the last digits
            e = math.exp(-2 * radius * size)
            away = radius * (np.array([[-2.0], [0.0]]) + 2 * e / (1 + e)) * axis
    moments = Common(away, across, rest / m, rest**2 * (1 / (m * (m + 2)) - 1 / m**2))
    return [(log_mass, radius * size * cosine - cgf, moments)]


def has_nodes(mu: Measure, u: Tensor) -> bool:
    """Whether :func:`score_nodes` knows this law along this tilt: products, where one coordinate without a closed cgf is tilted.

    Scores without negative exponential moments reach too far down for nodes at equal distances.
    """
    if not isinstance(mu, ProductMeasure):
        return isinstance(mu, AtomicMeasure | GaussianMixture | Sphere)
    one = int((u != 0).sum()) == 1 and isinstance(_tilted_coordinate(mu, u)[1], LogConcaveLaw)
    return one and mu.tilt_range(u)[0] < 0


def _tilted_coordinate(mu: ProductMeasure, u: Tensor) -> tuple[int, ScalarLaw]:
    index = int(torch.nonzero(u)[0])
    return index, next(scalar for scalar, indices in mu.groups if index in indices)


@score_nodes.register
def _(mu: ProductMeasure, u: Tensor, limit: Array | None, cgf: float, reach: float) -> Sequence[Nodes]:
    """One tilted coordinate by its density; the others keep their own law given it."""
    index, law = _tilted_coordinate(mu, u)
    if not isinstance(law, LogConcaveLaw):
        raise TypeError(f"{mu!r} has no nodes along a tilt")
    log_mass, x = _coordinate_nodes(law, float(u[index]), cgf, reach)
    k1, k2, k3, k4 = (part.numpy().copy() for part in mu._cumulants(torch.zeros_like(u)))
    mean = np.tile(k1, (len(x), 1))
    mean[:, index] = x
    if limit is not None:
        mean -= limit
    k2[index] = k3[index] = k4[index] = 0.0
    return [(log_mass, float(u[index]) * x - cgf, Independent(mean, *(np.tile(k, (len(x), 1)) for k in (k2, k3, k4))))]


def _coordinate_nodes(law: LogConcaveLaw, tilt: float, cgf: float, reach: float) -> tuple[Array, Array]:
    """Log-probabilities and tokens of a rule for the law itself that serves its tilts by 0, u and 2u, and kernels e^{as - e^s}.

    Gauss rules on panels over which the score changes by ``PANEL`` at most, and double exponential ones beside kinks.
    """
    tilts = torch.tensor([0.0, tilt, 2 * tilt], dtype=torch.float64)
    modes = law.mode(tilts)
    reaches, origin = law._reaches(tilts, modes), modes[0]

    def token(y: Array) -> Array:
        return np.asarray(law.token(origin) + law.rise(origin, torch.from_numpy(y) - origin))

    ends = (modes[:, None] + reaches[:, [0, -1]]).numpy()
    y = np.linspace(ends.min(), ends.max(), 4001)
    scores = tilt * token(y) - cgf
    y, scores = (y, scores) if tilt > 0 else (y[::-1], scores[::-1])
    # as for a mixture: the law tilted once as a whole, and beyond it what the kernels see
    top = max(float((tilt * token(ends[1]) - cgf).max()), LARGEST_EXPONENT + reach)
    levels = np.arange(max(scores[0], LOWEST), min(scores[-1], top) + PANEL, PANEL)
    if len(levels) > MOST_LEVELS:
        given, remedy = (
            f"scores {levels[-1] - levels[0]:.3g} apart",
            "Scale the query, use certificate(...), or sample_prompts(...).",
        )
        raise InvalidArgumentError("z", given, f"scores at most {PANEL * MOST_LEVELS:g} apart", remedy)
    last = float(np.interp(min(scores[-1], top), scores, y))
    low, high = (ends.min(), last) if tilt > 0 else (last, ends.max())
    kinks = (origin + law.kinks(origin)).numpy()
    bends = (modes[:, None] + law.kinks(modes)).numpy().ravel()
    local = (modes[:, None] + reaches[:, 3:4] * torch.arange(-10.0, 11.0) / 2).numpy().ravel()
    far = (modes[:, None] + reaches[:, 3:4] * torch.arange(-40.0, 41.0)).numpy().ravel()
    breaks = np.unique(np.clip(np.concatenate([[low, high], kinks, bends, local, far, np.interp(levels, scores, y)]), low, high))
    if len(kinks):  # breaks that all but touch a kink, as the mode of a small tilt may, and panels with a kink just outside
        near = np.abs(breaks[:, None] - kinks).min(1)
        breaks = breaks[(near == 0) | (near > TOUCHING * float(reaches[:, 3].min())) | np.isin(breaks, [low, high])]
    widths = np.diff(breaks)
    gaps = np.maximum(breaks[:-1, None] - kinks, kinks - breaks[1:, None])
    beside = (gaps < widths[:, None] / 2).any(1)
    rules = [(beside, *(part.numpy() for part in panel_rule(1))), (~beside, (1 + GAUSS[0]) / 2, GAUSS[1] / 2)]
    places = np.concatenate([(breaks[:-1][use, None] + widths[use, None] * nodes).ravel() for use, nodes, _ in rules])
    masses = np.concatenate([(widths[use, None] * weights).ravel() for use, _, weights in rules])
    fall = law.fall(tilts[0], origin, torch.from_numpy(places) - origin).numpy()
    log_mass = np.log(masses) - fall + float(law.height(tilts[0], origin))
    kept = log_mass + np.maximum(2 * (tilt * token(places) - cgf), 0.0) > -DEEPEST
    return log_mass[kept], token(places[kept])
