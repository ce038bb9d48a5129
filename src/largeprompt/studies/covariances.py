"""The covariances and starts that the studies of in-context learning share."""

import math
from typing import Literal

import torch
from torch import Tensor

from largeprompt.attention import LinearAttention, SoftmaxAttention
from largeprompt.errors import InvalidArgumentError

F = torch.float64
KINDS: dict[str, type[SoftmaxAttention] | type[LinearAttention]] = {
    "softmax": SoftmaxAttention,
    "linear": LinearAttention,
}
Covariance = Literal["identity", "toeplitz", "condition 1e4"]


def covariance(kind: str, dim: int) -> Tensor:
    """Matrix of that name: 0.5^|i-j| for 'toeplitz', eigenvalues 1 to 1e-4 for 'condition 1e4'.

    The last is diagonal: the flow turns with the basis, and in the eigenbasis small eigenvalues do
    not drown in rounding.
    """
    index = torch.arange(dim, dtype=F)
    if kind == "identity":
        return torch.eye(dim, dtype=F)
    if kind == "toeplitz":
        return torch.exp2(-(index.unsqueeze(-1) - index).abs())
    if kind == "condition 1e4":
        return torch.diag(torch.logspace(0, -4, dim, dtype=F))
    raise InvalidArgumentError(
        "covariance", repr(kind), "'identity', 'toeplitz' or 'condition 1e4'"
    )


def largest_alpha(sigma: Tensor) -> float:
    """√2/(d^{1/4} ‖Σ‖_op), the bound on the size of the start in Theorem 5.1 of the paper."""
    return math.sqrt(2) / (math.pow(len(sigma), 0.25) * float(torch.linalg.matrix_norm(sigma, 2)))


def block_start(dim: int, norm: float, b: float, seed: int | None = None) -> tuple[Tensor, Tensor]:
    """U = diag(A, 0), v = (0, b), A ~ ΘΘ^T of this norm; Θ orthogonal, or Gaussian with a seed."""
    theta = torch.eye(dim, dtype=F)
    if seed is not None:
        theta = torch.randn(dim, dim, generator=torch.Generator().manual_seed(seed), dtype=F)
    A = theta @ theta.mT
    U, V = torch.zeros(dim + 1, dim + 1, dtype=F), torch.zeros(1, dim + 1, dtype=F)
    U[:dim, :dim], V[0, dim] = norm * A / A.norm(), b
    return U, V
