"""Gradients and Hessians of the risks of several runs, which do not interact."""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class Derivatives:
    """Values (run,) with gradients (run, p), and Hessians (run, p, p) where asked."""

    value: Tensor
    gradient: Tensor
    hessian: Tensor | None


Function = Callable[[Tensor], Tensor]  # from points (run, p)
Differentiated = Callable[[Tensor, bool], Derivatives]  # at points (run, p), with Hessian or not


def differentiated(function: Function) -> Differentiated:
    """Derivatives of a function to values (run,), by autograd."""

    def at(point: Tensor, hessian: bool) -> Derivatives:
        with torch.enable_grad():
            point = point.detach().requires_grad_()
            value = function(point)
            (gradient,) = torch.autograd.grad(value.sum(), point, create_graph=hessian)
            second = rows(gradient, point).detach() if hessian else None
        return Derivatives(value.detach(), gradient.detach(), second)

    return at


def pulled(layer: Function, outer: Differentiated) -> Differentiated:
    """Derivatives of a function of ``layer``(θ): J^T H J, J the Jacobian of the map, and the
    curvature of the map.
    """

    def at(theta: Tensor, hessian: bool) -> Derivatives:
        with torch.enable_grad():
            point = theta.detach().requires_grad_()
            flat = layer(point)
            found = outer(flat.detach(), hessian)
            (gradient,) = torch.autograd.grad(flat, point, found.gradient, create_graph=hessian)
            if found.hessian is None:
                return Derivatives(found.value, gradient, None)
            jacobian = rows_at_once(flat, point)
            second = jacobian.mT @ found.hessian @ jacobian
            if gradient.requires_grad:
                second = second + rows_at_once(gradient, point)
        return Derivatives(found.value, gradient.detach(), second.detach())

    return at


def rows(values: Tensor, point: Tensor) -> Tensor:
    """Jacobians (run, m, p) of values (run, m) in points (run, p), row by row: in little memory."""
    each = [torch.autograd.grad(value.sum(), point, retain_graph=True)[0] for value in values.mT]
    return torch.stack(each, 1)


def rows_at_once(values: Tensor, point: Tensor) -> Tensor:
    """Jacobians of a map that costs little: all rows in one pass, tens of times as fast."""
    eye = torch.eye(values.shape[-1], dtype=values.dtype).unsqueeze(1).expand(-1, len(values), -1)
    (found,) = torch.autograd.grad(values, point, eye, retain_graph=True, is_grads_batched=True)
    return found.transpose(0, 1)
