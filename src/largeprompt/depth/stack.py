"""Residual self-attention in depth: every token is query and token, and moves by what it reads."""

import dataclasses
from collections.abc import Iterator
from typing import Literal, get_args

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention.operators import SoftmaxAttention
from largeprompt.errors import InvalidArgumentError

Normalization = Literal["none", "pre", "sphere"]


def rms_norm(z: Tensor) -> Tensor:
    """√d z/‖z‖: the token put on the sphere of radius √d (RMSNorm without gain)."""
    return torch.nn.functional.rms_norm(z, z.shape[-1:], eps=0.0)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ResidualStack:
    """Residual self-attention, layer by layer: z -> z + V_k Σ_l softmax_l(z_l^T U_k z) z_l.

    Parameters
    ----------
    U
        Score matrices, shape (layers, d, d).
    V
        Value matrices, shape (layers, d, d).
    normalization
        With n(z) = √d z/‖z‖: 'none'; 'pre', where attention reads n(z_l) with the query n(z) and
        moves z; or 'sphere', where tokens enter as n(z) and every layer ends with n(·).

    Examples
    --------
    >>> eye = torch.eye(2, dtype=torch.float64).expand(3, 2, 2)
    >>> stack = lp.depth.ResidualStack(0.5 * eye, 0.1 * eye)
    >>> stack
    ResidualStack(layers=3, dim=2, normalization='none')
    >>> tokens = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    >>> [f"{float(z[0, 0]):.4f}" for z in stack.states(tokens)]
    ['1.0000', '1.0462', '1.0984', '1.1576']
    """

    U: Tensor
    V: Tensor
    normalization: Normalization = "none"

    def __post_init__(self) -> None:
        U = validation.tensor("U", self.U)
        if U.dim() != 3 or U.shape[0] < 1 or U.shape[1] != U.shape[2]:
            given, remedy = f"shape {validation.shape_text(U.shape)}", "Use U.expand(layers, d, d)."
            raise InvalidArgumentError("U", given, "shape (layers, d, d)", remedy)
        V = validation.tensor("V", self.V, like=U)
        if V.shape != U.shape:
            given, wanted = validation.shape_text(V.shape), validation.shape_text(U.shape)
            raise InvalidArgumentError("V", f"shape {given}", f"shape {wanted}, as U")
        validation.choice("normalization", self.normalization, get_args(Normalization))
        object.__setattr__(self, "U", U)
        object.__setattr__(self, "V", V)

    @property
    def layers(self) -> int:
        """Number of layers."""
        return self.U.shape[0]

    @property
    def dim(self) -> int:
        """Dimension d of the tokens."""
        return self.U.shape[-1]

    def layer(self, index: int) -> SoftmaxAttention:
        """Attention of one layer."""
        return SoftmaxAttention(self.U[index], self.V[index])

    def states(self, tokens: Tensor) -> Iterator[Tensor]:
        """Prompts (..., L, d) on entry and after each layer: layers + 1 tensors of this shape."""
        z = validation.last_dimensions(
            "tokens", validation.tensor("tokens", tokens, like=self.U), ("L", self.dim)
        )
        if self.normalization == "sphere":
            z = rms_norm(z)
        yield z
        for U, V in zip(self.U, self.V, strict=True):
            read = rms_norm(z) if self.normalization == "pre" else z
            z = z + _attend(read @ U.mT, read) @ V.mT
            if self.normalization == "sphere":
                z = rms_norm(z)
            yield z

    def __repr__(self) -> str:
        return (
            f"ResidualStack(layers={self.layers}, dim={self.dim}, "
            f"normalization={self.normalization!r})"
        )


def _attend(tilts: Tensor, tokens: Tensor) -> Tensor:
    """Softmax averages of the tokens by PyTorch's fused kernel, of shape (batch, head, row, d)."""
    rows, keys = (x.reshape(-1, 1, *x.shape[-2:]) for x in (tilts, tokens))
    return torch.nn.functional.scaled_dot_product_attention(rows, keys, keys, scale=1.0).reshape(
        tilts.shape
    )
