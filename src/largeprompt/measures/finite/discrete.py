"""A law with finitely many values."""

from __future__ import annotations

import dataclasses
from typing import Self

from torch import Tensor

from largeprompt import validation
from largeprompt.measures.finite.atoms import AtomicMeasure


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Discrete(AtomicMeasure):
    """Σ_k ω_k δ_{a_k}: tokens from a finite alphabet, embedded.

    Parameters
    ----------
    atoms
        Values a_k, shape (..., k, d).
    weights
        Probabilities ω_k, nonnegative and summing to one, shape (..., k).

    Examples
    --------
    >>> coin = lp.Discrete([[0.0], [1.0]], [0.25, 0.75])
    >>> coin.mean, coin.covariance
    (tensor([0.7500], dtype=torch.float64), tensor([[0.1875]], dtype=torch.float64))
    """

    atoms: Tensor
    weights: Tensor

    def __post_init__(self) -> None:
        atoms = validation.last_dimensions("atoms", validation.tensor("atoms", self.atoms), ("k", "d"))
        weights = validation.tensor("weights", self.weights, like=atoms)
        validation.last_dimensions("weights", weights, (atoms.shape[-2],), ", one for each atom")
        validation.broadcast("atoms and weights", atoms.shape[:-2], weights.shape[:-1])
        object.__setattr__(self, "atoms", atoms)
        object.__setattr__(self, "weights", validation.weights("weights", weights))

    def _with(self, points: Tensor, probabilities: Tensor | None) -> Self:
        result = object.__new__(type(self))
        object.__setattr__(result, "atoms", points)
        object.__setattr__(result, "weights", probabilities)
        return result

    @property
    def points(self) -> Tensor:
        return self.atoms

    @property
    def probabilities(self) -> Tensor:
        return self.weights

    def _details(self) -> str:
        return f", atoms={self.count}"
