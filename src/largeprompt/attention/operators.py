"""Attention as an operator on probability measures (claim C1).

    T[μ](z) = V ∫ x e^{u·x} dμ(x) / ∫ e^{u·x} dμ(x) = V ∇Λ(u),   u = Uz,

formula (tilt.1) of docs/mathematics/tilting.md, for a finite prompt (μ = Empirical) and an infinite
one (μ a law) alike.
"""

import abc
import dataclasses
import math
from typing import Self

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention.error_bar import ErrorBar
from largeprompt.devices import one_dtype
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures import Empirical, Measure
from largeprompt.measures.numerics.pareto import pareto_tail_index, tail_count
from largeprompt.validation import ArrayLike

WRAP = "Wrap a prompt, a tensor of tokens (L, d), as Empirical(tokens)."


def _second_moment(mean: Tensor, covariance: Tensor) -> Tensor:
    """E xx^T of a law with this mean and covariance."""
    return covariance + mean.unsqueeze(-1) * mean.unsqueeze(-2)


@dataclasses.dataclass(frozen=True, eq=False, repr=False, init=False)
class Attention(abc.ABC):
    """What softmax and linear attention share: tilts Uz, a read-out of the measure, and V."""

    U: Tensor
    V: Tensor

    def __init__(self, U: ArrayLike, V: ArrayLike) -> None:
        U, V = validation.tensors(U=U, V=V)
        dim = validation.square("U", validation.last_dimensions("U", U, ("d", "d"))).shape[-1]
        meaning = f", for U of shape (..., {dim}, {dim})"
        validation.last_dimensions("V", V, ("o", dim), meaning)
        validation.broadcast("U and V", U.shape[:-2], V.shape[:-2])
        validation.store(self, U=U, V=V)

    @classmethod
    def from_projections(
        cls, K: ArrayLike, Q: ArrayLike, V: ArrayLike, scale: ArrayLike = 1.0
    ) -> Self:
        """Attention with scores scale·<Kx, Qz>: U = scale·K^T Q.

        Parameters
        ----------
        K, Q
            Key and query projections, shape (..., k, d).
        V
            Value projection, shape (..., o, d).
        scale
            Factor on the scores; transformers use 1/√(rows of K).
        """
        K, Q, factor = validation.tensors(K=K, Q=Q, scale=scale)
        validation.last_dimensions("K", K, ("k", "d"))
        validation.last_dimensions("Q", Q, K.shape[-2:], ", as K")
        validation.broadcast("K and Q", K.shape[:-2], Q.shape[:-2])
        scores = K.mT @ Q
        validation.broadcast("scale and K^T Q", factor.shape, scores.shape)
        return cls(factor * scores, V)

    @property
    def dim(self) -> int:
        """Dimension d of the tokens."""
        return self.U.shape[-1]

    @property
    def heads(self) -> torch.Size:
        """Leading shape of U and V: () for one head."""
        return torch.Size(np.broadcast_shapes(self.U.shape[:-2], self.V.shape[:-2]))

    def to(
        self, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Self:
        """Return the same layer in another dtype or on another device."""
        return type(self)(*(matrix.to(dtype=dtype, device=device) for matrix in (self.U, self.V)))

    @abc.abstractmethod
    def _read(self, mu: Measure, u: Tensor) -> Tensor:
        """What the layer reads from the measure at tilt u, before V: shape (..., d)."""

    @abc.abstractmethod
    def _read_jacobian(self, mu: Measure, u: Tensor) -> Tensor:
        """Derivative of the read-out in u: shape (..., d, d), symmetric."""

    @abc.abstractmethod
    def _affine(self, mu: Measure) -> tuple[Tensor, Tensor]:
        """Affine map (matrix, offset) of the layer on the Gaussian with the moments of mu."""

    def tilts(self, z: ArrayLike) -> Tensor:
        """u = Uz, shape ``(*heads, *queries, d)`` for z of shape ``(*queries, d)``."""
        return self._tilts(self._queries(z))

    def _queries(self, z: ArrayLike, *, finite: bool = True) -> Tensor:
        """Check queries once, at the door."""
        z = validation.tensor("z", z, like=self.U, finite=finite)
        return validation.last_dimensions("z", z, (self.dim,), ": one query for each row")

    def _tilts(self, z: Tensor) -> Tensor:
        flat = z.reshape(-1, self.dim) @ self.U.mT  # (*U's heads, n, d)
        return flat.reshape(*self.U.shape[:-2], *z.shape)

    @one_dtype
    def __call__(self, mu: Measure, z: ArrayLike) -> Tensor:
        """T[μ](z), shape ``(*heads, *queries, o)`` for z of shape ``(*queries, d)``.

        ``mu`` is an :class:`Empirical` (finite prompt) or a law (infinite prompt); its batch
        broadcasts against ``(*heads, *queries)``.
        """
        # of which every output is NaN where the query is: one check after the work serves both
        prompt = isinstance(mu, Empirical)
        _, z = self._values(mu, z, finite=not prompt)
        output = self._limit(mu, z)
        checked = output.detach().sum() + 0 * z.detach().sum() if prompt else output.detach().sum()
        if not math.isfinite(checked) and not bool(
            torch.isfinite(output).all() & torch.isfinite(z).all()
        ):
            self._queries(z)
            given = f"scores or outputs beyond the range of {output.dtype}"
            raise InvalidArgumentError("z", given, "queries and tokens whose scores are finite")
        return output

    @one_dtype
    def jacobian_u(self, mu: Measure, z: ArrayLike) -> Tensor:
        """dT_i/dU_jk = (V ∇²Λ(Uz))_ij z_k, shape ``(*heads, *queries, o, d, d)``: (tilt.4) of
        docs/mathematics/tilting.md.
        """
        values, z = self._values(mu, z)
        return (values @ self._read_jacobian(mu, self._tilts(z))).unsqueeze(-1) * z[
            ..., None, None, :
        ]

    @one_dtype
    def jacobian_v(self, mu: Measure, z: ArrayLike) -> Tensor:
        """dT_i/dV_jk = δ_ij (∇Λ(Uz))_k, shape ``(*heads, *queries, o, o, d)``: (tilt.4) of
        docs/mathematics/tilting.md.
        """
        values, z = self._values(mu, z)
        read = self._read(mu, self._tilts(z))
        eye = torch.eye(values.shape[-2], dtype=values.dtype, device=values.device)
        return (eye.unsqueeze(-1) * read[..., None, None, :]).expand(
            *self._batch(mu, z), *values.shape[-2:-1], *eye.shape[1:], -1
        )

    def _values(self, mu: Measure, z: ArrayLike, *, finite: bool = True) -> tuple[Tensor, Tensor]:
        """Check the pair, and align V's heads with the queries: V as ``(*heads, 1.., o, d)``."""
        if not isinstance(mu, Measure):
            raise InvalidArgumentError("mu", type(mu).__name__, "a Measure", WRAP)
        if mu.dim != self.dim:
            given, allowed = (
                f"a measure on R^{mu.dim}",
                f"a measure on R^{self.dim}, as U acts there",
            )
            raise InvalidArgumentError("mu", given, allowed)
        if mu.dtype != self.U.dtype or mu.device != self.U.device:
            given, wanted = f"{mu.dtype} on {mu.device}", f"{self.U.dtype} on {self.U.device}, as U"
            remedy = f"Use mu.to({self.U.dtype}, '{self.U.device}')."
            raise InvalidArgumentError("mu", given, wanted, remedy)
        z = self._queries(z, finite=finite)
        mu._require_law()
        self._batch(mu, z)
        return self._aligned(z), z

    def _aligned(self, z: Tensor) -> Tensor:
        """V with its heads aligned with the queries."""
        return self.V.reshape(*self.V.shape[:-2], *(1,) * (z.dim() - 1), *self.V.shape[-2:])

    def _limit(self, mu: Measure, z: Tensor) -> Tensor:
        """T[μ](z) for arguments that were checked."""
        return (self._aligned(z) @ self._read(mu, self._tilts(z)).unsqueeze(-1)).squeeze(-1)

    def _batch(self, mu: Measure, z: Tensor) -> torch.Size:
        heads = torch.Size((*self.heads, *(1,) * (z.dim() - 1)))
        return validation.broadcast("heads, z and mu", heads, z.shape[:-1], mu.batch_shape)

    def __repr__(self) -> str:
        heads = f", heads={tuple(self.heads)}" if self.heads else ""
        return f"{type(self).__name__}(dim={self.dim}, out={self.V.shape[-2]}{heads})"


class SoftmaxAttention(Attention):
    """Softmax attention T[μ](z) = V ∇Λ(Uz).

    Parameters
    ----------
    U
        Score matrix, shape (..., d, d): the score of token x for query z is x^T U z. Leading
        dimensions are heads.
    V
        Value matrix, shape (..., o, d).

    Examples
    --------
    On Gaussian tokens the infinite-prompt limit is the affine map V(m + ΓUz):

    >>> attention = lp.SoftmaxAttention(U=[[0.0, 1.0], [0.0, 0.0]], V=[[1.0, 0.0]])
    >>> mu = lp.Gaussian([1.0, 0.0], [[2.0, 0.0], [0.0, 1.0]])
    >>> attention(mu, [0.0, 3.0])
    tensor([7.], dtype=torch.float64)
    """

    def _read(self, mu: Measure, u: Tensor) -> Tensor:
        mu._check_domain(u)
        return mu._tilted_mean(u)

    def _read_jacobian(self, mu: Measure, u: Tensor) -> Tensor:
        mu._check_domain(u)
        return validation.in_range("z", mu._tilted_covariance(mu._matrices_fit(u)))

    def _affine(self, mu: Measure) -> tuple[Tensor, Tensor]:
        offset = (self.V @ mu.mean.unsqueeze(-1)).squeeze(-1)
        return self.V @ mu.covariance @ self.U, offset

    @one_dtype
    def error_bar(self, prompt: Empirical, z: ArrayLike) -> ErrorBar:
        """Sampling error of attention on one prompt, from that prompt alone.

        For independent tokens Cov T_L ≈ Σ_l w_l² (V z_l - T_L)(V z_l - T_L)^T, w the softmax:
        formula (first.7) of docs/mathematics/first_order.md. It cannot see a missing second moment,
        nor rare tokens that did not occur: :class:`ErrorBar` says what its warnings mean. They
        speak of the weights alone: tokens of infinite variance under nearly equal weights (u near
        0) give none.

        Parameters
        ----------
        prompt
            Tokens without weights; its batch broadcasts against ``(*heads, *queries)``.
        z
            Queries, shape ``(*queries, d)``.

        Returns
        -------
        ErrorBar
            With ``output``, ``covariance``, ``standard_error``, ``effective_tokens``,
            ``carrying_tokens``, ``tail_index`` and ``warning``.

        Examples
        --------
        >>> generator = torch.Generator().manual_seed(0)
        >>> tokens = torch.randn(1000, 2, generator=generator, dtype=torch.float64)
        >>> attention = lp.SoftmaxAttention(torch.eye(2, dtype=torch.float64), [[1.0, 0.0]])
        >>> bar = attention.error_bar(lp.Empirical(tokens), [[0.5, 0.0], [5.0, 0.0]])
        >>> bar
        ErrorBar(output=(2, 1), length=1000, tail_index <= ..., carrying_tokens >= ...)
        >>> bool((bar.output[0] - 0.5).abs() < 2 * bar.standard_error[0])
        True
        >>> bar.warning
        '1 of 2 queries: the largest weights have tail index ... >= 0.5: ...'
        """
        self._check_prompt(prompt)
        values, z = self._values(prompt, z)
        u = self._tilts(z)
        batch = self._batch(prompt, z)
        # the prompt's batch is aligned from the right, so that the axis of the two tilts must come
        # before all of it
        u = u.expand(*np.broadcast_shapes(u.shape[:-1], prompt.batch_shape), self.dim)
        powers = prompt._running(torch.stack([u, 4 * u]))
        second = prompt._running(2 * u, covariance=True)
        assert second.covariance is not None  # asked for in the line above
        between = second.mean - powers.mean[0]
        spread = _second_moment(between, second.covariance)
        # the clamps matter for scores so large that their differences are lost in rounding
        log_length = math.log(prompt.count)
        log_effective = (2 * powers.log_mass[0] - second.log_mass).clamp(0, log_length)  # -log Y
        # log(Y²/Σ w⁴)
        log_carrying = (2 * second.log_mass - powers.log_mass[1]).clamp(0, log_length)
        largest = prompt.largest_scores(u.detach(), min(tail_count(prompt.count) + 1, prompt.count))
        return ErrorBar(
            output=(values @ powers.mean[0].unsqueeze(-1)).squeeze(-1),
            covariance=values @ (torch.exp(-log_effective)[..., None, None] * spread) @ values.mT,
            effective_tokens=torch.exp(log_effective).expand(batch),
            carrying_tokens=torch.exp(log_carrying).expand(batch),
            tail_index=pareto_tail_index(largest).expand(batch),
            length=prompt.count,
        )

    def _check_prompt(self, prompt: Empirical) -> None:
        """Error bars are for independent tokens of equal weight, in the space that U acts on."""
        if not isinstance(prompt, Empirical):
            draw = "A law has no sampling error; draw a prompt: Empirical(mu.sample(n, generator))."
            remedy = draw if isinstance(prompt, Measure) else WRAP
            raise InvalidArgumentError("prompt", type(prompt).__name__, "an Empirical", remedy)
        if prompt.weights is not None:
            allowed = "independent tokens of equal weight"
            raise InvalidArgumentError("prompt", "tokens with weights", allowed)
        if prompt.dim != self.dim:
            given, allowed = f"tokens in R^{prompt.dim}", f"tokens in R^{self.dim}, as U acts there"
            raise InvalidArgumentError("prompt", given, allowed)
        validation.tensor("prompt", prompt.tokens, like=self.U, finite=False)


class LinearAttention(Attention):
    """Linear attention V E[x x^T] U z: on a prompt of L tokens, V (1/L) Σ_l z_l (z_l^T U z).

    Parameters as for :class:`SoftmaxAttention`.

    Examples
    --------
    >>> lp.LinearAttention([[0.5]], [[1.0]])(lp.Empirical([[1.0], [3.0]]), [1.0])
    tensor([2.5000], dtype=torch.float64)
    """

    def _read(self, mu: Measure, u: Tensor) -> Tensor:
        return (self._read_jacobian(mu, u) @ u.unsqueeze(-1)).squeeze(-1)

    def _read_jacobian(self, mu: Measure, u: Tensor) -> Tensor:
        moment = _second_moment(mu.mean, mu.covariance)
        return moment.expand(*np.broadcast_shapes(u.shape[:-1], mu.batch_shape), self.dim, self.dim)

    def _affine(self, mu: Measure) -> tuple[Tensor, Tensor]:
        matrix = self.V @ _second_moment(mu.mean, mu.covariance) @ self.U
        return matrix, matrix.new_zeros(matrix.shape[:-1])


def one_head(attention: Attention) -> None:
    """Check that there is one head of softmax attention."""
    if not isinstance(attention, SoftmaxAttention) or attention.heads:
        given, allowed = validation.text(attention), "SoftmaxAttention with one head"
        raise InvalidArgumentError("attention", given, allowed, "Loop over the heads.")


def one_law(mu: Measure) -> None:
    """Check that a measure has no batch dimensions."""
    if not isinstance(mu, Measure) or mu.batch_shape:
        allowed = "one law, without batch dimensions"
        raise InvalidArgumentError("mu", validation.text(mu), allowed, "Loop over the laws.")


@one_dtype
def affine_limit(attention: Attention, mu: Measure) -> tuple[Tensor, Tensor]:
    """Affine map (matrix, offset) of attention on Gaussian tokens with the moments of ``mu``.

    For softmax attention z -> VΓU z + Vm (claim C2), formula (tilt.6) of
    docs/mathematics/tilting.md. For other tokens it is what the limit would be if only the mean
    and the covariance mattered.

    Parameters
    ----------
    attention, mu
        The layer and the law of the tokens.

    Returns
    -------
    tuple of Tensor
        matrix of shape (..., o, d) and offset of shape (..., o), heads and the batch of ``mu``
        leading.

    Examples
    --------
    >>> attention = lp.SoftmaxAttention([[2.0]], [[1.0]])
    >>> matrix, offset = lp.affine_limit(attention, lp.Rademacher(1))
    >>> matrix @ torch.tensor([1.0], dtype=torch.float64) + offset  # the affine value
    tensor([2.], dtype=torch.float64)
    >>> attention(lp.Rademacher(1), [1.0])  # the limit: tanh 2
    tensor([0.9640], dtype=torch.float64)
    """
    if not isinstance(attention, Attention):
        given, allowed = type(attention).__name__, "SoftmaxAttention or LinearAttention"
        raise InvalidArgumentError("attention", given, allowed)
    attention._values(mu, attention.U.new_zeros(attention.dim))
    return attention._affine(mu)
