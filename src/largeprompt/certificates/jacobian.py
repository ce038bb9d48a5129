"""Rigorous upper bounds on the errors of the derivatives in U and V; proofs: section 5 of
docs/mathematics/certificates.md.
"""

import dataclasses
import math

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import SoftmaxAttention
from largeprompt.attention.operators import one_head, one_law
from largeprompt.certificates.ingredients import (
    Ingredients,
    TiltedMoments,
    binary_exponent,
    nan_to_inf,
    positive,
    rescaled,
    usable,
)
from largeprompt.certificates.output import Certificate, assemble, certificate, widened
from largeprompt.certificates.split import THETAS, plain_bounds
from largeprompt.devices import sheltered
from largeprompt.measures import Measure


@sheltered
@torch.no_grad()
def jacobian_certificate(
    attention: SoftmaxAttention, mu: Measure, z: validation.ArrayLike, length: validation.Lengths
) -> Certificate:
    """Rigorous upper bounds of E‖dT_L/dU - dT/dU‖² = ‖z‖² E‖V(C_L - C)‖_F² and of E‖dT_L/dV -
    dT/dV‖², any law, any L >= 1.

    Where the cgf is finite at 2u, (cert.12) and (cert.13) of docs/mathematics/certificates.md,
    which fall like 1/L, with the right constant where it is finite at 4u; else the last part of
    (cert.13), which holds because C_L is made of averages of tokens, and does not fall. Infinite
    without fourth moments.

    Parameters
    ----------
    attention, mu, z, length
        As for :func:`certificate`; one head.

    Returns
    -------
    Certificate
        ``bound`` is for the derivative in U, and its ``tail`` uses Markov's inequality alone;
        ``jacobian_v_bound`` is for the derivative in V: the rows of V times the output certificate
        with V = I.

    Examples
    --------
    >>> from largeprompt.certificates import jacobian_certificate
    >>> attention = lp.SoftmaxAttention([[1.0]], [[1.0]])
    >>> jacobian_certificate(attention, lp.Rademacher(1), [0.5], length=10_000)
    Certificate(length=10000, rmse <= 0.003952, derivative in U, theta = 0.9369; ...)
    """
    one_head(attention)
    layer, law, queries = widened(attention, mu, z)
    lengths, several = validation.lengths("length", length)
    one_law(law)
    shape, eye = queries.shape[:-1], torch.eye(law.dim, dtype=queries.dtype, device=queries.device)
    moments, exponents = (
        TiltedMoments(law, layer._tilts(queries).reshape(-1, law.dim)),
        binary_exponent(layer.V, (-2, -1)),
    )
    flat, V = queries.reshape(-1, law.dim), layer.V * torch.exp2(-exponents)
    query_exponents = binary_exponent(flat, (-1,))
    factor = (flat * torch.exp2(-query_exponents).unsqueeze(-1)).square().sum(-1)
    # what was scaled out of V, of the tokens twice, and of z
    exponents = exponents + 2 * moments.exponent + query_exponents
    parts = _Parts(moments, Ingredients(moments, eye), V)
    rows = []
    for one in lengths:
        *numbers, reason = parts.bound(one)
        numbers[:3] = [
            rescaled(torch.where(factor == 0, 0.0, factor * number), exponents)
            for number in numbers[:3]
        ]
        rows.append(
            (
                *(number.reshape(shape) for number in numbers),
                np.array(reason, dtype=object).reshape(shape),
            )
        )
    found = assemble(rows, lengths, several, mu.dtype)
    output = certificate(SoftmaxAttention(attention.U, eye.to(attention.V)), mu, z, length)
    return dataclasses.replace(found, jacobian_v_bound=attention.V.shape[-2] * output.bound)


