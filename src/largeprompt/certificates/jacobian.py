"""Rigorous upper bounds on the errors of the derivatives in U and V; proofs: section 5 of docs/mathematics/certificates.md."""

import dataclasses
import math

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import SoftmaxAttention
from largeprompt.attention.operators import one_head, one_law
from largeprompt.certificates.ingredients import Ingredients, TiltedMoments, binary_exponent, nan_to_inf, rescaled, trace, usable
from largeprompt.certificates.output import Certificate, assemble, certificate, widened
from largeprompt.certificates.split import THETAS, plain_bounds
from largeprompt.measures import Measure


def jacobian_certificate(attention: SoftmaxAttention, mu: Measure, z: Tensor, length: validation.Lengths) -> Certificate:
    """Rigorous upper bounds of E‖dT_L/dU - dT/dU‖² = ‖z‖² E‖V(C_L - C)‖_F² and of E‖dT_L/dV - dT/dV‖², any law, any L >= 1.

    Where the cgf is finite at 2u, (cert.12) and (cert.13) of docs/mathematics/certificates.md, which fall like 1/L, with the right
    constant where it is finite at 4u; else the last part of (cert.13), which holds because C_L is made of averages of tokens, and
    does not fall. Infinite without fourth moments.

    Parameters
    ----------
    attention, mu, z, length
        As for :func:`certificate`; one head.

    Returns
    -------
    Certificate
        ``bound`` is for the derivative in U, and its ``tail`` uses Markov's inequality alone; ``jacobian_v_bound`` is for the
        derivative in V: the rows of V times the output certificate with V = I.

    Examples
    --------
    >>> from largeprompt.certificates import jacobian_certificate
    >>> attention = lp.SoftmaxAttention([[1.0]], [[1.0]])
    >>> found = jacobian_certificate(attention, lp.Rademacher(1), [0.5], length=10_000)
    >>> found
    Certificate(length=10000, rmse <= 0.003952, derivative in U, theta = 0.9369; read well beyond rho = 1.214 tokens)
    >>> print(f"{float(found.jacobian_v_bound):.3g}")
    6.19e-05
    """
    one_head(attention)
    layer, law, queries = widened(attention, mu, z)
    lengths, several = validation.lengths("length", length)
    one_law(law)
    shape, eye = queries.shape[:-1], torch.eye(law.dim, dtype=queries.dtype, device=queries.device)
    with torch.no_grad():
        moments, exponents = TiltedMoments(law, layer._tilts(queries).reshape(-1, law.dim)), binary_exponent(layer.V, (-2, -1))
        flat, V = queries.reshape(-1, law.dim), layer.V * torch.exp2(-exponents)
        query_exponents = binary_exponent(flat, (-1,))
        factor = (flat * torch.exp2(-query_exponents).unsqueeze(-1)).square().sum(-1)
        exponents = exponents + 2 * moments.exponent + query_exponents  # what was scaled out of V, of the tokens twice, and of z
        parts = _Parts(moments, Ingredients(moments, eye), V)
        rows = []
        for one in lengths:
            *numbers, reason = parts.bound(one)
            numbers[:3] = [rescaled(torch.where(factor == 0, 0.0, factor * number), exponents) for number in numbers[:3]]
            rows.append((*(number.reshape(shape) for number in numbers), np.array(reason, dtype=object).reshape(shape)))
    found = assemble(rows, lengths, several, mu.dtype)
    output = certificate(SoftmaxAttention(attention.U, eye.to(attention.V)), mu, z, length)
    return dataclasses.replace(found, jacobian_v_bound=attention.V.shape[-2] * output.bound)


