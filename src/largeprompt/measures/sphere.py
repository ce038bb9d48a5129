"""The uniform law on a sphere, whose tilts are the von Mises-Fisher laws."""

import dataclasses
import math

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures.numerics.bessel import (
    bessel_ratio,
    complex_log_hyp0f1,
    cosine_reach,
    far_slope,
    log_hyp0f1,
)
from largeprompt.measures.numerics.special import sech2, sign_derivatives
from largeprompt.measures.placed import PlacedMeasure
from largeprompt.measures.score_nodes import ScoreNodes, check_scores


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Sphere(PlacedMeasure):
    """Uniform on the sphere of radius r in R^d; r = √d by default, for coordinates of variance 1.

    With k = r‖u‖: Λ(u) = log 0F1(; d/2; k²/4), ∇Λ = r I_{d/2}(k)/I_{d/2-1}(k) along u, formula
    (tilt.9) of docs/mathematics/tilting.md. Accurate for d from 1 to 10,000 and any k.

    Parameters
    ----------
    dim
        Dimension d of the space (the sphere has dimension d - 1; d = 1 is the pair ±r).
    radius
        r, a positive number or tensor.

    Examples
    --------
    >>> lp.Sphere(3).tilted_mean([0.0, 0.0, 1.0])  # √3 coth √3 - 1, Langevin's function
    tensor([0.0000, 0.0000, 0.8440], dtype=torch.float64)
    """

    dim: int = dataclasses.field()
    radius: Tensor | float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        dim = validation.integer("dim", self.dim)
        validation.affordable("dim", dim, needed=8.0 * dim)
        radius = math.sqrt(dim) if self.radius is None else self.radius
        radius = validation.tensor("radius", radius, like=self._like)
        if radius.dim() != 0 or not bool(radius > 0):
            given = validation.text(self.radius)
            raise InvalidArgumentError("radius", given, "one positive number")
        validation.in_range("radius", radius**4)
        validation.store(self, dim=dim, radius=radius)

    @property
    def _radius(self) -> Tensor:
        assert isinstance(self.radius, Tensor)  # made one by __post_init__
        return self.radius

    @property
    def _order(self) -> float:
        return self.dim / 2 - 1

    @property
    def support_radius(self) -> float:
        return float(self._radius)

    def _square(self, u: Tensor) -> Tensor:
        """k² = r²‖u‖²."""
        return validation.in_range("u", self._radius**2 * u.square().sum(-1))

    def _cgf(self, u: Tensor) -> Tensor:
        return log_hyp0f1(self._square(u), self._order)

    def _tilted_mean(self, u: Tensor) -> Tensor:
        return self._radius**2 * bessel_ratio(self._square(u), self._order).unsqueeze(-1) * u

    def _tilted_covariance(self, u: Tensor) -> Tensor:
        if self.dim == 1:
            return self._radius**2 * sech2(self._radius * u).unsqueeze(-1)
        square, eye = self._square(u), torch.eye(self.dim, dtype=self.dtype, device=self.device)
        ratio, following = bessel_ratio(square, self._order), bessel_ratio(square, self._order + 1)
        across = self._radius**2 * ratio[..., None, None]
        bend = (self._radius**4 * ratio * (following - ratio))[..., None, None]
        along = bend * u.unsqueeze(-1) * u.unsqueeze(-2)
        near = across * eye + along
        # from k = 10³ (ν + 1)² on, six terms of the series in 1/k are exact
        far = (square > (1e3 * (self._order + 1) ** 2) ** 2).unsqueeze(-1)
        if not bool(far.any()):
            return near
        # across and along cancel far out: there the small variance along u has a series of its own
        unit = torch.where(far, u, eye[0])
        size = torch.linalg.vector_norm(unit, dim=-1, keepdim=True)
        axis = (unit / size).unsqueeze(-1) * (unit / size).unsqueeze(-2)
        slope = self._radius**2 * far_slope(self._radius * size, self._order).unsqueeze(-1)
        return torch.where(far.unsqueeze(-1), across * (eye - axis) + slope * axis, near)

    def _scales(self, u: Tensor) -> tuple[Tensor, Tensor]:
        # the small one along u is a difference of those across
        variance = self._tilted_covariance(u).diagonal(dim1=-2, dim2=-1)
        largest = variance.amax(-1, keepdim=True).clamp_min(0.0)
        return self._radius.expand_as(u), largest.sqrt().expand_as(u)

    def _complex_cumulants(self, w: Tensor, order: int = 2) -> tuple[Tensor, ...]:
        """From F_j = 0F1(; d/2 + j; r²w·w/4), each the derivative of the last up to a factor."""
        radius, dim = float(self._radius), self.dim
        if dim == 1:  # log cosh
            known = sign_derivatives(radius * w[:, 0], order)
            parts = enumerate(known)
            return tuple((slope * radius**i).reshape(-1, *(1,) * i) for i, slope in parts)
        square = radius**2 * (w**2).sum(-1)
        logs = [complex_log_hyp0f1(square, self._order + j) for j in range(min(order, 2) + 1)]
        if not order:
            return (logs[0],)
        # derivatives of 0F1 in w·w/2 over itself
        first, second = (torch.exp(log - logs[0]) for log in logs[1:])
        m1, m2 = radius**2 / dim * first, radius**4 / (dim * (dim + 2)) * second
        outer, eye = w.unsqueeze(-1) * w.unsqueeze(-2), torch.eye(dim).to(w)
        hessian = m1[:, None, None] * eye + (m2 - m1**2)[:, None, None] * outer
        return logs[0], m1.unsqueeze(-1) * w, hessian

    def _score_nodes(self, u: Tensor, top: float) -> list[ScoreNodes]:
        """x = r(c û + √(1-c²) ω), c of density ∝ (1-c²)^{(d-3)/2}, ω uniform across u."""
        dim, radius, tilt = self.dim, float(self._radius), u.numpy()
        size = float(np.linalg.norm(tilt))
        check_scores(radius * size)
        axis = tilt / size if size > 0 else np.eye(dim)[0]
        if dim == 1:
            y, cosine, log_mass = np.zeros(2), np.array([-1.0, 1.0]), np.full(2, -math.log(2.0))
        else:
            # c = tanh y: the density in y is ∝ cosh(y)^{1-d}, smooth, and an even grid of y is a
            # trapezoid rule; tilts by up to 2u move the mode of y to sinh y cosh y = 2r|u|/(d-1)
            end = cosine_reach(dim - 1) + math.asinh(4 * radius * size / (dim - 1)) / 2
            wide = 20 * (radius * size + 1) * min(end, 4.0) / (1 + 0.1 * math.sqrt(dim))
            count = math.ceil(max(200, 10 * end, wide))
            y = np.linspace(-end, end, 2 * count + 1)
            cosine, log_mass = np.tanh(y), -(dim - 1) * np.logaddexp(y, -y)
            log_mass -= np.logaddexp.reduce(log_mass)
        across, m = np.eye(dim) - np.outer(axis, axis), max(dim - 1, 1)
        rest, mean = (radius / np.cosh(y)) ** 2, radius * cosine[:, None] * axis
        fourth = rest**2 * (1 / (m * (m + 2)) - 1 / m**2)
        return [ScoreNodes(log_mass, radius * size * cosine, mean, across, rest / m, fourth)]

    def _tilted_norm_moment4(self, u: Tensor, center: Tensor, V: Tensor | None = None) -> Tensor:
        if V is not None:
            return super()._tilted_norm_moment4(u, center, V)
        # on the sphere ‖x - c‖² = r² + ‖c‖² - 2 c·x, so two moments of x are enough
        base = self._radius**2 + center.square().sum(-1)
        first = (center * self._tilted_mean(u)).sum(-1)
        variance = torch.einsum("...i,...ij,...j->...", center, self._tilted_covariance(u), center)
        return (base - 2 * first) ** 2 + 4 * variance

    def _noise(self, *shape: int, generator: torch.Generator, normal: bool = True) -> Tensor:
        draw = torch.randn if normal else torch.rand
        return draw(shape, generator=generator, dtype=self.dtype, device=self.device)

    def _sample(self, n: int, generator: torch.Generator) -> Tensor:
        point = self._noise(n, self.dim, generator=generator)
        return self._radius * torch.nn.functional.normalize(point, dim=-1)

    def _sample_tilted(self, u: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """From the von Mises-Fisher law, by Wood's rejection from a projected uniform direction."""
        u, radius = u.detach(), self._radius.detach()
        unit = torch.nn.functional.normalize
        k = (radius * u.norm(dim=-1)).unsqueeze(-1).expand(*u.shape[:-1], n)
        axis = unit(u, dim=-1).unsqueeze(-2)
        direction = self._noise(*k.shape, self.dim, generator=generator)
        if self.dim == 1:
            place = self._noise(*k.shape, generator=generator, normal=False).unsqueeze(-1)
            return torch.where(place < torch.sigmoid(2 * radius * u.unsqueeze(-2)), radius, -radius)
        gap = self._gap_along_axis(k, generator).unsqueeze(-1)  # 1 - cosine of the angle to u
        across = unit(direction - (direction * axis).sum(-1, keepdim=True) * axis, dim=-1)
        tokens = (1 - gap) * axis + torch.sqrt(gap * (2 - gap)) * across
        return radius * torch.where(k.unsqueeze(-1) > 0, tokens, unit(direction, dim=-1))

    def _gap_along_axis(self, k: Tensor, generator: torch.Generator) -> Tensor:
        """1 - t, with t of density ∝ e^{kt}(1 - t²)^{(d-3)/2} on [-1, 1]."""
        m = self.dim - 1
        b = m / (2 * k + torch.sqrt(4 * k**2 + m**2))
        gap, waiting = torch.zeros_like(k), torch.ones_like(k, dtype=torch.bool)
        while bool(waiting.any()):
            bw, kw = b[waiting], k[waiting]
            normal = self._noise(bw.numel(), self.dim, generator=generator)
            # Beta(m/2, m/2): a coordinate of a uniform direction
            beta = (1 + normal[:, 0] / normal.norm(dim=-1)) / 2
            proposal = 2 * bw * beta / (1 - (1 - bw) * beta)
            # with x0 = (1 - b)/(1 + b): 1 - x0, and 1 - x0 t, without cancellation at large k
            short, x0 = 2 * bw / (1 + bw), (1 - bw) / (1 + bw)
            share = (short + x0 * proposal) * (1 + bw) ** 2 / (4 * bw)
            log_ratio = kw * (short - proposal) + m * torch.log(share)
            uniform = self._noise(*bw.shape, generator=generator, normal=False)
            accepted = log_ratio >= torch.log1p(-uniform)
            chosen = tuple(index[accepted] for index in waiting.nonzero(as_tuple=True))
            gap[chosen] = proposal[accepted]
            waiting[chosen] = False
        return gap

    def _details(self) -> str:
        return f", radius={float(self._radius):.6g}"
