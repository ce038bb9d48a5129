"""Powers of the transfer matrix of a Markov path, with derivatives, that keep their digits at any length.

A step i → j of probability P_ij has the weight b_ij = e^s of its window, E b = 1, and M = P∘e^{-tb}. With c the least weight,
M^N = e^{-tcN}(P^N - D_N); and for centred values v, E bv = 0, the derivative of M^N in the direction tbv∘M is e^{-tcN} A_N,
A_N = t(C_N - E_N), C_N that of P^N, so that π C_N 1 = 0. Formula (ngram.11) of docs/mathematics/ngram.md doubles N:

    D ← PD + DM,    C ← CP + PC,    E ← EM + ME + CD + DC,    A ← AM + MA,    S ← SM + MS + 2 Σ AA,    M = P - D.

D and E are of the order Nt, and keep their digits where they are small: errors of P^N, however long the path, meet them as factors.
Where they are not small, M and A are multiplied themselves; each entry is taken from the form with the smaller terms.
"""

import dataclasses
import math

import torch
from torch import Tensor

from largeprompt.errors import InvalidArgumentError
from largeprompt.measures import MarkovChain

LARGEST_EXPONENT = 300.0  # nothing is left of a step whose tb is above e^300
ROUNDING = 4e-15  # of a sum, relative to the sizes of its terms


@dataclasses.dataclass
class _Powers:
    """Matrices, or rows πM^N of them: first P, that of t = 0, (k, n), and C, (query, o, k, n); then for each t the others.

    ``near`` and ``apart`` are sizes of the terms of E and of A, (t, k, n), norms over the outputs; ``spread`` that of S.
    """

    plain: Tensor
    moved: Tensor
    kept: Tensor  # M
    lost: Tensor  # D
    away: Tensor  # E
    read: Tensor  # A
    squared: Tensor  # S
    collided: Tensor  # the derivative in the direction t²b²∘M, as E Σ w² needs it
    near: Tensor
    apart: Tensor
    spread: Tensor

    def times(self, y: "_Powers", query: Tensor, t: Tensor, stationary: Tensor) -> "_Powers":
        """The product with a matrix, t of shape (t, 1, 1)."""
        plain = self.plain @ y.plain
        plain = plain / plain.sum(-1, keepdim=True)
        moved = self.moved @ y.plain + self.plain @ y.moved
        # rows of the start π have πC1 = C1; the part along 1π grows with N, were it not 0
        row = stationary @ moved if moved.shape[-2] > 1 else moved.squeeze(-2)
        moved = moved - row.sum(-1)[..., None, None] * stationary
        size = _norm(moved)
        size = size + size.sum(-1, keepdim=True) * stationary  # of which the correction has spread the rounding
        lost = self.lost @ y.kept + self.plain @ y.lost
        kept = torch.where(2 * lost <= plain, plain - lost, self.kept @ y.kept)
        mine, its = self.moved[query], y.moved[query]
        away = _each(self.away, y.kept) + _by(self.kept, y.away) + _each(mine, y.lost) + _by(self.lost, its)
        near = self.near @ y.kept + self.kept @ y.near + _norm(mine) @ y.lost + self.lost @ _norm(its)
        direct = _each(self.read, y.kept) + _by(self.kept, y.read)
        apart = self.apart @ y.kept + self.kept @ y.apart
        small = t * (size[query] + near)
        read = torch.where((small <= apart).unsqueeze(1), t.unsqueeze(1) * (moved[query] - away), direct)
        pairs = torch.einsum("toij,tojk->tik", self.read, y.read)
        squared = self.squared @ y.kept + self.kept @ y.squared + 2 * pairs
        spread = self.spread @ y.kept + self.kept @ y.spread + 2 * (self.apart @ _norm(y.read) + _norm(self.read) @ y.apart)
        collided = self.collided @ y.kept + self.kept @ y.collided
        return _Powers(plain, moved, kept, lost, away, read, squared, collided, near, torch.minimum(small, apart), spread)


def _each(x: Tensor, y: Tensor) -> Tensor:
    """Products of (t, o, k, n) with (t, n, n), all outputs at once."""
    count, outputs, k, n = x.shape
    return (x.reshape(count, outputs * k, n) @ y).reshape(count, outputs, k, -1)


def _by(x: Tensor, y: Tensor) -> Tensor:
    """Products of (t, k, n) with (t, o, n, n)."""
    return x.unsqueeze(1) @ y


def _norm(x: Tensor) -> Tensor:
    found: Tensor = torch.linalg.vector_norm(x, dim=-3)
    return found


