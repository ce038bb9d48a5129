"""A law with finitely many values, and a finite prompt as a measure."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures.finite.atoms import AtomicMeasure
from largeprompt.validation import ArrayLike


def _checked_weights(weights: Tensor, points: Tensor, name: str, each: str) -> Tensor:
    meaning = f", one for each {each}"
    validation.last_dimensions("weights", weights, points.shape[-2:-1], meaning)
    validation.broadcast(f"{name} and weights", points.shape[:-2], weights.shape[:-1])
    return validation.weights("weights", weights)


@dataclasses.dataclass(frozen=True, eq=False, repr=False, init=False)
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

    def __init__(self, atoms: ArrayLike, weights: ArrayLike) -> None:
        atoms, weights = validation.tensors(atoms=atoms, weights=weights)
        validation.last_dimensions("atoms", atoms, ("k", "d"))
        weights = _checked_weights(weights, atoms, "atoms", "atom")
        validation.store(self, atoms=atoms, weights=weights)

    @property
    def points(self) -> Tensor:
        return self.atoms

    def _details(self) -> str:
        return f", atoms={self.count}"


@dataclasses.dataclass(frozen=True, eq=False, repr=False, init=False)
class Empirical(AtomicMeasure):
    """(1/L) Σ_l δ_{z_l}: the prompt z_1..z_L, on which attention is the usual softmax attention.

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

    def __init__(self, tokens: ArrayLike, weights: ArrayLike | None = None) -> None:
        given = {"tokens": tokens} if weights is None else {"tokens": tokens, "weights": weights}
        tokens, *others = validation.tensors(**given)
        if tokens.dim() >= 2 and tokens.shape[-2] == 0:
            remedy = "An empty prompt has no softmax."
            raise InvalidArgumentError("tokens", "zero tokens", "at least one token", remedy)
        validation.last_dimensions("tokens", tokens, ("L", "d"))
        checked = [_checked_weights(each, tokens, "tokens", "token") for each in others]
        validation.store(self, tokens=tokens, weights=checked[0] if checked else None)

    @property
    def points(self) -> Tensor:
        return self.tokens

    @property
    def length(self) -> int:
        """Number of tokens L."""
        return self.count

    def merge(self, *others: Empirical) -> Empirical:
        """Prompt made of this one and the others, each part counting by its number of tokens.

        To merge what attention made of the parts, without bringing the tokens together, use
        :meth:`running`.
        """
        for other in others:
            if not isinstance(other, Empirical) or other.dim != self.dim:
                allowed = f"Empirical measures of dimension {self.dim}"
                raise InvalidArgumentError("others", validation.text(other), allowed)
        parts = (self, *others)
        batch = validation.broadcast("others", *(part.batch_shape for part in parts))
        tokens = torch.cat([part.tokens.expand(*batch, -1, -1) for part in parts], dim=-2)
        if all(part.weights is None for part in parts):
            return self._trusted(tokens, None)
        masses = [(part._mass * part.count).to(tokens.dtype).expand(*batch, -1) for part in parts]
        return self._trusted(tokens, torch.cat(masses, dim=-1) / tokens.shape[-2])

    def _details(self) -> str:
        return f", length={self.count}"
