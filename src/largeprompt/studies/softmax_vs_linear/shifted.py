"""In-context regression on prompts that have a mean of their own: where softmax centres and linear
attention cannot.
"""

import dataclasses
import functools
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.law import collision_moments
from largeprompt.studies.softmax_vs_linear.several_heads import LARGEST_ALONE, MARGIN, SeveralHeads
from largeprompt.training.optima.scan import scan_minimum
from largeprompt.training.tasks.regression import LinearRegression
from largeprompt.training.tasks.task import chi_rule, normal


def _head_moments(
    d: int, tau: float, s2: float, a: Any, x2: Any, kept: Any, along: Any, across: Any
) -> tuple[Any, Any]:
    """E rt and E r² of one head at b = 1 given ‖x_q‖² = x2, with 1 - f, 1 - f - 6h and f; m given
    x_q has mean τ²/(1 + τ²) x_q.
    """
    mean = tau / (1 + tau) * x2  # E m·x_q
    size = mean**2 / x2 + d * tau / (1 + tau)  # E‖m‖²
    inner = size + 2 * kept * a * mean + along * a**2 * x2
    return (mean + kept * a * x2) / d, inner / d + across * (1 + s2)


@functools.lru_cache(maxsize=64)
def _one_head(length: float, largest: float) -> SeveralHeads:
    return SeveralHeads.of(length, (1.0,), largest=largest)


