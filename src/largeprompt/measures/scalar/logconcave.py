"""Scalar laws without a closed cgf, whose tilts have a log-concave density.

The token is x = x(y) for a coordinate y with density e^{h(y)}, and the tilted exponent g(y) =
h(y) + u x(y) is concave with mode y*. With t = y - y*, the fall F(t) = g(y*) - g(y* + t) >= 0 and
x = x* + r(t),

    Λ(u) = g(y*) + log ∫ e^{-F(t)} dt, and x* + r has the cumulants of x under the weights e^{-F}:

nothing overflows or cancels, however far the tilt. The integral is a tanh-sinh rule between the
points where F reaches 1 and ``DEPTH`` on either side, the mode and the kinks of F.
"""

import abc
import functools
import math

import numpy as np
import torch
from torch import Tensor

from largeprompt.errors import InvalidArgumentError
from largeprompt.measures.scalar.product import ScalarLaw

DEPTH = 46.0  # e^-46 = 1e-20
STEP, NODES = 0.07, 46  # of the tanh-sinh rule, on either side: the last weight is 1e-16
WIDEST = 700.0  # of the logarithm of an offset, of either sign
# of the search for the reach, to 1e-4: densities that end sharply fall within half a per cent
CUTS, ROUNDS = 32, 5


@functools.cache
def panel_rule(parts: int) -> tuple[Tensor, Tensor]:
    """Nodes in (0, 1) and weights: equal parts, tanh-sinh in the first and last, Gauss between."""
    t = STEP * torch.arange(-NODES, NODES + 1, dtype=torch.float64)
    s = math.pi / 2 * torch.sinh(t)
    weights = torch.cosh(t) / torch.cosh(s) ** 2
    ends = torch.sigmoid(2 * s), weights / weights.sum()
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(32))
    rules = [ends, *[((1 + nodes) / 2, weights / 2)] * (parts - 2), ends][:parts]
    places = torch.cat([part + rule[0] for part, rule in enumerate(rules)])
    return places / parts, torch.cat([rule[1] for rule in rules]) / parts


