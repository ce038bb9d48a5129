"""In-context next-symbol prediction by one head that scores matches: its limit, its risk, and the
strength that training finds.

A token is a window of order + 1 symbols, the query is the context q at the end of the prompt. Each
symbol that matches the query scores β, and the head reads the last symbol. As e^{β matches} = Σ_S
(e^β - 1)^{#S} 1[match on S], with n_S(j) the number of tokens that match on the set S of places and
end in j,

    T(q)_j = Σ_S (e^β - 1)^{#S} n_S(j) / Σ_S (e^β - 1)^{#S} n_S:

an interpolation of all (skip-)n-grams up to the order. At order one it is additive smoothing
towards the unigram, (N_qj + a p_j)/(N_q + a) with the pseudo-count a = L/(e^β - 1), and β = ∞ is
the in-context empirical n-gram.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import SoftmaxAttention
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures import MarkovChain
from largeprompt.studies.ngram.exact import chain_error, chain_expansion

Array = NDArray[np.float64]


def next_symbol_head(chain: MarkovChain) -> SoftmaxAttention:
    """The head that reads the last symbol of each window; U = I, so that a query is
    its own tilt.
    """
    m, r = chain.alphabet, chain.order
    V = torch.zeros(m, (r + 1) * m, dtype=torch.float64)
    V[:, r * m :] = torch.eye(m, dtype=torch.float64)
    return SoftmaxAttention(torch.eye((r + 1) * m, dtype=torch.float64), V)


def matching_query(chain: MarkovChain, contexts: Any, beta: Any) -> Tensor:
    """β times the one-hot context, nothing in the place of the next symbol: shape (..., (r + 1)·m),
    contexts and β broadcast.
    """
    contexts = torch.as_tensor(contexts)
    place = chain.alphabet ** torch.arange(chain.order - 1, -1, -1)
    symbols = contexts.unsqueeze(-1) // place % chain.alphabet
    hot = torch.nn.functional.one_hot(symbols, chain.alphabet).to(torch.float64).flatten(-2)
    tilts = torch.as_tensor(beta, dtype=torch.float64).unsqueeze(-1) * hot
    return torch.nn.functional.pad(tilts, (0, chain.alphabet))


@functools.lru_cache(maxsize=8)
def match_table(alphabet: int, order: int) -> Tensor:
    """Number of places in which two contexts agree, shape (m^r, m^r)."""
    symbols = torch.cartesian_prod(*[torch.arange(alphabet)] * order).reshape(-1, order)
    return sum((symbols[:, None, i] == symbols[None, :, i]).long() for i in range(order))  # type: ignore[return-value]


def limit_shares(chain: MarkovChain) -> Tensor:
    """Probability that a token matches context q in k places and goes on with j, shape (q, r + 1,
    m).
    """
    edges = chain.ngram_law(chain.order + 1).reshape(chain.contexts, chain.alphabet)
    table = match_table(chain.alphabet, chain.order)
    return torch.stack([(table == k).to(edges.dtype) @ edges for k in range(chain.order + 1)], 1)


def drawn_shares(
    chain: MarkovChain, symbols: Tensor, length: int, query: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The same from the first ``length`` tokens of each path, shape (path, r + 1, m), and the query
    that was asked.

    The query is the context at the end of these tokens unless one is given, shape () or (path,).
    """
    m, r = chain.alphabet, chain.order
    length = validation.integer("length", length)
    if symbols.shape[-1] < length + r:
        found = f"paths of {symbols.shape[-1]} symbols"
        raise InvalidArgumentError("symbols", found, f"{length} + {r} symbols for {length} tokens")
    context = chain.context_index(symbols[:, : length + r])
    query = context[:, -1] if query is None else torch.as_tensor(query).expand(len(symbols))
    matches = match_table(m, r).flatten()[query.unsqueeze(-1) * chain.contexts + context[:, :-1]]
    path = torch.arange(len(symbols)).unsqueeze(-1)
    index = (path * (r + 1) + matches) * m + symbols[:, r : length + r]
    counts = torch.bincount(index.flatten(), minlength=len(symbols) * (r + 1) * m)
    return counts.reshape(len(symbols), r + 1, m).to(torch.float64) / length, query


def attend(shares: Tensor, beta: Any) -> Tensor:
    """The head's prediction from shares (..., r + 1, m): Σ_k e^{βk} n_kj / Σ_k e^{βk} n_k, shape
    (..., m).

    β broadcasts against the leading shape; at β = ∞ only the best matches count (the n-gram, with
    its back-off where the context has not occurred).
    """
    beta = torch.as_tensor(beta, dtype=shares.dtype)[..., None]
    k = torch.arange(shares.shape[-2], dtype=shares.dtype)
    seen = shares.sum(-1) > 0
    best = torch.where(seen, k, -1.0).amax(-1, keepdim=True)
    score = torch.where(
        torch.isinf(beta),
        torch.where(k >= best, 0.0, -math.inf),
        beta.nan_to_num(posinf=0.0) * (k - best),
    )
    mass = torch.where(seen, torch.exp(score), 0.0).unsqueeze(-1) * shares
    return mass.sum(-2) / mass.sum((-2, -1)).unsqueeze(-1)


