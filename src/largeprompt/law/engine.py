"""The exact law of attention over L tokens of any law but a Gaussian: which of the ways to its blocks, and for a batch of queries.

- Atoms, mixtures of Gaussians, the sphere: sums over real nodes of the score (:mod:`largeprompt.law.nodes`).
- Any other law, by its cumulant generating function at complex tilts (:mod:`largeprompt.law.contour`).
- Coordinates without exponential moments, by the density of the score (:mod:`largeprompt.law.by_density`): these have no limit.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError, NoMomentError
from largeprompt.law.blocks import FLAT, LEAST_DIGITS, MOST_ENTRIES, STEP, OutputMoments
from largeprompt.law.by_density import (
    UNIT,
    by_density,
    digits_left,
    has_limit,
    has_scalar_density,
    has_score_density,
    heavy_below,
    tilted_law,
)
from largeprompt.law.contour import alike, contour_moments
from largeprompt.law.density import scalar_density
from largeprompt.law.few_tokens import variance_error
from largeprompt.law.listed import can_list, listed_jacobian
from largeprompt.law.nodes import node_moments
from largeprompt.law.rare import own_covariance, plain_moments
from largeprompt.law.score_nodes import has_nodes
from largeprompt.law.tokens import Array, is_identity
from largeprompt.measures import Discrete, Measure, Rademacher
from largeprompt.measures.scalar.product import ProductMeasure
from largeprompt.measures.wrapped import AffineImage
from largeprompt.validation import Lengths

MOST_SIGNS = 10  # coordinates of signs that are listed one by one
NARROW = 0.01  # scores of so small a deviation have cumulants that fall like its powers
MENDED = 1e-12  # what rounding of a difference may be of the answer before another way is taken
SHORT = 200  # tokens: prompts that feel the lowest scores


@dataclasses.dataclass(frozen=True)
class Solved:
    """Expectations of attention over each length, for a batch of tilts: lengths lead, then the batch."""

    mean: Tensor  # (length, ..., o)
    collision: Tensor  # (length, ...)
    errors: Callable[[], tuple[Tensor, Tensor, Tensor]]  # bias, mean squared error, the same without V
    covariance: Callable[[], Tensor]
    jacobian: Callable[[], Tensor]  # E‖V(C_L - Γ)‖²


def solve(mu: Measure, u: Tensor, values: Tensor, lengths: Sequence[float]) -> Solved:
    """The law for each tilt of u, shape (..., d), with values (..., o, d); numbers without a gradient."""
    if mu.batch_shape:
        raise InvalidArgumentError("mu", validation.text(mu), "one law, without batch dimensions", "Loop over the laws.")
    batch = np.broadcast_shapes(u.shape[:-1], values.shape[:-2])
    tilts = u.detach().expand(*batch, -1).reshape(-1, mu.dim)
    read = values.detach().expand(*batch, -1, -1).reshape(-1, *values.shape[-2:])
    base, matrix, offset = _unwrapped(mu.to(torch.float64, "cpu"))
    one = torch.eye(mu.dim, dtype=torch.float64) if matrix is None else matrix
    own = tilts.to("cpu", torch.float64) @ one
    limited, centres = has_limit(base, own), torch.zeros_like(own)
    known: Iterator[OutputMoments] = iter(())
    if bool(limited.any()):
        centres[limited] = base.tilted_mean(own[limited])
        known = iter(_moments(base, own[limited], lengths))
    cells = [
        _Cell(
            *(base, tilt, one.numpy(), offset.numpy(), V.numpy(), list(lengths), has, centre.numpy()),
            next(known) if has else by_density(base, tilt, lengths),
        )
        for tilt, V, has, centre in zip(own, read.to("cpu", torch.float64), limited.tolist(), centres, strict=True)
    ]

    out, rows = values.shape[-2], len(lengths)

    def stacked(part: Callable[[_Cell], Array], *shape: int) -> Tensor:
        found = np.stack([part(cell) for cell in cells], 1) if cells else np.zeros(0)
        return torch.from_numpy(found.reshape(rows, *batch, *shape)).to(u)

    def errors() -> tuple[Tensor, Tensor, Tensor]:
        bias = stacked(lambda cell: cell.bias, out)
        return bias, stacked(lambda cell: cell.mse), stacked(lambda cell: cell.error(cell.matrix))

    return Solved(
        stacked(lambda cell: cell.mean, out),
        stacked(lambda cell: cell.moments.collision),
        errors,
        lambda: stacked(lambda cell: cell.covariance, out, out),
        lambda: stacked(lambda cell: cell.jacobian),
    )


def _unwrapped(mu: Measure) -> tuple[Measure, Tensor | None, Tensor]:
    """Law, matrix and offset whose affine image a measure is; no matrix where it is the law itself."""
    if isinstance(mu, AffineImage):
        return mu.base, mu.matrix, mu.offset  # images of images are made one by map
    return mu, None, torch.zeros(mu.dim, dtype=torch.float64)


@dataclasses.dataclass
class _Cell:
    """One tilt of tokens x = matrix·y + offset, y from ``law``, read by V = ``values``."""

    law: Measure
    tilt: Tensor
    matrix: Array
    offset: Array
    values: Array
    lengths: list[float]
    has_limit: bool
    centre: Array  # the limit of y, or zero where there is none
    moments: OutputMoments

    def __post_init__(self) -> None:
        self.read = self.values if _is_plain(self.matrix) else self.values @ self.matrix

    @functools.cached_property
    def _plain(self) -> tuple[Array, Array] | None:
        """Mean and covariance of tokens of ``law`` by sums of one sign, where they are known."""
        law = _listed_signs(self.law)
        finite = [length for length in self.lengths if 1 < length < math.inf]
        return plain_moments(law, self.tilt, finite) if finite and has_nodes(law, self.tilt) else None

    def _mended(self, name: str, found: Array, lost: Array, single: Callable[[], Array], which: int) -> Array:
        """Rows of which too little is left, by :attr:`_plain`; ``lost`` is what rounding leaves of each row, (length,)."""
        finite = [1 < length < math.inf for length in self.lengths]
        for row, length in enumerate(self.lengths):
            if length == 1:
                found[row] = single()
        bad = np.flatnonzero(finite & ~(lost <= MENDED))
        if len(bad) and self._plain is not None:
            found[bad] = self._plain[which][np.cumsum(finite)[bad] - 1]
        elif len(bad) and not lost[bad].max() <= LEAST_DIGITS:
            given = f"a prompt that seldom has the tokens of its limit: rounding leaves {lost[bad].max():.1g} of its {name}"
            remedy = "Use bias and mse, or longer prompts."
            raise InvalidArgumentError("length", given, f"a {name} exact to eight digits", remedy)
        return found

    @property
    def mean(self) -> Array:
        means, centre = self.moments.bias + self.centre, self.centre
        if self.has_limit:
            lost = (UNIT * np.abs(centre) / np.where(centre == 0, 1.0, np.abs(means) + 1e-300)).max(1)
            means = self._mended("mean", means, lost, lambda: self.law.mean.numpy(), 0)
        return means @ self.read.T + self.values @ self.offset

    @property
    def bias(self) -> Array:
        self._require_readable()
        return self.moments.bias @ self.read.T

    @functools.cached_property
    def mse(self) -> Array:
        """Mean square of the error that is read."""
        return self.error(self.read)

    def error(self, read: Array) -> Array:
        """Mean square of what a matrix reads of the error before it."""
        self._require_limit()
        return self.moments.error(read if _is_plain(read) else read.T @ read)

    def _require_readable(self) -> None:
        """Refuse a part of the output whose error is so small that rounding of the rest, or the rarest of prompts, reach it."""
        self._require_limit()
        if _is_plain(self.read):
            return
        norm, spread, mean = np.linalg.norm(self.read, 2) ** 2, self.law.covariance.numpy(), self.law.mean.numpy()
        if np.trace(self.read @ spread @ self.read.T) <= FLAT * norm * (np.trace(spread) + mean @ mean):  # nothing varies there
            return
        least = norm * self.moments.least_part
        small = np.flatnonzero((self.mse < least) & (self.mse != 0))
        if len(small):
            row = small[0]
            whole = norm * float(self.moments.error(np.eye(len(spread)))[row])
            share = f"{self.mse[row] / whole:.1g} of the rest's at L = {self.lengths[row]:g}"
            given = f"a part of the output whose squared error is {share}"
            allowed = f"parts above {least[row] / whole:.1g}, exact to eight digits"
            remedy = "Take the law of its coordinates alone, where others do not matter to them, or certificate(...) for a bound."
            raise InvalidArgumentError("V", given, allowed, remedy)

    @property
    def covariance(self) -> Array:
        second, bias = self.moments.second(), self.moments.bias
        if not np.isfinite(second).all():
            raise NoMomentError(
                "covariance", validation.text(self.law), "tokens with a variance", "It is infinite at every length."
            )
        found = second - bias[:, :, None] * bias[:, None, :]
        if self.has_limit:
            self._require_readable()
            variances = np.diagonal(found, axis1=1, axis2=2)
            lost = (UNIT * bias**2 / np.where(bias == 0, 1.0, np.abs(variances) + 1e-300)).max(1)
            found = self._mended("covariance", found, lost, lambda: own_covariance(self.law), 1)
        return self.read @ found @ self.read.T

    @property
    def jacobian(self) -> Array:
        self._require_limit()
        if self.law.dim**2 * 60 / STEP > MOST_ENTRIES:
            allowed = f"tokens of dimension at most {math.isqrt(int(MOST_ENTRIES * STEP / 60))}"
            raise InvalidArgumentError(
                "jacobian_u_mse", f"dimension {self.law.dim}", allowed, "Use jacobian_certificate(...) for a bound."
            )
        A, B, limit = self.read.T @ self.read, self.matrix.T @ self.matrix, self.law.tilted_covariance(self.tilt).numpy()

        def by_blocks(lengths: Sequence[float]) -> Array:
            return _moments(self.law, self.tilt[None], lengths, cumulants=4)[0].jacobian(A, B, limit) if lengths else np.zeros(0)

        few = [length for length in self.lengths if 1 < length < SHORT] if has_scalar_density(self.law, self.tilt) else []
        rest = [length for length in self.lengths if length not in few]
        if few and not heavy_below(self.law, self.tilt):  # contours are as good, but for the shortest prompts
            try:
                return by_blocks(self.lengths)
            except InvalidArgumentError:
                pass
        found = dict(zip(rest, by_blocks(rest), strict=True))
        if few:
            assert isinstance(self.law, ProductMeasure)
            u = float(self.tilt[0])
            density = scalar_density(tilted_law(self.law, 0))
            error, lost = variance_error(density if u > 0 else density.mirrored(), abs(u), np.array(few), float(limit[0, 0]))
            if not lost.max() <= LEAST_DIGITS:
                return by_blocks(self.lengths)
            found |= dict(zip(few, float(A[0, 0] * B[0, 0]) * error, strict=True))
        return np.array([found[length] for length in self.lengths])

    def _require_limit(self) -> None:
        if not self.has_limit:
            self.law.cgf(self.tilt)  # raises, and says why


def _is_plain(matrix: Array) -> bool:
    """Whether a product with the matrix changes nothing."""
    return matrix.shape[0] == matrix.shape[1] and is_identity(matrix)


def _moments(law: Measure, tilts: Tensor, lengths: Sequence[float], cumulants: int = 2) -> list[OutputMoments]:
    """Law of the output before V for each tilt, shape (n, d), and each length, 1 and ∞ included."""
    finite = [length for length in lengths if 1 < length < math.inf]
    means, spread = -_moved_mean(law, tilts), law.covariance.numpy()
    heavy = np.array([cumulants == 2 and heavy_below(law, u) for u in tilts])
    parts: list[dict[tuple[float, ...], OutputMoments]] = [{} for _ in tilts]  # by the lengths that they know
    for some in np.unique(heavy):
        which = np.flatnonzero(heavy == some)
        short = tuple(length for length in finite if length < SHORT) if some else ()
        long = tuple(length for length in finite if length not in short)
        for index in which if short else ():
            parts[index][short] = by_density(law, tilts[index], short)
        if long:
            for index, found in zip(which, _finite_moments(law, tilts[which], long, cumulants), strict=True):
                parts[index][long] = found
    return [_all_lengths(law, lengths, mean, spread, part) for mean, part in zip(means, parts, strict=True)]


def _all_lengths(
    law: Measure, lengths: Sequence[float], mean: Array, spread: Array, parts: dict[tuple[float, ...], OutputMoments]
) -> OutputMoments:
    """One token and infinitely many beside the lengths that are known; the mean and the spread are those of a single token."""
    order, single = list(itertools.chain(*parts)), spread + np.outer(mean, mean)

    def rows(known: Callable[[OutputMoments], Array], first: Array) -> Array:
        """One row for each length: a single token is read itself, an infinite prompt without error."""
        found = dict(zip(order, itertools.chain(*(known(part) for part in parts.values())), strict=True))
        found |= {1.0: first, math.inf: np.zeros_like(first)}
        return np.stack([found[length] for length in lengths])

    return OutputMoments(
        rows(lambda m: m.bias, mean),
        rows(lambda m: m.collision, np.ones(())),
        lambda B: rows(lambda m: m.error(B), np.asarray((B * single).sum())),
        lambda: rows(lambda m: m.second(), single),
        lambda A, B, G: rows(lambda m: m.jacobian(A, B, G), np.asarray(np.trace(A @ G @ B @ G))),
        lambda: rows(lambda m: m.powers(), _own_powers(law, float(mean[0]))),
        rows(lambda m: m.least_part, np.zeros(())),
    )


def _moved_mean(law: Measure, tilts: Tensor) -> Array:
    """T - m = ∇Λ(u) - ∇Λ(0), shape (n, d), or for small tilts the integral of ∇²Λ(θu)u over θ, which does not cancel.

    The integral is taken where two rules agree more closely than the difference rounds: a rare large score may bend Λ within it.
    """
    limits = law.tilted_mean(tilts)
    moved = limits - law.mean
    for index in torch.nonzero(((tilts @ law.covariance) * tilts).sum(-1) <= NARROW**2).flatten():
        coarse, fine = (_integrated_spread(law, tilts[index], points) for points in (6, 10))
        rounding = UNIT * (limits[index].abs() + law.mean.abs())
        moved[index] = torch.where((fine - coarse).abs() < rounding, fine, moved[index])
    return moved.numpy()


def _integrated_spread(law: Measure, u: Tensor, points: int) -> Tensor:
    places, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(points))
    spreads = law.tilted_covariance((1 + places).unsqueeze(-1) / 2 * u)
    return torch.einsum("n,nij->ij", weights / 2, spreads) @ u


def _own_powers(law: Measure, offset: float) -> Array:
    """E (x - T)^n of one scalar token, n from 1 to 4, from its mean less T and its cumulants."""
    k2, k3, k4 = (float(k) for k in law.directional_cumulants(torch.ones(1, 1, dtype=torch.float64))[1:])
    third = k3 + 3 * k2 * offset + offset**3
    return np.array([offset, k2 + offset**2, third, k4 + 4 * k3 * offset + 3 * k2**2 + 6 * k2 * offset**2 + offset**4])


def error_moments(mu: Measure, u: Tensor, lengths: Lengths) -> Tensor:
    """E (T_L - T)^n, n = 1 to 4, for scalar tokens: shape (length, ..., 4) for tilts u of shape (..., 1).

    Formula (quad.4) of docs/mathematics/quadrature.md. Lengths lead; L from 1 to 10^15.

    Examples
    --------
    >>> from largeprompt.law import error_moments
    >>> error_moments(lp.Rademacher(1), torch.zeros(1, dtype=torch.float64), [2])  # the mean of two signs: -1, 0, 0 or 1
    tensor([[0.0000, 0.5000, 0.0000, 0.5000]], dtype=torch.float64)
    """
    if not isinstance(mu, Measure) or mu.batch_shape or mu.dim != 1:
        raise InvalidArgumentError("mu", validation.text(mu), "one law on the line")
    found, several = validation.lengths("lengths", lengths)
    if not several:
        raise InvalidArgumentError("lengths", validation.text(lengths), "a sequence of at least one length", "Write [10] for one.")
    u = mu._tilts(u)
    base, matrix, _ = _unwrapped(mu.to(torch.float64, "cpu"))
    scale = 1.0 if matrix is None else float(matrix)
    tilts = scale * u.detach().reshape(-1, 1).to("cpu", torch.float64)
    powers = np.stack([part.powers() for part in _moments(base, tilts, found, cumulants=4)], 1) * scale ** np.arange(1, 5)
    return torch.from_numpy(powers.reshape(len(found), *u.shape[:-1], 4)).to(u)


def _finite_moments(law: Measure, tilts: Tensor, lengths: Sequence[float], cumulants: int) -> list[OutputMoments]:
    """The same for 1 < L < ∞."""
    law = _listed_signs(law)
    by_nodes = torch.tensor([has_nodes(law, u) for u in tilts], dtype=torch.bool)
    found: dict[int, OutputMoments] = {}
    some, others = (torch.nonzero(which).flatten() for which in (by_nodes, ~by_nodes))
    for index, moments in zip(some.tolist(), node_moments(law, tilts[some], lengths) if len(some) else (), strict=True):
        jacobian = functools.partial(_atoms_jacobian, law, tilts[index], lengths)
        found[index] = moments if cumulants == 2 else dataclasses.replace(moments, jacobian=jacobian)
    for group in alike(law, tilts[others]):
        found |= zip(others[group].tolist(), _by_contours(law, tilts[others[group]], lengths, cumulants), strict=True)
    return [found[index] for index in range(len(tilts))]


def _by_contours(law: Measure, tilts: Tensor, lengths: Sequence[float], cumulants: int) -> list[OutputMoments]:
    """Tilts that are alike together; one by one where shared contours are refused, and then by a density if there is one."""
    try:
        return contour_moments(law, tilts, lengths, cumulants)
    except InvalidArgumentError:
        if len(tilts) > 1:
            return [found for one in tilts.split(1) for found in _by_contours(law, one, lengths, cumulants)]
        if cumulants > 2 or not has_score_density(law, tilts[0]):
            raise
        return [digits_left(by_density(law, tilts[0], lengths), law.tilted_mean(tilts[0]).numpy())]


def _listed_signs(law: Measure) -> Measure:
    """Few signs as atoms; every other law as it is."""
    if not isinstance(law, Rademacher) or law.dim > MOST_SIGNS:
        return law
    signs = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=law.dim)), dtype=torch.float64)
    return Discrete(signs, torch.full((len(signs),), 1 / len(signs), dtype=torch.float64))


def _atoms_jacobian(law: Measure, u: Tensor, lengths: Sequence[float], A: Array, B: Array, limit: Array) -> Array:
    """Prompt by prompt where there are few of them, and else by the blocks."""
    summed = [length for length in lengths if not can_list(law, u, length)]
    found = dict(zip(summed, node_moments(law, u[None], summed)[0].jacobian(A, B, limit) if summed else (), strict=True))
    return np.array([found[n] if n in found else listed_jacobian(law, u, n, A, B) for n in lengths])  # type: ignore[arg-type]
