"""Products of scalar laws: independent coordinates, each tilted by its own entry of u."""

import abc
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError, TiltDomainError
from largeprompt.measures.base import DOMAIN_EDGE
from largeprompt.measures.numerics.cumulants import Cumulants, derivatives, recorded
from largeprompt.measures.placed import PlacedMeasure
from largeprompt.measures.user_law import no_complex_tilts, require_law

PLACE = ("dtype", "device")


def uniform(u: Tensor, generator: torch.Generator) -> Tensor:
    """Uniform numbers in [0, 1), one for each entry of u."""
    return torch.rand(u.shape, generator=generator, dtype=u.dtype, device=u.device)


def normal(u: Tensor, generator: torch.Generator) -> Tensor:
    """Standard normal numbers, one for each entry of u."""
    return torch.randn(u.shape, generator=generator, dtype=u.dtype, device=u.device)


def _outside(entry: Tensor, law: str, allowed: str) -> TiltDomainError:
    """The error for a tilt outside the domain of a law."""
    shrink = "" if "u = 0 only" in allowed else "shrink the scores, or "
    remedy = (
        "Its cgf is infinite there and attention has no infinite-prompt limit: "
        f"{shrink}ask about finite prompts, lp.finite_prompt(attention, mu, z, length)."
    )
    return TiltDomainError("u", f"the entry {float(entry):.6g} on {law}", allowed, remedy)