@dataclasses.dataclass(frozen=True, eq=False)
class MatchingRisk:
    """Σ_i ω_i ½‖T_i(β) - y_i‖² over prompts i, with derivatives in β; an infinite prompt is one
    more set of shares.

    y_i = P(· | query): the squared (Brier) risk of the next symbol, less its own variance, which β
    does not change.
    """

    shares: Tensor  # (i, r + 1, m)
    targets: Tensor  # (i, m)
    weights: Tensor  # (i,)

    @classmethod
    def infinite(cls, chains: Sequence[MarkovChain]) -> Self:
        """Infinite prompts of several chains alike, queries by their stationary law."""
        return cls(
            torch.cat([limit_shares(chain) for chain in chains]),
            torch.cat([chain.rows for chain in chains]),
            torch.cat([chain.stationary.flatten() for chain in chains]) / len(chains),
        )

    def terms(self, beta: float) -> tuple[Tensor, Tensor, Tensor]:
        """Each prompt's ½‖T - y‖² and its first two derivatives in β, unweighted,
        shape (i,) each.
        """
        k = torch.arange(self.shares.shape[-2], dtype=self.shares.dtype)
        mass = torch.exp(beta * (k - k[-1])).unsqueeze(-1) * self.shares
        mass = mass / mass.sum((-2, -1), keepdim=True)
        T, first, second = mass.sum(-2), (k @ mass), (k.square() @ mass)
        mean, square = first.sum(-1, keepdim=True), second.sum(-1, keepdim=True)
        slope = first - mean * T
        bend = second - mean * first - (square - mean.square()) * T - mean * slope
        away = T - self.targets
        return (
            away.square().sum(-1) / 2,
            (away * slope).sum(-1),
            slope.square().sum(-1) + (away * bend).sum(-1),
        )

    def value(self, beta: float) -> float:
        """The risk at β."""
        return float(self.terms(beta)[0] @ self.weights)

    def gradient(self, beta: float) -> float:
        """Its derivative."""
        return float(self.terms(beta)[1] @ self.weights)

    def optimum(self, low: float = 0.0, high: float = 25.0) -> tuple[float, float]:
        """β at which the gradient turns positive, by bisection, and its standard error over the
        prompts; ∞ where it never does.
        """
        if self.gradient(high) <= 0:
            return math.inf, math.nan
        best = first_root(self.gradient, np.linspace(low, high, 101))
        _, slope, bend = self.terms(best)
        spread = math.sqrt(float(self.weights.square() @ (slope - slope @ self.weights).square()))
        return best, spread / float(bend @ self.weights)


def first_root(slope: Callable[[float], float], grid: Array) -> float:
    """Where a slope turns positive: between the first two points of a grid where it does; the first
    point if it is so there.
    """
    from scipy.optimize import brentq

    rising = int(np.flatnonzero([slope(float(beta)) > 0 for beta in grid])[0])
    return (
        float(brentq(slope, grid[rising - 1], grid[rising], xtol=1e-12))
        if rising
        else float(grid[0])
    )


def integrated(
    slope: Callable[[float, Array], list[float]], start: list[float], times: Array
) -> Array:
    """The solution of state' = slope(time, state) at the times asked for, the first of which may be
    0; shape (state, time).
    """
    from scipy.integrate import solve_ivp

    found = solve_ivp(slope, (0.0, float(times[-1])), start, "LSODA", times, rtol=1e-9, atol=1e-11)
    if not found.success:
        raise ArithmeticError(f"the flow stopped: {found.message}")
    return np.asarray(found.y, dtype=np.float64)


def flow(gradient: Callable[[float], float], start: float, times: Array) -> Array:
    """β(t) with β' = -R'(β)."""
    (beta,) = integrated(lambda _, state: [-gradient(float(state[0]))], [start], times)
    return np.asarray(beta)


@dataclasses.dataclass(frozen=True)
class MatchingExpansion:
    """Near β = ∞, in ε = 1/(e^β - 1): R_L ≈ R_L(∞) - B ε/L + A ε²/2, averaged over chains and
    stationary queries.

    Attributes
    ----------
    curvature
        A = E‖Σ_i (π(q₋ᵢ)/π(q))(P(q₋ᵢ, ·) - P(q, ·))‖², q₋ᵢ the context without its i-th symbol.
    gain
        B: what a little smoothing takes off the variance, correlations along the path and with the
        final context included.
    """

    curvature: float
    gain: float

    @property
    def pseudo_count(self) -> float:
        """a* = B/A, the best L/(e^β - 1) on long prompts."""
        return self.gain / self.curvature

    def best_beta(self, length: Any) -> Array:
        """β*(L) ≈ ln(1 + L/a*)."""
        return np.asarray(np.log1p(np.asarray(length, dtype=np.float64) / self.pseudo_count))

    def best_gain(self, length: Any) -> Array:
        """R_L(∞) - R_L(β*) ≈ B²/(2A L²): what the best β saves over the empirical n-gram."""
        return np.asarray(
            self.gain**2 / (2 * self.curvature * np.asarray(length, dtype=np.float64) ** 2)
        )

    def infinite_flow(self, time: Any) -> Array:
        """β_∞(t) ≈ ½ ln(2 A t): the flow on the infinite prompt, for long times."""
        return np.asarray(0.5 * np.log(2 * self.curvature * np.asarray(time, dtype=np.float64)))

    def crossover(self, length: float) -> float:
        """Time at which the infinite-prompt flow passes β*(L): (L/a*)²/(2A)."""
        return (length / self.pseudo_count) ** 2 / (2 * self.curvature)


