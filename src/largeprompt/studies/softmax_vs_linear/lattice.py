"""Block expectations over Gaussian scores that may be shifted, as tensors that can be
differentiated as often as needed.

G_a(τ) = E e^{as - e^s}, s = τ + ℓ + σξ, formula (quad.5) of docs/mathematics/quadrature.md with a
level ℓ. Derivatives are blocks of higher order: ∂G_a/∂ℓ = aG_a - G_{a+1}, and by the heat equation
∂G_a/∂σ² = ½ ∂²G_a/∂ℓ².
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from largeprompt.errors import InvalidArgumentError
from largeprompt.law.quadrature import Array, Range, log_survival, relative_ends, widen
from largeprompt.law.weights import Scores, block_expectations
from largeprompt.measures.score_nodes import SCORE_STEP

LARGEST_VARIANCE = 2048.0  # softmax over 10^15 tokens is frozen from 70 on
LARGEST_LEVEL = 1000.0


@dataclasses.dataclass(frozen=True, eq=False)
class Kind:
    """Block expectations of one kind of token on the lattice: log φ, φ and 1 - φ (n, τ), and G_1,
    G_2, ...
    """

    log_phi: Tensor
    kept: Tensor
    lost: Tensor
    G: tuple[Tensor, ...]  # G[a - 1] is G_a


class _Blocks(torch.autograd.Function):
    """1 - φ, φ, G_1, ..., G_highest of levels and variances (n,), stacked: (highest + 2, n, τ)."""

    @staticmethod
    def forward(
        ctx: Any, level: Tensor, variance: Tensor, start: float, count: int, highest: int
    ) -> Tensor:
        ctx.save_for_backward(level, variance)
        ctx.grid = start, count, highest
        mean, scale = (
            part.detach().cpu().numpy() for part in (level, variance.clamp_min(0.0).sqrt())
        )
        orders = [(a, 0) for a in range(1, highest + 1)]
        lost, kept, values = block_expectations(
            start, count, Scores(mean, scale, np.zeros_like(mean)), orders
        )
        return torch.from_numpy(np.stack([lost, kept, *values.values()]).swapaxes(1, 2)).to(level)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        start, count, highest = ctx.grid
        _, kept, *G = _Blocks.apply(*ctx.saved_tensors, start, count, highest + 2)  # type: ignore[no-untyped-call]
        G = [kept, *G]
        slopes = [a * G[a] - G[a + 1] for a in range(highest + 2)]  # in ℓ
        bends = [(a * slopes[a] - slopes[a + 1]) / 2 for a in range(highest + 1)]  # in σ²
        (lost, *others), found = gradients[0], []
        for parts in (slopes, bends):
            found.append(
                sum(
                    (g * part for g, part in zip(others, parts, strict=False)), -lost * parts[0]
                ).sum(-1)
            )
        return *found, None, None, None


def kind(start: float, count: int, level: Tensor, variance: Tensor, highest: int) -> Kind:
    """Block expectations at τ = start, start + SCORE_STEP, ... for scores of mean ``level`` and
    ``variance``, each (n,).
    """
    lost, kept, *G = _Blocks.apply(level, variance, start, count, highest)  # type: ignore[no-untyped-call]
    return Kind(log_survival(lost, kept), kept, lost, tuple(G))


def check_scores(level: Tensor, variance: Tensor) -> None:
    """Refuse scores that spread too far for the lattice."""
    for name, value, largest in (
        ("score variance", variance, LARGEST_VARIANCE),
        ("difference of scores", level.abs(), LARGEST_LEVEL),
    ):
        found = float(value.detach().max()) if value.numel() else 0.0
        if not found <= largest:
            remedy = "Scores spread so far are argmax; use smaller parameters."
            raise InvalidArgumentError(name, f"{found:.6g}", f"at most {largest:g}", remedy)


def integrate(
    integrands: Callable[[float, int], Sequence[Tensor]], below: float, above: float
) -> list[Tensor]:
    """∫ dτ of functions given on the lattice, each (n, τ), from -below to above, widened until
    nothing is lost at the ends.
    """

    def evaluate(ranges: Sequence[Range]) -> tuple[list[Tensor], Array]:
        values = integrands(-ranges[0][0], math.ceil(sum(ranges[0]) / SCORE_STEP) + 1)
        ends = np.max([relative_ends(value.detach().cpu().numpy().T) for value in values], axis=0)
        return [SCORE_STEP * value.sum(-1) for value in values], ends

    return widen(evaluate, [(below, above)])
