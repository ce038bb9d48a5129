"""The law of attention over a finite prompt, as an object with its numbers: the one door to all of
:mod:`largeprompt.law`.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import SoftmaxAttention
from largeprompt.attention.operators import Attention
from largeprompt.devices import sheltered
from largeprompt.display.by_length import ByLength
from largeprompt.display.tables import plain
from largeprompt.errors import InvalidArgumentError
from largeprompt.law import gaussian
from largeprompt.law.chain import chain_prompt
from largeprompt.law.engine import Expectations, solve
from largeprompt.measures import Gaussian, MarkovChain, Measure
from largeprompt.validation import ArrayLike, Lengths

Method = Literal["exact", "first order"]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class FinitePromptLaw(ByLength):
    """What attention over L random tokens is, on average and around it.

    Shapes: lengths lead (nothing for a single length), then heads, then queries. Tokens without an
    exponential moment, such as Student's t, have a finite-prompt law and no limit: ``mean``,
    ``covariance`` and ``effective_tokens`` exist, and ``limit``, ``bias`` and ``mse`` raise
    :class:`~largeprompt.errors.TiltDomainError`.

    Numbers other than ``mean`` and ``effective_tokens`` are computed when first asked for.

    Attributes
    ----------
    attention, mu, z, length
        What was asked; ``length`` is a number or a tuple.
    method
        'exact', or 'first order' for the expansion in 1/L.
    """

    attention: SoftmaxAttention
    mu: Measure | MarkovChain
    z: Tensor
    length: float | tuple[float, ...]
    method: Method

    _size: ClassVar[str] = "effective_tokens"
    _numbers: ClassVar[dict[str, str]] = {
        "mean": "mean output over prompts",
        "effective_tokens": "effective number of tokens read",
        "score_variance": "variance of the scores",
        "regime": "regime of the softmax",
        "limit": "output of the infinite prompt",
        "bias": "mean output minus the limit",
        "mse": "mean squared error",
        "rmse": "root mean squared error",
        "jacobian_v_mse": "mean squared error of the derivative in V",
    }

    def __getstate__(self) -> dict[str, Any]:
        """The question and the numbers known so far, without their gradients."""
        known = {name: value for name, value in self.__dict__.items() if name != "_expectations"}
        return {name: _detached(value) for name, value in known.items()}

    @functools.cached_property
    @sheltered
    def _expectations(self) -> Expectations:
        lengths = self.length if isinstance(self.length, tuple) else (self.length,)
        return _solve(self.attention, self.mu, self.z, lengths, self.method)

    def _pack(self, found: Tensor) -> Tensor:
        return (found if isinstance(self.length, tuple) else found[0]).to(self.z.device)

    @property
    def _token(self) -> Measure:
        """Law of one token."""
        return self.mu.ngrams(self.mu.order + 1) if isinstance(self.mu, MarkovChain) else self.mu

    @functools.cached_property
    def mean(self) -> Tensor:
        """E T_L, shape (..., o); NaN where the tokens have no mean (Student's t with df <= 1)."""
        return self._pack(self._expectations.mean)

    @functools.cached_property
    def effective_tokens(self) -> Tensor:
        """1/E Y, the effective number of tokens read, shape (...)."""
        return 1 / self._pack(self._expectations.collision)

    @functools.cached_property
    def score_variance(self) -> Tensor:
        """Variance of the scores u·x, u = Uz, shape (...)."""
        u = self.attention._tilts(self.z)
        variance = torch.einsum("...i,...ij,...j->...", u, self._token.covariance.to(u), u)
        return variance.clamp_min(0.0).expand(self.effective_tokens.shape)

    @functools.cached_property
    def limit(self) -> Tensor:
        """T, the infinite-prompt output, shape (..., o), without the lengths."""
        law = self._token.to(device=self.z.device)
        found = self.attention._limit(law, self.z)
        return found if isinstance(law, Gaussian) or self.method != "exact" else found.detach()

    @functools.cached_property
    @sheltered
    def _errors(self) -> tuple[Tensor, Tensor, Tensor]:
        bias, mse, without_values = map(self._pack, self._expectations.errors())
        return bias, mse, self.attention.V.shape[-2] * without_values

    @property
    def bias(self) -> Tensor:
        """E T_L - T, shape (..., o)."""
        return self._errors[0]

    @property
    def mse(self) -> Tensor:
        """E‖T_L - T‖², shape (...)."""
        return self._errors[1]

    @property
    def rmse(self) -> Tensor:
        """√E‖T_L - T‖², shape (...)."""
        return self.mse.clamp_min(0.0).sqrt()

    @property
    def jacobian_v_mse(self) -> Tensor:
        """E‖dT_L/dV - dT/dV‖², shape (...)."""
        return self._errors[2]

    @functools.cached_property
    @sheltered
    def covariance(self) -> Tensor:
        """Cov T_L, shape (..., o, o)."""
        return self._pack(self._expectations.covariance())

    @functools.cached_property
    @sheltered
    def jacobian_u_mse(self) -> Tensor:
        """E‖dT_L/dU - dT/dU‖², shape (...)."""
        return self.z.square().sum(-1) * self._pack(self._expectations.jacobian())

    @property
    def regime(self) -> Any:
        """'linear', 'heavy' or 'frozen'; an array of names for several lengths or queries."""
        lengths = np.asarray(self.length, dtype=np.float64)
        variance = self.score_variance.detach().cpu().to(torch.float64).numpy()
        spread = lengths.reshape(lengths.shape + (1,) * (variance.ndim - lengths.ndim))
        names = np.vectorize(gaussian.regime, otypes=[object])(
            *np.broadcast_arrays(variance, spread)
        )
        return names.item() if names.ndim == 0 else names

    @property
    def _limited(self) -> bool:
        """Whether there is a limit to be close to."""
        return bool(self._token._in_domain(self.attention._tilts(self.z)).all())

    def _words(self, *more: str) -> str:
        return super()._words(
            self.method, *more, *([] if self._batch or self._limited else ["no limit"])
        )

    def _columns(self) -> dict[str, Any]:
        tokens = {"effective_tokens": self.effective_tokens}
        return {"rmse": self.rmse} | tokens | {"regime": self.regime} if self._limited else tokens

    def _known(self) -> dict[str, tuple[str, Any]]:
        names = self._numbers if self._limited else ("mean", "effective_tokens")
        return {name: (self._numbers[name], getattr(self, name)) for name in names}

    def _curve(self) -> dict[str, Any]:
        return {"label": self.method}

    def __repr__(self) -> str:
        if self.effective_tokens.dim():
            return self._summary()
        numbers, end = f"effective_tokens={plain(self.effective_tokens.detach())}", ""
        if self._limited:
            numbers = f"rmse={float(self.rmse.detach()):.4g}, {numbers}"
            end = f", regime='{self.regime}'"
        kind = self.method if self._limited else f"{self.method}, no limit"
        return f"FinitePromptLaw({kind}, length={plain(self.length)}, {numbers}{end})"


@sheltered
def finite_prompt(
    attention: SoftmaxAttention,
    mu: Measure | MarkovChain,
    z: ArrayLike,
    length: Lengths,
    *,
    expansion: bool = False,
) -> FinitePromptLaw:
    """Exact law of softmax attention over L random tokens, at a cost that does not depend on L.

    On the scale of the accuracy contract: E‖T_L - T‖² to 1e-8 of itself plus 1e-13 E[Y] ‖V‖²
    E‖x - T‖². What rounding keeps from it is refused. Gaussian tokens give numbers that are
    differentiable in the layer, the query and the law; other laws give plain numbers.

    ======================================================= =====================
    law of the tokens, and tilt u = Uz                      method
    ======================================================= =====================
    Gaussian                                                closed form
    Empirical, Discrete, GaussianMixture, Sphere            nodes of the score
    MarkovChain                                             transfer matrices
    others, where the cgf is finite at u                    contours
    one heavy-tailed entry tilted, where it is infinite     density of that entry
    several entries tilted, where it is infinite            refused
    ======================================================= =====================

    Formulas (law.8) to (law.10) of docs/mathematics/finite_prompt.md and (engine.1) to (engine.6)
    of docs/mathematics/engine.md.

    Parameters
    ----------
    attention
        The layer.
    mu
        The law of the tokens. An :class:`Empirical` gives prompts resampled from it: the bootstrap,
        exactly. A :class:`~largeprompt.measures.MarkovChain` gives L windows of a stationary path,
        which are not independent.
    z
        Queries, shape ``(*queries, d)``.
    length
        L, an integer from 1 to 10^15 or ``math.inf``; or several, which then lead the shape of
        every result and share the work.
    expansion
        Use the first order in 1/L, for independent tokens of any law with a finite cgf at 2u. It is
        an approximation, labeled 'first order', never a bound: formulas (first.3) and (first.4) of
        docs/mathematics/first_order.md.

    Returns
    -------
    FinitePromptLaw
        Limit, mean, bias, covariance and mean squared errors of the output and its Jacobians.

    Examples
    --------
    >>> eye = torch.eye(4, dtype=torch.float64)
    >>> attention = lp.SoftmaxAttention(eye, eye)
    >>> from largeprompt.law import finite_prompt
    >>> mu = lp.Gaussian(torch.zeros(4, dtype=torch.float64), eye)
    >>> finite_prompt(attention, mu, [1.0, 0.0, 0.0, 1.0], length=100)
    FinitePromptLaw(exact, length=100, rmse=0.5191, effective_tokens=18.82, regime='linear')
    >>> finite_prompt(attention, lp.Rademacher(4), [1.0, 0.0, 0.0, 1.0], length=100)
    FinitePromptLaw(exact, length=100, rmse=0.2371, effective_tokens=39.88, regime='linear')
    """
    if not isinstance(attention, SoftmaxAttention):
        raise InvalidArgumentError("attention", type(attention).__name__, "SoftmaxAttention")
    lengths, several = validation.lengths("length", length, allow_infinity=True)
    method: Method = "first order" if validation.flag("expansion", expansion) else "exact"
    token = (
        mu.ngrams(mu.order + 1).to(device=attention.U.device) if isinstance(mu, MarkovChain) else mu
    )
    _, query = attention._values(token, z)
    law = FinitePromptLaw(attention, mu, query, tuple(lengths) if several else lengths[0], method)
    _ = law.mean, law.effective_tokens  # what cannot be had is refused here
    return law


def _detached(value: Any) -> Any:
    """A value without the graph of its gradient."""
    if isinstance(value, tuple):
        return tuple(map(_detached, value))
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, Attention | Measure | MarkovChain):
        found = object.__new__(type(value))
        found.__dict__.update({name: _detached(each) for name, each in value.__dict__.items()})
        return found
    return value