class ScalarLaw(abc.ABC):
    """A probability law on the line: what a coordinate of a :class:`Product` needs.

    A subclass gives :meth:`cgf` and :meth:`sample`, and ``domain`` where its cgf is not finite for
    every u; derivatives follow by autodiff.

    Examples
    --------
    Exponential waiting times, minus their mean:

    >>> class Exponential(lp.scalar.ScalarLaw):
    ...     domain = (-math.inf, 1.0)
    ...     def cgf(self, u):
    ...         return -torch.log1p(-u) - u
    ...     def sample(self, u, generator):
    ...         uniform = torch.rand(u.shape, generator=generator, dtype=u.dtype, device=u.device)
    ...         return -torch.log1p(-uniform) / (1 - u) - 1
    >>> mu = lp.Product([Exponential(), lp.scalar.RademacherLaw()])
    >>> mu.tilted_mean([0.5, 0.0])
    tensor([1., 0.], dtype=torch.float64)
    """

    @property
    def domain(self) -> tuple[float, float]:
        """Open interval on which the cgf is finite; the origin always belongs to it."""
        return -math.inf, math.inf

    @property
    def bound(self) -> float:
        """Largest absolute value; infinite for an unbounded law."""
        return math.inf

    @property
    def relative_precision(self) -> bool:
        """Whether small tilted variances keep their digits, as for :class:`Measure`."""
        return False

    @abc.abstractmethod
    def cgf(self, u: Tensor) -> Tensor:
        """log E e^{ux}, elementwise."""

    @abc.abstractmethod
    def sample(self, u: Tensor, generator: torch.Generator) -> Tensor:
        """One draw for each entry of u, from the law tilted by it (by 0: the law itself)."""

    def derivatives(self, u: Tensor, order: int) -> tuple[Tensor, ...]:
        """The cgf and its first derivatives, four at most, elementwise at real or complex u."""
        if u.is_complex():
            try:
                with recorded():
                    point = u.detach().clone().requires_grad_()
                return derivatives(self.cgf, point, order)
            except (TypeError, RuntimeError) as error:
                raise no_complex_tilts(self, error) from error
        keep_graph = self._finite_cgf(u).requires_grad
        with recorded():
            kept = u.requires_grad and keep_graph
            point = u.clone() if kept else u.detach().clone().requires_grad_()
        return derivatives(self.cgf, point, order, keep_graph)

    def _finite_cgf(self, u: Tensor) -> Tensor:
        """The cgf, or an error where it is infinite or NaN."""
        value = self.cgf(u)
        outside = ~torch.isfinite(value)
        if bool(outside.any()):
            allowed = "entries at which its cgf is finite: a law may say domain = (low, high)"
            raise _outside(u[outside].flatten()[0], type(self).__name__, allowed)
        return value

    def _distinct_derivatives(self, u: Tensor, order: int) -> Tensor:
        """:meth:`derivatives`, stacked, computed once for coordinates that are tilted alike."""
        if u.numel() > 4096:  # fewer are computed faster than equal ones are found
            row = u.detach().reshape(-1, u.shape[-1])[-1].cpu().numpy()
            _, kept, places = np.unique(row, return_index=True, return_inverse=True)
            if len(kept) < len(row) and torch.equal(u[..., kept][..., places], u):
                return torch.stack(self.derivatives(u[..., kept], order))[..., places]
        return torch.stack(self.derivatives(u, order))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ProductMeasure(PlacedMeasure):
    """Independent coordinates; Λ(u) = Σ_i Λ_i(u_i), and the tilt by u tilts coordinate i by u_i."""

    @property
    @abc.abstractmethod
    def groups(self) -> tuple[tuple[ScalarLaw, tuple[int, ...]], ...]:
        """Each distinct scalar law with the coordinates that follow it."""

    @property
    def support_radius(self) -> float:
        return math.sqrt(sum(len(indices) * law.bound**2 for law, indices in self.groups))

    @property
    def relative_precision(self) -> bool:
        return all(law.relative_precision for law, _ in self.groups)

    def _coordinatewise(self, u: Tensor, function: Callable[[ScalarLaw, Tensor], Tensor]) -> Tensor:
        """Apply a function of (law, entries) to the coordinates of u, in their order."""
        groups = self.groups
        if len(groups) == 1:
            return function(groups[0][0], u)
        order = [i for _, indices in groups for i in indices]
        values = torch.cat([function(law, u[..., list(where)]) for law, where in groups], dim=-1)
        return values[..., torch.argsort(torch.tensor(order, device=u.device))]

    def coordinate(self, index: int) -> ScalarLaw:
        """The law of one coordinate."""
        return next(law for law, indices in self.groups if index in indices)

    def _check_domain(self, u: Tensor) -> None:
        for law, indices in self.groups:
            low, high = law.domain
            if math.isinf(low) and math.isinf(high):
                continue
            entries = u[..., list(indices)]
            outside = ~((entries > low) & (entries < high) | (entries == 0))
            if bool(outside.any()):
                allowed = f"{low:.6g} < u_i < {high:.6g}"
                if low == high:
                    allowed = "u = 0 only: the law has no exponential moment"
                raise _outside(entries[outside].flatten()[0], repr(self), allowed)

    def _derivatives(self, u: Tensor, order: int) -> Tensor:
        """The cgf of each coordinate and its derivatives, shape (order + 1, ..., d)."""
        return self._coordinatewise(u, lambda law, v: law._distinct_derivatives(v, order))

    def _cgf(self, u: Tensor) -> Tensor:
        return self._coordinatewise(u, lambda law, v: law._finite_cgf(v)).sum(-1)

    def _tilted_mean(self, u: Tensor) -> Tensor:
        return self._coordinatewise(u, lambda law, v: law.derivatives(v, 1)[1])

    def _tilted_covariance(self, u: Tensor) -> Tensor:
        return torch.diag_embed(self._coordinatewise(u, lambda law, v: law.derivatives(v, 2)[2]))

    def _scales(self, u: Tensor) -> tuple[Tensor, Tensor]:
        def scales(law: ScalarLaw, v: Tensor) -> Tensor:
            _, mean, variance = law.derivatives(v, 2)
            square = variance.clamp_min(0.0) + mean**2
            if law.relative_precision:
                return torch.stack([square.sqrt(), variance.clamp_min(0.0).sqrt()])
            _, own, plain = law.derivatives(v.new_zeros(1), 2)
            return (square + plain + own**2).sqrt().expand(2, *v.shape)

        size, scale = self._coordinatewise(u, scales)
        return size, scale

    def _complex_cumulants(self, w: Tensor, order: int = 2) -> tuple[Tensor, ...]:
        value, *higher = self._derivatives(w, order)
        return value.sum(-1), *higher

    def _in_domain(self, u: Tensor) -> Tensor:
        def inside(law: ScalarLaw, v: Tensor) -> Tensor:
            low, high = law.domain
            return ((v > low * (1 - DOMAIN_EDGE)) & (v < high * (1 - DOMAIN_EDGE))) | (v == 0)

        return self._coordinatewise(u, inside).all(-1)

    def _tilt_range(self, u: Tensor) -> tuple[float, float]:
        low, high = -math.inf, math.inf
        for law, indices in self.groups:
            entries = u[list(indices)]
            # the edges of all others lie further out
            for entry in {float(entries.min()), float(entries.max())} - {0.0}:
                ends = sorted(edge / entry for edge in law.domain)
                low, high = max(low, ends[0]), min(high, ends[1])
        return low, high

    def _require_law(self) -> None:
        for law, _ in self.groups:
            low, high = law.domain
            if low < 0 < high:
                inside = functools.partial(lambda low, high, t: low < t < high, low, high)
                require_law(law, law.cgf, self._like.new_zeros(()), inside)

    def _tilted_norm_moment4(self, u: Tensor, center: Tensor, V: Tensor | None = None) -> Tensor:
        """The Gaussian formula, and what the third and fourth cumulants add to it."""
        _, k1, k2, k3, k4 = self._derivatives(u, 4)
        k1 = k1 - center
        read = k1 if V is None else k1 @ V.mT
        # diagonal of V^TV, and V^TV k1
        own, moved = (1.0, k1) if V is None else (V.square().sum(0), read @ V)
        second = (own * k2).sum(-1) + read.square().sum(-1)  # E‖V(x - center)‖²
        higher = own * (2 * k2**2 + k4) + moved * (4 * k2 * k1 + 2 * k3) + 2 * own * k1 * k3
        total: Tensor = (k2 + k1**2).sum(-1) * second + higher.sum(-1)
        return total

    def _directional_cumulants(self, directions: Tensor, u: Tensor) -> Cumulants:
        """κ_r(a·x) = Σ_i a_i^r κ_r(x_i): for laws without a cgf, too."""
        a = directions.reshape(-1, *(1,) * (u.dim() - 1), self.dim)
        slopes = self._derivatives(u, 4)[1:]
        k1, k2, k3, k4 = ((a**order * k).sum(-1) for order, k in enumerate(slopes, 1))
        return k1, k2, k3, k4

    def _sample(self, n: int, generator: torch.Generator) -> Tensor:
        return self._sample_tilted(self._origin(), n, generator)

    def _sample_tilted(self, u: Tensor, n: int, generator: torch.Generator) -> Tensor:
        u = u.detach().unsqueeze(-2).expand(*u.shape[:-1], n, self.dim)
        return self._coordinatewise(u, lambda law, v: law.sample(v, generator))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class IidProduct(ProductMeasure):
    """Independent coordinates that follow one scalar law: a subclass names the kind of law.

    It has a field for each parameter of the law, which checks them.
    """

    kind: ClassVar[type[ScalarLaw]]
    dim: int = dataclasses.field()

    def __post_init__(self) -> None:
        super().__post_init__()
        checked = {name: getattr(self.law, name, value) for name, value in self._parameters.items()}
        dim = validation.integer("dim", self.dim)
        # a tilt, and the numbers of its coordinates
        validation.affordable("dim", dim, needed=64.0 * dim)
        validation.store(self, dim=dim, **checked)

    @property
    def _parameters(self) -> dict[str, Any]:
        names = (field.name for field in dataclasses.fields(self))
        return {name: getattr(self, name) for name in names if name not in ("dim", *PLACE)}

    @functools.cached_property
    def law(self) -> ScalarLaw:
        """Law of one coordinate."""
        return self.kind(**self._parameters)

    def _details(self) -> str:
        return "".join(
            f", {name}={value:.{16 if isinstance(value, int) else 6}g}"
            for name, value in self._parameters.items()
        )

    @property
    def groups(self) -> tuple[tuple[ScalarLaw, tuple[int, ...]], ...]:
        return ((self.law, tuple(range(self.dim))),)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Product(ProductMeasure):
    """Independent coordinates with a scalar law each.

    Repeating the same :class:`ScalarLaw` object lets the library treat its coordinates at once.

    Examples
    --------
    >>> mu = lp.Product([lp.scalar.RademacherLaw(), lp.scalar.UniformLaw(), lp.scalar.LaplaceLaw()])
    >>> mu.tilted_mean([1.0, 1.0, 1.0])
    tensor([0.7616, 0.8440, 2.0000], dtype=torch.float64)
    """

    laws: Sequence[ScalarLaw]

    def __post_init__(self) -> None:
        super().__post_init__()
        laws = tuple(self.laws) if isinstance(self.laws, Sequence) else ()
        if not laws or not all(isinstance(law, ScalarLaw) for law in laws):
            given, allowed = validation.text(self.laws), "a sequence of at least one ScalarLaw"
            remedy = "Scalar laws end in Law: lp.Product([lp.scalar.RademacherLaw()])."
            raise InvalidArgumentError("laws", given, allowed, remedy)
        validation.store(self, laws=laws)

    @property
    def dim(self) -> int:
        return len(self.laws)

    @property
    def groups(self) -> tuple[tuple[ScalarLaw, tuple[int, ...]], ...]:
        found: dict[int, tuple[ScalarLaw, list[int]]] = {}
        for i, law in enumerate(self.laws):
            found.setdefault(id(law), (law, []))[1].append(i)
        return tuple((law, tuple(indices)) for law, indices in found.values())

    def _details(self) -> str:
        names = [type(law).__name__ for law, _ in self.groups]
        return f", laws={'/'.join(dict.fromkeys(names))}"