class LogConcaveLaw(ScalarLaw):
    """Scalar law whose tilts are log-concave in a coordinate y; functions are elementwise.

    Λ(u) = g(y*) + log ∫ e^{-F(t)} dt with the mode y* of the tilted exponent g.
    """

    relative_precision = True

    @abc.abstractmethod
    def mode(self, u: Tensor) -> Tensor:
        """y*, where the tilted exponent is largest."""

    @abc.abstractmethod
    def height(self, u: Tensor, mode: Tensor) -> Tensor:
        """g(y*), the constants of the density included."""

    @abc.abstractmethod
    def fall(self, u: Tensor, mode: Tensor, offset: Tensor) -> Tensor:
        """F(t) = g(y*) - g(y* + t), without cancellation."""

    def token(self, mode: Tensor) -> Tensor:
        """x(y*)."""
        return mode

    def rise(self, mode: Tensor, offset: Tensor) -> Tensor:
        """r(t) = x(y* + t) - x(y*)."""
        return offset

    def kinks(self, mode: Tensor) -> Tensor:
        """Offsets, in a last axis, at which the fall is not smooth or turns sharply."""
        return mode.new_empty((*mode.shape, 0))

    @property
    def growth(self) -> float:
        """Rate at which the fourth power of the token may grow: the reach allows for it."""
        return 0.0

    def _reaches(self, u: Tensor, mode: Tensor) -> Tensor:
        """Offsets at which the fall is DEPTH, 1, 0, 1, DEPTH (plus growth), in a last axis."""
        side, depth = u.new_tensor([-1.0, -1.0, 1.0, 1.0]), u.new_tensor([DEPTH, 1.0, 1.0, DEPTH])
        growth = u.new_tensor([0.0, 0.0, 0.0, self.growth]).unsqueeze(-1)
        low = torch.full((*u.shape, 4), -WIDEST, dtype=u.dtype, device=u.device)
        cuts, width = torch.arange(1, CUTS, dtype=u.dtype, device=u.device), 2 * WIDEST
        for _ in range(ROUNDS):
            width = width / CUTS
            offset = side.unsqueeze(-1) * torch.exp(low.unsqueeze(-1) + width * cuts)
            fall = self.fall(u[..., None, None], mode[..., None, None], offset)
            # an overflow is not inside
            low = low + width * (fall < depth.unsqueeze(-1) + growth * offset).sum(-1)
        ends = (side * torch.exp(low + width)).split(2, -1)
        return torch.cat([ends[0], torch.zeros_like(u).unsqueeze(-1), ends[1]], -1)

    @torch.no_grad()
    def _rule(self, u: Tensor, frequency: float = 0.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """g(y*), x*, and by node r(t) and log e^{-F(t)}dt, fine enough for e^{ift}."""
        mode = self.mode(u)
        reaches = self._reaches(u, mode)
        kinks = torch.minimum(torch.maximum(self.kinks(mode), reaches[..., :1]), reaches[..., -1:])
        breaks = torch.cat([reaches, kinks], -1).sort(-1).values
        offsets, measure = [], []
        for start, width in zip(breaks.unbind(-1), breaks.diff(dim=-1).unbind(-1), strict=False):
            # 32 Gauss nodes resolve 25 radians
            parts = math.ceil(1 + frequency * float(width.max()) / 25) if frequency else 1
            if parts > 1000:
                given = f"a tilt of {type(self).__name__} that needs {parts} panels"
                remedy = "Shrink the scores, or use sample_prompts(...)."
                raise InvalidArgumentError("u", given, "at most 1000", remedy)
            fractions, weights = (part.to(u.device) for part in panel_rule(parts))
            offsets.append(start.unsqueeze(-1) + width.unsqueeze(-1) * fractions)
            measure.append(width.unsqueeze(-1) * weights)
        offset = torch.cat(offsets, -1)
        fall = self.fall(u.unsqueeze(-1), mode.unsqueeze(-1), offset)
        rise = self.rise(mode.unsqueeze(-1), offset)
        log_weights = torch.log(torch.cat(measure, -1)) - fall
        return self.height(u, mode), self.token(mode), rise, log_weights

    def cgf(self, u: Tensor) -> Tensor:
        return self.derivatives(u, 0)[0]

    def derivatives(self, u: Tensor, order: int) -> tuple[Tensor, ...]:
        if u.is_complex():
            return self._complex_derivatives(u, order)
        wide = u.to(torch.float64)
        height, token, rise, log_weights = self._rule(wide.detach())
        # its value is 0 and its derivative 1: the nodes stay where they are
        zero = wide - wide.detach()
        exponents = log_weights + zero.unsqueeze(-1) * rise
        weights = torch.softmax(exponents, -1)
        mean = (weights * rise).sum(-1, keepdim=True)
        second, third, fourth = ((weights * (rise - mean) ** power).sum(-1) for power in (2, 3, 4))
        value = height + zero * token + torch.logsumexp(exponents, -1)
        found = (value, token + mean.squeeze(-1), second, third, fourth - 3 * second**2)
        return tuple(each.to(u.dtype) for each in found[: order + 1])

    def _complex_derivatives(self, w: Tensor, order: int) -> tuple[Tensor, ...]:
        """By the rule at the real part, with weights turned by e^{i Im(w) r}."""
        real, where = torch.unique(w.real, return_inverse=True)
        rules = self._rule(real, float(w.imag.abs().max()))
        found = torch.empty((order + 1, *w.shape), dtype=w.dtype, device=w.device)
        for index, (height, token, rise, log_weights) in enumerate(zip(*rules, strict=True)):
            here = where == index
            turn = w.imag[here]
            powers = torch.exp(log_weights) * rise ** torch.arange(5, device=w.device)[:, None]
            total, *raw = _turned_sums(powers, rise, turn)
            first, second, third, fourth = (part / total for part in raw)
            variance, skew = second - first**2, third - 3 * first * second + 2 * first**3
            excess = fourth - 4 * first * third + 6 * first**2 * second - 3 * first**4
            value = height + 1j * turn * token + torch.log(total)
            slopes = [value, token + first, variance, skew, excess - 3 * variance**2]
            found[:, here] = torch.stack(slopes[: order + 1])
        return tuple(found)

    def sample(self, u: Tensor, generator: torch.Generator) -> Tensor:
        """Rejection: a density that is p at its mode lies below p min(1, e^{1 - p·abs(t)})."""
        tilts, where = torch.unique(u.detach().to(torch.float64), return_inverse=True)
        modes, peaks = self.mode(tilts), torch.exp(-torch.logsumexp(self._rule(tilts)[3], -1))
        where = where.flatten()
        drawn = torch.empty_like(where, dtype=torch.float64)
        waiting = torch.arange(where.numel(), device=u.device)
        while waiting.numel():
            index = where[waiting]
            side, part, place, test = torch.rand(
                (4, *index.shape), generator=generator, dtype=torch.float64, device=u.device
            )
            far, excess = part < 0.5, -torch.log1p(-place)
            size = torch.where(far, 1 + excess, place) / peaks[index]
            offset = torch.where(side < 0.5, -1.0, 1.0) * size
            limit = torch.log1p(-test) - torch.where(far, excess, 0.0)
            accepted = limit <= -self.fall(tilts[index], modes[index], offset)
            mode = modes[index[accepted]]
            drawn[waiting[accepted]] = self.token(mode) + self.rise(mode, offset[accepted])
            waiting = waiting[~accepted]
        return drawn.reshape(u.shape).to(u.dtype)


def _turned_sums(powers: Tensor, places: Tensor, turn: Tensor) -> Tensor:
    """Σ_j powers_nj e^{i turn places_j}, shape (n, *turn.shape).

    At equal distances by blocks, e^{i(y+δ)r} = e^{iyr} e^{iδr}: products of small matrices.
    """
    size, step = max(1, math.isqrt(len(turn))), turn.diff()
    even = len(turn) > 8 and bool(((step - step[0]).abs() < 1e-12 * turn.abs().max()).all())
    starts = turn[::size] if even else turn
    offsets = step[0] * torch.arange(size).to(turn) if even else turn.new_zeros(1)
    inner = torch.exp(1j * offsets * places.unsqueeze(-1))
    outer = torch.exp(1j * starts.unsqueeze(-1) * places)
    return ((outer * powers.unsqueeze(1)) @ inner).flatten(1)[:, : len(turn)]
