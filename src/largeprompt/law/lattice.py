"""Block expectations over Gaussian scores that may be shifted, as tensors that can be differentiated twice.

G_a(τ) = E e^{as - e^s}, s = τ + ℓ + σξ, formula (quad.5) of docs/mathematics/quadrature.md with a level ℓ. One lattice serves τ and
s: G_a is a product of a window matrix with the normal kernel, in which alone ℓ and the variance stand, so that autograd goes
through a small array. Narrow score laws (σ below the lattice step) take a Gauss-Hermite rule instead.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from largeprompt.errors import InvalidArgumentError
from largeprompt.law.quadrature import LARGEST_EXPONENT, REACH, STEP, Array, Range, log_survival, relative_ends, widen
from largeprompt.law.weights import WIDE

NARROW_NODES = 24  # of the Gauss-Hermite rule: rounding alone is left for σ < WIDE
SMALLEST_VARIANCE = 1e-14  # added to q: at q = 0 the square root has no derivative
LARGEST_VARIANCE = 2048.0  # softmax over 10^15 tokens is frozen from 70 on
ROWS = 128  # of the window matrix at a time
LARGEST_LEVEL = 1000.0


@dataclasses.dataclass(frozen=True, eq=False)
class Kind:
    """Block expectations of one kind of token on the lattice: log φ, φ and 1 - φ (n, τ), and G_1, G_2, ..."""

    log_phi: Tensor
    kept: Tensor
    lost: Tensor
    G: tuple[Tensor, ...]  # G[a - 1] is G_a


@functools.cache
def _hermite() -> tuple[Tensor, Tensor]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(NARROW_NODES)
    return torch.from_numpy(nodes), torch.from_numpy(weights / weights.sum())


def _functions(s: Tensor, highest: int) -> list[Tensor]:
    """1 - e^{-e^s}, e^{-e^s}, and e^{as - e^s} for a = 1..highest; beyond the largest exponent all have their limits, 0 or 1."""
    grown = torch.exp(s.clamp(max=LARGEST_EXPONENT + 1))
    values = [torch.exp(-grown)]
    for _ in range(highest):
        values.append(grown * values[-1])
    return [-torch.expm1(-grown), *values]


def _wide(start: float, count: int, level: Tensor, sigma: Tensor, highest: int) -> list[Tensor]:
    centre, spread = level.detach(), sigma.detach()
    low, high = float((centre - REACH * spread).min()), float((centre + REACH * spread).max())
    tilted = float((centre + REACH * spread + highest * spread**2).max())
    high = min(tilted, max(high, LARGEST_EXPONENT - start))
    left, right = math.floor(low / STEP), math.ceil(high / STEP)
    offsets = STEP * torch.arange(left, right + 1, dtype=torch.float64, device=level.device)
    xi = (offsets.unsqueeze(-1) - level) / sigma  # (offset, n)
    kernel = torch.exp(-(xi**2) / 2) * (STEP / math.sqrt(2 * math.pi)) / sigma
    s = start + STEP * torch.arange(left, right + count, dtype=torch.float64, device=level.device)
    beyond = torch.cat([kernel.flip(0).cumsum(0).flip(0), torch.zeros_like(kernel[:1])])  # mass of the kernel from each offset on
    functions = _functions(s, highest)
    results: list[list[Tensor]] = [[] for _ in functions]
    for row in range(0, count, ROWS):
        rows = min(ROWS, count - row)
        # beyond the largest exponent every function is 0, except 1 - e^{-e^s}, which is 1 there
        width = min(len(offsets), max(1, math.ceil((LARGEST_EXPONENT - start) / STEP) - row - left + 1))
        for values, result in zip(functions, results, strict=True):
            result.append(values[row : row + rows + width - 1].unfold(0, width, 1) @ kernel[:width])
        results[0][-1] = results[0][-1] + beyond[width]
    return [torch.cat(result).mT for result in results]


def _narrow(start: float, count: int, level: Tensor, sigma: Tensor, highest: int) -> list[Tensor]:
    nodes, weights = (part.to(level.device) for part in _hermite())
    tau = start + STEP * torch.arange(count, dtype=torch.float64, device=level.device)
    s = tau.unsqueeze(-1) + (level.unsqueeze(-1) + sigma.unsqueeze(-1) * nodes).unsqueeze(-2)  # (n, τ, ξ)
    return [values @ weights for values in _functions(s, highest)]


def kind(start: float, count: int, level: Tensor, variance: Tensor, highest: int) -> Kind:
    """Block expectations at τ = start, start + STEP, ... for scores of mean ``level`` and ``variance``, each (n,)."""
    sigma = torch.sqrt(variance + SMALLEST_VARIANCE)
    wide = sigma.detach() >= WIDE
    if bool(wide.all()):
        pieces = _wide(start, count, level, sigma, highest)
    elif not bool(wide.any()):
        pieces = _narrow(start, count, level, sigma, highest)
    else:
        back = torch.argsort(torch.cat([wide.nonzero(), (~wide).nonzero()]).squeeze(-1))
        parts = [rule(start, count, level[mask], sigma[mask], highest) for rule, mask in ((_wide, wide), (_narrow, ~wide))]
        pieces = [torch.cat(pair)[back] for pair in zip(*parts, strict=True)]
    lost, kept, *G = pieces
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


def integrate(integrands: Callable[[float, int], Sequence[Tensor]], below: float, above: float) -> list[Tensor]:
    """∫ dτ of functions given on the lattice, each (n, τ), from -below to above, widened until nothing is lost at the ends."""

    def evaluate(ranges: Sequence[Range]) -> tuple[list[Tensor], Array]:
        values = integrands(-ranges[0][0], math.ceil(sum(ranges[0]) / STEP) + 1)
        ends = np.max([relative_ends(value.detach().cpu().numpy().T) for value in values], axis=0)
        return [STEP * value.sum(-1) for value in values], ends

    return widen(evaluate, [(below, above)])
