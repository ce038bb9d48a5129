"""Polynomials in several variables on Hermite polynomials, orthonormal under N(0, I)."""

import dataclasses
import functools
import itertools
import math

import torch
from torch import Tensor


@dataclasses.dataclass(frozen=True)
class HermiteBasis:
    """h_α(ξ) = Π_i He_{α_i}(ξ_i)/√α_i!, |α| <= degree, ordered by |α|; coefficients (size, ...)."""

    dim: int
    degree: int

    @functools.cached_property
    def indices(self) -> Tensor:
        """Multi-indices α, shape (size, dim)."""
        choices = (
            itertools.combinations_with_replacement(range(self.dim), n)
            for n in range(self.degree + 1)
        )
        rows = [
            [places.count(i) for i in range(self.dim)]
            for places in itertools.chain.from_iterable(choices)
        ]
        return torch.tensor(rows, dtype=torch.long)

    @property
    def size(self) -> int:
        """Number of polynomials, C(dim + degree, dim)."""
        return math.comb(self.dim + self.degree, self.dim)

    @functools.cached_property
    def _neighbors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Places of α ± e_i (``size`` for none), √(α_i + 1) and √α_i, all (dim, size)."""
        place = {tuple(row): i for i, row in enumerate(self.indices.tolist())}
        up, down = (torch.full((self.dim, self.size), self.size) for _ in range(2))
        for alpha, i in place.items():
            for j in range(self.dim):
                up[j, i] = place.get((*alpha[:j], alpha[j] + 1, *alpha[j + 1 :]), self.size)
                down[j, i] = place.get((*alpha[:j], alpha[j] - 1, *alpha[j + 1 :]), self.size)
        counts = self.indices.mT.to(torch.float64)
        return up, down, (counts + 1).sqrt(), counts.sqrt()

    def times(self, i: int, f: Tensor) -> Tensor:
        """ξ_i f, cut at the degree of the basis: ξ h_α = √(α+1) h_{α+1} + √α h_{α-1}."""
        up, down, raised, lowered = self._neighbors
        shape = (-1,) + (1,) * (f.dim() - 1)
        padded = torch.cat([f, f.new_zeros(1, *f.shape[1:])])
        return (
            raised[i].to(f).view(shape) * padded[up[i]]
            + lowered[i].to(f).view(shape) * padded[down[i]]
        )

    def derivative(self, i: int, f: Tensor) -> Tensor:
        """∂f/∂ξ_i: h_α -> √α_i h_{α - e_i}."""
        up, _, raised, _ = self._neighbors
        padded = torch.cat([f, f.new_zeros(1, *f.shape[1:])])
        return raised[i].to(f).view((-1,) + (1,) * (f.dim() - 1)) * padded[up[i]]

    def smoothed(self, matrix: Tensor, offset: Tensor) -> Tensor:
        """Matrix of f -> E f(a + g), g ~ N(0, I), a = offset + matrix ξ, on coefficients.

        Under N(a, I) the mean of h_α is a^α/√α!; columns are built degree by degree.
        """
        _, down, _, lowered = self._neighbors
        columns = matrix.new_zeros(self.size, self.size)
        columns[0, 0] = 1.0
        first = (self.indices > 0).to(torch.long).argmax(-1)  # a coordinate with α_i > 0
        degrees = self.indices.sum(-1)
        for n in range(1, self.degree + 1):
            chosen = torch.nonzero(degrees == n).squeeze(-1)
            i = first[chosen]
            before = columns[:, down[i, chosen]]
            grown = before * offset[i]
            for j in range(self.dim):
                grown = grown + self.times(j, before) * matrix[i, j]
            columns[:, chosen] = grown / lowered[i, chosen].to(matrix)
        return columns

    def evaluate(self, points: Tensor) -> Tensor:
        """h_α at points (..., dim), shape (..., size)."""
        tables = [torch.ones_like(points), points]
        for n in range(2, self.degree + 1):
            tables.append((points * tables[-1] - math.sqrt(n - 1) * tables[-2]) / math.sqrt(n))
        table = torch.stack(tables[: self.degree + 1], -1)  # (..., dim, order)
        values = points.new_ones(*points.shape[:-1], self.size)
        for j in range(self.dim):
            values = values * table[..., j, :][..., self.indices[:, j]]
        return values
