"""Cumulants as derivatives of a cumulant generating function, by automatic differentiation."""

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from largeprompt.errors import InvalidArgumentError

Cumulants = tuple[Tensor, Tensor, Tensor, Tensor]


def complex_derivative(value: Tensor, point: Tensor) -> Tensor:
    """Derivative of the sum of values that are analytic in a complex point: conjugate of the gradient of their real part."""
    (gradient,) = torch.autograd.grad(value.real.sum(), point, create_graph=True, materialize_grads=True)
    return gradient.conj()


def fourth_moment(k1: Tensor, k2: Tensor, k3: Tensor, k4: Tensor) -> Tensor:
    """E x⁴ from the first four cumulants of x."""
    return k4 + 4 * k3 * k1 + 3 * k2**2 + 6 * k2 * k1**2 + k1**4


def four_derivatives(function: Callable[[Tensor], Tensor], point: Tensor, keep_graph: bool) -> Cumulants:
    """First four derivatives, elementwise, of an elementwise function at a point that requires a gradient."""
    with torch.enable_grad():
        value, found = function(point), []
        for _ in range(4):
            if not value.requires_grad:  # a polynomial has run out of derivatives
                value = value + 0 * point
            (value,) = torch.autograd.grad(value.sum(), point, create_graph=True, materialize_grads=True)
            found.append(value if keep_graph else value.detach())
    first, second, third, fourth = found
    return first, second, third, fourth


def higher_derivatives(function: Callable[[Tensor], Tensor], points: Tensor) -> list[Tensor]:
    """Third and fourth derivatives of an analytic function at points of shape (n, d): shapes (n, d, d, d) and (n, d, d, d, d).

    From those along enough directions a: Σ T_{ijk} a_i a_j a_k determines a symmetric tensor T, the least solution.
    """
    dim = points.shape[-1]
    chosen = [[mix.count(i) for i in range(dim)] for mix in itertools.combinations_with_replacement(range(dim), 4)]
    directions = torch.nn.functional.normalize(torch.tensor(chosen, dtype=points.real.dtype, device=points.device), dim=-1)
    with torch.enable_grad():
        t = torch.zeros((len(chosen), len(points)), dtype=points.dtype, device=points.device, requires_grad=True)
        found = [function(points + t.unsqueeze(-1) * directions.unsqueeze(1))]
        for _ in range(4):
            found.append(complex_derivative(found[-1] if found[-1].requires_grad else found[-1] + 0 * t, t))
    tensors = []
    for order in (3, 4):
        products = directions
        for _ in range(order - 1):
            products = (products.unsqueeze(-1) * directions.unsqueeze(1)).flatten(1)
        solved = torch.linalg.pinv(products).to(points.dtype) @ found[order].detach()
        tensors.append(solved.mT.reshape(len(points), *[dim] * order))
    return tensors


def no_complex_tilts(law: object, error: Exception) -> InvalidArgumentError:
    """What a law of one's own raises whose cgf takes real tilts only."""
    name, given = type(law).__name__, f"{law!r}, whose cgf does not take complex tilts ({error})"
    remedy = f"Write {name}.cgf with torch functions of complex numbers, or implement {name}.complex_cumulants(w, order)."
    return InvalidArgumentError("mu", given, "laws with a cgf that is analytic in u", remedy)
