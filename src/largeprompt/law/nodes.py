"""Block expectations of laws that are sums over real nodes of the score: atoms, mixtures of Gaussians, the sphere.

A node j has probability p_j, score s_j and moments of the token given it, and G_a[f] = Σ_j p_j E_j[f] e^{a(τ+s_j) - e^{τ+s_j}}:
terms without cancellation, however far apart the scores. As E[f e^s] = 0 for the functions that G_1 serves, e^s (e^{-e^s} - 1) may
stand for e^{s - e^s} there, and keeps its digits where t is small.
"""

import functools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from torch import Tensor

from largeprompt.law.blocks import Blocks, OutputMoments, Piece, grid, output_moments
from largeprompt.law.quadrature import LARGEST_EXPONENT, NOTHING, REACH, log_survival
from largeprompt.law.quadrature import STEP as SCORE_STEP
from largeprompt.law.tokens import Array, Common, TokenMoments
from largeprompt.law.weights import NARROW_STEP
from largeprompt.measures import GaussianMixture, Measure, Sphere
from largeprompt.measures.finite.atoms import AtomicMeasure
from largeprompt.measures.numerics.bessel import cosine_reach

ELEMENTS = 2**21  # of the largest array while nodes are read: 16 MiB
LOPSIDED = 1e3  # beyond, one form of G_1 is surely the worse

Nodes = tuple[Array, Array, TokenMoments]  # log p_j, s_j and the moments of y at each


@functools.singledispatch
def score_nodes(mu: Measure, u: Tensor, limit: Array, cgf: float, reach: float) -> Sequence[Nodes]:
    """Groups of nodes of a law along the tilt u, with scores less Λ(u), for τ up to ``reach``; TypeError where it has none."""
    raise TypeError(f"{mu!r} has no nodes along a tilt")


@score_nodes.register
def _(mu: AtomicMeasure, u: Tensor, limit: Array, cgf: float, reach: float) -> Sequence[Nodes]:
    points = mu.points.numpy()
    with np.errstate(divide="ignore"):
        log_mass = np.full(len(points), -math.log(len(points))) if mu.weights is None else np.log(mu.weights.numpy())
    found = []
    for start in range(0, len(points), ELEMENTS // 512):
        part = slice(start, start + ELEMENTS // 512)
        found.append((log_mass[part], points[part] @ u.numpy() - cgf, Common(points[part] - limit)))
    return found


@score_nodes.register
def _(mu: GaussianMixture, u: Tensor, limit: Array, cgf: float, reach: float) -> Sequence[Nodes]:
    """Given its component a token is m + eξ + r, e = Γu/σ, with score u·m + σξ and r ~ N(0, Γ - ee^T) independent of it."""
    found, tilt = [], u.numpy()
    for weight, mean, covariance in zip(*(part.numpy() for part in (mu.weights, mu.means, mu.covariances)), strict=True):
        if weight == 0:
            continue
        shift = covariance @ tilt
        sigma = math.sqrt(max(float(tilt @ shift), 0.0))
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
        moments = Common((mean - limit) + xi[:, None] * e, covariance - np.outer(e, e))
        found.append((log_mass + math.log(weight), level + sigma * xi, moments))
    return found


@score_nodes.register
def _(mu: Sphere, u: Tensor, limit: Array, cgf: float, reach: float) -> Sequence[Nodes]:
    """x = r(c û + √(1-c²) ω): the cosine c has density ∝ (1-c²)^{(d-3)/2} and ω is uniform on the sphere across u."""
    dim, radius, tilt = mu.dim, float(mu.support_radius), u.numpy()
    size = float(np.linalg.norm(tilt))
    axis = tilt / size if size > 0 else np.eye(dim)[0]
    if dim == 1:
        y, cosine, log_mass = np.zeros(2), np.array([-1.0, 1.0]), np.full(2, -math.log(2.0))
    else:
        # c = tanh y: the density in y is ∝ cosh(y)^{1-d}, smooth, and an even grid of y is a trapezoid rule
        end = cosine_reach(dim - 1)
        count = max(400, math.ceil(20 * (radius * size + 1) * min(end, 4.0) / (1 + 0.1 * math.sqrt(dim))))
        y = np.linspace(-end, end, 2 * count + 1)
        cosine, log_mass = np.tanh(y), -(dim - 1) * np.logaddexp(y, -y)
        log_mass -= np.logaddexp.reduce(log_mass)
    across = np.eye(dim) - np.outer(axis, axis)
    rest = (radius / np.cosh(y)) ** 2
    m = max(dim - 1, 1)
    moments = Common(radius * cosine[:, None] * axis - limit, across, rest / m, rest**2 * (1 / (m * (m + 2)) - 1 / m**2))
    return [(log_mass, radius * size * cosine - cgf, moments)]


def _blocks(groups: Sequence[Nodes], tau: Array) -> Blocks:
    """Blocks on a grid of τ from groups of nodes."""
    lost, kept, early, late = np.zeros((4, len(tau)))

    def grids() -> Iterator[tuple[slice, Array, Array, TokenMoments]]:
        for log_mass, scores, moments in groups:
            rows = max(1, ELEMENTS // len(scores))
            for start in range(0, len(tau), rows):
                part = slice(start, min(start + rows, len(tau)))
                yield part, np.exp(log_mass), np.exp(np.minimum(tau[part, None] + scores, 300.0)), moments

    for rows, mass, grown, _ in grids():
        survival, died = np.exp(-grown), -np.expm1(-grown)
        lost[rows] += died @ mass
        kept[rows] += survival @ mass
        early[rows] += (np.minimum(grown, 1e100) * died) @ mass
        late[rows] += (grown * survival) @ mass
    small = (tau < 0) & (early < LOPSIDED * late)

    def pieces(order: int) -> Iterator[Piece]:
        for rows, mass, grown, moments in grids():
            bounded = np.minimum(grown, 1e4)  # nothing survives beyond
            kernel = mass * bounded**order * np.exp(-grown)
            if order == 1 and small[rows].any():
                kernel = np.where(small[rows, None], -mass * np.minimum(grown, 1e100) * -np.expm1(-grown), kernel)
            yield Piece(rows, kernel, moments)

    return Blocks(np.maximum(log_survival(lost, kept), NOTHING), pieces)


def node_moments(mu: Measure, u: Tensor, lengths: Sequence[float]) -> OutputMoments:
    """Law of attention over several lengths, 1 < L < ∞, of a law with nodes along the tilt."""
    limit, cgf = mu.tilted_mean(u).numpy(), float(mu.cgf(u))

    def build(below: float, above: float) -> Blocks:
        return _blocks(score_nodes(mu, u, limit, cgf, below), grid(below, above))

    groups = score_nodes(mu, u, limit, cgf, 0.0)
    log_mass, scores = (np.concatenate([group[i] for group in groups]) for i in (0, 1))
    used = np.isfinite(log_mass)
    pair = float(np.logaddexp.reduce(log_mass[used] + 2 * scores[used]))  # log E e^{2s}: large where rare scores are
    likely = log_mass > log_mass[used].max() - 42
    spread = float(-scores[likely].min())
    start = 21 + math.log(max(lengths)) + min(pair / 2, max(0.0, float(scores[used].max()))), 4.0 + max(0.0, spread)
    return output_moments(build, lengths, start, 14.0, mu.dim)
