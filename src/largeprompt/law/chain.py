"""The exact law of attention over a path of a Markov chain: tokens are one-hot windows of symbols.

A step i → j of probability P_ij has the weight b_ij = e^s of its window, E b = 1, and M =
P∘e^{-tb}. With c the least weight, M^N = e^{-tcN}(P^N - D_N); and for centered values v, E bv = 0,
the derivative of M^N in the direction tbv∘M is e^{-tcN} A_N, A_N = t(C_N - E_N), C_N that of P^N,
so that π C_N 1 = 0. Formula (ngram.11) of docs/mathematics/ngram.md doubles N:

    D ← PD + DM, C ← CP + PC, E ← EM + ME + CD + DC, A ← AM + MA, S ← SM + MS + 2 Σ AA, M = P - D.

D and E are of the order Nt and keep their digits where they are small, however long the path. Where
they are not small, M and A are multiplied themselves; each entry is taken from the form with the
smaller terms.
"""

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import SoftmaxAttention
from largeprompt.errors import InvalidArgumentError
from largeprompt.law.blocks import FLOOR, RELATIVE
from largeprompt.law.engine import Expectations
from largeprompt.law.nodes import LARGEST_LOG
from largeprompt.measures import Discrete, MarkovChain

PATH_STEP = 0.25  # of the trapezoid rule in log t: an error of |Γ(2 + 2πi/h)|, 2e-15
MATRICES = 2**21  # numbers in the largest array while powers are taken: 16 MiB
PATH_ROUNDING = 4e-15  # of a sum, relative to the sizes of its terms


