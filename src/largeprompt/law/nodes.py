"""Block expectations of laws that are sums over real nodes of the score: atoms, mixtures of Gaussians, the sphere.

A node j has probability p_j, score s_j and moments of the token given it, and G_a[f] = Σ_j p_j E_j[f] e^{a(τ+s_j) - e^{τ+s_j}}:
terms without cancellation, however far apart the scores. As E[f e^s] = 0 for the functions that G_1 serves, the factor e^{-t e^s}
may be less e^{-t} there, and keeps its digits where t is small or the scores are near each other.
"""

import functools
import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.devices import computed_on_cpu
from largeprompt.errors import InvalidArgumentError
from largeprompt.law.blocks import STEP, Blocks, OutputMoments, Piece, grid, output_moments
from largeprompt.law.quadrature import (
    LARGEST_EXPONENT,
    NOTHING,
    REACH,
    Range,
    check_spread,
    drawn,
    log_survival,
    relative_ends,
    widen,
)
from largeprompt.law.quadrature import STEP as SCORE_STEP
from largeprompt.law.tokens import Array, Common, Independent, TokenMoments
from largeprompt.law.weights import NARROW_STEP
from largeprompt.measures import GaussianMixture, Measure, Sphere
from largeprompt.measures.finite.atoms import AtomicMeasure
from largeprompt.measures.numerics.bessel import cosine_reach
from largeprompt.measures.scalar.logconcave import LogConcaveLaw, panel_rule
from largeprompt.measures.scalar.product import ProductMeasure, ScalarLaw

ELEMENTS = 2**18  # of the largest array while nodes are read: what stays in the cache
LOPSIDED = 1e3  # beyond, one form of G_1 is surely the worse
LATEST = 3.4  # τ beyond which e^{-t} is nothing
NEGLIGIBLE = 42.0  # -log of what counts as nothing
DEEPEST = 100.0  # -log of the probability of a node, tilted or not, that is left out
PANEL, LOWEST, MOST_LEVELS = 2.0, -500.0, 10_000  # of the score, by which panels of a density are cut
TOUCHING = 1e-6  # distance from a kink, relative to the width of the law, at which a panel does not end
AT_ONCE = 512  # scores, for each τ: what stays in the cache
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


def _grown(tau: Tensor, scores: Tensor) -> Tensor:
    """t e^s, shape (..., τ, node)."""
    return torch.exp((tau.unsqueeze(-1) + scores.unsqueeze(-2)).clamp_max(300.0))


