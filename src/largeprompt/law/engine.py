"""The exact law of attention over L tokens of any law but a Gaussian: one source of blocks for each law and tilt.

Which source serves a law is decided by :func:`source_of`, from what the law's type declares; the docstring of
:func:`~largeprompt.finite_prompt` has the decision as a table.
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
from largeprompt.law.blocks import TAU_STEP, OutputMoments
from largeprompt.law.contour import contour_blocks, group_by_scale
from largeprompt.law.density import density_blocks
from largeprompt.law.jacobian import jacobian_error
from largeprompt.law.nodes import node_blocks
from largeprompt.law.tokens import Array, is_identity
from largeprompt.measures import Measure
from largeprompt.measures.scalar.density import HasDensity
from largeprompt.measures.scalar.product import ProductMeasure
from largeprompt.measures.score_nodes import HasScoreNodes
from largeprompt.measures.wrapped import AffineImage

Source = Literal["nodes", "density", "contour"]

LEAST_ROOM = -0.1  # contours need the cgf at ζu for ζ from here to beyond 1
WIDEST_SCORES = 50.0  # standard deviation of scores for contours: time and memory grow like its square
MOST_ENTRIES = 2**26  # of the matrices that the derivative in U needs at every τ: 512 MiB
ROWS = 60 / TAU_STEP  # of τ, about


@dataclasses.dataclass(frozen=True)
class Expectations:
    """Expectations of attention over each length, for a batch of tilts: lengths lead, then the batch."""

    mean: Tensor  # (length, ..., o)
    collision: Tensor  # (length, ...)
    errors: Callable[[], tuple[Tensor, Tensor, Tensor]]  # bias, mean squared error, the same without V
    covariance: Callable[[], Tensor]
    jacobian: Callable[[], Tensor]  # E‖V(C_L - Γ)‖²


def source_of(law: Measure, u: Tensor) -> Source:
    """Which source gives the blocks of a law along a tilt u, shape (d,)."""
    if isinstance(law, HasScoreNodes):
        return "nodes"
    low, high = law._tilt_range(u)
    tilted = torch.nonzero(u).flatten().tolist()
    alone = isinstance(law, ProductMeasure) and len(tilted) == 1 and isinstance(law.coordinate(tilted[0]), HasDensity)
    deviation = math.sqrt(max(float(u @ law.covariance @ u), 0.0)) if high > 1 else math.inf
    if alone and (low > LEAST_ROOM or deviation > WIDEST_SCORES):
        return "density"
    if high <= 1:
        given = f"a tilt of {law!r}, along {len(tilted)} of its coordinates, outside the domain of its cgf"
        allowed = "tilts inside the domain, or along one coordinate that declares its density (Student's t, log-normal, Laplace)"
        raise TiltDomainError("z", given, allowed, "Average over drawn prompts: sample_prompts(...).")
    if deviation <= WIDEST_SCORES:
        return "contour"
    remedy = "Scale the query or the tokens, use certificate(...) for a bound, or sample_prompts(...)."
    raise InvalidArgumentError(
        "z", f"scores of standard deviation {deviation:.3g}", f"at most {WIDEST_SCORES:g} for {law!r}", remedy
    )


def solve(mu: Measure, u: Tensor, values: Tensor, lengths: Sequence[float]) -> Expectations:
    """The law for each tilt of u, shape (..., d), with values (..., o, d); numbers without a gradient."""
    if mu.batch_shape:
        raise InvalidArgumentError("mu", validation.text(mu), "one law, without batch dimensions", "Loop over the laws.")
    batch = np.broadcast_shapes(u.shape[:-1], values.shape[:-2])
    tilts = u.detach().expand(*batch, -1).reshape(-1, mu.dim).to("cpu", torch.float64)
    read = values.detach().expand(*batch, -1, -1).reshape(-1, *values.shape[-2:]).to("cpu", torch.float64)
    law, matrix, offset = _unwrapped(mu.to(torch.float64, "cpu"))
    own = tilts @ matrix
    outside = ~law._in_domain(own)
    if bool(outside.any()) and math.inf in lengths:
        _raise_no_limit(law)
    tokens = _Tokens.of(law, own, outside)
    finite = [length for length in lengths if 1 < length < math.inf]
    moments = tokens.moments(finite) if finite else [None] * len(own)
    cells = [
        _Cell(tokens, i, matrix.numpy(), offset.numpy(), V.numpy(), list(lengths), found)
        for i, (V, found) in enumerate(zip(read, moments, strict=True))
    ]

    def stacked(part: Callable[[_Cell], Array], *shape: int) -> Tensor:
        found = np.stack([part(cell) for cell in cells], 1) if cells else np.zeros(0)
        return torch.from_numpy(found.reshape(len(lengths), *batch, *shape)).to(u)

    def errors() -> tuple[Tensor, Tensor, Tensor]:
        bias = stacked(lambda cell: cell.bias, values.shape[-2])
        return bias, stacked(lambda cell: cell.mse), stacked(lambda cell: cell.error(cell.matrix))

    return Expectations(
        stacked(lambda cell: cell.mean, values.shape[-2]),
        stacked(lambda cell: cell.collision),
        errors,
        lambda: stacked(lambda cell: cell.covariance, values.shape[-2], values.shape[-2]),
        lambda: stacked(lambda cell: cell.jacobian),
    )


def _unwrapped(mu: Measure) -> tuple[Measure, Tensor, Tensor]:
    """Law, matrix and offset whose affine image a measure is; tokens far from the origin lose digits, unless they are centered."""
    if isinstance(mu, AffineImage):
        return mu.base, mu.matrix, mu.offset  # images of images are made one by map
    eye, center = torch.eye(mu.dim, dtype=torch.float64), torch.zeros(mu.dim, dtype=torch.float64)
    if isinstance(mu, HasScoreNodes) and bool(mu.mean.any()):
        center, mu = mu.mean, mu.map(eye, -mu.mean)
    return mu, eye, center


def _raise_no_limit(law: Measure) -> None:
    given = f"a tilt of {law!r} outside the domain of its cgf"
    remedy = "There is no infinite-prompt limit to compare with; mean, covariance and effective_tokens of finite prompts exist."
    raise TiltDomainError("z", given, "tilts inside the domain", remedy)


@dataclasses.dataclass(frozen=True)
class _Tokens:
    """A law and its tilts (query, d), with the limit T of each; zero where there is none."""

    law: Measure
    tilts: Tensor
    outside: Tensor  # (query,)
    limits: Array  # (query, d)
    mean: Array  # of one token: NaN where it does not exist
    spread: Array  # covariance of one token: infinite where it does not exist

    @classmethod
    def of(cls, law: Measure, tilts: Tensor, outside: Tensor) -> "_Tokens":
        limits = torch.zeros_like(tilts)
        if not bool(outside.all()):
            limits[~outside] = law._tilted_mean(tilts[~outside])
        return cls(law, tilts, outside, limits.numpy(), *_own_moments(law))

    def single(self, query: int) -> tuple[Array, Array]:
        """Bias and E yy^T of one token, y = x - T."""
        bias = self.mean - self.limits[query]
        return bias, self.spread + np.outer(bias, bias)

    def moments(self, lengths: Sequence[float], cumulants: int = 2) -> list[OutputMoments]:
        """The law for 1 < L < ∞, for each query."""
        sources = [source_of(self.law, u) for u in self.tilts]
        found = {}
        for query, source in enumerate(sources):
            if source == "nodes":
                found[query] = node_blocks(self.law, self.tilts[query], self.limits[query], lengths)
            if source == "density":
                assert isinstance(self.law, ProductMeasure)
                found[query] = density_blocks(self.law, self.tilts[query], self.limits[query], lengths, cumulants)
        rest = torch.tensor([query for query, source in enumerate(sources) if source == "contour"], dtype=torch.int64)
        for group in group_by_scale(self.law, self.tilts[rest]):
            found |= zip(rest[group].tolist(), contour_blocks(self.law, self.tilts[rest[group]], lengths, cumulants), strict=True)
        spreads = (float(np.trace(self.single(query)[1])) for query in range(len(sources)))
        squares = np.square(self.limits).sum(-1).tolist()
        return [OutputMoments(found[i], lengths, spread, squares[i]) for i, spread in enumerate(spreads)]


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
    """One tilt of tokens x = matrix·y + offset, read by V = ``values``."""

    tokens: _Tokens
    query: int
    matrix: Array
    offset: Array
    values: Array
    lengths: list[float]
    moments: OutputMoments | None  # of the lengths that are neither 1 nor infinite

    @functools.cached_property
    def read(self) -> Array:
        return self.values if is_identity(self.matrix) else self.values @ self.matrix

    def _rows(self, known: Callable[[OutputMoments], Array], single: Array) -> Array:
        """One row for each length: a single token is read itself, an infinite prompt without error."""
        rest = iter(known(self.moments) if self.moments else ())
        return np.stack(
            [single if length == 1 else np.zeros_like(single) if math.isinf(length) else next(rest) for length in self.lengths]
        )

    @functools.cached_property
    def _bias(self) -> Array:
        """E of T_L - T before V; NaN in coordinates without a mean."""
        single = self.tokens.single(self.query)[0]
        return self._rows(lambda moments: np.where(np.isnan(single), math.nan, moments.bias), single)

    @property
    def mean(self) -> Array:
        return _read(self._bias + self.tokens.limits[self.query], self.read) + self.values @ self.offset

    @property
    def collision(self) -> Array:
        return self._rows(lambda moments: moments.collision, np.ones(()))

    @property
    def bias(self) -> Array:
        self._require_limit()
        return _read(self._bias, self.read)

    @property
    def mse(self) -> Array:
        """Mean square of the error that is read."""
        return self.error(self.read)

    def error(self, read: Array) -> Array:
        """Mean square of what a matrix reads of the error."""
        self._require_limit()
        if np.isinf(self.tokens.spread.diagonal()[read.any(0)]).any():
            return np.full(len(self.lengths), math.inf)
        B = read if is_identity(read) else read.T @ read
        single = np.nan_to_num(self.tokens.single(self.query)[1], posinf=0.0)  # of coordinates that are not read
        return self._rows(lambda moments: moments.error(B), np.asarray((B * single).sum()))

    @property
    def covariance(self) -> Array:
        law, bias = self.tokens.law, self._bias
        if np.isinf(self.tokens.spread.diagonal()[self.read.any(0)]).any():
            raise NoMomentError("covariance", validation.text(law), "tokens with a variance", "It is infinite at every length.")
        used = self.read.any(0)
        read, bias = self.read[:, used], bias[:, used]
        found = self._rows(lambda moments: moments.second()[:, used][:, :, used], self.tokens.spread[used][:, used])
        several = np.array([length > 1 for length in self.lengths])[:, None, None]
        found = found - several * bias[:, :, None] * bias[:, None, :]
        found = read @ found @ read.T
        rows = np.arange(len(read))
        found[:, rows, rows] = np.maximum(found[:, rows, rows], 0.0)
        return found

    @property
    def jacobian(self) -> Array:
        self._require_limit()
        tokens, law, query = self.tokens, self.tokens.law, self.query
        if law.dim**2 * ROWS > MOST_ENTRIES:
            allowed = f"tokens of dimension at most {math.isqrt(int(MOST_ENTRIES / ROWS))}"
            given = f"dimension {law.dim}"
            raise InvalidArgumentError("jacobian_u_mse", given, allowed, "Use jacobian_certificate(...) for a bound.")
        A, B = self.read.T @ self.read, self.matrix.T @ self.matrix
        limit = law._tilted_covariance(tokens.tilts[query]).numpy()
        one = slice(query, query + 1)
        alone = dataclasses.replace(tokens, tilts=tokens.tilts[one], outside=tokens.outside[one], limits=tokens.limits[one])

        def finite(moments: OutputMoments) -> Array:
            return jacobian_error(alone.moments(moments.lengths, cumulants=4)[0], A, B, limit)

        return self._rows(finite, np.asarray(np.trace(A @ limit @ B @ limit)))

    def _require_limit(self) -> None:
        if bool(self.tokens.outside[self.query]):
            _raise_no_limit(self.tokens.law)


def _read(vectors: Array, matrix: Array) -> Array:
    """Products of vectors with a matrix; coordinates that are not read may be NaN."""
    used = matrix.any(0)
    return vectors[:, used] @ matrix[:, used].T
