"""Cumulants as derivatives of a cumulant generating function, by automatic differentiation."""

import contextlib
import itertools
from collections.abc import Callable

import torch
from torch import Tensor

Cumulants = tuple[Tensor, Tensor, Tensor, Tensor]
Function = Callable[[Tensor], Tensor]


def recorded() -> contextlib.ExitStack:
    """Context in which gradients are recorded, under ``torch.inference_mode`` too."""
    stack = contextlib.ExitStack()
    if torch.is_inference_mode_enabled():
        stack.enter_context(torch.inference_mode(False))
    stack.enter_context(torch.enable_grad())
    return stack


def fourth_moment(k1: Tensor, k2: Tensor, k3: Tensor, k4: Tensor) -> Tensor:
    """E x⁴ from the first four cumulants of x."""
    return k4 + 4 * k3 * k1 + 3 * k2**2 + 6 * k2 * k1**2 + k1**4


def _slope(value: Tensor, point: Tensor) -> Tensor:
    """Derivative of the sum of values that are analytic in a point, real or complex."""
    total = value.real.sum()
    (gradient,) = torch.autograd.grad(total, point, create_graph=True, materialize_grads=True)
    return gradient.conj()


def _analytic(function: Function, point: Tensor) -> Tensor:
    value = function(point)
    if point.is_complex() and not value.is_complex():
        raise TypeError("the cgf of a complex tilt is real")
    return value


def derivatives(
    function: Function, point: Tensor, order: int, keep_graph: bool = False
) -> tuple[Tensor, ...]:
    """An elementwise function and its first derivatives at a point that requires a gradient."""
    with recorded():
        found = [_analytic(function, point)]
        for _ in range(order):
            # a polynomial has run out of derivatives
            value = found[-1] if found[-1].requires_grad else found[-1] + 0 * point
            found.append(_slope(value, point))
    return tuple(found if keep_graph else (value.detach() for value in found))


def complex_derivatives(function: Function, w: Tensor, order: int) -> tuple[Tensor, ...]:
    """An analytic function and its derivatives at complex points (n, d): four in at most R⁶."""
    with recorded():
        point = w.detach().clone().requires_grad_()
        found = [_analytic(function, point)]
        if order:
            found.append(_slope(found[0], point))
            rows = [_slope(entry, point) for entry in found[1].unbind(-1)]
            found.append(torch.stack(rows, dim=-2))
    if order > 2 and w.shape[-1] <= 6:  # as fourth derivatives are expensive
        found += _higher_derivatives(function, w)
    return tuple(value.detach() for value in found)


def _higher_derivatives(function: Function, points: Tensor) -> list[Tensor]:
    """Third and fourth derivatives at points (n, d), from those along enough directions."""
    dim = points.shape[-1]
    mixes = itertools.combinations_with_replacement(range(dim), 4)
    chosen = torch.tensor([[mix.count(i) for i in range(dim)] for mix in mixes])
    directions = torch.nn.functional.normalize(chosen.to(points.real), dim=-1)
    with recorded():
        t = points.new_zeros((len(chosen), len(points))).requires_grad_()
    along = derivatives(
        lambda t: function(points + t.unsqueeze(-1) * directions.unsqueeze(1)), t, 4
    )
    tensors, products = [], directions
    for order in (2, 3, 4):
        products = (products.unsqueeze(-1) * directions.unsqueeze(1)).flatten(1)
        if order > 2:
            solved = torch.linalg.pinv(products).to(points.dtype) @ along[order]
            tensors.append(solved.mT.reshape(len(points), *[dim] * order))
    return tensors
