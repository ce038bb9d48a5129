"""What is said to somebody whose own law has a cgf that is none, or that takes real tilts only."""

import math
from collections.abc import Callable

from torch import Tensor

from largeprompt.errors import InvalidArgumentError
from largeprompt.measures.numerics.cumulants import derivatives, recorded


def require_law(
    law: object, function: Callable[[Tensor], Tensor], zero: Tensor, inside: Callable[[float], bool]
) -> None:
    """Refuse a law whose cgf along a direction is not 0 at 0, or is not smooth there."""
    with recorded():
        point = zero.clone().requires_grad_()
    value, slope, bend = (float(found) for found in derivatives(function, point, 2))
    if not abs(value) <= 1e-9:
        allowed = "cgf(0) = 0, the logarithm of the total mass"
        remedy = "Write a formula that is 0/0 there as a series near 0."
        remedy = remedy if math.isnan(value) else "Subtract it."
        _refuse(f"{law!r}, whose cgf is {value:.6g} at 0", allowed, remedy)
    if not (math.isfinite(slope) and math.isfinite(bend) and bend >= -1e-9):
        given = f"{law!r}, whose cgf has the derivatives {slope:.3g} and {bend:.3g} at 0"
        allowed = "a cgf with a finite mean and a finite variance that is not negative"
        remedy = "torch must differentiate twice at 0, in both branches of torch.where."
        _refuse(given, allowed, remedy)
    h = 1e-3 / math.sqrt(bend) if bend > 0 else 1e-3
    if not (inside(h) and inside(-h)):
        return
    seen = sum(float(function(zero + side * h)) for side in (1, -1)) / h**2
    if not abs(seen - bend) <= 0.01 * abs(seen) + 1e-3:
        both = f"{bend:.3g} at 0 by autograd and {seen:.3g} by differences"
        given = f"{law!r}, whose cgf has the second derivative {both}"
        remedy = "Write a formula that is nearly 0/0 there as a series near 0."
        _refuse(given, "a cgf that torch can differentiate at 0", remedy)


def _refuse(given: str, allowed: str, remedy: str) -> None:
    raise InvalidArgumentError("mu", given, allowed, remedy)


def no_complex_tilts(law: object, error: Exception) -> InvalidArgumentError:
    """The error for a law of one's own whose cgf takes real tilts only."""
    given = f"{law!r}, whose cgf does not take complex tilts ({error})"
    remedy = (
        "Write cgf with torch functions of complex numbers (lp.measures.log_gamma is one), or "
        "implement complex_cumulants(w, order); derivatives(u, order) for a scalar law."
    )
    return InvalidArgumentError("mu", given, "laws with a cgf that is analytic in u", remedy)
