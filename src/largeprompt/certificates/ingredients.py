"""The finite quantities that a certificate is made of, for every query at once.

With ω = e^{u·x - Λ(u)} (so E ω = 1), T = ∇Λ(u) and ζ = V(x - T) (so E ωζ = 0), attention is T_L - T = N/D with
N = (1/L) Σ ω_l ζ_l and D = (1/L) Σ ω_l. Moments of ω^j under μ are moments under the tilt by ju:
E ω^j f = e^{Λ(ju) - jΛ(u)} E_{ju} f.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from largeprompt.errors import NoMomentError, TiltDomainError
from largeprompt.measures import Measure


@dataclasses.dataclass(frozen=True, eq=False)
class Ingredients:
    """Moments of one head's numerator and denominator, each of shape (query,); infinite where they do not exist."""

    log_rho: Tensor  # Λ(2u) - 2Λ(u)
    weight: dict[float, Tensor]  # E ω^j
    numerator: dict[float, Tensor]  # E ω^j ‖ζ‖²
    pull: Tensor  # ‖E ω² ζ‖²
    second: Tensor  # E‖ζ‖² under μ
    fourth: Tensor  # E‖ζ‖⁴ under μ
    tilted_second: Tensor  # e^{Λ(u) + Λ(-u)} E_u‖ζ‖²
    tilted_fourth: Tensor  # e^{Λ(u) + Λ(-u)} E_u‖ζ‖⁴
    reach: Tensor  # a bound of ‖ζ‖ on the support of μ


def _trace(matrix: Tensor) -> Tensor:
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1)


def per_query(function: Callable[[Tensor], Tensor], tilts: Tensor) -> Tensor:
    """Evaluate at all tilts, and where some lie outside the domain one by one, with infinity for those and for missing moments."""
    try:
        return function(tilts)
    except NoMomentError:
        return tilts.new_full((len(tilts),), torch.inf)
    except TiltDomainError:
        if len(tilts) == 1:
            return tilts.new_full((1,), torch.inf)
        return torch.cat([per_query(function, tilt[None]) for tilt in tilts])


def gather(mu: Measure, u: Tensor, V: Tensor) -> Ingredients:
    """Collect the moments for tilts u (query, d) and one value matrix V (o, d)."""
    # centred tokens: the same errors, and no digits lost to a large mean
    centre = mu.mean
    if bool((centre != 0).any()):
        mu = mu.map(torch.eye(mu.dim, dtype=V.dtype, device=V.device), -centre)
    cgf, limit = mu.cgf(u), mu.tilted_mean(u)

    def weight(j: float) -> Tensor:
        return torch.exp(per_query(lambda v: mu.cgf(j * v), u) - j * cgf)

    def numerator(j: float) -> Tensor:
        def size(v: Tensor) -> Tensor:
            shift = (mu.tilted_mean(j * v) - mu.tilted_mean(v)) @ V.mT
            return _trace(V @ mu.tilted_covariance(j * v) @ V.mT) + shift.square().sum(-1)

        return weight(j) * per_query(size, u)

    def pull(v: Tensor) -> Tensor:
        return ((mu.tilted_mean(2 * v) - mu.tilted_mean(v)) @ V.mT).square().sum(-1)

    both_ways = torch.exp(cgf + per_query(lambda v: mu.cgf(-v), u))
    image = mu.map(V)
    norm = torch.linalg.matrix_norm(V, 2)
    reach = norm * (mu.support_radius + limit.norm(dim=-1)) if float(norm) > 0 else torch.zeros_like(cgf)
    return Ingredients(
        log_rho=per_query(lambda v: mu.cgf(2 * v), u) - 2 * cgf,
        weight={j: weight(j) for j in (2.0,)},
        numerator={j: numerator(j) for j in (2.0, 3.0, 4.0)},
        pull=weight(2.0) ** 2 * per_query(pull, u),
        second=per_query(
            lambda v: _trace(V @ mu.covariance @ V.mT) + (mu.mean @ V.mT - mu.tilted_mean(v) @ V.mT).square().sum(-1), u
        ),
        fourth=per_query(lambda v: image.norm_moment4(mu.tilted_mean(v) @ V.mT), u),
        tilted_second=both_ways * per_query(lambda v: _trace(V @ mu.tilted_covariance(v) @ V.mT), u),
        tilted_fourth=both_ways * per_query(lambda v: mu.tilt(v).map(V).norm_moment4(mu.tilted_mean(v) @ V.mT), u),
        reach=reach,
    )


def fractional(mu: Measure, u: Tensor, V: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """E ω^p and a bound of E ω^p ‖ζ‖^p, 1 < p <= 2, by Jensen's inequality under the tilt by pu."""
    weight = torch.exp(per_query(lambda v: mu.cgf(p * v), u) - p * mu.cgf(u))

    def size(v: Tensor) -> Tensor:
        shift = (mu.tilted_mean(p * v) - mu.tilted_mean(v)) @ V.mT
        return (_trace(V @ mu.tilted_covariance(p * v) @ V.mT) + shift.square().sum(-1)) ** (p / 2)

    return weight, weight * per_query(size, u)
