"""The abstract probability measure: everything follows from its cumulant generating function.

    Λ(u) = log ∫ e^{u·x} dμ(x),

∇Λ(u) and ∇²Λ(u) are the mean and the covariance of the tilt e^{u·x - Λ(u)} dμ(x), formulas
(tilt.2) and (tilt.3) of docs/mathematics/tilting.md.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError, LargePromptError, TiltDomainError
from largeprompt.measures.numerics.cumulants import (
    Cumulants,
    complex_derivatives,
    derivatives,
    fourth_moment,
    recorded,
)
from largeprompt.measures.user_law import no_complex_tilts, require_law
from largeprompt.validation import ArrayLike, Randomness

if TYPE_CHECKING:
    attribute = property
else:

    class attribute:  # noqa: N801
        """A property that a subclass may store as a field."""

        def __init__(self, function: Callable[[Any], Any]) -> None:
            self.function, self.__doc__ = function, function.__doc__

        def __get__(self, instance: Any, owner: type) -> Any:
            return self if instance is None else self.function(instance)


# of a domain, relative: closer to its end the rounding of a tilt decides everything
DOMAIN_EDGE = 1e-13


class Measure(abc.ABC):
    """A probability measure on R^d.

    A subclass gives ``dim``, :meth:`cgf` and :meth:`sample`. The rest follows by automatic
    differentiation; a subclass that knows a closed form overrides it. Leading dimensions are
    batches: ``u`` of shape (..., d) broadcasts against ``batch_shape``.

    Examples
    --------
    A law that the library does not have, in three members:

    >>> class Exponential(lp.Measure):
    ...     dim = 1
    ...     def cgf(self, u):
    ...         return -torch.log1p(-u[..., 0])
    ...     def sample(self, n, generator):
    ...         return -torch.log1p(-torch.rand(n, 1, generator=generator, dtype=self.dtype))
    >>> Exponential().tilted_mean([0.5])
    tensor([2.], dtype=torch.float64)
    """

    @attribute
    def dim(self) -> int:
        """Dimension d of the space that the tokens live in."""
        name = type(self).__name__
        raise NotImplementedError(f"{name} must say its dimension: dim = d, or a property dim")

    @abc.abstractmethod
    def cgf(self, u: ArrayLike) -> Tensor:
        """Cumulant generating function Λ(u) = log ∫ e^{u·x} dμ(x).

        Tilts u have shape (..., d), the result shape (...), broadcast with ``batch_shape``. Raises
        :class:`TiltDomainError` where the integral is infinite.
        """

    @abc.abstractmethod
    def sample(self, n: int, generator: Randomness | None = None) -> Tensor:
        """Draw n independent tokens for each batch member, shape ``(*batch_shape, n, d)``.

        ``generator`` is a ``torch.Generator`` or a seed; without one PyTorch's own is used.
        """

    def sample_tilted(self, u: ArrayLike, n: int, generator: Randomness | None = None) -> Tensor:
        """Draw n tokens from the tilt by each u, shape ``(*broadcast(u, batch_shape), n, d)``."""
        allowed = f"laws with a method {type(self).__name__}.sample_tilted(u, n, generator)"
        raise InvalidArgumentError("sample", f"a tilt of {self!r}", allowed)

    @attribute
    def batch_shape(self) -> torch.Size:
        """Shape of the batch of measures that this object holds; () for a single measure."""
        return torch.Size(())

    @attribute
    def dtype(self) -> torch.dtype:
        """Floating type of the parameters, of ``u`` and of the results."""
        return torch.float64

    @attribute
    def device(self) -> torch.device:
        """Device of the parameters, of ``u`` and of the results."""
        return torch.device("cpu")

    @attribute
    def mean(self) -> Tensor:
        """Mean m = ∇Λ(0), shape ``(*batch_shape, d)``."""
        return self._tilted_mean(self._origin())

    @attribute
    def covariance(self) -> Tensor:
        """Covariance Γ = ∇²Λ(0), shape ``(*batch_shape, d, d)``."""
        return self._tilted_covariance(self._matrices_fit(self._origin()))

    @attribute
    def relative_precision(self) -> bool:
        """Whether small tilted variances keep their digits, as sech² u does, not 1 - tanh² u.

        Where they do not, certificates add about 10⁻¹⁴ of E‖x‖² under the tilt for rounding.
        """
        return False

    @attribute
    def support_radius(self) -> float:
        """Largest distance of a token from the origin; infinite for an unbounded law."""
        return math.inf

    def tilted_mean(self, u: ArrayLike) -> Tensor:
        """Mean of the tilt, ∇Λ(u), shape (..., d): the softmax average of the tokens."""
        mu, u = self._at(u)
        return mu._mean_by_autodiff(u)

    def tilted_covariance(self, u: ArrayLike) -> Tensor:
        """Covariance of the tilt, ∇²Λ(u), shape (..., d, d)."""
        mu, u = self._at(u)
        return mu._covariance_by_autodiff(mu._matrices_fit(u))

    def tilt(self, u: ArrayLike) -> Measure:
        """Tilted measure e^{u·x - Λ(u)} μ(dx); a batch of tilts gives a batch of measures."""
        mu, u = self._at(u)
        return mu._tilt(u)

    def map(self, matrix: ArrayLike, offset: ArrayLike | None = None) -> Measure:
        """Image of the measure under x -> matrix x + offset; matrix (o, d), offset (o,)."""
        mu, matrix, offset = self._affine(matrix, offset)
        return mu._map(matrix, offset)

    def norm_moment4(self, center: ArrayLike) -> Tensor:
        """Fourth moment of the distance to a point, ∫ ‖x - center‖⁴ dμ(x), shape (...)."""
        return self.tilted_norm_moment4(self._origin(), center)

    def tilted_norm_moment4(
        self, u: ArrayLike, center: ArrayLike, V: Tensor | None = None
    ) -> Tensor:
        """∫ ‖x - center‖² ‖V(x - center)‖² dμ_u(x) for the tilt by u; V (o, d), or the identity."""
        (center,) = validation.tensors(self._like, center=center)
        validation.last_dimensions("center", center, (self.dim,))
        mu, u = self.to(dtype=center.dtype)._at(u)
        return mu._tilted_norm_moment4(u, center.to(u.dtype), V)

    def complex_cumulants(self, w: Tensor, order: int = 2) -> tuple[Tensor, ...]:
        """Λ and its derivatives at complex tilts: :func:`~largeprompt.finite_prompt` needs them.

        By autodiff from :meth:`cgf`, which must accept complex numbers.

        Parameters
        ----------
        w
            Complex tilts, shape (n, d), with real parts inside the domain of the cgf.
        order
            0 for Λ alone, 2, or 4 for the error of the derivative in U: two derivatives are enough
            there too, as autodiff gives in more than six dimensions.

        Returns
        -------
        tuple of Tensor
            Λ(w), shape (n,), up to multiples of 2πi; ∇Λ(w), shape (n, d); ∇²Λ(w), shape (n, d, d);
            and so on. Independent coordinates: derivatives of each one's cgf, of shape (n, d).
        """
        return self._complex_by_autodiff(w, order)

    def tilt_range(self, u: ArrayLike) -> tuple[float, float]:
        """Open interval of the real ζ at which Λ(ζu) is finite, for one tilt u."""
        (u,) = validation.tensors(self._like, u=u)
        validation.last_dimensions("u", u, (self.dim,), batch=False)
        return self.to(dtype=u.dtype)._tilt_range(u)

    def to(
        self, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Self:
        """Return this measure with its parameters in another dtype or on another device."""
        dtype = dtype or self.dtype
        # "cuda" is "cuda:0"
        device = self.device if device is None else torch.empty(0, device=device).device
        if (dtype, device) == (self.dtype, self.device):
            return self
        if not dataclasses.is_dataclass(self):
            allowed = "measures that are dataclasses"
            raise InvalidArgumentError("to", type(self).__name__, allowed, "Build it anew.")
        # no checks: parameters in single precision need not pass those of double precision
        result = object.__new__(type(self))
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor | Measure):
                value = value.to(dtype=dtype, device=device)
            elif isinstance(value, torch.dtype):
                value = dtype
            elif isinstance(value, torch.device):
                value = device
            validation.store(result, **{field.name: value})
        return result

    def __repr__(self) -> str:
        batch = f", batch={tuple(self.batch_shape)}" if self.batch_shape else ""
        kind = "" if self.dtype == torch.float64 else f", dtype={self.dtype}"
        return f"{type(self).__name__}(dim={self.dim}{self._details()}{batch}{kind})"

    def _details(self) -> str:
        """Further entries of the one-line repr."""
        return ""

    # What the library calls, with checked arguments; a law of one's own has the public methods.

    def _cgf(self, u: Tensor) -> Tensor:
        return self.cgf(u)

    def _tilted_mean(self, u: Tensor) -> Tensor:
        return self.tilted_mean(u)

    def _tilted_covariance(self, u: Tensor) -> Tensor:
        return self.tilted_covariance(u)

    def _complex_cumulants(self, w: Tensor, order: int = 2) -> tuple[Tensor, ...]:
        return self.complex_cumulants(w, order)

    def _sample(self, n: int, generator: torch.Generator) -> Tensor:
        return self.sample(n, generator)

    def _sample_tilted(self, u: Tensor, n: int, generator: torch.Generator) -> Tensor:
        return self.sample_tilted(u, n, generator)

    def _scales(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Scales r and s of the rounding of tilted moments, each of shape (..., d).

        With ε a few units of rounding and t = Σ abs(u_i) r_i, Λ(u) is right within ε(1 + t),
        ∇Λ(u)_i within ε(r_i + t s_i), ∇²Λ(u)_ij within ε(1 + t) s_i s_j. ``relative_precision``:
        r_i² = E_u x_i², s_i² = Var_u x_i; else both are E_u‖x‖² + E‖x‖².
        """
        mean = self._tilted_mean(u)
        variance = self._tilted_covariance(u).diagonal(dim1=-2, dim2=-1).clamp_min(0.0)
        square = variance + mean**2
        if self.relative_precision:
            return square.sqrt(), variance.sqrt()
        plain = self.covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0.0) + self.mean**2
        size = (square + plain).sum(-1, keepdim=True).sqrt().expand_as(mean)
        return size, size

    def _mean_by_autodiff(self, u: Tensor) -> Tensor:
        point, keep_graph = self._differentiable(u)
        with recorded():
            value = self._cgf(point).sum()
            return torch.autograd.grad(value, point, create_graph=keep_graph)[0]

    def _covariance_by_autodiff(self, u: Tensor) -> Tensor:
        point, keep_graph = self._differentiable(u)
        with recorded():
            (gradient,) = torch.autograd.grad(self._cgf(point).sum(), point, create_graph=True)
            keep: dict[str, Any] = {"create_graph": keep_graph, "retain_graph": True}
            totals = (entry.sum() for entry in gradient.unbind(-1))
            rows = [torch.autograd.grad(total, point, **keep)[0] for total in totals]
        return torch.stack(rows, dim=-2)

    def _complex_by_autodiff(self, w: Tensor, order: int) -> tuple[Tensor, ...]:
        try:
            return complex_derivatives(self._cgf, w, order)
        except (TypeError, RuntimeError, LargePromptError) as error:
            raise no_complex_tilts(self, error) from error

    def _tilt(self, u: Tensor) -> Measure:
        from largeprompt.measures.wrapped import Tilted

        self._finite_cgf(u)  # raises outside the domain
        return Tilted(self, u)

    def _map(self, matrix: Tensor, offset: Tensor) -> Measure:
        from largeprompt.measures.wrapped import AffineImage

        return AffineImage(self, matrix, offset)

    def _tilted_norm_moment4(self, u: Tensor, center: Tensor, V: Tensor | None = None) -> Tensor:
        """By E y_i²y_j² = E[(y_i+y_j)⁴ + (y_i-y_j)⁴ - 2y_i⁴ - 2y_j⁴]/12.

        y_i are coordinates of x - center along the right singular vectors of V, over their size.
        """
        u, center = torch.broadcast_tensors(u, center)
        basis, factor = torch.eye(self.dim).to(u), u.new_ones(self.dim)
        if V is not None:
            _, sizes, basis = torch.linalg.svd(V)
            factor = torch.nn.functional.pad(sizes.square(), (0, self.dim - len(sizes)))
        offset = self._tilted_mean(u) - center
        second = self._tilted_covariance(u) + offset.unsqueeze(-1) * offset.unsqueeze(-2)
        square = (basis @ second @ basis.mT).detach().diagonal(dim1=-2, dim2=-1)  # E y_i²
        square = square.reshape(-1, self.dim).amax(0) if u.numel() else torch.ones_like(factor)
        smallest = 1e-40 if self.dtype == torch.float64 else 1e-8
        square = (square / square.max()).nan_to_num(1.0).clamp_min(smallest)
        basis = basis / square.sqrt().unsqueeze(-1)
        i, j = torch.triu_indices(self.dim, self.dim, offset=1, device=self.device)
        directions = torch.cat([basis, basis[i] + basis[j], basis[i] - basis[j]])
        k1, k2, k3, k4 = self._directional_cumulants(directions, u)
        k1 = k1 - torch.einsum("...d,nd->n...", center, directions)
        # E y_i⁴, E (y_i ± y_j)⁴
        single, plus, minus = fourth_moment(k1, k2, k3, k4).split([self.dim, len(i), len(i)])
        pairs = (plus + minus - 2 * single[i] - 2 * single[j]) / 12
        own, mixed = factor * square**2, (factor[i] + factor[j]) * square[i] * square[j]
        return torch.einsum("n,n...->...", own, single) + torch.einsum("n,n...->...", mixed, pairs)

    def _directional_cumulants(self, directions: Tensor, u: Tensor) -> Cumulants:
        """First four cumulants of a·x under the tilt by u, shape (n, ...), for a of (n, d)."""
        steps = directions.reshape(-1, *(1,) * (u.dim() - 1), self.dim)
        shape = (steps.shape[0], *np.broadcast_shapes(u.shape[:-1], self.batch_shape))
        keep_graph = self._finite_cgf(u).requires_grad
        with recorded():
            t = torch.zeros(shape, dtype=self.dtype, device=self.device, requires_grad=True)
        _, k1, k2, k3, k4 = derivatives(
            lambda t: self._cgf(u + t.unsqueeze(-1) * steps), t, 4, keep_graph
        )
        return k1, k2, k3, k4

    def _tilt_range(self, u: Tensor) -> tuple[float, float]:
        ends = []
        for side in (-1.0, 1.0):
            low, high = 0.0, side * 64.0  # multiples of a tilt: nobody looks further
            if bool(self._in_domain(high * u)):
                ends.append(side * math.inf)
                continue
            for _ in range(60):
                middle = (low + high) / 2
                low, high = (middle, high) if bool(self._in_domain(middle * u)) else (low, middle)
            ends.append(low)
        return ends[0], ends[1]

    def _in_domain(self, u: Tensor) -> Tensor:
        """Whether the cgf is finite at each tilt, shape (...)."""
        try:
            return torch.isfinite(self._cgf(u))
        except TiltDomainError:
            if u.dim() == 1:
                return torch.tensor(False)
            return torch.stack([self._in_domain(one) for one in u])

    def _require_law(self) -> None:
        """Refuse a law of one's own whose cgf is not 0 at 0, or not smooth there."""
        direction = torch.ones(self.dim, dtype=self.dtype, device=self.device)
        require_law(
            self,
            lambda t: self._cgf(t.unsqueeze(-1) * direction),
            direction.new_zeros(()),
            lambda t: bool(self._in_domain(t * direction)),
        )

    @property
    def _like(self) -> Tensor:
        """Some tensor of the dtype and device of the measure."""
        return torch.empty(0, dtype=self.dtype, device=self.device)

    def _origin(self) -> Tensor:
        """Tilt by nothing, one for each batch member."""
        return torch.zeros((*self.batch_shape, self.dim), dtype=self.dtype, device=self.device)

    def _at(self, u: ArrayLike) -> tuple[Self, Tensor]:
        """Check tilts; return the measure and them in the wider of their dtypes."""
        (u,) = validation.tensors(self._like, u=u)
        meaning = f": one tilt in R^{self.dim} for each batch member"
        validation.last_dimensions("u", u, (self.dim,), meaning)
        if self.batch_shape:
            validation.broadcast("u and the measure's batch", u.shape[:-1], self.batch_shape)
        self._check_domain(u)
        return self.to(dtype=u.dtype), u

    def _check_domain(self, u: Tensor) -> None:  # noqa: B027
        """Raise TiltDomainError where the cgf is known to be infinite."""

    def _matrices_fit(self, u: Tensor) -> Tensor:
        """Refuse more (d, d) matrices than fit into memory, one for each tilt and batch member."""
        count = math.prod(np.broadcast_shapes(u.shape[:-1], self.batch_shape))
        needed = count * self.dim**2 * u.element_size()
        validation.affordable("dim", self.dim, needed=needed, device=u.device)
        return u

    def _affine(self, matrix: ArrayLike, offset: ArrayLike | None) -> tuple[Self, Tensor, Tensor]:
        """Check an affine map; a missing offset is zero."""
        given = {"matrix": matrix} if offset is None else {"matrix": matrix, "offset": offset}
        A, *rest = validation.tensors(self._like, **given)
        row = ": one row for each output coordinate"
        validation.last_dimensions("matrix", A, ("o", self.dim), row, batch=False)
        b = rest[0] if rest else A.new_zeros(len(A))
        entry = ", one entry for each row of matrix"
        validation.last_dimensions("offset", b, A.shape[:1], entry, batch=False)
        return self.to(dtype=A.dtype), A, b

    def _drawing(self, n: int, generator: Randomness | None) -> tuple[int, torch.Generator]:
        """Check the arguments of a sampler; without a generator PyTorch's own gives a seed."""
        seed = int(torch.randint(2**63 - 1, ())) if generator is None else generator
        n = validation.integer("n", n)
        needed = n * math.prod(self.batch_shape) * self.dim * self.dtype.itemsize
        validation.affordable(
            "n", n, needed=needed, device=self.device, remedy="Draw them in parts."
        )
        return n, validation.generator(seed, self.device)

    def _differentiable(self, u: Tensor) -> tuple[Tensor, bool]:
        """Point to differentiate the cgf at, and whether the result may be differentiated again."""
        u = u.expand(*np.broadcast_shapes(u.shape[:-1], self.batch_shape), self.dim)
        wanted = self._finite_cgf(u).requires_grad
        with recorded():
            kept = wanted and u.requires_grad
            return u.clone() if kept else u.detach().clone().requires_grad_(), wanted

    def _finite_cgf(self, u: Tensor) -> Tensor:
        """Λ(u), or an error where it is not finite: derivatives may look like numbers there."""
        value = self._cgf(u)
        if not bool(torch.isfinite(value).all()):
            given = f"a tilt at which the cgf of {self!r} is not finite"
            remedy = "There is no infinite-prompt limit there: shrink the scores."
            raise TiltDomainError("u", given, "tilts inside the domain of the cgf", remedy)
        return value