class _Parts:
    """What the bound of E‖V(C_L - C)‖² is made of, for V and tokens of ordinary size, shape
    (query,).
    """

    def __init__(self, moments: TiltedMoments, plain: Ingredients, V: Tensor) -> None:
        mu, each = moments.mu, moments.each
        _, one, two, _, four = plain.readings
        own, read = moments.read(1.0, V), moments.read(2.0, V)

        def crossed(u: Tensor, limit: Tensor, _: Tensor) -> Tensor:
            """<V E_{2u} ζζ^T, VC>."""
            offset = mu.tilted_mean(2 * u) - limit
            second = V @ mu.tilted_covariance(2 * u) + (offset @ V.mT).unsqueeze(
                -1
            ) * offset.unsqueeze(-2)
            return (second * (V @ mu.tilted_covariance(u))).sum(dim=(-2, -1))

        square = each(lambda u, *_: mu.tilted_covariance(u).square().sum(dim=(-2, -1)))
        kept = each(lambda u, *_: (V @ mu.tilted_covariance(u)).square().sum(dim=(-2, -1)))
        cross, mixed = (
            each(crossed),
            each(lambda u, limit, _: mu.tilted_norm_moment4(2 * u, limit, V)),
        )
        second = each(lambda u, limit, _: mu.tilted_norm_moment4(2 * u, limit))
        fourth = each(lambda u, limit, _: mu.tilted_norm_moment4(4 * u, limit))
        self.plain, self.norm = plain, torch.linalg.matrix_norm(V, 2)
        # E_{2u}‖V(ζζ^T - C)‖² with its rounding, and by Minkowski's inequality what the rounding of
        # T and C moves
        size = (
            mixed
            - 2 * cross
            + kept
            + 2 * two.level * (mixed + 2 * cross.abs() + kept + read.width * two.width)
        )
        off = own.level * (own.size * one.size).sqrt()
        moved = self.norm * two.slip * (2 * two.spread.sqrt() + two.slip) + off
        # E ω²‖V(ζζ^T - C)‖²
        self.squared = usable(plain.rho * (size.clamp_min(0.0).sqrt() + moved) ** 2)
        # E ω^j‖ζ‖⁴
        self.fourths = (
            usable(two.weight * two.fourth(second)),
            usable(four.weight * four.fourth(fourth)),
        )
        self.trace = usable(one.spread)  # tr C = E ω‖ζ‖²
        self.limit = usable((square.sqrt() + one.level * one.size) ** 2)  # ‖C‖²
        self.read = usable((kept.sqrt() + off) ** 2)  # ‖VC‖²

    def bound(self, length: float) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, list[str]]:
        """Smallest of (cert.12) and (cert.13) for each query: (bound, leading, remainder, theta,
        rho, reason).
        """
        if float(self.norm) == 0:  # a layer that reads nothing has no error, whatever is infinite
            zero, rho = torch.zeros_like(self.squared), self.plain.rho
            return zero, zero, zero, zero + 1, rho, ["derivative in U, nothing is read"] * len(zero)
        rho, theta, square = self.plain.rho, THETAS.to(self.squared).unsqueeze(-1), self.norm**2
        average = plain_bounds(self.plain, length)[1].square()  # M₄
        small = torch.exp(-length * (1 - theta) ** 2 / (2 * rho))  # P(D < θ), by (cert.3)
        others = max(length - 1, 1)
        # P(the others' share < θ)
        rest = torch.exp(-((length - 1 - theta * length).clamp_min(0.0) ** 2) / (2 * others * rho))
        largest = torch.minimum(
            average.expand_as(small), nan_to_inf(length * self.plain.fourth * rest)
        )
        largest = torch.minimum(largest, nan_to_inf(self.plain.reach**4 * small))
        tail = square * (largest + self.limit * small)
        (second, fourth), a2 = self.fourths, self.plain.numerator[0]
        products = nan_to_inf((fourth / length**3 + 3 * a2**2 / length**2) / theta**4)
        products = square * torch.minimum(
            products, (second.sqrt() + (a2 * self.trace / theta).sqrt()) ** 2 / (length * theta**2)
        )
        best, index = nan_to_inf(
            (self.squared.sqrt() / (theta * math.sqrt(length)) + products.sqrt()) ** 2 + tail
        ).min(0)
        remainder, level = tail.gather(0, index[None])[0], theta[index, 0]
        plain = self.read if length == 1 else square * (average + self.limit)
        better = best < plain
        reason = [
            f"derivative in U, theta = {t:.4g}" if chosen else self._vacuous(length, r, p)
            for chosen, t, r, p in zip(
                better.tolist(), level.tolist(), rho.tolist(), plain.tolist(), strict=True
            )
        ]
        bound = positive(torch.minimum(best, plain), self.plain.second)
        return (
            bound,
            self.squared / length,
            torch.where(better, remainder, 0.0),
            torch.where(better, level, 1.0),
            rho,
            reason,
        )

    @staticmethod
    def _vacuous(length: float, rho: float, plain: float) -> str:
        """Why nothing better is known than that the derivative is made of averages of tokens."""
        if length == 1:
            return "derivative in U, one token: none"
        if math.isinf(plain):
            return "derivative in U, no bound: the tokens have no fourth moment"
        cause = (
            "the cgf is infinite at 2u, or overflows there"
            if math.isinf(rho)
            else f"{length:g} tokens are too few"
        )
        return f"derivative in U, averages of tokens, no more: {cause}"