def path_moments(
    chain: MarkovChain, tau: Tensor, query: Tensor, scores: Tensor, values: Tensor, last: Tensor, lengths: list[int]
) -> Tensor:
    """t E[A e^{-tB}], t² E[‖A‖² e^{-tB}] and t² E[Σ e^{2s} e^{-tB}], weighted by the last context, t = e^τ; then their rounding.

    A = Σ e^s v, B = Σ e^s over a path of L windows. Each τ has a query, which has scores (windows,) with E e^s = 1, values
    (windows, o) with E e^s v = 0, and last (contexts,). Shape (length, τ, o + 4): rounding of ‖the first‖ and of the second.
    """
    n, o = chain.contexts, values.shape[-1]
    stationary = chain.stationary.flatten()
    rows = (chain.rows / chain.rows.sum(-1, keepdim=True)).flatten()
    lowest = torch.where(rows > 0, scores, math.inf).amin(-1, keepdim=True)[query]  # (τ, 1)
    above, tau = scores[query] - lowest, tau.unsqueeze(-1)
    least = torch.exp((tau + lowest).clamp_max(LARGEST_EXPONENT))  # tc, as t alone may overflow
    grown = torch.exp((tau + scores[query]).clamp_max(LARGEST_EXPONENT))  # tb
    rise = torch.where(above < 1, least * torch.expm1(above.clamp(max=1.0)), grown - least)  # t(b - c)
    t = torch.exp(tau.clamp_max(LARGEST_EXPONENT)).unsqueeze(-1)

    def matrices(entries: Tensor) -> Tensor:
        """Matrices of contexts from numbers of windows, (..., windows) to (..., n, n)."""
        shape = (*entries.shape[:-1], n, chain.alphabet)
        empty = entries.new_zeros(*shape[:-1], n)
        return empty.scatter_(-1, chain._successors.expand(shape), (rows * entries).reshape(shape))

    share = torch.exp(scores) * rows * stationary.repeat_interleave(chain.alphabet)
    centred = (values - (share.unsqueeze(1) @ values) / share.sum(-1)[:, None, None]).mT  # (query, o, windows), to the last digit
    weighted = torch.exp(scores).unsqueeze(1) * centred
    survival, gone = torch.exp(-rise), -torch.expm1(-rise)
    a = grown.unsqueeze(1) * centred[query]  # (τ, o, windows)
    start = matrices(a * survival.unsqueeze(1))
    step = _Powers(
        matrices(torch.ones_like(rows)),
        matrices(weighted),
        matrices(survival),
        matrices(gone),
        matrices(weighted[query] * gone.unsqueeze(1)),
        start,
        matrices(a.square().sum(1) * survival),
        matrices(grown.square() * survival),
        matrices(torch.linalg.vector_norm(weighted[query], dim=1) * gone),
        _norm(start),
        matrices(a.square().sum(1) * survival),
    )
    zero = t.new_zeros(len(tau), 1, n)
    none = zero.unsqueeze(1).expand(-1, o, -1, -1)
    first = _Powers(
        stationary.unsqueeze(0),
        weighted.new_zeros(len(scores), o, 1, n),
        stationary.expand(len(tau), 1, n),
        *(zero, none, none, zero, zero, zero, zero, zero),
    )
    states = [first for _ in lengths]
    for bit in range(max(lengths).bit_length()):
        if bit:
            step = step.times(step, query, t, stationary)
        states = [
            state.times(step, query, t, stationary) if length >> bit & 1 else state
            for state, length in zip(states, lengths, strict=True)
        ]
    return torch.stack([_found(state, query, t, last, least * length) for state, length in zip(states, lengths, strict=True)])


def _found(state: _Powers, query: Tensor, t: Tensor, last: Tensor, exponent: Tensor) -> Tensor:
    """The moments of one length from its row, which is less e^{-tcL}."""
    end = last[query].unsqueeze(1)  # (τ, 1, contexts)
    scale = torch.exp(-exponent)  # (τ, 1)
    moved = state.moved[query]
    centred = t * ((moved * (end - 1).unsqueeze(1)).sum(-1) - (state.away * end.unsqueeze(1)).sum(-1)).squeeze(-1).unsqueeze(-1)
    centred, direct = centred.squeeze(-1), (state.read * end.unsqueeze(1)).sum((-2, -1))  # (τ, o)
    small = (t * (state.near * end + _norm(moved) * (end - 1).abs())).sum((-2, -1)).unsqueeze(-1)
    large = (state.apart * end).sum((-2, -1)).unsqueeze(-1)
    mean = torch.where(small <= large, centred, direct)
    others = [(part * end).sum((-2, -1)).unsqueeze(-1) for part in (state.squared, state.collided, state.spread)]
    return scale * torch.cat([mean, others[0], others[1], torch.minimum(small, large), others[2]], -1)


def require_digits(found: Tensor, least: float) -> None:
    """Refuse numbers (..., o + 4) of which rounding leaves more than ``least``: of the mean square, and of the mean."""
    mean, square, collision = torch.linalg.vector_norm(found[..., :-4], dim=-1), found[..., -4], found[..., -3]
    scale = torch.maximum(mean, 1e-4 * torch.sqrt(square.clamp_min(0.0) * collision))  # means may vanish
    lost = ROUNDING * torch.maximum(found[..., -2] / (scale + 1e-300), found[..., -1] / (square.abs() + 1e-300))
    if not bool((lost <= least).all()):
        given = f"a path whose terms cancel so far that rounding leaves {float(lost.max()):.1g} of the answer"
        remedy = "Use chain_expansion(...) for the first order in 1/L, or shorter prompts."
        raise InvalidArgumentError("length", given, "paths whose law is exact to eight digits", remedy)