@dataclasses.dataclass(frozen=True)
class ShiftedRegression:
    """Inputs x = m + N(0, I) with a new m ~ N(0, τ²I) in every prompt; y = w·x + noise, w ~ N(0,
    I/d); the query has the same m.

    Linear attention reads second moments, (I + mm^T)w instead of w, and no fixed parameters undo an
    m that changes: an error is left however long the prompt. The odd part (T(u) - T(-u))/2 of two
    softmax heads does not see m at all.

    Not a :class:`Task`: the risks are exact at tilts along the query and their best read-outs, not
    at every U and V.

    Parameters
    ----------
    dim
        d.
    shift_variance
        τ² >= 0; 0 is :class:`LinearRegression` with Σ = I, W = I/d.
    noise_variance
        s² >= 0.

    Examples
    --------
    >>> from largeprompt.studies.softmax_vs_linear.shifted import ShiftedRegression
    >>> task = ShiftedRegression(2, 1.0)
    >>> print(f"{task.linear_optimum():.4f}")  # of ½ E t² = 1, however long the prompt
    0.3875
    >>> print(f"{task.crossing_length():.2f}")
    4.17
    """

    dim: int
    shift_variance: float
    noise_variance: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", validation.integer("dim", self.dim))
        for name in ("shift_variance", "noise_variance"):
            object.__setattr__(self, name, validation.number(name, getattr(self, name), minimum=0))

    def linear_optimum(self, length: float = math.inf) -> float:
        """Least risk of linear attention over all of its parameters: formula (sel.9) of
        docs/mathematics/selection.md.
        """
        length = validation.length("length", length, allow_infinity=True)
        return self._linear(1 / length)

    def linear_gain(self, length: float = math.inf) -> float:
        """β of :meth:`linear_optimum`."""
        length = validation.length("length", length, allow_infinity=True)
        _, mixed, square = self._linear_moments(1 / length)
        return mixed / square

    def _linear(self, short: float) -> float:
        """The least risk as a function of 1/L."""
        target, mixed, square = self._linear_moments(short)
        return (self.noise_variance + target - mixed**2 / square) / 2

    def _linear_moments(self, short: float) -> tuple[float, float, float]:
        """E t², E rt and E r² of the read-out r at β = 1."""
        d, tau, s2 = self.dim, self.shift_variance, self.noise_variance
        r2 = tau * d
        r4 = r2 * tau * (d + 2)
        r6 = r4 * tau * (d + 4)
        target = (r2 + d) / d
        mixed = (2 * r2 + d + r4) / d  # E μt, μ = w^T(I + mm^T)x_q
        square = (r2 + d + 2 * (r4 + r2) + r6 + r4) / d  # E μ²
        # one token: (‖x‖²/d + s²)((x·m)² + ‖x‖²), x = m + z
        fourth = r4 + 2 * d * r2 + d * d + 2 * d + 4 * r2  # E‖x‖⁴
        along = (r6 + 6 * r4 + 3 * r2) + (d - 1) * (r4 + r2)  # E‖x‖²(x·m)²
        token = (along + fourth) / d + s2 * (r4 + r2 + r2 + d)
        return target, mixed, (1 - short) * square + short * token

    def pair_task(self) -> LinearRegression:
        """The task without shifts that is the same for pairs of heads with opposite tilts and
        read-outs: Σ_q = (1 + τ²) I.
        """
        eye = torch.eye(self.dim, dtype=torch.float64)
        return LinearRegression(
            eye, eye / self.dim, self.noise_variance, (1 + self.shift_variance) * eye
        )

    def _small_pair(self, length: float) -> float:
        """Risk of the pair as its tilts vanish, linear attention over L - 1 centred tokens, L > 1
        real: formula (sel.10).
        """
        c = ((1 + self.noise_variance) * self.dim + 1) / (length - 1)
        return (self.noise_variance + (1 + self.shift_variance) * c / (1 + c)) / 2

    def head_risk(self, a: Any, length: float = math.inf) -> Tensor:
        """Risk of one softmax head with tilt a x_q and its best read-out b, shape of a: formula
        (sel.11).
        """
        mixed, square = self._head_moments(a, length)
        return (self.noise_variance + 1 + self.shift_variance - mixed**2 / square) / 2

    def head_gain(self, a: float, length: float = math.inf) -> float:
        """b of :meth:`head_risk`."""
        mixed, square = self._head_moments(a, length)
        return float(mixed / square)

    def _head_moments(self, a: Any, length: float) -> tuple[Tensor, Tensor]:
        """E rt and E r² of one head at b = 1."""
        length = validation.length("length", length, allow_infinity=True)
        tilt = validation.tensor("a", a).to(torch.float64).unsqueeze(-1)
        d, tau, s2 = self.dim, self.shift_variance, self.noise_variance
        r2, density = chi_rule(d, 30.0, 10.0, 0.1)
        weight, x2 = density / density.sum(), (1 + tau) * r2  # ‖x_q‖²
        sigma = tilt.abs() * x2.sqrt()
        f, w3, y2 = collision_moments(length, sigma)
        mixed, square = _head_moments(d, tau, s2, tilt, x2, 1 - f, 1 - f - 6 * (w3 - y2), f)
        return (mixed * weight).sum(-1), (square * weight).sum(-1)

    def head_optimum(self, length: float = math.inf, *, head: SeveralHeads | None = None) -> float:
        """Least risk of one softmax head over its tilt and read-out; the infimum s²/2 as a -> ∞,
        ab = 1, for an infinite prompt.

        ``head`` may hold the moments of one head at this length, to serve several tasks. Where its
        largest tilt is the best, a larger lattice takes its place, up to scores of scale 200.
        """
        length = validation.length("length", length, allow_infinity=True)
        if math.isinf(length):
            return self.noise_variance / 2
        head = _one_head(length, 40.0 if length <= 4 else 12.0) if head is None else head
        if head.length != length or head.heads != 1:
            raise InvalidArgumentError(
                "head",
                f"{head.heads} heads, length {head.length:g}",
                f"one head, length {length:g}",
            )
        (least, at_the_edge), largest = self._least_on(head), float(head.scales[-1])
        while at_the_edge and largest < LARGEST_ALONE:
            largest = min(2 * largest, LARGEST_ALONE)
            least, at_the_edge = self._least_on(_one_head(length, largest))
        return least

    def _least_on(self, head: SeveralHeads) -> tuple[float, bool]:
        """Least risk of one head over the tilts that a lattice allows, and whether it is at the
        largest.
        """
        d, tau, s2 = self.dim, self.shift_variance, self.noise_variance
        kept = head.shrink[:, 0]
        # 1 - f - 6h and f
        along, across = head.along[:, 0, 0] / head.scales**2, head.overlap[:, 0, 0]

        def risk(log_tilt: float) -> float:
            a = math.exp(log_tilt)
            r, weight = head.radii(d, a * math.sqrt(1 + tau))
            mixed, square = _head_moments(d, tau, s2, a, (1 + tau) * r**2, kept, along, across)
            target = (1 + tau) * float(weight @ r**2) / d  # over the same points
            return float(s2 + target - (weight @ mixed) ** 2 / (weight @ square)) / 2

        high = math.log(
            head.scales[-1] / ((math.sqrt(d) + MARGIN) * math.sqrt(1 + tau)) * (1 - 1e-9)
        )
        _, least, at_the_edge = scan_minimum(risk, np.linspace(high - 8, high, 65))
        return least, at_the_edge

    def crossing_length(self) -> float:
        """The length from which on a pair with small tilts beats linear attention; infinity when
        there is no shift.
        """
        from scipy.optimize import brentq

        if self.shift_variance == 0:
            return math.inf

        def lead(log_length: float) -> float:  # of linear attention, lengths taken as real numbers
            length = math.exp(log_length)
            return self._small_pair(length) - self._linear(1 / length)

        low, high = math.log(1.0 + 1e-9), math.log(1e15)
        if lead(high) >= 0:
            return math.inf
        return math.exp(brentq(lead, low, high)) if lead(low) > 0 else 1.0

    def sample(
        self, batch: int, length: int, generator: validation.Randomness
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Draw prompts: tokens (batch, length, d + 1), queries (batch, d + 1),
        answers (batch, 1).
        """
        batch, length = validation.integer("batch", batch), validation.integer("length", length)
        generator = validation.generator(generator, torch.device("cpu"))

        draw = functools.partial(normal, generator)
        m, w = (
            math.sqrt(self.shift_variance) * draw(batch, self.dim),
            draw(batch, self.dim) / math.sqrt(self.dim),
        )
        noise = math.sqrt(self.noise_variance)
        x = m.unsqueeze(1) + draw(batch, length, self.dim)
        y = x @ w.unsqueeze(-1) + noise * draw(batch, length, 1)
        query = m + draw(batch, self.dim)
        answer = (query * w).sum(-1, keepdim=True) + noise * draw(batch, 1)
        return torch.cat([x, y], -1), torch.nn.functional.pad(query, (0, 1)), answer