class LibraryMeasure(Measure):
    """A measure of the library: public methods check their arguments, private ones trust them."""

    def cgf(self, u: ArrayLike) -> Tensor:
        mu, u = self._at(u)
        return mu._cgf(u)

    def sample(self, n: int, generator: Randomness | None = None) -> Tensor:
        return self._sample(*self._drawing(n, generator))

    def sample_tilted(self, u: ArrayLike, n: int, generator: Randomness | None = None) -> Tensor:
        mu, u = self._at(u)
        return mu._sample_tilted(u, *self._drawing(n, generator))

    def tilted_mean(self, u: ArrayLike) -> Tensor:
        mu, u = self._at(u)
        return mu._tilted_mean(u)

    def tilted_covariance(self, u: ArrayLike) -> Tensor:
        mu, u = self._at(u)
        return mu._tilted_covariance(mu._matrices_fit(u))

    def complex_cumulants(self, w: Tensor, order: int = 2) -> tuple[Tensor, ...]:
        return self._complex_cumulants(w, order)

    @abc.abstractmethod
    def _cgf(self, u: Tensor) -> Tensor: ...

    @abc.abstractmethod
    def _sample(self, n: int, generator: torch.Generator) -> Tensor: ...

    @abc.abstractmethod
    def _sample_tilted(self, u: Tensor, n: int, generator: torch.Generator) -> Tensor: ...

    def _tilted_mean(self, u: Tensor) -> Tensor:
        return self._mean_by_autodiff(u)

    def _tilted_covariance(self, u: Tensor) -> Tensor:
        return self._covariance_by_autodiff(u)

    def _complex_cumulants(self, w: Tensor, order: int = 2) -> tuple[Tensor, ...]:
        return self._complex_by_autodiff(w, order)

    def _require_law(self) -> None: ...
