"""The law of attention over a finite prompt, as an object with its numbers: the one door to all of :mod:`largeprompt.law`."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import SoftmaxAttention
from largeprompt.devices import moved
from largeprompt.display.by_length import ByLength
from largeprompt.display.tables import plain
from largeprompt.errors import InvalidArgumentError, TiltDomainError
from largeprompt.law import gaussian
from largeprompt.law.chain import chain_prompt
from largeprompt.law.engine import Solved, solve
from largeprompt.law.regime import regime
from largeprompt.measures import Gaussian, MarkovChain, Measure
from largeprompt.validation import Lengths


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class FinitePromptLaw(ByLength):
    """What attention over L random tokens is, on average and around it.

    Shapes: lengths lead (nothing for a single length), then heads, then queries. Tokens without an exponential moment, such as
    Student's t, have a finite-prompt law and no limit: ``mean``, ``covariance`` and ``effective_tokens`` exist, and ``limit``,
    ``bias`` and ``mse`` raise :class:`~largeprompt.errors.TiltDomainError`.

    Attributes
    ----------
    mean
        E T_L, shape (..., o); NaN where the tokens have no mean (Student's t with df <= 1), as then it does not exist.
    effective_tokens
        1/E Y, the effective number of tokens read.
    length
        L, a number or a tuple.
    method
        'exact', or 'first order' for the expansion in 1/L.
    """

    mean: Tensor
    effective_tokens: Tensor
    length: float | tuple[float, ...]
    method: Literal["exact", "first order"]
    _score_variance: Callable[[], Tensor]
    _limit: Callable[[], Tensor]
    _errors: Callable[[], tuple[Tensor, Tensor, Tensor]]
    _covariance: Callable[[], Tensor]
    _jacobian_u: Callable[[], Tensor]

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

    @functools.cached_property
    def score_variance(self) -> Tensor:
        """Variance of the scores u·x, u = Uz, shape (...)."""
        return self._score_variance()

    @functools.cached_property
    def limit(self) -> Tensor:
        """T, the infinite-prompt output, shape (..., o), without the lengths."""
        return self._limit()

    @functools.cached_property
    def _known_errors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self._errors()

    @property
    def bias(self) -> Tensor:
        """E T_L - T, shape (..., o)."""
        return self._known_errors[0]

    @property
    def mse(self) -> Tensor:
        """E‖T_L - T‖², shape (...)."""
        return self._known_errors[1]

    @property
    def rmse(self) -> Tensor:
        """√E‖T_L - T‖², shape (...)."""
        return self.mse.clamp_min(0.0).sqrt()

    @property
    def jacobian_v_mse(self) -> Tensor:
        """E‖dT_L/dV - dT/dV‖², shape (...)."""
        return self._known_errors[2]

    @functools.cached_property
    def covariance(self) -> Tensor:
        """Cov T_L, shape (..., o, o), computed when first asked for."""
        return self._covariance()

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

    @property
    def _limited(self) -> bool:
        """Whether there is a limit to be close to."""
        try:
            return self._known_errors is not None
        except TiltDomainError:
            return False

    def _words(self, *more: str) -> str:
        return super()._words(self.method, *more, *([] if self._batch or self._limited else ["no limit"]))

    def _columns(self) -> dict[str, Any]:
        tokens = {"effective_tokens": self.effective_tokens}
        return {"rmse": self.rmse} | tokens | {"regime": self.regime} if self._limited else tokens

    def _known(self) -> dict[str, tuple[str, Any]]:
        names = self._numbers if self._limited else ("mean", "effective_tokens")
        return {name: (self._numbers[name], getattr(self, name)) for name in names}

    def _curve(self) -> dict[str, Any]:
        return {"label": self.method, "marker": "o"}

    def __repr__(self) -> str:
        if self.effective_tokens.dim():
            return self._summary()
        tokens = f"effective_tokens={plain(self.effective_tokens.detach())}"
        if not self._limited:
            return f"FinitePromptLaw({self.method}, length={plain(self.length)}, no limit, {tokens})"
        numbers = f"rmse={float(self.rmse.detach()):.4g}, {tokens}, regime='{self.regime}'"
        return f"FinitePromptLaw({self.method}, length={plain(self.length)}, {numbers})"


def finite_prompt(
    attention: SoftmaxAttention, mu: Measure | MarkovChain, z: Tensor, length: Lengths, *, expansion: bool = False
) -> FinitePromptLaw:
    """Law of softmax attention over a prompt of L independent tokens from ``mu``: exact, at a cost that does not depend on L.

    Exact for every law that the library has, and for any :class:`Measure` whose cgf takes complex tilts. For :class:`Gaussian` it
    is differentiable in the layer, the query and the law; for the others it gives numbers without a gradient. Formulas (law.8) to
    (law.10) of docs/mathematics/finite_prompt.md and (engine.1) to (engine.6) of docs/mathematics/engine.md.

    Parameters
    ----------
    attention
        The layer.
    mu
        The law of the tokens. An :class:`Empirical` gives prompts resampled from it: the bootstrap, exactly. A
        :class:`~largeprompt.measures.MarkovChain` gives L windows of a stationary path, which are not independent.
    z
        Queries, shape ``(*queries, d)``.
    length
        L, an integer from 1 to 10^15 or ``math.inf``; or several, which then lead the shape of every result and share the work.
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
    >>> from largeprompt.law import finite_prompt
    >>> finite_prompt(attention, lp.Gaussian(torch.zeros(4, dtype=torch.float64), eye), [1.0, 0.0, 0.0, 1.0], length=100)
    FinitePromptLaw(exact, length=100, rmse=0.5191, effective_tokens=18.82, regime='linear')
    >>> finite_prompt(attention, lp.Rademacher(4), [1.0, 0.0, 0.0, 1.0], length=100)
    FinitePromptLaw(exact, length=100, rmse=0.2371, effective_tokens=39.88, regime='linear')
    """
    if not isinstance(attention, SoftmaxAttention):
        raise InvalidArgumentError("attention", type(attention).__name__, "SoftmaxAttention")
    lengths, several = validation.lengths("length", length, allow_infinity=True)
    expansion = validation.flag("expansion", expansion)
    chain = mu if isinstance(mu, MarkovChain) else None
    if isinstance(mu, MarkovChain):
        mu = mu.ngrams(mu.order + 1).to(device=attention.U.device)
    values, z = attention._values(mu, z)
    u, size = attention._tilts(z), z.square().sum(-1)
    if chain is not None and not expansion:
        solved = _moved(chain_prompt(attention.to(device="cpu"), chain, z.cpu(), lengths), z.device)
    elif expansion:
        solved = _expansion(attention(mu, z), mu, u, values, lengths)
    elif isinstance(mu, Gaussian):
        solved = _gaussian(attention(mu, z), mu, u, values, lengths)
    else:
        solved = solve(mu, u, values, lengths)

    def pack(found: Tensor) -> Tensor:
        return found if several else found[0]

    def errors() -> tuple[Tensor, Tensor, Tensor]:
        bias, mse, without_values = solved.errors()
        return pack(bias), pack(mse), values.shape[-2] * pack(without_values)

    collision = pack(solved.collision)

    def score_variance() -> Tensor:
        variance = (u.unsqueeze(-2) @ mu.covariance @ u.unsqueeze(-1)).squeeze(-1).squeeze(-1)
        return variance.clamp_min(0.0).expand(collision.shape)

    return FinitePromptLaw(
        mean=pack(solved.mean),
        effective_tokens=1 / collision,
        length=tuple(lengths) if several else lengths[0],
        method="first order" if expansion else "exact",
        _score_variance=score_variance,
        _limit=lambda: attention(mu, z) if isinstance(mu, Gaussian) or expansion else attention(mu, z).detach(),
        _errors=errors,
        _covariance=lambda: pack(solved.covariance()),
        _jacobian_u=lambda: size * pack(solved.jacobian()),
    )


def finite_prompt_errors(attention: SoftmaxAttention, mu: Measure, z: Tensor, lengths: Sequence[int]) -> Tensor:
    """E‖T_L - T‖² alone for several lengths: what a search over lengths needs of :func:`finite_prompt`.

    Parameters
    ----------
    attention, mu, z
        As for :func:`finite_prompt`.
    lengths
        At least one L.

    Returns
    -------
    Tensor
        Shape (length, ...).
    """
    if isinstance(attention, SoftmaxAttention) and isinstance(mu, Gaussian):
        values, z = attention._values(mu, z)
        return gaussian.OutputLaws.of(mu, attention._tilts(z), values, validation.lengths("length", lengths)[0]).errors()
    return finite_prompt(attention, mu, z, lengths).mse


def _moved(solved: Solved, device: torch.device) -> Solved:
    """The same on another device."""

    def there(found: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: moved(found(), device)

    values = (solved.mean.to(device), solved.collision.to(device))
    return Solved(*values, there(solved.errors), there(solved.covariance), there(solved.jacobian))


def _gaussian(limit: Tensor, mu: Gaussian, u: Tensor, values: Tensor, lengths: Sequence[float]) -> Solved:
    """The law of Gaussian tokens, with gradients."""
    laws, batch = gaussian.OutputLaws.of(mu, u, values, lengths), (len(lengths), *limit.shape[:-1])

    def jacobian() -> Tensor:
        return torch.stack([gaussian.jacobian_error(mu, u, values, length) for length in lengths])

    return Solved(
        limit + laws.bias,
        laws.collision.expand(batch),
        lambda: (laws.bias, laws.errors().expand(batch), laws.errors_without_values().expand(batch)),
        laws.covariance,
        jacobian,
    )


def _expansion(limit: Tensor, mu: Measure, u: Tensor, values: Tensor, lengths: Sequence[float]) -> Solved:
    """The first order in 1/L of any law, with gradients."""
    parts = [_first_order(mu, u, values, length) for length in lengths]
    bias, covariance = (torch.stack(torch.broadcast_tensors(*(part[i] for part in parts))) for i in (0, 1))
    mse, without_values, collision = (torch.stack([part[i].expand(limit.shape[:-1]) for part in parts]) for i in (2, 3, 4))

    if bool(torch.isnan(covariance).any() | torch.isnan(bias).any() | torch.isnan(mse).any()):
        given, remedy = "scores so large that their first order is no number", "Shrink the query, or leave out expansion=True."
        raise InvalidArgumentError("z", given, "scores of ordinary size", remedy)

    def jacobian() -> Tensor:
        remedy = "Leave out expansion=True for the exact law, or use jacobian_certificate(...) for a bound."
        raise InvalidArgumentError("jacobian_u_mse", f"{mu!r}, first order", "the exact law", remedy)

    return Solved(limit + bias, collision, lambda: (bias, mse, without_values), lambda: covariance, jacobian)


def _first_order(mu: Measure, u: Tensor, values: Tensor, length: float) -> tuple[Tensor, ...]:
    """Leading order in 1/L of bias, covariance, mse, mse without V, and E Y: formulas (first.3) and (first.4)."""
    rate = torch.exp(mu.cgf(2 * u) - 2 * mu.cgf(u) - math.log(length)) if math.isfinite(length) else torch.zeros_like(mu.cgf(u))
    delta = mu.tilted_mean(2 * u) - mu.tilted_mean(u)
    spread = mu.tilted_covariance(2 * u) + delta.unsqueeze(-1) * delta.unsqueeze(-2)
    bias = -rate.unsqueeze(-1) * (values @ delta.unsqueeze(-1)).squeeze(-1)
    covariance = rate[..., None, None] * (values @ spread @ values.mT)
    return bias, covariance, gaussian.trace(covariance), rate * gaussian.trace(spread), rate
