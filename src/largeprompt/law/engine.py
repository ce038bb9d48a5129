"""The exact law of attention over L tokens of any law but a Gaussian: which of the ways to its blocks, and for a batch of queries.

- Atoms, mixtures of Gaussians, the sphere: sums over real nodes of the score (:mod:`largeprompt.law.nodes`).
- Any other law, by its cumulant generating function at complex tilts (:mod:`largeprompt.law.contour`).
- Scalar laws without exponential moments, by their densities (:mod:`largeprompt.law.heavy_tails`): these have no limit.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from largeprompt.errors import InvalidArgumentError, NoMomentError, TiltDomainError
from largeprompt.law.blocks import MOST_ENTRIES, STEP, OutputMoments
from largeprompt.law.contour import contour_moments
from largeprompt.law.density import has_density
from largeprompt.law.heavy_tails import scalar_prompt
from largeprompt.law.nodes import node_moments, score_nodes
from largeprompt.law.tokens import Array
from largeprompt.measures import Discrete, Measure, Rademacher
from largeprompt.measures.scalar.product import ProductMeasure, ScalarLaw
from largeprompt.measures.wrapped import AffineImage

MOST_SIGNS = 10  # coordinates of signs that are listed one by one
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
        raise InvalidArgumentError("mu", repr(mu), "one law, without batch dimensions", "Loop over the laws.")
    batch = torch.broadcast_shapes(u.shape[:-1], values.shape[:-2])
    tilts = u.detach().expand(*batch, -1).reshape(-1, mu.dim)
    read = values.detach().expand(*batch, -1, -1).reshape(-1, *values.shape[-2:])
    base, matrix, offset = _unwrapped(mu.to(torch.float64, "cpu"))
    one = torch.eye(mu.dim, dtype=torch.float64) if matrix is None else matrix
    cells = [
        _Cell(base, tilt @ one, one.numpy(), offset.numpy(), V.numpy(), list(lengths))
        for tilt, V in zip(tilts.to("cpu", torch.float64), read.to("cpu", torch.float64), strict=True)
    ]

    out, rows = values.shape[-2], len(lengths)

    def stacked(part: Callable[[_Cell], Array], *shape: int) -> Tensor:
        found = np.stack([part(cell) for cell in cells], 1) if cells else np.zeros(0)
        return torch.from_numpy(found.reshape(rows, *batch, *shape)).to(u)

    def errors() -> tuple[Tensor, Tensor, Tensor]:
        bias = stacked(lambda cell: cell.bias, out)
        return bias, stacked(lambda cell: cell.error(cell.read)), stacked(lambda cell: cell.error(cell.matrix))

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

    def __post_init__(self) -> None:
        self.read = self.values @ self.matrix
        self.has_limit = _has_limit(self.law, self.tilt)
        self.moments = (
            _moments(self.law, self.tilt, self.lengths) if self.has_limit else _by_density(self.law, self.tilt, self.lengths)
        )

    @property
    def centre(self) -> Array:
        return self.law.tilted_mean(self.tilt).numpy() if self.has_limit else np.zeros(self.law.dim)

    @property
    def mean(self) -> Array:
        return (self.moments.bias + self.centre) @ self.read.T + self.values @ self.offset

    @property
    def bias(self) -> Array:
        self._require_limit()
        return self.moments.bias @ self.read.T

    def error(self, read: Array) -> Array:
        """Mean square of what a matrix reads of the error before it."""
        self._require_limit()
        return self.moments.error(read.T @ read)

    @property
    def covariance(self) -> Array:
        second, bias = self.moments.second(), self.moments.bias @ self.read.T
        if not np.isfinite(second).all():
            raise NoMomentError("covariance", repr(self.law), "tokens with a variance", "It is infinite at every length.")
        return self.read @ second @ self.read.T - bias[:, :, None] * bias[:, None, :]

    @property
    def jacobian(self) -> Array:
        self._require_limit()
        if self.law.dim**2 * 60 / STEP > MOST_ENTRIES:
            allowed = f"tokens of dimension at most {math.isqrt(int(MOST_ENTRIES * STEP / 60))}"
            raise InvalidArgumentError(
                "jacobian_u_mse", f"dimension {self.law.dim}", allowed, "Use jacobian_certificate(...) for a bound."
            )
        moments = _moments(self.law, self.tilt, self.lengths, cumulants=4)
        return moments.jacobian(self.read.T @ self.read, self.matrix.T @ self.matrix, self.law.tilted_covariance(self.tilt).numpy())

    def _require_limit(self) -> None:
        if not self.has_limit:
            self.law.cgf(self.tilt)  # raises, and says why


def _has_limit(law: Measure, u: Tensor) -> bool:
    try:
        return math.isfinite(float(law.cgf(u)))
    except TiltDomainError:
        return False


def _moments(law: Measure, u: Tensor, lengths: Sequence[float], cumulants: int = 2) -> OutputMoments:
    """Law of the output before V for each length, 1 and ∞ included."""
    finite = [length for length in lengths if 1 < length < math.inf]
    mean, spread = (law.mean - law.tilted_mean(u)).numpy(), law.covariance.numpy()
    short = [length for length in finite if length < SHORT] if _heavy_below(law, u) and cumulants == 2 else []
    long = [length for length in finite if length not in short]
    parts = [_by_density(law, u, short)] if short else []
    parts += [_finite_moments(law, u, long, cumulants)] if long else []
    order = [*short, *long]
    single = spread + np.outer(mean, mean)

    def rows(known: Callable[[OutputMoments], Array], first: Array) -> Array:
        """One row for each length: a single token is read itself, an infinite prompt without error."""
        found = dict(zip(order, itertools.chain(*(known(part) for part in parts)), strict=True))
        found |= {1.0: first, math.inf: np.zeros_like(first)}
        return np.stack([found[length] for length in lengths])

    return OutputMoments(
        rows(lambda m: m.bias, mean),
        rows(lambda m: m.collision, np.ones(())),
        lambda B: rows(lambda m: m.error(B), np.asarray((B * single).sum())),
        lambda: rows(lambda m: m.second(), single),
        lambda A, B, G: rows(lambda m: m.jacobian(A, B, G), np.asarray(np.trace(A @ G @ B @ G))),
    )


def _finite_moments(law: Measure, u: Tensor, lengths: Sequence[float], cumulants: int) -> OutputMoments:
    if isinstance(law, Rademacher) and law.dim <= MOST_SIGNS:
        signs = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=law.dim)), dtype=torch.float64)
        law = Discrete(signs, torch.full((len(signs),), 1 / len(signs), dtype=torch.float64))
    if score_nodes.dispatch(type(law)) is not score_nodes.dispatch(Measure):
        return node_moments(law, u, lengths)
    return contour_moments(law, u, lengths, cumulants)


def _heavy_below(law: Measure, u: Tensor) -> bool:
    """Whether low scores have no exponential moment, which short prompts feel, and a density is there to use instead."""
    if not isinstance(law, ProductMeasure) or int((u != 0).sum()) != 1 or float(u.abs().max()) < 1e-3:
        return False
    return law.tilt_range(u)[0] > -0.1 and has_density(_tilted_law(law, u)[1])


def _tilted_law(law: ProductMeasure, u: Tensor) -> tuple[int, ScalarLaw]:
    """The one coordinate that is tilted, and its law."""
    index = int(torch.nonzero(u)[0])
    return index, next(scalar for scalar, indices in law.groups if index in indices)


def _moment(value: Callable[[], Tensor], dim: int, missing: float) -> Array:
    """A moment of each coordinate, or what stands for one that does not exist."""
    try:
        return value().numpy()
    except NoMomentError:
        return np.full(dim, missing)


def _by_density(law: Measure, u: Tensor, lengths: Sequence[float]) -> OutputMoments:
    """A product law with one tilted coordinate, by its density; the other coordinates do not move the weights.

    With a limit T the numbers are those of T_L - T, without one those of T_L itself.
    """
    if not isinstance(law, ProductMeasure) or int((u != 0).sum()) != 1 or any(math.isinf(length) for length in lengths):
        law.cgf(u)  # raises, and says that there is no limit
    assert isinstance(law, ProductMeasure)
    index, scalar = _tilted_law(law, u)
    tilt = float(u[index])
    centre = law.tilted_mean(u).numpy() if _has_limit(law, u) else np.zeros(law.dim)
    long = [length for length in lengths if length > 1]
    means = [float(mean) for mean in scalar_prompt(scalar, tilt, long).mean] if long else []
    prompts = [scalar_prompt(scalar, tilt, one, center=np.nan_to_num(mean)) for one, mean in zip(long, means, strict=True)]
    known = iter([(mean, float(one.collision[0]), float(one.mse[0])) for mean, one in zip(means, prompts, strict=True)])
    own_mean, own_spread = (
        _moment(lambda: law.mean, law.dim, math.nan),
        _moment(lambda: law.covariance.diagonal(), law.dim, math.inf),
    )
    alone = (float(own_mean[index]), 1.0, float(own_spread[index]))
    mean, collision, spread = np.array([alone if length == 1 else next(known) for length in lengths]).T
    bias = np.tile(own_mean, (len(lengths), 1))
    bias[:, index] = mean
    bias -= centre
    variance = collision[:, None] * own_spread
    variance[:, index] = spread
    second = bias[:, :, None] * bias[:, None, :]
    second[:, range(law.dim), range(law.dim)] += variance  # which may be infinite

    def unknown(*_: Array) -> Array:
        raise AssertionError("the moments of the derivative in U are not asked of a density")

    return OutputMoments(bias, collision, lambda B: np.einsum("lij,ij->l", second, B), lambda: second, unknown)
