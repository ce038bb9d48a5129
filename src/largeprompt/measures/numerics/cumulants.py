"""Cumulants as derivatives of a cumulant generating function, by automatic differentiation."""

import contextlib
import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from largeprompt.errors import InvalidArgumentError

Cumulants = tuple[Tensor, Tensor, Tensor, Tensor]


def recorded() -> contextlib.ExitStack:
    """Context in which operations are recorded for gradients,
    under ``torch.inference_mode`` too.
    """
    stack = contextlib.ExitStack()
    if torch.is_inference_mode_enabled():
        stack.enter_context(torch.inference_mode(False))
    stack.enter_context(torch.enable_grad())
    return stack


def complex_derivative(value: Tensor, point: Tensor) -> Tensor:
    """Derivative of the sum of values that are analytic in a complex point: conjugate of the
    gradient of their real part.
    """
    (gradient,) = torch.autograd.grad(
        value.real.sum(), point, create_graph=True, materialize_grads=True
    )
    return gradient.conj()


def fourth_moment(k1: Tensor, k2: Tensor, k3: Tensor, k4: Tensor) -> Tensor:
    """E x⁴ from the first four cumulants of x."""
    return k4 + 4 * k3 * k1 + 3 * k2**2 + 6 * k2 * k1**2 + k1**4


def derivatives(
    function: Callable[[Tensor], Tensor], point: Tensor, order: int, keep_graph: bool = False
) -> tuple[Tensor, ...]:
    """An elementwise function and its first derivatives at a real or complex point that requires a
    gradient.
    """
    with recorded():
        found = [function(point)]
        if point.is_complex() and not found[0].is_complex():
            raise TypeError("the cgf of a complex tilt is real")
        for _ in range(order):
            # a polynomial has run out of derivatives
            value = found[-1] if found[-1].requires_grad else found[-1] + 0 * point
            found.append(complex_derivative(value, point))
    return tuple(found if keep_graph else (value.detach() for value in found))


def higher_derivatives(function: Callable[[Tensor], Tensor], points: Tensor) -> list[Tensor]:
    """Third and fourth derivatives of an analytic function at points of shape (n, d): shapes (n, d,
    d, d) and (n, d, d, d, d).

    From those along enough directions a: Σ T_{ijk} a_i a_j a_k determines a symmetric tensor T, the
    least solution.
    """
    dim = points.shape[-1]
    chosen = [
        [mix.count(i) for i in range(dim)]
        for mix in itertools.combinations_with_replacement(range(dim), 4)
    ]
    directions = torch.nn.functional.normalize(
        torch.tensor(chosen, dtype=points.real.dtype, device=points.device), dim=-1
    )
    with recorded():
        t = torch.zeros(
            (len(chosen), len(points)), dtype=points.dtype, device=points.device, requires_grad=True
        )
    found = derivatives(
        lambda t: function(points + t.unsqueeze(-1) * directions.unsqueeze(1)), t, 4
    )
    tensors = []
    for order in (3, 4):
        products = directions
        for _ in range(order - 1):
            products = (products.unsqueeze(-1) * directions.unsqueeze(1)).flatten(1)
        solved = torch.linalg.pinv(products).to(points.dtype) @ found[order]
        tensors.append(solved.mT.reshape(len(points), *[dim] * order))
    return tensors


def require_law(
    law: object, function: Callable[[Tensor], Tensor], zero: Tensor, inside: Callable[[float], bool]
) -> None:
    """Refuse a law whose cgf along a direction is not 0 at 0, or has no finite slope and curvature
    there.
    """
    with recorded():
        point = zero.clone().requires_grad_()
    value, slope, bend = (float(found) for found in derivatives(function, point, 2))
    h = 1e-3 / math.sqrt(bend) if 0 < bend < math.inf else 1e-3
    seen = (
        sum(float(function(zero + side * h)) for side in (1, -1)) / h**2
        if inside(h) and inside(-h)
        else bend
    )
    if not abs(value) <= 1e-9:
        given = f"{law!r}, whose cgf is {value:.6g} at 0"
        remedy = (
            "A formula such as log(sinh(u)/u) is 0/0 there: write its series near 0."
            if math.isnan(value)
            else "Subtract it."
        )
        raise InvalidArgumentError(
            "mu", given, "cgf(0) = 0, the logarithm of the total mass", remedy
        )
    if not (math.isfinite(slope) and math.isfinite(bend) and bend >= -1e-9):
        given = f"{law!r}, whose cgf has the derivatives {slope:.3g} and {bend:.3g} at 0"
        remedy = (
            "Write it with functions that torch can differentiate twice at 0; both branches "
            "of torch.where must be finite."
        )
        raise InvalidArgumentError(
            "mu",
            given,
            "a cgf with a finite mean and a finite variance that is not negative",
            remedy,
        )
    if not abs(seen - bend) <= 0.01 * abs(seen) + 1e-3:
        given = (
            f"{law!r}, whose cgf has the second derivative {bend:.3g} at 0 by autograd and "
            f"{seen:.3g} by differences"
        )
        remedy = (
            "A formula that is nearly 0/0 there loses its derivatives: write its series near 0."
        )
        raise InvalidArgumentError("mu", given, "a cgf that torch can differentiate at 0", remedy)


def no_complex_tilts(law: object, error: Exception) -> InvalidArgumentError:
    """What a law of one's own raises whose cgf takes real tilts only."""
    name, given = type(law).__name__, f"{law!r}, whose cgf does not take complex tilts ({error})"
    remedy = (
        f"Write {name}.cgf with torch functions of complex numbers (lp.measures.log_gamma is one), "
        "or implement "
        f"{name}.complex_cumulants(w, order), or derivatives(u, order) for a scalar law."
    )
    return InvalidArgumentError("mu", given, "laws with a cgf that is analytic in u", remedy)
