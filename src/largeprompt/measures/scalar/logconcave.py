"""Scalar laws without a closed cgf, whose tilts have a log-concave density: quadrature and exact draws around the mode.

The token is x = x(y) for a coordinate y with density e^{h(y)}, and the tilted exponent g(y) = h(y) + u x(y) is concave with
mode y*. With offsets t = y - y*, the fall F(t) = g(y*) - g(y* + t) >= 0 and x = x* + r(t),

    Λ(u) = g(y*) + log ∫ e^{-F(t)} dt,   and the cumulants of x are those of x* + r under the weights e^{-F}:

no term overflows and no large numbers cancel, however far the tilt. The integral is a double exponential (tanh-sinh) rule between
the points where F reaches 1 and ``DEPTH`` on either side, the mode and the kinks of F: algebraic ends cost it no digits.
"""

import abc
import math

import torch
from torch import Tensor

from largeprompt.errors import InvalidArgumentError
from largeprompt.measures.numerics.cumulants import Cumulants
from largeprompt.measures.scalar.product import ScalarLaw

DEPTH = 46.0  # e^-46 = 1e-20
STEP, NODES = 0.07, 46  # tanh-sinh: NODES steps on either side; the last weight is 1e-16 of the largest
SMALLEST, LARGEST = -700.0, 700.0  # log of the offsets between which the reach is looked for
HALVINGS = 34
MOST_PARTS = 100  # of a panel: 10^5 nodes
RADIANS = 25.0  # of an oscillation that one panel resolves


def _unit_rule() -> tuple[Tensor, Tensor]:
    """Nodes in (0, 1) and weights of the tanh-sinh rule."""
    t = STEP * torch.arange(-NODES, NODES + 1, dtype=torch.float64)
    s = math.pi / 2 * torch.sinh(t)
    weights = STEP * math.pi / 4 * torch.cosh(t) / torch.cosh(s) ** 2
    return 1 / (1 + torch.exp(-2 * s)), weights / weights.sum()


def turned_sums(weights: Tensor, places: Tensor, turn: Tensor, order: int) -> list[Tensor]:
    """Σ_j weights_j places_j^n e^{i turn places_j} for n = 0 to ``order``, each of the shape of ``turn``.

    Frequencies at equal distances, in blocks: e^{i(y+δ)r} = e^{iyr} e^{iδr}, so that the sums are products of small matrices.
    """
    size = max(1, math.isqrt(len(turn)))
    step = turn.diff()
    even = len(turn) > 8 and bool(((step - step[0]).abs() < 1e-12 * turn.abs().max()).all())
    starts = turn[::size] if even else turn
    offsets = step[0] * torch.arange(size, dtype=turn.dtype, device=turn.device) if even else turn.new_zeros(1)
    inner = torch.exp(1j * offsets * places.unsqueeze(-1))
    outer = torch.exp(1j * starts.unsqueeze(-1) * places)
    return [((outer * (weights * places**n)) @ inner).flatten()[: len(turn)] for n in range(order + 1)]


