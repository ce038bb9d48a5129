"""Layers in blocks, U = [[A, 0], [0, 0]] and V = (0, b), and the risk across them."""

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from largeprompt.training.risk.derivatives import rows


def block_layer(A: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """U and V (run, 1, D) in blocks, for A (run, d, d) and b (run,)."""
    pad = torch.nn.functional.pad
    return pad(A, (0, 1, 0, 1)), pad(b[:, None, None], (A.shape[-1], 0))


def in_blocks(U: Tensor, V: Tensor) -> bool:
    """Whether every layer is in blocks; the last column of U, which meets the query's 0, is
    free.
    """
    d = U.shape[-1] - 1
    return not bool(U[:, d, :d].any()) and not bool(V[:, 0, :d].any())


def across_blocks(
    inside: Tensor, U: Tensor, V: Tensor, risks: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Risks (run,) of layers in blocks, with the Hessian of ``risks`` in (U_yx, v_x), where
    gradients vanish.
    """
    d, fixed_u, fixed_v = U.shape[-1] - 1, U.detach(), V.detach()

    def curvature() -> Tensor:
        with torch.enable_grad():
            outside = fixed_u.new_zeros(len(U), 2 * d, requires_grad=True)
            row, first = (torch.nn.functional.pad(part, (0, 1)) for part in outside.split(d, -1))
            last = torch.eye(d + 1, dtype=U.dtype)[:, d:]
            value = risks(fixed_u + last * row.unsqueeze(-2), fixed_v + first.unsqueeze(-2))
            (slope,) = torch.autograd.grad(value.sum(), outside, create_graph=True)
            return rows(slope, outside)

    flat: Tensor = _Flat.apply(torch.cat([U[:, d, :d], V[:, 0, :d]], -1), curvature)  # type: ignore[no-untyped-call]
    return inside + flat


class _Flat(torch.autograd.Function):
    """Zero (run,) with zero gradient at a point (run, p), and Hessians from a function."""

    @staticmethod
    def forward(ctx, point, hessian):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(point)
        ctx.hessian = hessian
        return point.new_zeros(len(point))

    @staticmethod
    def backward(ctx, out):  # type: ignore[no-untyped-def]
        (point,) = ctx.saved_tensors
        if not torch.is_grad_enabled():
            return torch.zeros_like(point), None
        return out.unsqueeze(-1) * _FlatSlope.apply(point, ctx.hessian), None  # type: ignore[no-untyped-call]


class _FlatSlope(torch.autograd.Function):
    """The gradient of :class:`_Flat`."""

    @staticmethod
    def forward(ctx, point, hessian):  # type: ignore[no-untyped-def]
        ctx.hessian = functools.cache(hessian)
        return torch.zeros_like(point)

    @staticmethod
    def backward(ctx, out):  # type: ignore[no-untyped-def]
        return (ctx.hessian() @ out.unsqueeze(-1)).squeeze(-1), None
