"""Attention over paths of a Markov chain about any center and given the end of the path: exactly,
and to first order in 1/L.
"""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from largeprompt.attention import SoftmaxAttention
from largeprompt.law.chain import path_integrals, window_law, window_scores
from largeprompt.measures import MarkovChain


@dataclasses.dataclass(frozen=True, eq=False)
class ChainExpansion:
    """Attention over a long path of a chain: T_L ≈ T + drift/L, with covariance/L around it.

    drift = -Σ_k Cov(g_0, h_k), covariance = Σ_k Cov(g_0, g_k): formula (ngram.4) of
    docs/mathematics/ngram.md. ``independent`` is the covariance for independent tokens of the same
    law, and ``rho`` E w² = e^{Λ(2u)-2Λ(u)}.
    """

    limit: Tensor  # (..., o)
    drift: Tensor  # (..., o)
    covariance: Tensor  # (..., o, o)
    independent: Tensor  # (..., o, o)
    rho: Tensor  # (...)

    def error(self, center: Tensor, length: float) -> Tensor:
        """E‖T_L - c‖² to first order: ‖T - c‖² + (2 drift·(T - c) + tr
        covariance)/L, shape (...).
        """
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


def chain_expansion(
    attention: SoftmaxAttention, chain: MarkovChain, z: Tensor, *, ending: Tensor | None = None
) -> ChainExpansion:
    """First order in 1/L of attention over windows of k one-hot symbols of a stationary path,
    queries z (..., k·m).

    ``ending``, shape (...), is the number of the context in which the path ends; any context when
    left out.
    """
    law, u = chain.ngrams(attention.dim // chain.alphabet), attention.tilts(z)
    limit, weight = attention(law, z), torch.exp(window_scores(law, u))  # (..., windows)
    # (..., o, windows)
    g = weight.unsqueeze(-2) * ((law.atoms @ attention.V.mT).mT - limit.unsqueeze(-1))
    drift = -chain.long_run_covariance(g, (weight - 1).unsqueeze(-2)).squeeze(-1)
    if ending is not None:
        hot = torch.nn.functional.one_hot(ending, chain.contexts).to(g.dtype)
        lagged = chain.lagged_covariance(g, hot.unsqueeze(-2)).squeeze(-1)
        drift = drift + lagged / chain.stationary.flatten()[ending].unsqueeze(-1)
    independent, rho = (g * law.weights) @ g.mT, (weight.square() * law.weights).sum(-1)
    return ChainExpansion(limit, drift, chain.long_run_covariance(g), independent, rho)


def chain_error(
    attention: SoftmaxAttention,
    chain: MarkovChain,
    z: Tensor,
    lengths: Sequence[int],
    *,
    center: Tensor | None = None,
    ending: Tensor | None = None,
) -> Tensor:
    """Exact E‖T_L - c‖² over L windows of order + 1 symbols, shape (length, ...); c (..., o) is the
    limit when left out.

    ∫ t E[‖A‖² e^{-tB}] dt, A = Σ e^s (Vx - c), B = Σ e^s: formula (ngram.6) of
    docs/mathematics/ngram.md, by a transfer matrix.
    """
    law, queries = window_law(attention, chain), z.shape[:-1]
    u, limit = attention.tilts(z).reshape(-1, attention.dim), attention(law, z)
    away = torch.zeros_like(limit) if center is None else limit - center
    last = u.new_ones(len(u), chain.contexts)
    if ending is not None:
        context = ending.expand(queries).reshape(-1)
        last = torch.nn.functional.one_hot(context, chain.contexts) / chain.stationary.flatten()[
            context
        ].unsqueeze(-1)
    values = (law.atoms @ attention.V.mT).expand(len(u), -1, -1)  # (query, window, o)
    first, second, _ = path_integrals(chain, window_scores(law, u), values, last, list(lengths))
    shift = away.reshape(len(u), -1)
    return (second + ((2 * first + shift) * shift).sum(-1)).reshape(len(lengths), *queries)