class _Parts:
    """What the bound of E‖V(C_L - C)‖² is made of, for V and tokens of ordinary size, shape (query,)."""

    def __init__(self, moments: TiltedMoments, plain: Ingredients, V: Tensor) -> None:
        mu, each = moments.mu, moments.each

        def fluctuation(u: Tensor, limit: Tensor) -> Tensor:
            """E_{2u}‖V(ζζ^T - C)‖² = E‖Vζ‖²‖ζ‖² - 2 <V E ζζ^T, VC> + ‖VC‖², rounded up by what the difference may have lost."""
            offset, read = mu.tilted_mean(2 * u) - limit, V @ mu.tilted_covariance(u)
            second = V @ mu.tilted_covariance(2 * u) + (offset @ V.mT).unsqueeze(-1) * offset.unsqueeze(-2)
            mixed, crossed = mu.tilted_norm_moment4(2 * u, limit, V), 2 * (second * read).sum(dim=(-2, -1))
            size = read.square().sum(dim=(-2, -1))
            return mixed - crossed + size + 1024 * torch.finfo(u.dtype).eps * (mixed + crossed.abs() + size)

        self.plain, self.norm = plain, torch.linalg.matrix_norm(V, 2)
        self.squared = usable(plain.rho * each(fluctuation))  # E ω²‖V(ζζ^T - C)‖²
        self.fourths = [
            usable(moments.weight(j) * each(lambda u, limit, j=j: mu.tilted_norm_moment4(j * u, limit)))  # type: ignore[misc]
            for j in (2.0, 4.0)
        ]  # E ω^j‖ζ‖⁴
        self.trace = usable(each(lambda u, _: trace(mu.tilted_covariance(u))))  # tr C = E ω‖ζ‖²
        self.limit = usable(each(lambda u, _: mu.tilted_covariance(u).square().sum(dim=(-2, -1))))  # ‖C‖²
        self.read = usable(each(lambda u, _: (V @ mu.tilted_covariance(u)).square().sum(dim=(-2, -1))))  # ‖VC‖²

    def bound(self, length: float) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, list[str]]:
        """Smallest of (cert.12) and (cert.13) for each query: (bound, leading, remainder, theta, rho, reason)."""
        if float(self.norm) == 0:  # a layer that reads nothing has no error, whatever is infinite
            zero, rho = torch.zeros_like(self.squared), self.plain.rho
            return zero, zero, zero, zero + 1, rho, ["derivative in U, nothing is read"] * len(zero)
        rho, theta, square = self.plain.rho, THETAS.to(self.squared).unsqueeze(-1), self.norm**2
        average = plain_bounds(self.plain, length)[1].square()  # M₄
        small = torch.exp(-length * (1 - theta) ** 2 / (2 * rho))  # P(D < θ), by (cert.3)
        others = max(length - 1, 1)
        rest = torch.exp(-((length - 1 - theta * length).clamp_min(0.0) ** 2) / (2 * others * rho))  # P(the others' share < θ)
        largest = torch.minimum(average.expand_as(small), nan_to_inf(length * self.plain.fourth * rest))
        largest = torch.minimum(largest, nan_to_inf(self.plain.reach**4 * small))
        tail = square * (largest + self.limit * small)
        (second, fourth), a2 = self.fourths, self.plain.numerator[0]
        products = nan_to_inf((fourth / length**3 + 3 * a2**2 / length**2) / theta**4)
        products = square * torch.minimum(products, (second.sqrt() + (a2 * self.trace / theta).sqrt()) ** 2 / (length * theta**2))
        best, index = nan_to_inf((self.squared.sqrt() / (theta * math.sqrt(length)) + products.sqrt()) ** 2 + tail).min(0)
        remainder, level = tail.gather(0, index[None])[0], theta[index, 0]
        plain = self.read if length == 1 else square * (average + self.limit)
        better = best < plain
        reason = [
            f"derivative in U, theta = {t:.4g}" if chosen else self._vacuous(length, r, p)
            for chosen, t, r, p in zip(better.tolist(), level.tolist(), rho.tolist(), plain.tolist(), strict=True)
        ]
        leading, one = self.squared / length, torch.ones_like(level)
        zero = torch.zeros_like(remainder)
        return (
            torch.minimum(best, plain),
            leading,
            torch.where(better, remainder, zero),
            torch.where(better, level, one),
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
        cause = "the cgf is infinite at 2u, or overflows there" if math.isinf(rho) else f"{length:g} tokens are too few"
        return f"derivative in U, averages of tokens, no more: {cause}"