def _solve(
    attention: SoftmaxAttention,
    mu: Measure | MarkovChain,
    z: Tensor,
    lengths: Sequence[float],
    method: Method,
) -> Expectations:
    """Choose the method, by the table of :func:`finite_prompt`."""
    if isinstance(mu, MarkovChain):
        if method != "exact":
            remedy = "Leave it out: the law of the path is exact."
            raise InvalidArgumentError("expansion", "True", "False for a Markov chain", remedy)
        return chain_prompt(attention.to(device="cpu"), mu, z.cpu(), lengths)
    values, u = attention._aligned(z), attention._tilts(z)
    if method == "first order":
        return _first_order(attention._limit(mu, z), mu, u, values, lengths)
    if isinstance(mu, Gaussian):
        return _gaussian(attention._limit(mu, z), mu, u, values, lengths)
    return solve(mu, u, values, lengths)


def _gaussian(
    limit: Tensor, mu: Gaussian, u: Tensor, values: Tensor, lengths: Sequence[float]
) -> Expectations:
    """The law of Gaussian tokens, with gradients."""
    laws, batch = gaussian.OutputLaws.of(mu, u, values, lengths), (len(lengths), *limit.shape[:-1])

    def errors() -> tuple[Tensor, Tensor, Tensor]:
        return laws.bias, laws.errors().expand(batch), laws.errors_without_values().expand(batch)

    return Expectations(
        limit + laws.bias,
        laws.collision.expand(batch),
        errors,
        laws.covariance,
        lambda: torch.stack([gaussian.jacobian_error(mu, u, values, one) for one in lengths]),
    )


