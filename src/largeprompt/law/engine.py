"""The exact law of attention over L tokens of any law but a Gaussian: one source of blocks for each
law and tilt.

Which source serves a law is decided by :func:`source_of`, from what the law's type declares; the
docstring of :func:`~largeprompt.finite_prompt` has the decision as a table.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError, NoMomentError, TiltDomainError
from largeprompt.law.blocks import TAU_STEP, Blocks, OutputMoments
from largeprompt.law.contour import contour_blocks, group_by_scale
from largeprompt.law.density import density_blocks
from largeprompt.law.jacobian import jacobian_error
from largeprompt.law.nodes import node_blocks
from largeprompt.law.quadrature import SMALLER
from largeprompt.law.tokens import Array, is_identity
from largeprompt.measures import Measure
from largeprompt.measures.scalar.density import HasDensity
from largeprompt.measures.scalar.product import ProductMeasure
from largeprompt.measures.score_nodes import HasScoreNodes
from largeprompt.measures.wrapped import AffineImage

Source = Literal["nodes", "density", "contour"]

LEAST_ROOM = -0.1  # contours need the cgf at ζu for ζ from here to beyond 1
# standard deviation of scores for contours: time and memory grow like its square
WIDEST_SCORES = 50.0
# of the matrices that the derivative in U needs at 60/TAU_STEP values of τ: 512 MiB
MOST_ENTRIES = 2**26


@dataclasses.dataclass(frozen=True)
class Expectations:
    """Expectations of attention over each length: lengths lead, then the batch of tilts."""

    mean: Tensor  # (length, ..., o)
    collision: Tensor  # (length, ...)
    # bias, mean squared error, and that without V
    errors: Callable[[], tuple[Tensor, Tensor, Tensor]]
    covariance: Callable[[], Tensor]
    jacobian: Callable[[], Tensor]  # E‖V(C_L - Γ)‖²


def source_of(law: Measure, u: Tensor) -> Source:
    """Which source gives the blocks of a law along a tilt u, shape (d,)."""
    if isinstance(law, HasScoreNodes):
        return "nodes"
    low, high = law._tilt_range(u)
    tilted = torch.nonzero(u).flatten().tolist()
    alone = (
        isinstance(law, ProductMeasure)
        and len(tilted) == 1
        and isinstance(law.coordinate(tilted[0]), HasDensity)
    )
    deviation = math.sqrt(max(float(u @ law.covariance @ u), 0.0)) if high > 1 else math.inf
    if alone and (low > LEAST_ROOM or deviation > WIDEST_SCORES):
        return "density"
    if high <= 1:
        given = f"a tilt of {law!r}, along {len(tilted)} coordinates, outside the domain of its cgf"
        allowed = "tilts inside the domain, or along one coordinate that declares its density"
        raise TiltDomainError("z", given, allowed, "Draw prompts: sample_prompts(...).")
    if deviation > WIDEST_SCORES:
        given = f"scores of standard deviation {deviation:.3g}"
        raise InvalidArgumentError("z", given, f"at most {WIDEST_SCORES:g} for {law!r}", SMALLER)
    return "contour"


def solve(mu: Measure, u: Tensor, values: Tensor, lengths: Sequence[float]) -> Expectations:
    """The law for tilts u, (..., d), and values, (..., o, d), without gradients."""
    if mu.batch_shape:
        raise InvalidArgumentError(
            "mu", validation.text(mu), "one law, without batch dimensions", "Loop over the laws."
        )
    batch = np.broadcast_shapes(u.shape[:-1], values.shape[:-2])
    tilts = u.detach().expand(*batch, -1).reshape(-1, mu.dim).to("cpu", torch.float64)
    read = (
        values.detach()
        .expand(*batch, -1, -1)
        .reshape(-1, *values.shape[-2:])
        .to("cpu", torch.float64)
        .numpy()
    )
    law, matrix, offset = _unwrapped(mu.to(torch.float64, "cpu"))
    tokens = _Tokens.of(law, tilts @ matrix, list(lengths))
    cells = [
        _Cell(tokens, query, V @ matrix.numpy(), V @ offset.numpy()) for query, V in enumerate(read)
    ]

    def stacked(part: Callable[[_Cell], Array], *shape: int) -> Tensor:
        found = np.stack([part(cell) for cell in cells], 1) if cells else np.zeros(0)
        return torch.from_numpy(found.reshape(len(lengths), *batch, *shape)).to(u)

    outputs = values.shape[-2]
    collision = stacked(lambda cell: cell.rows(lambda moments: moments.collision, np.ones(())))
    if bool((collision > 1 + 1e-6).any()):
        given = f"{mu!r}, whose cgf gives E Σ w² = {float(collision.max()):.3g}"
        raise InvalidArgumentError(
            "mu", given, "the cgf of a probability law, for which it is at most 1"
        )
    return Expectations(
        stacked(lambda cell: cell.mean, outputs),
        collision,
        lambda: (
            stacked(lambda cell: cell.bias, outputs),
            stacked(lambda cell: cell.error(cell.read)),
            stacked(lambda cell: cell.error(matrix.numpy())),
        ),
        lambda: stacked(lambda cell: cell.covariance, outputs, outputs),
        lambda: stacked(lambda cell: cell.jacobian(matrix.numpy())),
    )


def _unwrapped(mu: Measure) -> tuple[Measure, Tensor, Tensor]:
    """Law, matrix and offset of an affine image; other tokens are centered for their digits."""
    if isinstance(mu, AffineImage):
        return mu.base, mu.matrix, mu.offset  # images of images are made one by map
    eye, center = torch.eye(mu.dim, dtype=torch.float64), torch.zeros(mu.dim, dtype=torch.float64)
    if isinstance(mu, HasScoreNodes) and bool(mu.mean.any()):
        center, mu = mu.mean, mu._map(eye, -mu.mean)
    return mu, eye, center


@dataclasses.dataclass(frozen=True)
class _Tokens:
    """A law and its tilts (query, d), with the limit T of each; zero where there is none."""

    law: Measure
    tilts: Tensor
    lengths: list[float]
    outside: Tensor  # whether there is no limit, (query,)
    limits: Array  # (query, d)
    mean: Array  # of one token: NaN where it does not exist
    spread: Array  # covariance of one token: infinite where it does not exist

    @classmethod
    def of(cls, law: Measure, tilts: Tensor, lengths: list[float]) -> "_Tokens":
        outside, limits = ~law._in_domain(tilts), torch.zeros_like(tilts)
        tokens = cls(law, tilts, lengths, outside, limits.numpy(), *_own_moments(law))
        if math.inf in lengths:
            tokens.require_limit(outside.any())
        if not bool(outside.all()):
            limits[~outside] = law._tilted_mean(tilts[~outside])
        return tokens

    def require_limit(self, missing: Tensor) -> None:
        """Refuse a question about the limit where there is none."""
        if bool(missing):
            given = f"a tilt of {self.law!r} outside the domain of its cgf"
            remedy = "There is no limit; mean, covariance and effective_tokens of prompts exist."
            raise TiltDomainError("z", given, "tilts inside the domain", remedy)

    def single(self, query: int) -> tuple[Array, Array]:
        """Bias and E yy^T of one token, y = x - T."""
        bias = self.mean - self.limits[query]
        return bias, self.spread + np.outer(bias, bias)

    def finite(self, cumulants: int, queries: Sequence[int]) -> dict[int, OutputMoments]:
        """The law at the lengths 1 < L < ∞ for some of the queries."""
        lengths, contours = [length for length in self.lengths if 1 < length < math.inf], []
        found: dict[int, Blocks] = {}
        for query in queries if lengths else ():
            u, limit = self.tilts[query], self.limits[query]
            match source_of(self.law, u):
                case "nodes":
                    found[query] = node_blocks(self.law, u, limit, lengths)
                case "density":
                    assert isinstance(self.law, ProductMeasure)
                    found[query] = density_blocks(self.law, u, limit, lengths, cumulants)
                case "contour":
                    contours.append(query)
        rest = torch.tensor(contours, dtype=torch.int64)
        for group in group_by_scale(self.law, self.tilts[rest]):
            found |= zip(
                rest[group].tolist(),
                contour_blocks(self.law, self.tilts[rest[group]], lengths, cumulants),
                strict=True,
            )
        square = np.square(self.limits).sum(-1).tolist()
        return {
            i: OutputMoments(blocks, lengths, float(np.trace(self.single(i)[1])), square[i])
            for i, blocks in found.items()
        }

    @functools.cached_property
    def moments(self) -> dict[int, OutputMoments]:
        """The law of each query."""
        return self.finite(2, range(len(self.tilts)))


def _own_moments(law: Measure) -> tuple[Array, Array]:
    """Mean and covariance of one token, NaN and infinite where tails are too heavy for them."""
    if not isinstance(law, ProductMeasure):
        return law.mean.numpy(), law.covariance.numpy()
    mean, variance, zero = np.zeros(law.dim), np.zeros(law.dim), torch.zeros(1, dtype=torch.float64)
    for scalar, indices in law.groups:
        tail = scalar.density().moments if isinstance(scalar, HasDensity) else math.inf
        mean[list(indices)] = float(scalar.derivatives(zero, 1)[1]) if tail > 1 else math.nan
        variance[list(indices)] = float(scalar.derivatives(zero, 2)[2]) if tail > 2 else math.inf
    return mean, np.diag(variance)


@dataclasses.dataclass
class _Cell:
    """What one head makes of one tilt: outputs ``read`` y + ``offset``."""

    tokens: _Tokens
    query: int
    read: Array
    offset: Array

    def rows(
        self,
        known: Callable[[OutputMoments], Array],
        single: Array,
        moments: OutputMoments | None = None,
    ) -> Array:
        """One row for each length: a single token is itself, an infinite prompt has no error."""
        moments = moments or self.tokens.moments.get(self.query)
        rest, zero = iter(known(moments) if moments else ()), np.zeros_like(single)
        return np.stack(
            [
                single if n == 1 else zero if math.isinf(n) else next(rest)
                for n in self.tokens.lengths
            ]
        )

    @functools.cached_property
    def _bias(self) -> Array:
        """E of T_L - T before V; NaN in coordinates without a mean."""
        single = self.tokens.single(self.query)[0]
        return self.rows(lambda moments: np.where(np.isnan(single), math.nan, moments.bias), single)

    def _output(self, vectors: Array) -> Array:
        """What is read of vectors; coordinates that are not read may be NaN."""
        used = self.read.any(0)
        return vectors[:, used] @ self.read[:, used].T

    @property
    def mean(self) -> Array:
        return self._output(self._bias + self.tokens.limits[self.query]) + self.offset

    @property
    def bias(self) -> Array:
        self.tokens.require_limit(self.tokens.outside[self.query])
        return self._output(self._bias)

    def _infinite(self, read: Array) -> bool:
        """Whether a coordinate that is read has no variance."""
        return bool(np.isinf(self.tokens.spread.diagonal()[read.any(0)]).any())

    def error(self, read: Array) -> Array:
        """Mean square of what a matrix reads of the error."""
        self.tokens.require_limit(self.tokens.outside[self.query])
        if self._infinite(read):
            return np.full(len(self.tokens.lengths), math.inf)
        B = read if is_identity(read) else read.T @ read
        # of coordinates that are not read
        single = np.nan_to_num(self.tokens.single(self.query)[1], posinf=0.0)
        return self.rows(lambda moments: moments.error(B), np.asarray((B * single).sum()))

    @property
    def covariance(self) -> Array:
        if self._infinite(self.read):
            law = validation.text(self.tokens.law)
            raise NoMomentError(
                "covariance", law, "tokens with a variance", "It is infinite at every length."
            )
        used = self.read.any(0)
        read, bias = self.read[:, used], self._bias[:, used]
        found = self.rows(
            lambda moments: moments.second()[:, used][:, :, used], self.tokens.spread[used][:, used]
        )
        several = np.array([length > 1 for length in self.tokens.lengths])[:, None, None]
        found = read @ (found - several * bias[:, :, None] * bias[:, None, :]) @ read.T
        outputs = np.arange(len(read))
        found[:, outputs, outputs] = np.maximum(found[:, outputs, outputs], 0.0)
        return found

    def jacobian(self, matrix: Array) -> Array:
        """E‖V(C_L - Γ)‖² of tokens that are the image of these under a matrix."""
        tokens, dim = self.tokens, self.tokens.law.dim
        tokens.require_limit(tokens.outside[self.query])
        most = math.isqrt(int(MOST_ENTRIES * TAU_STEP / 60))
        if dim > most:
            remedy = "Use jacobian_certificate(...) for a bound."
            raise InvalidArgumentError(
                "jacobian_u_mse", f"dimension {dim}", f"tokens of dimension at most {most}", remedy
            )
        A, B = self.read.T @ self.read, matrix.T @ matrix
        limit = tokens.law._tilted_covariance(tokens.tilts[self.query]).numpy()
        moments = tokens.finite(4, [self.query]).get(self.query)
        return self.rows(
            lambda found: jacobian_error(found, A, B, limit),
            np.asarray(np.trace(A @ limit @ B @ limit)),
            moments,
        )
