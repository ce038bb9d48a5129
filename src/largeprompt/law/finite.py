"""The law of attention over a finite prompt, as an object with its numbers."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import SoftmaxAttention
from largeprompt.errors import InvalidArgumentError
from largeprompt.law import gaussian, mixture
from largeprompt.law.regime import regime
from largeprompt.measures import Gaussian, GaussianMixture, Measure
from largeprompt.validation import Lengths


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class FinitePromptLaw:
    """What attention over L random tokens is, on average and around it.

    Shapes: lengths lead (nothing for a single length), then heads, then queries.

    Attributes
    ----------
    limit
        T, the infinite-prompt output, shape (..., o), without the lengths.
    mean, bias
        E T_L and E T_L - T, shape (..., o).
    covariance
        Cov T_L, shape (..., o, o).
    mse
        E‖T_L - T‖², shape (...).
    jacobian_v_mse
        E‖dT_L/dV - dT/dV‖².
    score_variance
        Variance of the scores u·x, u = Uz.
    effective_tokens
        1/E Y, the effective number of tokens read.
    length
        L, a number or a tuple.
    method
        'exact', or 'first order' for the expansion in 1/L.
    """

    limit: Tensor
    mean: Tensor
    bias: Tensor
    covariance: Tensor
    mse: Tensor
    jacobian_v_mse: Tensor
    score_variance: Tensor
    effective_tokens: Tensor
    length: float | tuple[float, ...]
    method: Literal["exact", "first order"]
    _jacobian_u: Callable[[], Tensor]

    @functools.cached_property
    def jacobian_u_mse(self) -> Tensor:
        """E‖dT_L/dU - dT/dU‖², shape (...), computed when first asked for."""
        return self._jacobian_u()

    @property
    def regime(self) -> Any:
        """'linear', 'heavy' or 'frozen'; an array of these names where there are several lengths or queries."""
        lengths = np.asarray(self.length, dtype=np.float64)
        variance = self.score_variance.detach().cpu().to(torch.float64).numpy()
        spread = lengths.reshape(lengths.shape + (1,) * (variance.ndim - lengths.ndim))
        names = np.vectorize(regime, otypes=[object])(*np.broadcast_arrays(variance, spread))
        return names.item() if names.ndim == 0 else names

    def __repr__(self) -> str:
        if self.mse.dim():
            return f"FinitePromptLaw({self.method}, batch={tuple(self.mse.shape)}, length={self.length})"
        return (
            f"FinitePromptLaw({self.method}, length={self.length:g}, rmse={float(self.mse) ** 0.5:.4g}, "
            f"effective_tokens={float(self.effective_tokens):.4g}, regime='{self.regime}')"
        )


def finite_prompt(
    attention: SoftmaxAttention, mu: Measure, z: Tensor, length: Lengths, *, expansion: bool = False
) -> FinitePromptLaw:
    """Law of softmax attention over a prompt of L independent tokens from ``mu``.

    Exact for :class:`Gaussian` (differentiable in the layer, the query and the law) and :class:`GaussianMixture` (numbers without a
    gradient), at a cost that does not depend on the length: formulas (law.8) to (law.10) of docs/mathematics/finite_prompt.md and
    (quad.10) of docs/mathematics/quadrature.md.

    Parameters
    ----------
    attention
        The layer.
    mu
        The law of the tokens.
    z
        Queries, shape ``(*queries, d)``.
    length
        L, an integer from 1 to 10^15 or ``math.inf``; or several, which then lead the shape of every result.
    expansion
        Use the first order in 1/L, for any law with a finite cgf at 2u. It is an approximation, labelled 'first order', never a
        bound: formulas (first.3) and (first.4) of docs/mathematics/first_order.md.

    Returns
    -------
    FinitePromptLaw
        Limit, mean, bias, covariance and mean squared errors of the output and its Jacobians.

    Examples
    --------
    >>> eye = torch.eye(4, dtype=torch.float64)
    >>> attention = lp.SoftmaxAttention(eye, eye)
    >>> mu = lp.Gaussian(torch.zeros(4, dtype=torch.float64), eye)
    >>> from largeprompt.law import finite_prompt
    >>> finite_prompt(attention, mu, [1.0, 0.0, 0.0, 1.0], length=100)
    FinitePromptLaw(exact, length=100, rmse=0.5191, effective_tokens=18.82, regime='linear')
    """
    if not isinstance(attention, SoftmaxAttention):
        raise InvalidArgumentError("attention", type(attention).__name__, "SoftmaxAttention")
    lengths, several = validation.lengths("length", length, allow_infinity=True)
    values, z = attention._values(mu, z)
    u = attention._tilts(z)
    if expansion:
        parts = [_first_order(mu, u, values, one) for one in lengths]
        method: Literal["exact", "first order"] = "first order"
    elif isinstance(mu, Gaussian):
        parts, method = gaussian.output_laws(mu, u, values, lengths), "exact"
    elif isinstance(mu, GaussianMixture):
        parts, method = mixture.output_laws(mu, u, values, lengths), "exact"
    else:
        remedy = "Use expansion=True for the first order in 1/L, certificate(...) for a bound, or sample_prompts(...)."
        allowed = "Gaussian or GaussianMixture, whose finite-prompt law is known exactly"
        raise InvalidArgumentError("mu", repr(mu), allowed, remedy)
    size = z.square().sum(-1)

    def jacobian_u() -> Tensor:
        if not isinstance(mu, Gaussian) or expansion:
            remedy = "Use sample_prompts(..., jacobian=True), or jacobian_certificate(...) for a bound."
            raise InvalidArgumentError("jacobian_u_mse", f"{mu!r}, {method}", "Gaussian tokens, exact", remedy)
        return pack([size * gaussian.jacobian_error(mu, u, values, one) for one in lengths])

    def pack(results: Sequence[Tensor]) -> Tensor:
        return torch.stack(torch.broadcast_tensors(*results)) if several else results[0]

    limit = attention(mu, z)
    if isinstance(mu, GaussianMixture) and not expansion:
        limit = limit.detach()  # its law carries no gradient, and half of one would be wrong
    inner = limit.shape[:-1]
    bias, covariance = (pack([part[i] for part in parts]) for i in (0, 1))
    mse, value_mse, collision = (pack([part[i].expand(inner) for part in parts]) for i in (2, 3, 4))
    variance = (u.unsqueeze(-2) @ mu.covariance @ u.unsqueeze(-1)).squeeze(-1).squeeze(-1)
    return FinitePromptLaw(
        limit=limit,
        mean=limit + bias,
        bias=bias,
        covariance=covariance,
        mse=mse,
        jacobian_v_mse=values.shape[-2] * value_mse,
        score_variance=variance.clamp_min(0.0).expand(mse.shape),
        effective_tokens=1 / collision,
        length=tuple(lengths) if several else lengths[0],
        method=method,
        _jacobian_u=jacobian_u,
    )


def finite_prompt_errors(attention: SoftmaxAttention, mu: Measure, z: Tensor, lengths: Sequence[int]) -> Tensor:
    """E‖T_L - T‖² alone for several lengths, shape (length, ...): what a search over lengths needs of :func:`finite_prompt`."""
    if isinstance(attention, SoftmaxAttention) and isinstance(mu, Gaussian):
        values, z = attention._values(mu, z)
        return gaussian.output_errors(mu, attention._tilts(z), values, validation.lengths("length", lengths)[0])
    return finite_prompt(attention, mu, z, lengths).mse


def _first_order(mu: Measure, u: Tensor, values: Tensor, length: float) -> tuple[Tensor, ...]:
    """Leading order in 1/L of bias, covariance, mse, mse without V, and E Y: formulas (first.3) and (first.4)."""
    rate = torch.exp(mu.cgf(2 * u) - 2 * mu.cgf(u)) / length
    delta = mu.tilted_mean(2 * u) - mu.tilted_mean(u)
    spread = mu.tilted_covariance(2 * u) + delta.unsqueeze(-1) * delta.unsqueeze(-2)
    bias = -rate.unsqueeze(-1) * (values @ delta.unsqueeze(-1)).squeeze(-1)
    covariance = rate[..., None, None] * (values @ spread @ values.mT)
    return bias, covariance, gaussian.trace(covariance), rate * gaussian.trace(spread), rate