def _exponentials(tau: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """t e^s, e^{-t e^s}, and e^{-t e^s} - e^{-t}, small where s is."""
    grown, t = _grown(tau, scores), torch.exp(tau.clamp_max(300.0)).unsqueeze(-1)
    apart = torch.exp(-t) * torch.expm1((-t * torch.expm1(scores.unsqueeze(-2))).clamp_max(300.0))
    return grown, torch.exp(-grown), apart


def _sums(grown: Tensor, survival: Tensor, apart: Tensor, mass: Tensor) -> Tensor:
    """1 - φ, φ, and the sizes of both forms of G_1: shape (4, ..., τ)."""
    return torch.stack([-torch.expm1(-grown) @ mass, survival @ mass, (grown * apart.abs()) @ mass, (grown * survival) @ mass])


def _near(tau: Tensor, sums: Tensor) -> Tensor:
    """Where e^s (e^{-t e^s} - e^{-t}) is the better form for G_1; for small t that is, unless a rare score makes up Σ p e^s = 1."""
    return (tau < LATEST) & (sums[2] < torch.where(tau < 0, LOPSIDED, 1.0) * sums[3])


def _kernel(order: int, grown: Tensor, survival: Tensor, mass: Tensor) -> Tensor:
    """Σ over its last axis times E_j f is G_order[f]."""
    return mass * grown.clamp_max(1e4) ** order * survival  # nothing survives beyond


def _first_kernel(grown: Tensor, survival: Tensor, apart: Tensor, mass: Tensor, near: Tensor) -> Tensor:
    """The same for G_1, by the better of its forms."""
    return torch.where(near.unsqueeze(-1), mass * grown * apart, _kernel(1, grown, survival, mass))


def score_range(log_mass: Tensor, scores: Tensor, shortest: float, longest: float) -> Range:
    """τ from where L t² E e^{2s}, of E Σ w² >= 1/L, is nothing to where every token has e^{-t e^s} of nothing, or φ^{L-2} is.

    ``scores`` may have a batch dimension in front, of which the slowest to vanish counts.
    """
    used = torch.isfinite(log_mass)
    log_mass, scores = log_mass[used], scores[..., used].reshape(-1, int(used.sum()))
    pair, top = float(torch.logsumexp(log_mass + 2 * scores, -1).max()), max(0.0, float(scores.max()))
    below = NEGLIGIBLE / 2 + math.log(longest) + min(max(pair, 0.0) / 2, top)  # pair is large where rare tokens have large scores
    lowest = scores.amin(0)
    likely = log_mass > log_mass.max() - NEGLIGIBLE
    end = 4.0 + max(0.0, -float(lowest[likely].min()))
    for above in np.arange(end, 0.0, -1.0) if end < MOST_LEVELS else ():  # from the right: between far scores there is nothing too
        grown = torch.exp((above + lowest).clamp_max(300.0))
        kept = float(torch.logsumexp(log_mass - grown, 0))
        if float((log_mass + 2 * (above + lowest) - grown).max()) + (shortest - 2) * kept + 2 * math.log(longest) > -NEGLIGIBLE:
            break
        end = float(above)
    return below, end


def _blocks(groups: Sequence[Nodes], grid: Array) -> Blocks:
    """Blocks on a grid of τ from groups of nodes."""
    tau = torch.from_numpy(grid)

    def parts() -> Iterator[tuple[slice, Tensor, Tensor, TokenMoments]]:
        for log_mass, scores, moments in groups:
            rows = max(1, ELEMENTS // len(scores))
            for start in range(0, len(tau), rows):
                part = slice(start, min(start + rows, len(tau)))
                yield part, torch.from_numpy(scores), torch.from_numpy(np.exp(log_mass)), moments

    sums = torch.zeros(4, len(tau), dtype=torch.float64)
    for rows, scores, mass, _ in parts():
        sums[:, rows] += _sums(*_exponentials(tau[rows], scores), mass)
    near = _near(tau, sums)

    def pieces(order: int) -> Iterator[Piece]:
        for rows, scores, mass, moments in parts():
            if order == 1:
                kernel = _first_kernel(*_exponentials(tau[rows], scores), mass, near[rows])
            else:
                grown = _grown(tau[rows], scores)
                kernel = _kernel(order, grown, torch.exp(-grown), mass)
            yield Piece(rows, kernel.numpy(), moments)

    return Blocks(np.maximum(log_survival(*sums[:2].numpy()), NOTHING), pieces)


def node_moments(mu: Measure, tilts: Tensor, lengths: Sequence[float]) -> list[OutputMoments]:
    """Law of attention over several lengths, 1 < L < ∞, of a law with nodes along the tilts, shape (n, d)."""
    known = zip(tilts, mu.tilted_mean(tilts).numpy(), mu.cgf(tilts).tolist(), strict=True)
    return [_along(mu, u, limit, cgf, lengths) for u, limit, cgf in known]


def _along(mu: Measure, u: Tensor, limit: Array, cgf: float, lengths: Sequence[float]) -> OutputMoments:
    """The same for one tilt, of limit ∇Λ(u) and cgf Λ(u)."""

    def build(below: float, above: float) -> Blocks:
        return _blocks(score_nodes(mu, u, limit, cgf, below), grid(below, above))

    groups = score_nodes(mu, u, limit, cgf, 0.0)
    log_mass, scores = (torch.from_numpy(np.concatenate([group[i] for group in groups])) for i in (0, 1))
    return output_moments(build, lengths, score_range(log_mass, scores, min(lengths), max(lengths)), 14.0, mu.dim)


def _squares(scores: Tensor, probabilities: Tensor, features: Tensor, extra: Tensor, length: float) -> tuple[Tensor, ...]:
    """Gradients of the mean square of :func:`feature_moments` in scores, features and extra, without a graph.

    Σ_τ Lφ^{L-1} G_2[‖c‖² + e] + L(L-1)φ^{L-2} ‖G_1[c]‖², term by term: G_a' = aG_a - G_{a+1} and φ' = -G_1 in each score.
    """
    log_mass = torch.log(probabilities)
    scores = scores - torch.logsumexp(scores + log_mass, -1, keepdim=True)
    sizes = features.square().sum(-1) + extra

    def evaluate(ranges: Sequence[Range]) -> tuple[tuple[Tensor, ...], Array]:
        tau = torch.from_numpy(grid(*ranges[0]))
        grown = _grown(tau, scores)
        survival = torch.exp(-grown) * probabilities
        log_phi = log_survival((-torch.expm1(-grown)) @ probabilities, survival.sum(-1))
        first = (grown := grown.clamp_max(1e4)) * survival  # (..., τ, j), nothing survives beyond
        second = grown * first
        read, spread = first @ features, (second @ sizes.unsqueeze(-1)).squeeze(-1)
        once, twice, thrice = (drawn(length, k, log_phi, STEP) for k in (1, 2, 3))
        square = read.square().sum(-1)
        along = 2 * twice.unsqueeze(-1) * read
        sums = torch.cat([along, -(twice * spread + thrice * square).unsqueeze(-1), once.unsqueeze(-1)], -1)  # (..., τ, o + 2)
        by_first, by_second = first.mT @ sums, second.mT @ sums  # (..., j, o + 2)
        by_third = ((grown * second).mT @ once.unsqueeze(-1)).squeeze(-1)
        in_scores = by_first[..., -2] + sizes * (2 * by_second[..., -1] - by_third)
        in_scores = in_scores + (features * (by_first - by_second)[..., :-2]).sum(-1)
        in_extra = by_second[..., -1]
        in_features = 2 * features * in_extra.unsqueeze(-1) + by_first[..., :-2]
        return (in_scores, in_features, in_extra), relative_ends((once * spread + twice * square).movedim(-1, 0).numpy())

    return widen(evaluate, [score_range(log_mass, scores, length, length)])


class _MeanSquare(torch.autograd.Function):
    """The mean square of :func:`feature_moments`, with its gradient by formula, few queries at a time."""

    @staticmethod
    def forward(ctx, scores, probabilities, features, extra, length):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(scores, probabilities, features, extra)
        ctx.length = length
        parts = zip(*(part.split(max(1, AT_ONCE // scores.shape[-1])) for part in (scores, features, extra)), strict=True)
        return torch.cat([feature_moments(s, probabilities, c, length, extra=e)[1] for s, c, e in parts])

    @staticmethod
    def backward(ctx, out):  # type: ignore[no-untyped-def]
        scores, probabilities, features, extra = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient will be differentiated
            square = feature_moments(scores, probabilities, features, ctx.length, extra=extra)[1]
            moving = [part for part in (scores, features, extra) if part.requires_grad]
            slopes = iter(torch.autograd.grad(square, moving, out, create_graph=True))
            s, c, e = (next(slopes) if part.requires_grad else None for part in (scores, features, extra))
            return s, None, c, e, None
        parts = zip(*(part.split(max(1, AT_ONCE // scores.shape[-1])) for part in (scores, features, extra)), strict=True)
        found = [_squares(s, probabilities, c, e, ctx.length) for s, c, e in parts]
        s, c, e = (torch.cat(each) for each in zip(*found, strict=True))
        return out.unsqueeze(-1) * s, None, out[:, None, None] * c, out.unsqueeze(-1) * e, None


def mean_squares(scores: Tensor, probabilities: Tensor, features: Tensor, extra: Tensor, length: float) -> Tensor:
    """The second of :func:`feature_moments`, shape (n,), of many queries: scores (n, j), features (n, j, o), extra (n, j)."""
    return _MeanSquare.apply(scores, probabilities, features, extra, length)  # type: ignore[no-any-return, no-untyped-call]


@computed_on_cpu
def feature_moments(
    scores: Tensor, probabilities: Tensor, features: Tensor, length: float, *, extra: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """E Σ w_l c_l, shape (..., o), and E‖Σ w_l c_l‖² + E Σ w_l² e_l, shape (...), of any features c, e of L tokens; differentiable.

    Parameters
    ----------
    scores
        s_j of each atom, shape (..., j).
    probabilities
        p_j, shape (j,).
    features
        c_j, shape (..., j, o).
    length
        L, from 1 to 10^15; it need not be whole.
    extra
        e_j, shape (..., j); nothing when left out.

    Returns
    -------
    tuple of Tensor
        The mean and the mean square.

    Examples
    --------
    Two fair signs with tilt ½ are read as 1, as -1, or as tanh ½ when they differ:

    >>> from largeprompt.law import feature_moments
    >>> signs, half = torch.tensor([1.0, -1.0], dtype=torch.float64), torch.tensor([0.5, 0.5], dtype=torch.float64)
    >>> mean, square = feature_moments(signs / 2, half, signs.unsqueeze(-1), 2)
    >>> print(f"{float(mean):.12f} {math.tanh(0.5) / 2:.12f}")
    0.231058578630 0.231058578630
    """
    scores = validation.last_dimensions("scores", validation.tensor("scores", scores), ("atoms",))
    count = scores.shape[-1]
    probabilities = validation.tensor("probabilities", probabilities, like=scores)
    if probabilities.shape != (count,):
        given = f"shape {validation.shape_text(probabilities.shape)}"
        raise InvalidArgumentError("probabilities", given, f"shape ({count},), one for each score")
    validation.weights("probabilities", probabilities)
    features = validation.tensor("features", features, like=scores)
    validation.last_dimensions("features", features, (count, "o"), ": a row for each score")
    if extra is not None:
        extra = validation.last_dimensions("extra", validation.tensor("extra", extra, like=scores), (count,), ", as the scores")
    leading = [scores.shape[:-1], features.shape[:-2], *([] if extra is None else [extra.shape[:-1]])]
    validation.broadcast("scores, features and extra", *leading)
    length = validation.number("length", length)
    if not 1 <= length <= validation.LONGEST:
        raise InvalidArgumentError("length", f"{length:g}", "a number from 1 to 10^15")
    log_mass = torch.where(probabilities > 0, torch.log(probabilities.clamp_min(1e-300)), -math.inf)
    scores = scores - torch.logsumexp(scores + log_mass, -1, keepdim=True)
    limit = (probabilities * torch.exp(scores)).unsqueeze(-2) @ features  # (..., 1, o)
    centred = features - limit
    sizes = centred.square().sum(-1) if extra is None else centred.square().sum(-1) + extra

    def evaluate(ranges: Sequence[Range]) -> tuple[tuple[Tensor, Tensor], Array]:
        tau = torch.from_numpy(grid(*ranges[0]))
        exponentials = _exponentials(tau, scores)
        sums = _sums(*exponentials, probabilities)
        near = _near(tau, sums.detach())
        first = _first_kernel(*exponentials, probabilities, near) @ centred  # (..., τ, o)
        second = (_kernel(2, *exponentials[:2], probabilities) @ sizes.unsqueeze(-1)).squeeze(-1)
        once, twice = (drawn(length, k, log_survival(sums[0], sums[1]), STEP) for k in (1, 2))
        bias, square = once.unsqueeze(-1) * first, once * second + twice * first.square().sum(-1)
        ends = [relative_ends(part.detach().movedim(axis, 0).numpy()) for part, axis in ((bias, -2), (square, -1))]
        return (bias.sum(-2), square.sum(-1)), np.maximum(*ends)

    bias, square = widen(evaluate, [score_range(log_mass.detach(), scores.detach(), length, length)])
    limit = limit.squeeze(-2)
    return limit + bias, square + (limit * (2 * bias + limit)).sum(-1)
