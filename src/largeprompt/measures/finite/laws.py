"""A law with finitely many values, and a finite prompt as a measure."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.display import notation
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures.finite.atoms import AtomicMeasure


def _weights(value: Tensor, points: Tensor, names: str, each: str) -> Tensor:
    """Check the weights of atoms."""
    weights = validation.shaped(
        "weights", value, points.shape[-2:-1], f", one for each {each}", like=points
    )
    validation.broadcast(names, points.shape[:-2], weights.shape[:-1])
    return validation.weights("weights", weights)


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
        atoms = validation.shaped("atoms", self.atoms, ("k", "d"))
        validation.store(
            self, atoms=atoms, weights=_weights(self.weights, atoms, "atoms and weights", "atom")
        )

    @property
    def points(self) -> Tensor:
        return self.atoms

    def _formula(self) -> str:
        if self.batch_shape or self.count > notation.MOST or self.dim > notation.MOST:
            return f"Σ_{{k≤{self.count}}} ω_{{k}} δ_{{a_k}}"
        pairs = zip(self.weights, self.atoms, strict=True)
        return " + ".join(
            f"{notation.number(w)} δ_{{{notation.vector(atom, 'a')}}}" for w, atom in pairs
        )

    def _details(self) -> str:
        return f", atoms={self.count}"


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Empirical(AtomicMeasure):
    """(1/L) Σ_l δ_{z_l}: the prompt z_1..z_L, on which the attention operator is the usual softmax
    attention.

    Parameters
    ----------
    tokens
        z_l, shape (..., L, d).
    weights
        Probabilities of the tokens, shape (..., L); equal when left out.

    Examples
    --------
    >>> prompt = lp.Empirical([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> prompt.tilted_mean([100.0, 0.0])  # the tilt picks the token of largest score
    tensor([1.0000e+00, 3.7201e-44], dtype=torch.float64)
    """

    tokens: Tensor
    weights: Tensor | None = None

    def __post_init__(self) -> None:
        tokens = validation.tensor("tokens", self.tokens)
        if tokens.dim() >= 2 and tokens.shape[-2] == 0:
            raise InvalidArgumentError(
                "tokens", "zero tokens", "at least one token", "An empty prompt has no softmax."
            )
        validation.last_dimensions("tokens", tokens, ("L", "d"))
        weights = (
            None
            if self.weights is None
            else _weights(self.weights, tokens, "tokens and weights", "token")
        )
        validation.store(self, tokens=tokens, weights=weights)

    @property
    def points(self) -> Tensor:
        return self.tokens

    @property
    def length(self) -> int:
        """Number of tokens L."""
        return self.count

    def merge(self, *others: Empirical) -> Empirical:
        """Prompt made of this one and the others, end to end, each part counting by its number of
        tokens.

        To merge what attention made of the parts, without bringing the tokens together, use
        :meth:`running`.
        """
        parts = (self, *others)
        for other in others:
            if not isinstance(other, Empirical) or other.dim != self.dim:
                raise InvalidArgumentError(
                    "others", validation.text(other), f"Empirical measures of dimension {self.dim}"
                )
            validation.tensor("others", other.tokens, like=self.tokens, finite=False)
        batch = validation.broadcast("others", *(part.batch_shape for part in parts))
        tokens = torch.cat([part.tokens.expand(*batch, -1, -1) for part in parts], dim=-2)
        if all(part.weights is None for part in parts):
            return self._trusted(tokens, None)
        masses = [
            torch.ones((*batch, part.count), dtype=self.dtype, device=self.device)
            if part.weights is None
            else (part.weights * part.count).expand(*batch, -1)
            for part in parts
        ]
        return self._trusted(tokens, torch.cat(masses, dim=-1) / tokens.shape[-2])

    def _formula(self) -> str:
        weights = f"1/{self.count} " if self.weights is None else ""
        return f"{weights}Σ_{{l≤{self.count}}} {'' if weights else 'ω_{l} '}δ_{{z_l}}"

    def _details(self) -> str:
        return f", length={self.count}"
