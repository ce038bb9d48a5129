"""A rigorous upper bound on the error of the derivative in U.

Proof: docs/certificates.md. With ζ = x - T, C = ∇²Λ(u), b = T_L - T, the weighted covariance is C_L - C = Σ w (ζζ^T - C) - bb^T.
Where the normaliser D is at least θ, both terms are averages of centred quantities; elsewhere ‖C_L‖ <= Σ w‖ζ‖².
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import SoftmaxAttention
from largeprompt.certificates.ingredients import per_query
from largeprompt.certificates.output import Certificate, outward
from largeprompt.certificates.split import THETAS
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures import Gaussian, GaussianMixture, Measure


def _norm_moment8(mu: Measure, center: Tensor) -> Tensor:
    """E‖x - center‖⁸ for Gaussian laws and mixtures, from the cumulants of a quadratic form; infinite where it is not known.

    For x ~ N(δ, Γ) the cumulants of ‖x‖² are κ_r = 2^{r-1} (r-1)! (tr Γ^r + r δ^T Γ^{r-1} δ).
    """
    if isinstance(mu, GaussianMixture):
        weights, means, covariances = mu.weights, mu.means, mu.covariances
    elif isinstance(mu, Gaussian):
        weights, means, covariances = mu.mean.new_ones(1), mu.mean[None], mu.covariance[None]
    else:
        return center.new_full(center.shape[:-1], torch.inf)
    offset = means - center.unsqueeze(-2)  # (query, k, d)
    kappa, power, moved = [], torch.eye(mu.dim, dtype=center.dtype, device=center.device).expand_as(covariances), offset
    for r in range(1, 5):
        quadratic = (offset * moved).sum(-1)  # δ^T Γ^{r-1} δ
        power = power @ covariances
        trace = power.diagonal(dim1=-2, dim2=-1).sum(-1)
        kappa.append(2 ** (r - 1) * math.factorial(r - 1) * (trace + r * quadratic))
        moved = torch.einsum("kij,...kj->...ki", covariances, moved)
    k1, k2, k3, k4 = kappa
    moments: Tensor = weights * (k4 + 4 * k3 * k1 + 3 * k2**2 + 6 * k2 * k1**2 + k1**4)
    return moments.sum(-1)


def jacobian_certificate(attention: SoftmaxAttention, mu: Measure, z: Tensor, length: int | Sequence[int]) -> Certificate:
    """Rigorous upper bound of E‖dT_L/dU - dT/dU‖² = ‖z‖² E‖V(C_L - C)‖_F², for laws with a finite cgf at 4u.

    For bounded laws, Gaussian laws and mixtures; for others, and where Λ(4u) is infinite, the bound is infinite and says why.
    One head.

    Examples
    --------
    >>> from largeprompt.certificates import jacobian_certificate
    >>> attention = lp.SoftmaxAttention([[1.0]], [[1.0]])
    >>> jacobian_certificate(attention, lp.Rademacher(1), [0.5], length=10_000)
    Certificate(length=10000, rmse <= 0.003965, rho=1.214, derivative in U, theta = 0.9369)
    """
    if not isinstance(attention, SoftmaxAttention) or attention.heads:
        raise InvalidArgumentError("attention", repr(attention), "SoftmaxAttention with one head", "Loop over the heads.")
    lengths, several = validation.lengths("length", length)
    _, z = attention._values(mu, z)
    if mu.batch_shape:
        raise InvalidArgumentError("mu", repr(mu), "one law, without batch dimensions", "Loop over the laws.")
    V, shape, z = attention.V.detach(), z.shape[:-1], z.detach()
    u = attention.tilts(z).detach().reshape(-1, mu.dim)
    if bool((mu.mean != 0).any()):  # centred tokens: the same errors, and no digits lost to a large mean
        mu = mu.map(torch.eye(mu.dim, dtype=V.dtype, device=V.device), -mu.mean)
    limit, covariance, cgf = mu.tilted_mean(u), mu.tilted_covariance(u), mu.cgf(u)
    norm = torch.linalg.matrix_norm(V, 2)

    def weight(j: int) -> Tensor:
        return torch.exp(per_query(lambda v: mu.cgf(j * v), u) - j * cgf)

    def fluctuation(v: Tensor) -> Tensor:
        """E_{2u}‖V(ζζ^T - C)‖², from E‖Vζ‖²‖ζ‖² = (E‖(Vζ, ζ)‖⁴ - E‖Vζ‖⁴ - E‖ζ‖⁴)/2."""
        tilted, at, inner = mu.tilt(2 * v), mu.tilted_mean(v), mu.tilted_covariance(v)
        both = torch.cat([V, torch.eye(mu.dim, dtype=V.dtype, device=V.device)])
        parts = [tilted.map(A).norm_moment4(at @ A.mT) for A in (both, V)]
        mixed = (parts[0] - parts[1] - tilted.norm_moment4(at)) / 2
        offset = tilted.mean - at
        second = tilted.covariance + offset.unsqueeze(-1) * offset.unsqueeze(-2)
        crossed = ((V @ second) * (V @ inner)).sum(dim=(-2, -1))
        return mixed - 2 * crossed + (V @ inner).square().sum(dim=(-2, -1))

    def spread(v: Tensor) -> Tensor:
        offset = mu.tilted_mean(2 * v) - mu.tilted_mean(v)
        return mu.tilted_covariance(2 * v).diagonal(dim1=-2, dim2=-1).sum(-1) + offset.square().sum(-1)

    rho = weight(2)
    squared = rho * per_query(fluctuation, u)  # E ω²‖V(ζζ^T - C)‖²
    second = rho * per_query(spread, u)  # E ω²‖ζ‖²
    fourth = weight(4) * per_query(lambda v: mu.tilt(4 * v).norm_moment4(mu.tilted_mean(v)), u)  # E ω⁴‖ζ‖⁴
    reach4 = (mu.support_radius + limit.norm(dim=-1)) ** 4
    eighth = _norm_moment8(mu, limit)
    size = covariance.square().sum(dim=(-2, -1))
    theta = THETAS.to(u).unsqueeze(-1)
    factor = z.square().sum(-1).reshape(-1)
    columns, reasons = [], []
    for one in lengths:
        small = torch.exp(-one * (1 - theta) ** 2 / (2 * rho))  # P(D < θ)
        averages = squared / (one * theta**2)
        products = norm**2 * (fourth / one**3 + 3 * second**2 / one**2) / theta**4
        bounded = torch.where(torch.isinf(reach4), torch.inf, reach4 * small)
        largest = torch.minimum(bounded, torch.sqrt(torch.where(torch.isinf(eighth), torch.inf, small * one * eighth)))
        tail = torch.zeros_like(small) if float(norm) == 0 else 2 * norm**2 * (largest + size * small)
        value = (averages.clamp_min(0.0).sqrt() + products.sqrt()) ** 2 + tail
        best, index = torch.where(torch.isnan(value), torch.inf, value).min(0)
        level = theta[index, 0]
        reason = [
            f"derivative in U, theta = {float(t):.4g}"
            if math.isfinite(float(b))
            else "no bound: needs a finite cgf at 4u (and no overflow there), and a law that is bounded, Gaussian or a mixture"
            for b, t in zip(best, level, strict=True)
        ]
        rest = factor * torch.gather(tail, 0, index[None])[0]
        columns.append([outward(factor * best), factor * squared / one, rest, level, rho])
        reasons.append(reason)
    bound, leading, remainder, chosen, rate = (
        torch.stack([column[i] for column in columns]).reshape(len(lengths), *shape)[slice(None) if several else 0]
        for i in range(5)
    )
    words = np.array(reasons, dtype=object).reshape(len(lengths), *shape)
    words = words if several else np.asarray(words[0], dtype=object)
    return Certificate(
        bound, leading, remainder, chosen, rate, tuple(lengths) if several else lengths[0], words if words.ndim else words.item()
    )
