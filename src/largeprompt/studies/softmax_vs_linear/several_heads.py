"""Several softmax heads with tilts along the query, and read-outs that are optimal for them: exact
at every length.

Heads h = 1..H read the same prompt of in-context regression with tilts aρ_h x_q, Σ, Σ_q, W
multiples of the identity. Their outputs in the y coordinate have second moments E T_h T_k = X_hk
V2 + G_hk Σ ω given the scale of the scores, by the rule for two heads
(:mod:`largeprompt.studies.softmax_vs_linear.two_heads`): the risk is formula (risk.15) of
docs/mathematics/regression.md, whatever H.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.law import collision_moments
from largeprompt.law.weights import weight_moments
from largeprompt.studies.softmax_vs_linear.two_heads import LARGEST_SCALE, two_head_overlap
from largeprompt.training.optima.scan import scan_minimum
from largeprompt.training.tasks.regression import LinearRegression

Array = NDArray[np.float64]
# of log ‖x_q‖: the trapezoid rule errs by |Γ(d/2 + iπ/STEP)/Γ(d/2)|, 1e-8 at d = 10 and 1e-6 at 20
STEP = 0.16
SMALLEST = 5e-3  # scale of the scores below which the first order in σ² is used
VANISHING = 1e-7  # and below which nothing depends on it
LARGEST_ALONE = 200.0  # scale of the scores of one head, which needs no integral in the plane
# how far beyond √d the lattice has to reach: ‖x_q‖ is larger with probability below 1e-4
MARGIN = 4.0
CUTOFF = 1e-12  # eigenvalues of M below this fraction of the largest are rounding


@dataclasses.dataclass(frozen=True)
class HeadsOptimum:
    """Least risk of H heads with given ratios of tilts, with the common factor a and the read-outs
    that attain it.
    """

    risk: float
    a: float
    readouts: tuple[float, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class SeveralHeads:
    """Moments of the heads on a lattice of score scales; serves every dimension, noise and tilt of
    one length.

    Attributes
    ----------
    ratios
        ρ_1..ρ_H; for ``odd`` heads come in pairs ±ρ with opposite read-outs, and these are the
        positive halves.
    scales
        σ_j = a √(ΣΣ_q) ‖x_q‖ of a head with ρ = 1, equidistant in the logarithm.
    shrink, overlap, along
        1 - E Y, (scale, H); X and E SS' - X, each (scale, H, H). For pairs: those of the odd part
        (T(u) - T(-u))/2.
    """

    length: float
    ratios: tuple[float, ...]
    odd: bool
    scales: Array
    shrink: Array
    overlap: Array
    along: Array

    @classmethod
    def of(
        cls, length: float, ratios: Sequence[float], *, odd: bool = False, largest: float = 8.0
    ) -> SeveralHeads:
        """Compute the lattice: H² or so integrals in the plane for each of some forty scales up to
        ``largest``.

        Parameters
        ----------
        length
            From 2 to 10^15.
        ratios
            Tilts of the heads relative to each other, at most 1 in size; positive ones for ``odd``.
        odd
            Pairs of heads with opposite tilts and opposite read-outs, twice as many heads as
            ratios.
        largest
            Largest scale of the scores; tilts a are limited by it.
        """
        length = validation.length("length", length)
        ratios, odd = (
            validation.listed("ratios", ratios, "a sequence of numbers from -1 to 1"),
            validation.flag("odd", odd),
        )
        rho = [validation.number("ratios", each) for each in ratios]
        if (
            not rho
            or max(abs(each) for each in rho) > 1
            or (odd and min(rho) <= 0)
            or len(set(rho)) < len(rho)
        ):
            raise InvalidArgumentError(
                "ratios",
                str(tuple(ratios)),
                "different numbers from -1 to 1, positive ones for odd pairs",
            )
        most = LARGEST_ALONE if len(rho) == 1 and not odd else LARGEST_SCALE
        largest = validation.number("largest", largest)
        if not 0.1 <= largest <= most:
            raise InvalidArgumentError("largest", str(largest), f"a number from 0.1 to {most:g}")
        scales = np.exp(np.arange(math.log(SMALLEST), math.log(largest) + 1e-9, STEP))
        tiny = scales[0] * np.exp(
            -STEP * np.arange(math.ceil(math.log(SMALLEST / VANISHING) / STEP), 0, -1)
        )
        sigma = torch.from_numpy(scales)
        shrink = np.stack(
            [1 - weight_moments(length, abs(each) * sigma, [[(2, 0)]])[0].numpy() for each in rho],
            -1,
        )
        overlap, along = np.empty((2, len(scales), len(rho), len(rho)))
        for i in range(len(rho)):
            for j in range(i + 1):
                x, g = (part.numpy() for part in _pair(length, rho[i] * sigma, rho[j] * sigma))
                if odd:
                    opposite = two_head_overlap(length, rho[i] * sigma, -rho[j] * sigma)
                    x, g = (
                        (one - part.numpy()) / 2 for one, part in zip((x, g), opposite, strict=True)
                    )
                overlap[:, i, j] = overlap[:, j, i] = x
                along[:, i, j] = along[:, j, i] = g
        # E SS' - X is of order σ², and so is the overlap of odd parts
        grown = (tiny / scales[0])[:, None, None] ** 2
        below = overlap[:1] * (grown if odd else np.ones_like(grown))
        return cls(
            length,
            tuple(rho),
            odd,
            np.concatenate([tiny, scales]),
            np.concatenate([np.repeat(shrink[:1], len(tiny), 0), shrink]),
            np.concatenate([below, overlap]),
            np.concatenate([along[:1] * grown, along]),
        )

    @property
    def heads(self) -> int:
        """How many heads there are."""
        return len(self.ratios) * (2 if self.odd else 1)

    def only(self, chosen: Sequence[int]) -> SeveralHeads:
        """The lattice of some of the heads, or pairs: a choice of positions in ``ratios``."""
        index = list(chosen)
        pairs = np.ix_(range(len(self.scales)), index, index)
        ratios = tuple(self.ratios[i] for i in index)
        return dataclasses.replace(
            self,
            ratios=ratios,
            shrink=self.shrink[:, index],
            overlap=self.overlap[pairs],
            along=self.along[pairs],
        )

    def radii(self, dim: int, tilt: float) -> tuple[Array, Array]:
        """Lengths r of a standard normal vector at which ``tilt`` r is a scale of the lattice, and
        the weights of their law.
        """
        r = self.scales / tilt
        if r[-1] - math.sqrt(dim) < MARGIN:
            allowed = (
                f"a tilt of at most {float(self.scales[-1]) / (math.sqrt(dim) + MARGIN):.3g} "
                "times the root of Σ_q Σ"
            )
            raise InvalidArgumentError(
                "a", f"{tilt:g} times that root", allowed, "Use a lattice with a larger scale."
            )
        weight = (
            np.exp(dim * np.log(r) - r**2 / 2 - math.lgamma(dim / 2) - (dim / 2 - 1) * math.log(2))
            * STEP
        )
        weight[0] += max(0.0, 1 - weight.sum())  # shorter vectors: nothing depends on them any more
        return r, weight

    def normal_equations(self, task: LinearRegression, a: float) -> tuple[Array, Array, float]:
        """c (H,), M (H, H) and s² + E t² of the risk at the tilt a; for odd pairs one entry for
        each pair.
        """
        sigma, query, omega = task.isotropic_scales()
        d = task.dim
        r, weight = self.radii(d, a * math.sqrt(sigma * query))
        spread = omega * sigma * d + task.noise_variance  # V2
        c = sigma * omega * a * query * np.asarray(self.ratios) * ((weight * r**2) @ self.shrink)
        gram = spread * np.tensordot(weight, self.overlap, 1) + sigma * omega * np.tensordot(
            weight, self.along, 1
        )
        # E t² over the same points, so that what is left of it for long prompts is not their error
        return c, gram, task.noise_variance + omega * query * float(weight @ r**2)

    def largest_tilt(self, task: LinearRegression) -> float:
        """The largest a for which the lattice covers the lengths of the queries."""
        sigma, query, _ = task.isotropic_scales()
        return float(self.scales[-1]) / ((math.sqrt(task.dim) + MARGIN) * math.sqrt(sigma * query))

    def best_readouts(self, task: LinearRegression, a: float) -> HeadsOptimum:
        """Least risk at the tilt a over all read-outs; a pair with read-out b adds b (T(u) -
        T(-u))/2.
        """
        c, gram, total = self.normal_equations(task, a)
        # equilibrated, so that the cutoff sees heads and not their units
        size = np.sqrt(np.diag(gram))
        values, vectors = np.linalg.eigh(gram / np.outer(size, size))
        kept = vectors[:, values > CUTOFF * values[-1]]
        b = kept @ ((kept.T @ (c / size)) / values[values > CUTOFF * values[-1]]) / size
        return HeadsOptimum(float(total - 2 * b @ c + b @ gram @ b) / 2, a, tuple(b.tolist()))

    def optimum(self, task: LinearRegression) -> HeadsOptimum:
        """Least risk over a and all read-outs: a scan in log a, then a bounded search around its
        best point.
        """
        high = math.log(self.largest_tilt(task) * (1 - 1e-9))
        grid = np.linspace(min(high - 6.0, -5.0), high, 65)
        x, *_ = scan_minimum(lambda x: self.best_readouts(task, math.exp(x)).risk, grid)
        return self.best_readouts(task, math.exp(x))


def _pair(
    length: float, first: torch.Tensor, second: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """X and E SS' - X; one-dimensional integrals where the heads are one."""
    if not torch.equal(first, second):
        return two_head_overlap(length, first, second)
    y, w3, y2 = collision_moments(length, first.abs())
    return y, first**2 * (1 - y - 6 * w3 + 6 * y2)