class LogConcaveLaw(ScalarLaw):
    """Scalar law whose tilts are log-concave in a coordinate y; see the module for the symbols.

    A subclass gives :meth:`mode`, :meth:`height`, :meth:`fall`, :meth:`token` and :meth:`rise`, all elementwise in float64.
    """

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
        """Offsets, in a last axis, at which the fall is not smooth or turns sharply; empty if there are none."""
        return mode.new_empty((*mode.shape, 0))

    @property
    def growth(self) -> float:
        """Rate at which the logarithm of the fourth power of the token may grow with the offset: the reach allows for it."""
        return 0.0

    def _reaches(self, u: Tensor, mode: Tensor) -> Tensor:
        """Offsets at which the fall is DEPTH, 1, 0, 1, DEPTH (plus growth), in a last axis, by bisection of their logarithms."""
        side, depth = u.new_tensor([-1.0, -1.0, 1.0, 1.0]), u.new_tensor([DEPTH, 1.0, 1.0, DEPTH])
        growth = u.new_tensor([0.0, 0.0, 0.0, self.growth])
        low = torch.full((*u.shape, 4), SMALLEST, dtype=u.dtype, device=u.device)
        high = torch.full_like(low, LARGEST)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            offset = side * torch.exp(middle)
            inside = self.fall(u.unsqueeze(-1), mode.unsqueeze(-1), offset) < depth + growth * offset  # an overflow is not inside
            low, high = torch.where(inside, middle, low), torch.where(inside, high, middle)
        left, near_left, near_right, right = (side * torch.exp(high)).unbind(-1)
        return torch.stack([left, near_left, torch.zeros_like(u), near_right, right], -1)

    @torch.no_grad()
    def _rule(self, u: Tensor, frequency: float = 0.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """g(y*), x*, and with a last axis of nodes r(t) and the logarithms of the weights e^{-F(t)} dt; fine enough for e^{ift}."""
        mode = self.mode(u)
        reaches = self._reaches(u, mode)
        kinks = torch.minimum(torch.maximum(self.kinks(mode), reaches[..., :1]), reaches[..., -1:])
        breaks = torch.cat([reaches, kinks], -1).sort(-1).values
        parts = math.ceil(1 + frequency * float(breaks.diff(dim=-1).max()) / RADIANS) if frequency else 1
        if parts > MOST_PARTS:
            given, allowed = f"a tilt of {type(self).__name__} that needs {parts} panels", f"at most {MOST_PARTS}"
            raise InvalidArgumentError("u", given, allowed, "Shrink the scores, or use sample_prompts(...).")
        places = torch.arange(parts, dtype=u.dtype, device=u.device) / parts
        inner = breaks[..., :-1].unsqueeze(-1) + breaks.diff(dim=-1).unsqueeze(-1) * places
        breaks = torch.cat([inner.flatten(-2), breaks[..., -1:]], -1)
        fractions, weights = _unit_rule()
        widths = breaks.diff(dim=-1).unsqueeze(-1)
        offsets = (breaks[..., :-1].unsqueeze(-1) + widths * fractions.to(u.device)).flatten(-2)
        measure = (widths * weights.to(u.device)).flatten(-2)
        log_weights = torch.log(measure) - self.fall(u.unsqueeze(-1), mode.unsqueeze(-1), offsets)
        return self.height(u, mode), self.token(mode), self.rise(mode.unsqueeze(-1), offsets), log_weights

    def _tilted_rule(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Λ up to the sum over nodes, centred nodes, and log-weights, all with the right derivatives of every order in u."""
        wide = u.to(torch.float64)
        height, token, rise, log_weights = self._rule(wide.detach())
        zero = wide - wide.detach()  # its value is 0 and its derivative 1: the nodes stay where they are
        return height + zero * token, rise, log_weights + zero.unsqueeze(-1) * rise

    def cgf(self, u: Tensor) -> Tensor:
        head, _, exponents = self._tilted_rule(u)
        return (head + torch.logsumexp(exponents, -1)).to(u.dtype)

    def cumulants(self, u: Tensor) -> Cumulants:
        token = self.token(self.mode(u.detach().to(torch.float64)))
        _, rise, exponents = self._tilted_rule(u)
        weights = torch.softmax(exponents, -1)
        mean = (weights * rise).sum(-1, keepdim=True)
        second, third, fourth = ((weights * (rise - mean) ** order).sum(-1) for order in (2, 3, 4))
        values = token + mean.squeeze(-1), second, third, fourth - 3 * second**2
        k1, k2, k3, k4 = (value.to(u.dtype) for value in values)
        return k1, k2, k3, k4

    def complex_cumulants(self, w: Tensor, order: int = 2) -> tuple[Tensor, ...]:
        """By the same rule at the real part, with the weights turned by e^{i Im(w) r}; tilts that share a real part share it."""
        if not bool(w.imag.any()):
            known = self.cgf(w.real), *(self.cumulants(w.real) if order else ())
            return tuple(part.to(w.dtype) for part in known[: order + 1])
        real, where = torch.unique(w.real, return_inverse=True)
        found = torch.empty((order + 1, *w.shape), dtype=w.dtype, device=w.device)
        for index, tilt in enumerate(real):
            here = where == index
            turn = w.imag[here]
            height, token, rise, log_weights = (part[0] for part in self._rule(tilt.reshape(1), float(turn.abs().max())))
            total, *raw = turned_sums(torch.exp(log_weights), rise, turn, order)
            value = height + 1j * turn * token + torch.log(total)
            first, second, third, fourth = [part / total for part in raw] + [torch.zeros_like(total)] * (4 - order)
            variance, skew = second - first**2, third - 3 * first * second + 2 * first**3
            excess = fourth - 4 * first * third + 6 * first**2 * second - 3 * first**4 - 3 * variance**2
            found[:, here] = torch.stack([value, token + first, variance, skew, excess][: order + 1])
        return tuple(found)

    def sample(self, u: Tensor, generator: torch.Generator) -> Tensor:
        """Rejection: a density that is p at its mode lies below p min(1, e^{1 - p·abs(t)}), of area 4 (Devroye 1986, VII.2)."""
        tilts, where = torch.unique(u.detach().to(torch.float64), return_inverse=True)
        modes, peaks = self.mode(tilts), torch.exp(-torch.logsumexp(self._rule(tilts)[3], -1))
        where = where.flatten()
        drawn, waiting = torch.empty_like(where, dtype=torch.float64), torch.arange(where.numel(), device=u.device)
        while waiting.numel():
            index = where[waiting]
            side, part, place, test = torch.rand((4, *index.shape), generator=generator, dtype=torch.float64, device=u.device)
            excess = -torch.log1p(-place)
            far = part < 0.5
            offset = torch.where(side < 0.5, -1.0, 1.0) * torch.where(far, 1 + excess, place) / peaks[index]
            accepted = torch.log1p(-test) - torch.where(far, excess, 0.0) <= -self.fall(tilts[index], modes[index], offset)
            mode = modes[index[accepted]]
            drawn[waiting[accepted]] = self.token(mode) + self.rise(mode, offset[accepted])
            waiting = waiting[~accepted]
        return drawn.reshape(u.shape).to(u.dtype)
