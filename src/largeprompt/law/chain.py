"""Attention over a path of a Markov chain, whose tokens are one-hot windows of symbols: exactly, and to first order in 1/L."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import SoftmaxAttention
from largeprompt.errors import InvalidArgumentError
from largeprompt.law.chain_powers import path_moments, require_digits
from largeprompt.law.engine import Expectations as Solved
from largeprompt.measures import Discrete, MarkovChain
from largeprompt.validation import Lengths

STEP = 0.25  # of the trapezoid rule in log t: an error of |Γ(2 + 2πi/h)|, 2e-15
LEFT, RIGHT = 20.0, 45.0  # e^{-2·20} and e^{-45} are below rounding
ELEMENTS = 2**21  # largest array while powers are taken: 16 MiB
LEAST_DIGITS, UNIT = 1e-8, 1e-15
LARGEST_SPREAD = 1e4  # of the scores: the cost grows with it


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ChainExpansion:
    """Attention over a long path of a chain: T_L ≈ T + drift/L, with covariance/L around it.

    drift = -Σ_k Cov(g_0, h_k), covariance = Σ_k Cov(g_0, g_k): formula (ngram.4) of docs/mathematics/ngram.md.

    Attributes
    ----------
    limit, drift
        Shape (..., o).
    covariance
        Of dependent tokens, shape (..., o, o).
    independent
        The same for independent tokens of the same law: the term k = 0.
    rho
        E w² = e^{Λ(2u)-2Λ(u)}: L/ρ is the effective number of tokens.
    """

    limit: Tensor
    drift: Tensor
    covariance: Tensor
    independent: Tensor
    rho: Tensor

    def error(self, center: Tensor, length: float) -> Tensor:
        """E‖T_L - c‖² to first order: ‖T - c‖² + (2 drift·(T - c) + tr covariance)/L, shape (...)."""
        away = self.limit - center
        return away.square().sum(-1) + (2 * (self.drift * away).sum(-1) + self.constant) / length

    @property
    def constant(self) -> Tensor:
        """C with E‖T_L - T‖² ≈ C/L, shape (...)."""
        return self.covariance.diagonal(dim1=-2, dim2=-1).sum(-1)

    @property
    def independent_constant(self) -> Tensor:
        """C for independent tokens of the same law, shape (...)."""
        return self.independent.diagonal(dim1=-2, dim2=-1).sum(-1)

    def __repr__(self) -> str:
        return f"ChainExpansion(queries={tuple(self.rho.shape)}, out={self.limit.shape[-1]})"


def chain_expansion(attention: SoftmaxAttention, chain: MarkovChain, z: Tensor, *, ending: Any = None) -> ChainExpansion:
    """First order in 1/L of attention over the windows of a stationary path, through the chain's fundamental matrix.

    Parameters
    ----------
    attention
        One head on tokens of k·m entries: windows of k symbols, one-hot.
    chain
        The chain; any order.
    z
        Queries, shape (..., k·m).
    ending
        Number of the context in which the path ends, for each query, shape (...); any context when left out.

    Examples
    --------
    Bigrams; a match of the first symbol with symbol 0 scores β = 2, and the next symbol is read:

    >>> from largeprompt.law.chain import chain_expansion
    >>> attention = lp.SoftmaxAttention(torch.eye(4, dtype=torch.float64), [[0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    >>> found = chain_expansion(attention, lp.measures.MarkovChain([[0.9, 0.1], [0.3, 0.7]]), [2.0, 0.0, 0.0, 0.0])
    >>> found.limit, found.constant
    (tensor([0.8741, 0.1259], dtype=torch.float64), tensor(0.3749, dtype=torch.float64))
    """
    law, z = _tokens(attention, chain, z)
    u = attention.tilts(z)
    limit = attention(law, z)
    weight = torch.exp(u @ law.atoms.mT - law.cgf(u).unsqueeze(-1))  # (..., windows)
    values = law.atoms @ attention.V.mT
    g = weight.unsqueeze(-2) * (values.mT - limit.unsqueeze(-1))  # (..., o, windows)
    drift = -chain.long_run_covariance(g, (weight - 1).unsqueeze(-2)).squeeze(-1)
    if ending is not None:
        context = _ending(chain, ending, z)
        hot = torch.nn.functional.one_hot(context, chain.contexts).to(g.dtype)
        lagged = chain.lagged_covariance(g, hot.unsqueeze(-2)).squeeze(-1)
        drift = drift + lagged / chain.stationary.flatten()[context].unsqueeze(-1)
    return ChainExpansion(
        limit, drift, chain.long_run_covariance(g), (g * law.weights) @ g.mT, (weight.square() * law.weights).sum(-1)
    )


def chain_error(
    attention: SoftmaxAttention, chain: MarkovChain, z: Tensor, length: Lengths, *, center: Any = None, ending: Any = None
) -> Tensor:
    """Exact E‖T_L - c‖² of attention over L windows of a stationary path, at a cost that grows like log L.

    ∫ t E[‖A‖² e^{-tB}] dt, A = Σ e^s (Vx - c), B = Σ e^s: formula (ngram.6) of docs/mathematics/ngram.md, by a transfer matrix.

    Parameters
    ----------
    attention, chain, z, ending
        As for :func:`chain_expansion`; the windows have order + 1 symbols.
    length
        L, the number of windows; several lead the shape of the result.
    center
        c, shape (..., o); the infinite-prompt limit when left out.

    Returns
    -------
    Tensor
        Shape (...), led by the lengths where there are several.

    Examples
    --------
    >>> from largeprompt.law.chain import chain_error
    >>> attention = lp.SoftmaxAttention(torch.eye(4, dtype=torch.float64), [[0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    >>> chain = lp.measures.MarkovChain([[0.9, 0.1], [0.3, 0.7]])
    >>> error = chain_error(attention, chain, [2.0, 0.0, 0.0, 0.0], [1000, 10**6])
    >>> error * torch.tensor([1000, 10**6])  # tends to C
    tensor([0.3778, 0.3749], dtype=torch.float64)
    """
    law, z = _tokens(attention, chain, z, exact=True)
    lengths, several = validation.lengths("length", length)
    u, queries = attention.tilts(z).reshape(-1, attention.dim), z.shape[:-1]
    limit = attention(law, z)
    center = limit if center is None else validation.tensor("center", center, like=attention.V)
    validation.last_dimensions("center", center, (attention.V.shape[-2],), ": one entry for each output")
    away = (limit - center.expand(*queries, -1)).reshape(len(u), -1)
    if ending is None:
        last = u.new_ones(len(u), chain.contexts)
    else:
        context = _ending(chain, ending, z).reshape(-1)
        last = torch.nn.functional.one_hot(context, chain.contexts) / chain.stationary.flatten()[context].unsqueeze(-1)
    values = (law.atoms @ attention.V.mT).expand(len(u), -1, -1)  # (query, window, o)
    first, second, _ = _integrals(chain, _scores(law, u), values, last, [int(one) for one in lengths])
    found: Tensor = second + ((2 * first + away) * away).sum(-1)
    return found.reshape(len(lengths), *queries) if several else found[0].reshape(queries)


def chain_prompt(attention: SoftmaxAttention, chain: MarkovChain, z: Tensor, lengths: Sequence[float]) -> Solved:
    """Mean, covariance and errors of attention over L windows of a stationary path: :func:`finite_prompt` of a chain."""
    if any(math.isinf(length) for length in lengths):
        remedy = "Its limit is that of the law of one window: finite_prompt(attention, chain.ngrams(k), z, math.inf)."
        raise InvalidArgumentError("length", "infinity", "lengths from 1 to 10^15 for the path of a chain", remedy)
    law, z = _tokens(attention, chain, z, exact=True)
    u, queries = attention.tilts(z).reshape(-1, attention.dim), z.shape[:-1]
    last, tokens = u.new_ones(len(u), chain.contexts), [int(one) for one in lengths]

    def integrals(V: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """E V(T_L - T), E‖V(T_L - T)‖² and E Σ w² of the output before V, lengths leading."""
        found = _integrals(chain, _scores(law, u), (law.atoms @ V.mT).expand(len(u), -1, -1), last, tokens)
        first, second, collision = (part.reshape(len(tokens), *queries, *part.shape[2:]) for part in found)
        return first, second, collision

    bias, mse, collision = integrals(attention.V)

    def covariance() -> Tensor:
        """By E ab = (E (a+b)² - E a² - E b²)/2 for each pair of outputs."""
        rows = list(attention.V)
        single = [integrals(row.unsqueeze(0))[1] for row in rows]
        pairs = [
            [integrals((a + b).unsqueeze(0))[1] - single[i] - single[j] for j, b in enumerate(rows)] for i, a in enumerate(rows)
        ]
        second = torch.stack([torch.stack(row, -1) for row in pairs], -2) / 2
        found = second - bias.unsqueeze(-1) * bias.unsqueeze(-2)
        _require_left("covariance", found.diagonal(dim1=-2, dim2=-1), bias.square())
        return found

    def jacobian() -> Tensor:
        raise InvalidArgumentError(
            "jacobian_u_mse",
            validation.text(chain),
            "independent tokens",
            "For a path only the output and its derivative in V are known.",
        )

    eye = torch.eye(attention.dim, dtype=attention.V.dtype)
    limit = attention(law, z)
    _require_left("mean", limit + bias, limit)
    return Solved(limit + bias, collision, lambda: (bias, mse, integrals(eye)[1]), covariance, jacobian)


def _require_left(name: str, found: Tensor, taken: Tensor) -> None:
    """Refuse a difference of which too little is left beside what was taken off, unless that is rounding itself."""
    lost = UNIT * taken.abs() / found.abs().clamp_min(1e-300)
    if bool(((lost > LEAST_DIGITS) & (taken.abs() > 1e-12)).any()):
        given = f"a path that seldom has the windows of its limit: rounding leaves {float(lost.max()):.1g} of its {name}"
        raise InvalidArgumentError("length", given, f"a {name} exact to eight digits", "Use bias and mse, or longer prompts.")


def _scores(law: Discrete, u: Tensor) -> Tensor:
    """Scores of the windows less Λ(u), shape (query, window)."""
    return u @ law.atoms.mT - law.cgf(u).unsqueeze(-1)


def _integrals(chain: MarkovChain, scores: Tensor, values: Tensor, last: Tensor, lengths: list[int]) -> tuple[Tensor, ...]:
    """∫ E[A e^{-tB}] dt, (length, query, o), ∫ t E[‖A‖² e^{-tB}] dt and ∫ t E[Σ e^{2s} e^{-tB}] dt, (length, query).

    Scores (query, windows), values (query, windows, o), which are read less their limit, last (query, contexts).
    """
    reached = scores[:, chain._edges.flatten() > 0]
    spread = float((reached.amax(-1) - reached.amin(-1)).max())
    if spread > LARGEST_SPREAD:
        raise InvalidArgumentError("z", f"scores that differ by {spread:.4g}", f"at most {LARGEST_SPREAD:g}", "Shrink the queries.")
    low = -math.log(max(lengths)) - LEFT - reached.amax(-1).clamp_min(0.0)
    high = math.log(RIGHT / min(lengths)) - reached.amin(-1)
    count = math.ceil(float((high - low).max()) / STEP) + 1
    tau = low.unsqueeze(-1) + STEP * torch.arange(count, dtype=scores.dtype)  # (query, node)
    query = torch.arange(len(tau)).repeat_interleave(count)
    chunk = max(1, ELEMENTS // (2 * (values.shape[-1] + 4) * chain.contexts**2))
    parts = []
    for one, q in zip(tau.flatten().split(chunk), query.split(chunk), strict=True):
        used = slice(int(q[0]), int(q[-1]) + 1)
        parts.append(path_moments(chain, one, q - q[0], scores[used], values[used], last[used], lengths))
    nodes = STEP * torch.cat(parts, 1).reshape(len(lengths), *tau.shape, -1)  # (length, query, node, o + 4)
    nodes[:, :, 0, :-4] /= -math.expm1(-STEP)  # below the first node the mean, given the end of the path, falls like t alone
    found = nodes.sum(2)
    require_digits(found, LEAST_DIGITS)
    return found[..., :-4], found[..., -4], found[..., -3]


def _tokens(attention: SoftmaxAttention, chain: MarkovChain, z: Any, *, exact: bool = False) -> tuple[Discrete, Tensor]:
    """Law of one token, and the queries; attention must be one head on one-hot windows, of order + 1 symbols where ``exact``."""
    if not isinstance(attention, SoftmaxAttention) or attention.heads:
        raise InvalidArgumentError("attention", validation.text(attention), "SoftmaxAttention with one head")
    if not isinstance(chain, MarkovChain):
        raise InvalidArgumentError("chain", type(chain).__name__, "a MarkovChain")
    if attention.dim % chain.alphabet or (exact and attention.dim != (chain.order + 1) * chain.alphabet):
        allowed = f"{f'{chain.order + 1} times' if exact else 'a multiple of'} {chain.alphabet}, the alphabet"
        raise InvalidArgumentError("attention", f"a layer on R^{attention.dim}", f"tokens of dimension {allowed}")
    law = chain.ngrams(attention.dim // chain.alphabet)
    return law, attention._values(law, z)[1]


def _ending(chain: MarkovChain, ending: Any, z: Tensor) -> Tensor:
    context = validation.indices("ending", ending, chain.contexts, "numbers of contexts, ")
    if validation.broadcast("ending and z", context.shape, z.shape[:-1]) != z.shape[:-1]:
        given, queries = validation.shape_text(context.shape), validation.shape_text(z.shape[:-1])
        raise InvalidArgumentError("ending", f"shape {given}", f"a context for each query, shape {queries}")
    if bool((chain.stationary.flatten()[context] == 0).any()):
        raise InvalidArgumentError("ending", str(ending), "contexts of positive stationary probability")
    return context.expand(z.shape[:-1])
