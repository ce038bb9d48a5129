"""A rigorous upper bound on the error of the derivative in U; proof: section 5 of docs/mathematics/certificates.md."""

import math

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import SoftmaxAttention
from largeprompt.attention.operators import one_head, one_law
from largeprompt.certificates.ingredients import TiltedMoments, nan_to_inf, trace
from largeprompt.certificates.output import Certificate, assemble
from largeprompt.certificates.split import THETAS
from largeprompt.measures import Gaussian, GaussianMixture, Measure
from largeprompt.measures.base import fourth_moment


def _norm_moment8(mu: Measure, center: Tensor) -> Tensor:
    """E‖x - center‖⁸ for Gaussian laws and mixtures, from the cumulants of a quadratic form; infinite where it is not known."""
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
        kappa.append(2 ** (r - 1) * math.factorial(r - 1) * (trace(power) + r * quadratic))
        moved = torch.einsum("kij,...kj->...ki", covariances, moved)
    return (weights * fourth_moment(*kappa)).sum(-1)


def jacobian_certificate(attention: SoftmaxAttention, mu: Measure, z: Tensor, length: validation.Lengths) -> Certificate:
    """Rigorous upper bound of E‖dT_L/dU - dT/dU‖² = ‖z‖² E‖V(C_L - C)‖_F², for laws with a finite cgf at 4u.

    For bounded laws, Gaussian laws and mixtures; for others, and where Λ(4u) is infinite, the bound is infinite and says why.
    Formulas (cert.12) and (cert.13) of docs/mathematics/certificates.md.

    Parameters
    ----------
    attention, mu, z, length
        As for :func:`certificate`; one head.

    Returns
    -------
    Certificate
        Its ``tail`` uses Markov's inequality alone.

    Examples
    --------
    >>> from largeprompt.certificates import jacobian_certificate
    >>> attention = lp.SoftmaxAttention([[1.0]], [[1.0]])
    >>> jacobian_certificate(attention, lp.Rademacher(1), [0.5], length=10_000)
    Certificate(length=10000, rmse <= 0.003965, rho=1.214, derivative in U, theta = 0.9369)
    """
    one_head(attention)
    lengths, several = validation.lengths("length", length)
    _, z = attention._values(mu, z)
    one_law(mu)
    V, shape, z = attention.V.detach(), z.shape[:-1], z.detach()
    moments = TiltedMoments(mu, attention._tilts(z).detach().reshape(-1, mu.dim))
    mu, covariance, norm = moments.mu, moments.mu.tilted_covariance(moments.u), torch.linalg.matrix_norm(V, 2)

    def fluctuation(u: Tensor, limit: Tensor) -> Tensor:
        """E_{2u}‖V(ζζ^T - C)‖², from E‖Vζ‖²‖ζ‖² = (E‖(Vζ, ζ)‖⁴ - E‖Vζ‖⁴ - E‖ζ‖⁴)/2."""
        tilted, inner = mu.tilt(2 * u), mu.tilted_covariance(u)
        both = torch.cat([V, torch.eye(mu.dim, dtype=V.dtype, device=V.device)])
        parts = [tilted.map(A).norm_moment4(limit @ A.mT) for A in (both, V)]
        mixed = (parts[0] - parts[1] - tilted.norm_moment4(limit)) / 2
        offset = tilted.mean - limit
        second = tilted.covariance + offset.unsqueeze(-1) * offset.unsqueeze(-2)
        crossed = ((V @ second) * (V @ inner)).sum(dim=(-2, -1))
        return mixed - 2 * crossed + (V @ inner).square().sum(dim=(-2, -1))

    rho = moments.weight(2)
    squared = nan_to_inf(rho * moments.each(fluctuation))  # E ω²‖V(ζζ^T - C)‖²
    second = moments.numerator(2)  # E ω²‖ζ‖²
    fourth = moments.weight(4) * moments.each(lambda u, limit: mu.tilt(4 * u).norm_moment4(limit))  # E ω⁴‖ζ‖⁴
    reach4, eighth = moments.reach() ** 4, _norm_moment8(mu, moments.limit)
    size = covariance.square().sum(dim=(-2, -1))
    theta = THETAS.to(rho).unsqueeze(-1)
    factor = z.square().sum(-1).reshape(-1)
    rows = []
    for one in lengths:
        small = torch.exp(-one * (1 - theta) ** 2 / (2 * rho))  # P(D < θ), by (cert.3)
        averages = squared / (one * theta**2)
        products = norm**2 * (fourth / one**3 + 3 * second**2 / one**2) / theta**4
        bounded = torch.where(torch.isinf(reach4), torch.inf, reach4 * small)
        largest = torch.minimum(bounded, torch.sqrt(torch.where(torch.isinf(eighth), torch.inf, small * one * eighth)))
        tail = 2 * norm**2 * (largest + size * small)
        value = nan_to_inf((averages.clamp_min(0.0).sqrt() + products.sqrt()) ** 2 + tail)
        if float(norm) == 0:  # a layer that reads nothing has no error, whatever is infinite
            tail, value = torch.zeros_like(tail), torch.zeros_like(value)
        best, index = value.min(0)
        level = theta[index, 0]
        reason = [
            f"derivative in U, theta = {float(t):.4g}"
            if math.isfinite(float(b))
            else "no bound: needs a finite cgf at 4u (and no overflow there), and a law that is bounded, Gaussian or a mixture"
            for b, t in zip(best, level, strict=True)
        ]
        rest = factor * torch.gather(tail, 0, index[None])[0]
        total = torch.where(factor == 0, 0.0, factor * best)
        numbers = (total, factor * squared / one, rest, level, rho)
        rows.append((*(number.reshape(shape) for number in numbers), np.array(reason, dtype=object).reshape(shape)))
    return assemble(rows, lengths, several)
