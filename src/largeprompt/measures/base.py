"""The abstract probability measure: everything follows from its cumulant generating function.

    Λ(u) = log ∫ e^{u·x} dμ(x), ∇Λ(u) = mean of the tilt e^{u·x - Λ(u)} dμ(x), ∇²Λ(u) = its
    covariance,

formulas (tilt.2) and (tilt.3) of docs/mathematics/tilting.md.
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
from largeprompt.display.notation import latex, plain
from largeprompt.errors import InvalidArgumentError, LargePromptError, TiltDomainError
from largeprompt.measures.numerics.cumulants import (
    Cumulants,
    complex_derivative,
    derivatives,
    fourth_moment,
    higher_derivatives,
    no_complex_tilts,
    recorded,
    require_law,
)
from largeprompt.validation import Randomness

if TYPE_CHECKING:
    attribute = property
else:

    class attribute:  # noqa: N801
        """Computed attribute that a subclass may replace by a stored one, which a ``property``
        would forbid.

        Gaussian stores its mean, other laws compute it; to the caller both are ``mu.mean``.
        """

        def __init__(self, function: Callable[[Any], Any]) -> None:
            self.function, self.__doc__ = function, function.__doc__

        def __get__(self, instance: Any, owner: type) -> Any:
            return self if instance is None else self.function(instance)


MOST_DERIVED = 6  # dimensions in which all fourth derivatives of a cgf are worth finding
LARGEST_MULTIPLE = 64.0  # of a tilt, as far as anybody looks for the edge of a domain
# of a domain, relative: closer to its end the rounding of a tilt decides everything
DOMAIN_EDGE = 1e-13


class Measure(abc.ABC):
    """A probability measure on R^d.

    A subclass gives ``dim``, :meth:`cgf` and :meth:`sample`; tilted means and covariances, moments,
    tilts and affine images are then derived by automatic differentiation. A subclass that knows a
    closed form overrides it, and one that can draw from its own tilts implements
    :meth:`sample_tilted`.

    Leading dimensions are batches: ``u`` of shape (..., d) broadcasts against ``batch_shape``.

    Examples
    --------
    A law that the library does not have, in three members:

    >>> class Exponential(lp.Measure):
    ...     dim = 1
    ...     def cgf(self, u):
    ...         return -torch.log1p(-u[..., 0])
    ...     def sample(self, n, generator):
    ...         return -torch.log1p(-torch.rand(n, 1, generator=generator, dtype=self.dtype))
    >>> Exponential().tilted_mean(torch.tensor([0.5], dtype=torch.float64))
    tensor([2.], dtype=torch.float64)
    """

    @attribute
    def dim(self) -> int:
        """Dimension d of the space that the tokens live in."""
        raise NotImplementedError(
            f"{type(self).__name__} must say its dimension: dim = d, or a property dim"
        )

    @abc.abstractmethod
    def cgf(self, u: Tensor) -> Tensor:
        """Cumulant generating function Λ(u) = log ∫ e^{u·x} dμ(x).

        Parameters
        ----------
        u
            Tilts, shape (..., d).

        Returns
        -------
        Tensor
            Shape (...), broadcast with ``batch_shape``.

        Raises
        ------
        TiltDomainError
            Where the integral is infinite.
        """

    @abc.abstractmethod
    def sample(self, n: int, generator: Randomness | None = None) -> Tensor:
        """Draw n independent tokens for each batch member, shape ``(*batch_shape, n, d)``.

        The laws of the library take a generator, an integer as its seed, or nothing: new numbers
        each time, which repeat after ``torch.manual_seed``. A law of your own gets what the caller
        gave; the library gives a generator.
        """

    def sample_tilted(self, u: Tensor, n: int, generator: Randomness | None = None) -> Tensor:
        """Draw n independent tokens from the tilt by each u, shape ``(*broadcast(u, batch_shape),
        n, d)``.
        """
        given, remedy = (
            f"a tilt of {self!r}",
            f"Implement {type(self).__name__}.sample_tilted(u, n, generator).",
        )
        raise InvalidArgumentError(
            "sample", given, "laws that can draw from their own tilts", remedy
        )

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
        """Whether tilted variances keep their digits however small they are, as sech² u does and
        1 - tanh² u does not.

        Certificates add what rounding may have lost: where this is False, 10⁻¹⁴ or so of E‖x‖²
        under the tilt.
        """
        return False

    @attribute
    def support_radius(self) -> float:
        """Largest distance of a token from the origin; infinite for an unbounded law."""
        return math.inf

    def tilted_mean(self, u: Tensor) -> Tensor:
        """Mean of the tilt, ∇Λ(u), shape (..., d): the softmax average of the tokens. Derived by
        autodiff unless overridden.
        """
        return self._mean_by_autodiff(self._tilts(u))

    def tilted_covariance(self, u: Tensor) -> Tensor:
        """Covariance of the tilt, ∇²Λ(u), shape (..., d, d). Derived by
        autodiff unless overridden.
        """
        return self._covariance_by_autodiff(self._matrices_fit(self._tilts(u)))

    def tilt(self, u: Tensor) -> Measure:
        """Tilted measure e^{u·x - Λ(u)} μ(dx); a batch of tilts gives a batch of measures."""
        return self._tilt(self._tilts(u))

    def map(self, matrix: Tensor, offset: Tensor | None = None) -> Measure:
        """Image of the measure under x -> matrix x + offset; matrix (o, d), offset (o,)."""
        return self._map(*self._affine(matrix, offset))

    def norm_moment4(self, center: Tensor) -> Tensor:
        """Fourth moment of the distance to a point, ∫ ‖x - center‖⁴ dμ(x), shape (...)."""
        return self._tilted_norm_moment4(self._origin(), self._center(center))

    def tilted_norm_moment4(self, u: Tensor, center: Tensor, V: Tensor | None = None) -> Tensor:
        """∫ ‖x - center‖² ‖V(x - center)‖² dμ_u(x) for the tilt by u; V of shape (o, d), the
        identity when left out.

        Derived from cumulants along d² directions: E y_i²y_j² = E[(y_i+y_j)⁴ + (y_i-y_j)⁴ - 2y_i⁴ -
        2y_j⁴]/12, where y_i are the coordinates of x - center along the right singular vectors of
        V, each divided by its relative size: none hides another.
        """
        return self._tilted_norm_moment4(self._tilts(u), self._center(center), V)

    def directional_cumulants(self, directions: Tensor, u: Tensor | None = None) -> Cumulants:
        """First four cumulants of a·x under the tilt by u: derivatives of t -> Λ(u + t a) at 0.

        Parameters
        ----------
        directions
            Directions a, shape (n, d).
        u
            Tilts, shape (..., d); the origin when left out.

        Returns
        -------
        tuple of Tensor
            κ1, κ2, κ3, κ4, each of shape (n, ...): variance is κ2, skewness κ3/κ2^{3/2}, excess
            kurtosis κ4/κ2².
        """
        u = self._origin() if u is None else self._tilts(u)
        found = self._directional_cumulants(self._directions(directions), u)
        k1, k2, k3, k4 = (validation.in_range("directions", k) for k in found)
        return k1, k2, k3, k4

    def complex_cumulants(self, w: Tensor, order: int = 2) -> tuple[Tensor, ...]:
        """Λ, ∇Λ and ∇²Λ at complex tilts: all that :func:`~largeprompt.finite_prompt` needs of a
        law to be exact for it.

        Derived by autodiff from :meth:`cgf` where that accepts complex numbers, as a formula in
        ``torch`` functions does.

        Parameters
        ----------
        w
            Complex tilts, shape (n, d), with real parts inside the domain of the cgf.
        order
            0 for Λ alone, 2, or 4 for the error of the derivative in U; laws that know no more give
            the first two derivatives, as does the derivation by autodiff in more than six
            dimensions.

        Returns
        -------
        tuple of Tensor
            Λ(w), shape (n,), up to multiples of 2πi; ∇Λ(w), shape (n, d); ∇²Λ(w), shape (n, d, d),
            ... Laws with independent coordinates give the derivatives of each coordinate's cgf,
            shape (n, d), from the first up to ``order``.
        """
        return self._complex_by_autodiff(w, order)

    def tilt_range(self, u: Tensor) -> tuple[float, float]:
        """Open interval of the real ζ at which Λ(ζu) is finite, for one tilt u; found by bisection,
        up to 64 on either side.
        """
        return self._range_by_bisection(self._vectors("u", u, ": one tilt"))

    def to(
        self, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Self:
        """Return the same measure with its parameters in another dtype or on another device."""
        # "cuda" is "cuda:0"
        device = None if device is None else torch.empty(0, device=device).device
        if dtype in (None, self.dtype) and device in (None, self.device):
            return self
        if not dataclasses.is_dataclass(self):
            raise InvalidArgumentError(
                "to", type(self).__name__, "measures that are dataclasses", "Build it anew."
            )
        changed: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor | Measure):
                changed[field.name] = value.to(
                    dtype=dtype or self.dtype, device=device or self.device
                )
            elif isinstance(value, torch.dtype):
                changed[field.name] = dtype or value
            elif isinstance(value, torch.device):
                changed[field.name] = device or value
        # no checks: parameters in single precision need not pass those of double precision
        result = object.__new__(type(self))
        fields = [field.name for field in dataclasses.fields(self)]
        validation.store(
            result, **{name: changed.get(name, getattr(self, name)) for name in fields}
        )
        return result

    def __repr__(self) -> str:
        batch = f", batch={tuple(self.batch_shape)}" if self.batch_shape else ""
        kind = "" if self.dtype == torch.float64 else f", dtype={self.dtype}"
        return f"{type(self).__name__}(dim={self.dim}{self._details()}{batch}{kind})"

    def __str__(self) -> str:
        return plain(self._whole_formula())

    def _repr_latex_(self) -> str:
        return latex(self._whole_formula())

    def _whole_formula(self) -> str:
        batch = f", batch of {' × '.join(map(str, self.batch_shape))}" if self.batch_shape else ""
        return f"{self._formula()} on R{f'^{{{self.dim}}}' if self.dim > 1 else ''}{batch}"

    def _formula(self) -> str:
        """The law as mathematicians write it, in the notation of
        :mod:`largeprompt.display.notation`.
        """
        return type(self).__name__

    def _details(self) -> str:
        """Further entries of the one-line repr."""
        return ""

    # What the library calls, with arguments that were checked at the door: a law of one's own
    # overrides the public methods.

    def _cgf(self, u: Tensor) -> Tensor:
        return self.cgf(u)

    def _tilted_mean(self, u: Tensor) -> Tensor:
        return self.tilted_mean(u)

    def _tilted_covariance(self, u: Tensor) -> Tensor:
        return self.tilted_covariance(u)

    def _complex_cumulants(self, w: Tensor, order: int = 2) -> tuple[Tensor, ...]:
        return self.complex_cumulants(w, order)

    def _tilt_range(self, u: Tensor) -> tuple[float, float]:
        return self.tilt_range(u)

    def _scales(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Scales r and s of the rounding of tilted moments, each of shape (..., d).

        With ε a few units of rounding and t = Σ abs(u_i) r_i, what is computed of Λ(u) is within
        ε(1 + t), of ∇Λ(u)_i within ε(r_i + t s_i), and of ∇²Λ(u)_ij within ε(1 + t) s_i s_j. A law
        with ``relative_precision`` has r_i² = E_u x_i² and s_i² = Var_u x_i; any other law has
        r_i² = s_i² = E_u‖x‖² + E‖x‖²: e^u, as the derivative of expm1(u), is lost below 1e-16.
        """
        mean, variance = (
            self._tilted_mean(u),
            self._tilted_covariance(u).diagonal(dim1=-2, dim2=-1).clamp_min(0.0),
        )
        square = variance + mean**2
        if self.relative_precision:
            return square.sqrt(), variance.sqrt()
        plain = self.covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0.0) + self.mean**2
        size = (square + plain).sum(-1, keepdim=True).sqrt().expand_as(mean)
        return size, size

    def _sample(self, n: int, generator: torch.Generator) -> Tensor:
        return self.sample(n, generator)

    def _sample_tilted(self, u: Tensor, n: int, generator: torch.Generator) -> Tensor:
        return self.sample_tilted(u, n, generator)

    def _mean_by_autodiff(self, u: Tensor) -> Tensor:
        point, keep_graph = self._differentiable(u)
        with recorded():
            (gradient,) = torch.autograd.grad(
                self._cgf(point).sum(), point, create_graph=keep_graph
            )
        return gradient

    def _covariance_by_autodiff(self, u: Tensor) -> Tensor:
        point, keep_graph = self._differentiable(u)
        with recorded():
            (gradient,) = torch.autograd.grad(self._cgf(point).sum(), point, create_graph=True)
            entries = [entry.sum() for entry in gradient.unbind(-1)]
            rows = [
                torch.autograd.grad(entry, point, create_graph=keep_graph, retain_graph=True)[0]
                for entry in entries
            ]
        return torch.stack(rows, dim=-2)

    def _tilt(self, u: Tensor) -> Measure:
        from largeprompt.measures.wrapped import Tilted

        self._finite_cgf(u)  # raises outside the domain
        return Tilted._trusted(self, u)

    def _map(self, matrix: Tensor, offset: Tensor) -> Measure:
        from largeprompt.measures.wrapped import AffineImage

        return AffineImage._trusted(self, matrix, offset)

    def _tilted_norm_moment4(self, u: Tensor, center: Tensor, V: Tensor | None = None) -> Tensor:
        u, center = torch.broadcast_tensors(u, center)
        basis, factor = (
            torch.eye(self.dim, dtype=self.dtype, device=self.device),
            u.new_ones(self.dim),
        )
        if V is not None:
            _, sizes, basis = torch.linalg.svd(V)
            factor = torch.nn.functional.pad(sizes.square(), (0, self.dim - len(sizes)))
        offset = self._tilted_mean(u) - center
        second = self._tilted_covariance(u) + offset.unsqueeze(-1) * offset.unsqueeze(-2)
        # E y_i²
        square = (
            (basis @ second @ basis.mT).detach().diagonal(dim1=-2, dim2=-1).reshape(-1, self.dim)
        )
        square = square.amax(0) if len(square) else torch.ones_like(factor)
        square = (
            (square / square.max())
            .nan_to_num(1.0)
            .clamp_min(1e-40 if self.dtype == torch.float64 else 1e-8)
        )
        i, j = torch.triu_indices(self.dim, self.dim, offset=1, device=self.device)
        basis = basis / square.sqrt().unsqueeze(-1)
        directions = torch.cat([basis, basis[i] + basis[j], basis[i] - basis[j]])
        k1, k2, k3, k4 = self._directional_cumulants(directions, u)
        k1 = k1 - torch.einsum("...d,nd->n...", center, directions)
        # E y_i⁴, E (y_i ± y_j)⁴
        single, plus, minus = fourth_moment(k1, k2, k3, k4).split([self.dim, len(i), len(i)])
        pairs = (plus + minus - 2 * single[i] - 2 * single[j]) / 12
        own, mixed = factor * square**2, (factor[i] + factor[j]) * square[i] * square[j]
        return torch.einsum("n,n...->...", own, single) + torch.einsum("n,n...->...", mixed, pairs)

    def _directional_cumulants(self, directions: Tensor, u: Tensor) -> Cumulants:
        steps = directions.reshape(-1, *(1,) * (u.dim() - 1), self.dim)
        shape = (steps.shape[0], *np.broadcast_shapes(u.shape[:-1], self.batch_shape))
        keep_graph = self._finite_cgf(u).requires_grad
        with recorded():
            t = torch.zeros(shape, dtype=self.dtype, device=self.device, requires_grad=True)
        _, k1, k2, k3, k4 = derivatives(
            lambda t: self._cgf(u + t.unsqueeze(-1) * steps), t, 4, keep_graph
        )
        return k1, k2, k3, k4

    def _complex_by_autodiff(self, w: Tensor, order: int) -> tuple[Tensor, ...]:
        try:
            with recorded():
                point = w.detach().clone().requires_grad_()
                value = self._cgf(point)
                if not value.is_complex():
                    raise TypeError("the cgf of a complex tilt is real")
                if order == 0:
                    return (value.detach(),)
                slope = complex_derivative(value, point)
                rows = [complex_derivative(entry, point) for entry in slope.unbind(-1)]
                found = [value, slope, torch.stack(rows, dim=-2)]
                found += (
                    higher_derivatives(self._cgf, w)
                    if order > 2 and self.dim <= MOST_DERIVED
                    else []
                )
        except (TypeError, RuntimeError, LargePromptError) as error:
            raise no_complex_tilts(self, error) from error
        return tuple(part.detach() for part in found)

    def _range_by_bisection(self, u: Tensor) -> tuple[float, float]:
        ends = []
        for side in (-1.0, 1.0):
            low, high = 0.0, side * LARGEST_MULTIPLE
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
        """Refuse a law of one's own whose cgf is none: not 0 at 0, or without finite derivatives
        there.
        """
        direction = torch.ones(self.dim, dtype=self.dtype, device=self.device)

        def inside(t: float) -> bool:
            return bool(self._in_domain(t * direction))

        require_law(
            self, lambda t: self._cgf(t.unsqueeze(-1) * direction), direction.new_zeros(()), inside
        )

    @property
    def _like(self) -> Tensor:
        """Some tensor of the dtype and device that arguments must have."""
        return torch.empty(0, dtype=self.dtype, device=self.device)

    def _origin(self) -> Tensor:
        """Tilt by nothing, one for each batch member."""
        return torch.zeros((*self.batch_shape, self.dim), dtype=self.dtype, device=self.device)

    def _tilts(self, u: Tensor) -> Tensor:
        """Check tilts once, at the door."""
        u = self._vectors("u", u, f": one tilt in R^{self.dim} for each batch member")
        self._check_domain(u)
        return u

    def _vectors(self, name: str, value: Tensor, meaning: str) -> Tensor:
        """Check vectors, shape (..., d), that broadcast with the batch."""
        value = validation.shaped(name, value, (self.dim,), meaning, like=self._like)
        if self.batch_shape:
            validation.broadcast(
                f"{name} and the measure's batch", value.shape[:-1], self.batch_shape
            )
        return value

    def _check_domain(self, u: Tensor) -> None:  # noqa: B027
        """Raise TiltDomainError where the cgf is known to be infinite."""

    def _matrices_fit(self, u: Tensor) -> Tensor:
        """Refuse more (d, d) matrices than fit into memory, one for each tilt and batch member."""
        count = math.prod(np.broadcast_shapes(u.shape[:-1], self.batch_shape))
        validation.affordable(
            "dim", self.dim, needed=count * self.dim**2 * u.element_size(), device=u.device
        )
        return u

    def _center(self, center: Tensor) -> Tensor:
        """Check the point that distances are taken from."""
        return validation.shaped("center", center, (self.dim,), like=self._like)

    def _directions(self, directions: Tensor) -> Tensor:
        """Check directions, shape (n, d)."""
        directions = validation.tensor("directions", directions, like=self._like)
        if directions.dim() != 2 or directions.shape[-1] != self.dim:
            given = f"shape {validation.shape_text(directions.shape)}"
            raise InvalidArgumentError(
                "directions", given, f"shape (n, {self.dim}): one direction for each row"
            )
        return directions

    def _affine(self, matrix: Tensor, offset: Tensor | None) -> tuple[Tensor, Tensor]:
        """Check an affine map, and give the missing offset as zero."""
        row = ": one row for each output coordinate"
        matrix = validation.shaped(
            "matrix", matrix, ("o", self.dim), row, like=self._like, batch=False
        )
        if offset is None:
            return matrix, matrix.new_zeros(matrix.shape[0])
        entry = ", one entry for each row of matrix"
        return matrix, validation.shaped(
            "offset", offset, matrix.shape[:1], entry, like=matrix, batch=False
        )

    def _drawing(self, n: int, generator: Randomness | None) -> tuple[int, torch.Generator]:
        """Check the arguments that every sampler has; without a generator, PyTorch's own gives the
        seed of one.
        """
        seed = int(torch.randint(2**63 - 1, ())) if generator is None else generator
        n, numbers = validation.integer("n", n), math.prod(self.batch_shape) * self.dim
        validation.affordable(
            "n",
            n,
            needed=n * numbers * self.dtype.itemsize,
            device=self.device,
            remedy="Draw them in parts.",
        )
        return n, validation.generator(seed, self.device)

    def _differentiable(self, u: Tensor) -> tuple[Tensor, bool]:
        """Point to differentiate the cgf at, and whether somebody will differentiate the result
        again.
        """
        u = u.expand(*np.broadcast_shapes(u.shape[:-1], self.batch_shape), self.dim)
        wanted = self._finite_cgf(u).requires_grad
        with recorded():
            return (
                u.clone() if wanted and u.requires_grad else u.detach().clone().requires_grad_()
            ), wanted

    def _finite_cgf(self, u: Tensor) -> Tensor:
        """Λ(u), or an error where a law of one's own says that it is infinite, or NaN: derivatives
        there may look like numbers.
        """
        value = self._cgf(u)
        if not bool(torch.isfinite(value).all()):
            given, allowed = (
                f"a tilt at which the cgf of {self!r} is not finite",
                "tilts inside the domain of the cgf",
            )
            remedy = (
                "Attention has no infinite-prompt limit there: shrink the scores, or ask "
                "about a finite prompt."
            )
            raise TiltDomainError("u", given, allowed, remedy)
        return value


class LibraryMeasure(Measure):
    """A measure of the library: its public methods check their arguments and call private ones,
    which trust them.
    """

    def cgf(self, u: Tensor) -> Tensor:
        return self._cgf(self._tilts(u))

    def sample(self, n: int, generator: Randomness | None = None) -> Tensor:
        return self._sample(*self._drawing(n, generator))

    def sample_tilted(self, u: Tensor, n: int, generator: Randomness | None = None) -> Tensor:
        return self._sample_tilted(self._tilts(u), *self._drawing(n, generator))

    def tilted_mean(self, u: Tensor) -> Tensor:
        return self._tilted_mean(self._tilts(u))

    def tilted_covariance(self, u: Tensor) -> Tensor:
        return self._tilted_covariance(self._matrices_fit(self._tilts(u)))

    def complex_cumulants(self, w: Tensor, order: int = 2) -> tuple[Tensor, ...]:
        return self._complex_cumulants(w, order)

    def tilt_range(self, u: Tensor) -> tuple[float, float]:
        return self._tilt_range(self._vectors("u", u, ": one tilt"))

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

    def _tilt_range(self, u: Tensor) -> tuple[float, float]:
        return self._range_by_bisection(u)

    def _require_law(self) -> None: ...