def matching_expansion(chains: Sequence[MarkovChain]) -> MatchingExpansion:
    """A and B of :class:`MatchingExpansion`, through long-run covariances.

    With S = N_q(·) - N_q P_q (martingale differences), Y = X₁ - n₁ P_q, X₁ the counts on all places
    but one summed over that one, and the path ending in q, -B/L = E[(S/N_q²)·(Y - n₁ S/N_q)] to
    order 1/L.
    """
    curvature = gain = 0.0
    for chain in chains:
        m, r, n = chain.alphabet, chain.order, chain.contexts
        pi, rows = chain.stationary.flatten(), chain.rows
        table = match_table(m, r)
        hot = torch.eye(m, dtype=rows.dtype)
        for q in range(n):
            if float(pi[q]) == 0:
                continue
            inside = (table[q] == r).to(rows.dtype)
            # Σ_i 1[match on all places but i]
            near = (table[q] == r - 1).to(rows.dtype) + r * inside
            step = (hot - rows[q]).mT  # (j, next)
            s = (step.unsqueeze(1) * inside.unsqueeze(-1)).flatten(1)
            y = (step.unsqueeze(1) * near.unsqueeze(-1)).flatten(1)
            weight = float(pi[q])
            mean = y @ chain.ngram_law(r + 1).flatten()
            one = inside.unsqueeze(0)
            together = float(chain.long_run_covariance(s, y).diagonal().sum()) / weight**2
            visits = float(chain.long_run_covariance(s, one)[:, 0] @ mean) / weight**3
            final = float(chain.lagged_covariance(s, one)[:, 0] @ mean) / weight**3
            noise = float((1 - rows[q].square().sum()) * (near @ pi)) / weight**2
            gain -= weight * (together - 2 * visits + final - noise) / len(chains)
            curvature += float(mean.square().sum()) / weight / len(chains)
    return MatchingExpansion(curvature, gain)


def exact_matching_risk(
    chains: Sequence[MarkovChain], betas: Any, lengths: Sequence[int]
) -> Tensor:
    """Population risk of the head over drawn prompts, exactly, none drawn: shape (length, β).

    Queries are the contexts in which the paths end; targets P(· | query).
    """
    betas = torch.as_tensor(betas, dtype=torch.float64)
    total = torch.zeros(len(lengths), len(betas), dtype=torch.float64)
    for chain in chains:
        query = torch.arange(chain.contexts)[chain.stationary.flatten() > 0]
        z = matching_query(chain, query.unsqueeze(-1), betas)  # (query, β, d)
        target, ending = (
            chain.rows[query].unsqueeze(1).expand(-1, len(betas), -1),
            query.unsqueeze(-1).expand(-1, len(betas)),
        )
        error = chain_error(
            next_symbol_head(chain), chain, z, lengths, center=target, ending=ending
        )
        total += torch.einsum("lqb,q->lb", error, chain.stationary.flatten()[query]) / 2
    return total / len(chains)


def first_order_matching_risk(chains: Sequence[MarkovChain], betas: Any) -> Tensor:
    """r with R_L(β) ≈ R_∞(β) + r(β)/L, by the expansion for dependent tokens, shape (β,)."""
    betas = torch.as_tensor(betas, dtype=torch.float64)
    total = torch.zeros(len(betas), dtype=torch.float64)
    for chain in chains:
        query = torch.arange(chain.contexts)[chain.stationary.flatten() > 0]
        ending = query.unsqueeze(-1).expand(-1, len(betas))
        found = chain_expansion(
            next_symbol_head(chain),
            chain,
            matching_query(chain, query.unsqueeze(-1), betas),
            ending=ending,
        )
        away = found.limit - chain.rows[query].unsqueeze(1)
        rate = (found.drift * away).sum(-1) + found.constant / 2
        total += chain.stationary.flatten()[query] @ rate
    return total / len(chains)


def skip_gram_mixture(chain: MarkovChain, query: int, beta: float) -> Tensor:
    """The limit as an interpolation: Σ_S (e^β - 1)^{#S} π(q_S) P(· | q_S), normalised; q_S is the
    query on the places S only.
    """
    r, m = chain.order, chain.alphabet
    law = chain.ngram_law(r + 1)
    symbols = [query // m ** (r - 1 - i) % m for i in range(r)]
    total = torch.zeros(m, dtype=law.dtype)
    for chosen in itertools.product([False, True], repeat=r):
        part = law
        for place in reversed(range(r)):
            part = part.select(place, symbols[place]) if chosen[place] else part.sum(place)
        total = total + math.expm1(beta) ** sum(chosen) * part
    return total / total.sum()