def chain_prompt(
    attention: SoftmaxAttention, chain: MarkovChain, z: Tensor, lengths: Sequence[float]
) -> Expectations:
    """:func:`finite_prompt` over L windows of a stationary path."""
    if any(math.isinf(length) for length in lengths):
        remedy = (
            "Its limit is that of the law of one window: finite_prompt(attention, "
            "chain.ngrams(k), z, math.inf)."
        )
        raise InvalidArgumentError(
            "length", "infinity", "lengths from 1 to 10^15 for the path of a chain", remedy
        )
    law, u = window_law(attention, chain), attention._tilts(z).reshape(-1, attention.dim)
    scores, last = window_scores(law, u), u.new_ones(len(u), chain.contexts)
    tokens = [int(one) for one in lengths]

    def integrals(V: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """E V(T_L - T), E‖V(T_L - T)‖² and E Σ w², lengths leading."""
        values = (law.atoms @ V.mT).expand(len(u), -1, -1)
        first, second, collision = (
            part.reshape(len(tokens), *z.shape[:-1], *part.shape[2:])
            for part in path_integrals(chain, scores, values, last, tokens)
        )
        return first, second, collision

    bias, mse, collision = integrals(attention.V)

    def covariance() -> Tensor:
        """By E ab = (E (a+b)² - E a² - E b²)/2 for each pair of outputs."""
        V = attention.V
        single = [integrals(row.unsqueeze(0))[1] for row in V]
        pairs = [
            [
                integrals((a + b).unsqueeze(0))[1] - one - other
                for b, other in zip(V, single, strict=True)
            ]
            for a, one in zip(V, single, strict=True)
        ]
        second = torch.stack([torch.stack(row, -1) for row in pairs], -2) / 2
        return second - bias.unsqueeze(-1) * bias.unsqueeze(-2)

    eye = torch.eye(attention.dim, dtype=attention.V.dtype)
    return Expectations(
        attention._limit(law, z) + bias,
        collision,
        lambda: (bias, mse, integrals(eye)[1]),
        covariance,
        _no_jacobian,
    )


def _no_jacobian() -> Tensor:
    remedy = "For a path only the errors of the output and of its derivative in V are known."
    raise InvalidArgumentError("jacobian_u_mse", "a Markov chain", "independent tokens", remedy)


def window_scores(law: Discrete, u: Tensor) -> Tensor:
    """Scores of the windows less Λ(u), shape (query, window)."""
    return u @ law.atoms.mT - law.cgf(u).unsqueeze(-1)


def path_integrals(
    chain: MarkovChain, scores: Tensor, values: Tensor, last: Tensor, lengths: list[int]
) -> tuple[Tensor, ...]:
    """∫ E[A e^{-tB}] dt, (length, query, o), ∫ t E[‖A‖² e^{-tB}] dt and ∫ t E[Σ e^{2s} e^{-tB}] dt.

    Scores (query, windows), values (query, windows, o), read less their limit, last (query,
    contexts).
    """
    reached = scores[:, chain._edges.flatten() > 0]
    spread = float((reached.amax(-1) - reached.amin(-1)).max())
    if spread > 1e4:  # the cost grows with it
        given = f"scores that differ by {spread:.4g}"
        raise InvalidArgumentError("z", given, "at most 10000", "Shrink the queries.")
    # e^{-2·20} and e^{-45} are below rounding
    low = -math.log(max(lengths)) - 20.0 - reached.amax(-1).clamp_min(0.0)
    high = math.log(45.0 / min(lengths)) - reached.amin(-1)
    count = math.ceil(float((high - low).max()) / PATH_STEP) + 1
    tau = low.unsqueeze(-1) + PATH_STEP * torch.arange(count, dtype=scores.dtype)  # (query, node)
    query = torch.arange(len(tau)).repeat_interleave(count)
    chunk = max(1, MATRICES // (2 * (values.shape[-1] + 4) * chain.contexts**2))
    parts = []
    for one, q in zip(tau.flatten().split(chunk), query.split(chunk), strict=True):
        used = slice(int(q[0]), int(q[-1]) + 1)
        parts.append(
            path_moments(chain, one, q - q[0], scores[used], values[used], last[used], lengths)
        )
    # (length, query, node, o + 4)
    nodes = PATH_STEP * torch.cat(parts, 1).reshape(len(lengths), *tau.shape, -1)
    # below the first node the mean, given the end of the path, falls like t alone
    nodes[:, :, 0, :-4] /= -math.expm1(-PATH_STEP)
    found = nodes.sum(2)
    mean, (square, collision, lost_mean, lost) = found[..., :-4], found[..., -4:].unbind(-1)
    chances = chain._edges.flatten()
    limit = (chances * torch.exp(scores)).unsqueeze(-2) @ values  # (query, 1, o)
    # of the accuracy contract
    floor = FLOOR * collision * ((values - limit).square().sum(-1) @ chances)
    right = PATH_ROUNDING * lost <= RELATIVE * square + floor
    if not bool(
        (right & (PATH_ROUNDING * lost_mean <= RELATIVE * mean.norm(dim=-1) + floor.sqrt())).all()
    ):
        remedy = "Take shorter prompts."
        given = "a path whose terms cancel so far that rounding is too much of the answer"
        raise InvalidArgumentError("length", given, "paths whose law keeps eight digits", remedy)
    return mean, square, collision


def window_law(attention: SoftmaxAttention, chain: MarkovChain) -> Discrete:
    """Law of one token: a one-hot window of order + 1 symbols, which one head must read."""
    if not isinstance(attention, SoftmaxAttention) or attention.heads:
        raise InvalidArgumentError(
            "attention", validation.text(attention), "SoftmaxAttention with one head"
        )
    if attention.dim != (chain.order + 1) * chain.alphabet:
        allowed = f"tokens of dimension {chain.order + 1} times {chain.alphabet}, the alphabet"
        raise InvalidArgumentError("attention", f"a layer on R^{attention.dim}", allowed)
    return chain.ngrams(chain.order + 1)


@dataclasses.dataclass
class _Powers:
    """Matrices, or rows πM^N of them: P (k, n), C (query, o, k, n), then for each t the others.

    ``near`` and ``apart`` are sizes of the terms of E and of A, (t, k, n), norms over the outputs;
    ``spread`` that of S.
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
        # of which the correction has spread the rounding
        size = size + size.sum(-1, keepdim=True) * stationary
        lost = self.lost @ y.kept + self.plain @ y.lost
        kept = torch.where(2 * lost <= plain, plain - lost, self.kept @ y.kept)
        mine, its = self.moved[query], y.moved[query]
        away = (
            _each(self.away, y.kept)
            + _by(self.kept, y.away)
            + _each(mine, y.lost)
            + _by(self.lost, its)
        )
        near = (
            self.near @ y.kept + self.kept @ y.near + _norm(mine) @ y.lost + self.lost @ _norm(its)
        )
        direct = _each(self.read, y.kept) + _by(self.kept, y.read)
        apart = self.apart @ y.kept + self.kept @ y.apart
        small = t * (size[query] + near)
        read = torch.where(
            (small <= apart).unsqueeze(1), t.unsqueeze(1) * (moved[query] - away), direct
        )
        pairs = torch.einsum("toij,tojk->tik", self.read, y.read)
        squared = self.squared @ y.kept + self.kept @ y.squared + 2 * pairs
        spread = (
            self.spread @ y.kept
            + self.kept @ y.spread
            + 2 * (self.apart @ _norm(y.read) + _norm(self.read) @ y.apart)
        )
        collided = self.collided @ y.kept + self.kept @ y.collided
        return _Powers(
            plain,
            moved,
            kept,
            lost,
            away,
            read,
            squared,
            collided,
            near,
            torch.minimum(small, apart),
            spread,
        )


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
    chain: MarkovChain,
    tau: Tensor,
    query: Tensor,
    scores: Tensor,
    values: Tensor,
    last: Tensor,
    lengths: list[int],
) -> Tensor:
    """t E[A e^{-tB}], t² E[‖A‖² e^{-tB}] and t² E[Σ e^{2s} e^{-tB}], weighted by the last context,
    t = e^τ; then their rounding.

    A = Σ e^s v, B = Σ e^s over a path of L windows. Each τ has a query, which has scores (windows,)
    with E e^s = 1, values (windows, o) with E e^s v = 0, and last (contexts,). Shape (length, τ,
    o + 4): rounding of ‖the first‖ and of the second.
    """
    n, o = chain.contexts, values.shape[-1]
    stationary = chain.stationary.flatten()
    rows = (chain.rows / chain.rows.sum(-1, keepdim=True)).flatten()
    lowest = torch.where(rows > 0, scores, math.inf).amin(-1, keepdim=True)[query]  # (τ, 1)
    above, tau = scores[query] - lowest, tau.unsqueeze(-1)
    least = torch.exp((tau + lowest).clamp_max(LARGEST_LOG))  # tc, as t alone may overflow
    grown = torch.exp((tau + scores[query]).clamp_max(LARGEST_LOG))  # tb
    # t(b - c)
    rise = torch.where(above < 1, least * torch.expm1(above.clamp(max=1.0)), grown - least)
    t = torch.exp(tau.clamp_max(LARGEST_LOG)).unsqueeze(-1)

    def matrices(entries: Tensor) -> Tensor:
        """Matrices of contexts from numbers of windows, (..., windows) to (..., n, n)."""
        shape = (*entries.shape[:-1], n, chain.alphabet)
        empty = entries.new_zeros(*shape[:-1], n)
        return empty.scatter_(-1, chain._successors.expand(shape), (rows * entries).reshape(shape))

    share = torch.exp(scores) * rows * stationary.repeat_interleave(chain.alphabet)
    # (query, o, windows), to the last digit
    centered = (values - (share.unsqueeze(1) @ values) / share.sum(-1)[:, None, None]).mT
    weighted = torch.exp(scores).unsqueeze(1) * centered
    survival, gone = torch.exp(-rise), -torch.expm1(-rise)
    a = grown.unsqueeze(1) * centered[query]  # (τ, o, windows)
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
    return torch.stack(
        [
            _found(state, query, t, last, least * length)
            for state, length in zip(states, lengths, strict=True)
        ]
    )


def _found(state: _Powers, query: Tensor, t: Tensor, last: Tensor, exponent: Tensor) -> Tensor:
    """The moments of one length from its row, which is less e^{-tcL}."""
    end = last[query].unsqueeze(1)  # (τ, 1, contexts)
    scale = torch.exp(-exponent)  # (τ, 1)
    moved = state.moved[query]
    centered = t * (
        (moved * (end - 1).unsqueeze(1)).sum(-1) - (state.away * end.unsqueeze(1)).sum(-1)
    ).squeeze(-1).unsqueeze(-1)
    centered, direct = centered.squeeze(-1), (state.read * end.unsqueeze(1)).sum((-2, -1))  # (τ, o)
    small = (t * (state.near * end + _norm(moved) * (end - 1).abs())).sum((-2, -1)).unsqueeze(-1)
    large = (state.apart * end).sum((-2, -1)).unsqueeze(-1)
    mean = torch.where(small <= large, centered, direct)
    others = [
        (part * end).sum((-2, -1)).unsqueeze(-1)
        for part in (state.squared, state.collided, state.spread)
    ]
    return scale * torch.cat(
        [mean, others[0], others[1], torch.minimum(small, large), others[2]], -1
    )