def _first_order(
    limit: Tensor, mu: Measure, u: Tensor, values: Tensor, lengths: Sequence[float]
) -> Expectations:
    """The leading order in 1/L of any law, with gradients: formulas (first.3) and (first.4)."""
    mu._check_domain(2 * u)
    log_rho = (mu._cgf(2 * u) - 2 * mu._cgf(u)).expand(limit.shape[:-1])
    delta = mu._tilted_mean(2 * u) - mu._tilted_mean(u)
    spread = mu._tilted_covariance(2 * u) + delta.unsqueeze(-1) * delta.unsqueeze(-2)
    # e^{log ρ - log L}, lengths leading
    rate = torch.exp(torch.stack([log_rho - math.log(length) for length in lengths]))
    bias = -rate.unsqueeze(-1) * (values @ delta.unsqueeze(-1)).squeeze(-1)
    covariance = rate[..., None, None] * (values @ spread @ values.mT)
    if bool(torch.isnan(covariance).any() | torch.isnan(bias).any()):
        given = "scores so large that their first order is no number"
        remedy = "Shrink the query, or leave out expansion=True."
        raise InvalidArgumentError("z", given, "scores of ordinary size", remedy)

    def jacobian() -> Tensor:
        remedy = "Leave out expansion=True, or use jacobian_certificate(...) for a bound."
        given = f"{mu!r}, first order"
        raise InvalidArgumentError("jacobian_u_mse", given, "the exact law", remedy)

    mse, without_values = gaussian.trace(covariance), rate * gaussian.trace(spread)
    return Expectations(
        limit + bias, rate, lambda: (bias, mse, without_values), lambda: covariance, jacobian
    )
