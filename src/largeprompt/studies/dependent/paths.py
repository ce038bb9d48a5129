"""Windows of a Markov chain, read by a head that scores matches, and AR(1) tokens.

A token is a window of order + 1 symbols, one-hot; the query is a context q. Each symbol that
matches the query scores β, and the head reads the last symbol. With n_S(j) the number of tokens
that match on the set S of places and end in j, e^{β matches} = Σ_S (e^β - 1)^{#S} 1[match on S]
gives

    T(q)_j = Σ_S (e^β - 1)^{#S} n_S(j) / Σ_S (e^β - 1)^{#S} n_S:

a mixture of all (skip-)n-grams up to the order. β = ∞ is the empirical n-gram.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from largeprompt.attention import SoftmaxAttention, affine_limit
from largeprompt.law import finite_prompt
from largeprompt.law.chain import path_integrals, window_law, window_scores
from largeprompt.measures import Empirical, Gaussian, MarkovChain
from largeprompt.planning.dependent import effective_length
from largeprompt.runs.study import Progress

if TYPE_CHECKING:
    from largeprompt.studies.dependent.study import DependentConfig

F = torch.float64
QUERIES = ("likeliest", "rarest")
BLOCK = 1000  # paths drawn at once: their tokens take some 20 MB
NGRAM_BETA = 30.0  # at which the head is the empirical n-gram to the last digit


def case_name(alphabet: int, order: int) -> str:
    """A chain in words."""
    return f"{alphabet} symbols, order {order}"


def random_chain(config: DependentConfig, alphabet: int, order: int) -> MarkovChain:
    """The chain of a case."""
    seed = 1000 * config.seed + config.cases.index((alphabet, order))
    generator = torch.Generator().manual_seed(seed)
    return MarkovChain.random(alphabet, order, config.concentration, generator)


def next_symbol_head(chain: MarkovChain) -> SoftmaxAttention:
    """The head that reads the last symbol of each window; U = I, so that a query is its tilt."""
    m, r = chain.alphabet, chain.order
    V = torch.zeros(m, (r + 1) * m, dtype=F)
    V[:, r * m :] = torch.eye(m, dtype=F)
    return SoftmaxAttention(torch.eye((r + 1) * m, dtype=F), V)


def matching_query(chain: MarkovChain, contexts: Any, beta: Any) -> Tensor:
    """β times the one-hot context, 0 for the next symbol: shape (..., (r + 1)·m)."""
    contexts = torch.as_tensor(contexts)
    place = chain.alphabet ** torch.arange(chain.order - 1, -1, -1)
    symbols = contexts.unsqueeze(-1) // place % chain.alphabet
    hot = torch.nn.functional.one_hot(symbols, chain.alphabet).to(F).flatten(-2)
    tilts = torch.as_tensor(beta, dtype=F).unsqueeze(-1) * hot
    return torch.nn.functional.pad(tilts, (0, chain.alphabet))


def path_error(
    chain: MarkovChain,
    z: Tensor,
    lengths: Sequence[int],
    *,
    center: Tensor | None = None,
    ending: Tensor | None = None,
) -> Tensor:
    """Exact E‖T_L - c‖² over L windows, shape (length, ...); c (..., m) is the limit if left out.

    ``ending`` (...) is the context in which the path ends, any if left out. Formula (ngram.6) of
    docs/mathematics/ngram.md, by a transfer matrix.
    """
    head, queries, u = next_symbol_head(chain), z.shape[:-1], z.flatten(0, -2)
    law, limit = window_law(head, chain), head(chain.ngrams(chain.order + 1), z)
    away = torch.zeros_like(limit) if center is None else limit - center
    last = u.new_ones(len(u), chain.contexts)
    if ending is not None:
        context = ending.expand(queries).reshape(-1)
        hot = torch.nn.functional.one_hot(context, chain.contexts)
        last = hot / chain.stationary.flatten()[context].unsqueeze(-1)
    values = (law.atoms @ head.V.mT).expand(len(u), -1, -1)  # (query, window, m)
    scores = window_scores(law, u)
    first, second, _ = path_integrals(chain, scores, values, last, list(lengths))
    shift = away.reshape(len(u), -1)
    return (second + ((2 * first + shift) * shift).sum(-1)).reshape(len(lengths), *queries)


def constants(chain: MarkovChain, z: Tensor) -> tuple[Tensor, Tensor]:
    """C of an error C/L, and C of independent tokens of the same law."""
    head, law = next_symbol_head(chain), chain.ngrams(chain.order + 1)
    weight = torch.exp(window_scores(law, z))  # (..., windows), as the head has U = I
    values = (law.atoms @ head.V.mT).mT
    centered = weight.unsqueeze(-2) * (values - head(law, z).unsqueeze(-1))
    whole = chain.long_run_covariance(centered).diagonal(dim1=-2, dim2=-1).sum(-1)
    return whole, finite_prompt(head, law, z, 1, expansion=True).mse


def path(config: DependentConfig, alphabet: int, order: int, progress: Progress) -> xr.Dataset:
    """One chain: constant and exact error of the likeliest and the rarest query, then paths."""
    chain, name = random_chain(config, alphabet, order), case_name(alphabet, order)
    progress(f"{name}: exact law")
    head, pi = next_symbol_head(chain), chain.stationary.flatten()
    query = torch.stack([pi.argmax(), pi.argmin()])
    z = matching_query(chain, query, torch.tensor(config.betas, dtype=F).unsqueeze(-1))
    limit = head(chain.ngrams(order + 1), z)
    constant, independent = constants(chain, z)
    dims = ("beta", "query")
    exact, at_drawn = (
        path_error(chain, z, each) for each in (config.lengths, config.drawn_lengths)
    )
    memoryless = path_error(chain.independent(), z, config.lengths, center=limit)
    progress(f"{name}: paths")
    squared = []
    for first in range(0, config.replicas, BLOCK):
        generator = torch.Generator().manual_seed(1000 * config.seed + 100 + first)
        count = min(BLOCK, config.replicas - first)
        symbols = chain.sample(max(config.drawn_lengths) + order, count, generator)
        tokens = chain.tokens(symbols, order + 1)[:, None, None]
        outputs = [head(Empirical(tokens[..., :length, :]), z) for length in config.drawn_lengths]
        squared.append((torch.stack(outputs) - limit).square().sum(-1))
    drawn = torch.cat(squared, 1)  # (length, path, β, query)
    error, at = drawn.std(1) / math.sqrt(config.replicas), ("drawn_length", *dims)
    return xr.Dataset(
        {
            "constant": (dims, constant.numpy()),
            "independent_constant": (dims, independent.numpy()),
            "exact": (("length", *dims), exact.numpy()),
            "memoryless": (("length", *dims), memoryless.numpy()),
            "drawn": (at, drawn.mean(1).numpy()),
            "drawn_error": (at, error.numpy()),
            "exact_at_drawn": (at, at_drawn.numpy()),
            "relaxation_time": chain.relaxation_time,
            "alphabet": alphabet,
            "order": order,
        },
        coords={
            "beta": list(config.betas),
            "query": list(QUERIES),
            "length": list(config.lengths),
            "drawn_length": list(config.drawn_lengths),
        },
    )


def mixing(config: DependentConfig, progress: Progress) -> xr.Dataset:
    """One chain made ever slower, P = (1 - h) P₀ + h I, averaged over stationary queries."""
    progress("slow chains")
    generator = torch.Generator().manual_seed(1000 * config.seed + 500)
    base = MarkovChain.random(config.mixing_alphabet, 1, config.concentration, generator)
    betas, pi = torch.tensor([*config.mixing_betas, NGRAM_BETA], dtype=F), base.stationary
    z = matching_query(base, torch.arange(base.contexts).unsqueeze(-1), betas)
    chains = [base.lazy(float(holding)) for holding in config.holdings]
    found = np.stack([[(pi @ each).numpy() for each in constants(chain, z)] for chain in chains], 1)
    length = config.mixing_length
    exact = [(pi @ path_error(chain, z[:, :-1], [length])[0]).numpy() for chain in chains]
    rows = ("holding", "mixing_beta")
    whole, alone = found
    return xr.Dataset(
        {
            "mixing_constant": (rows, whole[:, :-1]),
            "mixing_independent": (rows, alone[:, :-1]),
            "mixing_exact": (rows, np.stack(exact) * length),
            "mixing_time": ("holding", [chain.relaxation_time for chain in chains]),
            "mixing_ngram_ratio": whole[-1, -1] / alone[-1, -1],
        },
        coords={"holding": list(config.holdings), "mixing_beta": list(config.mixing_betas)},
    )


def affine_gap(config: DependentConfig, progress: Progress) -> xr.Dataset:
    """Distance of the limit to the affine read-out and to the row of the query, against β."""
    betas = torch.tensor(config.operator_betas, dtype=F)
    found = []
    for alphabet, order in config.cases:
        chain = random_chain(config, alphabet, order)
        progress(f"limit: {case_name(alphabet, order)}")
        pi, head, law = chain.stationary.flatten(), next_symbol_head(chain), chain.ngrams(order + 1)
        z = matching_query(chain, torch.arange(chain.contexts), betas.unsqueeze(-1))
        matrix, offset = affine_limit(head, law)
        limit = head(law, z)
        parts = (limit - z @ matrix.mT - offset, limit - chain.rows)
        found.append([(part.square().sum(-1) @ pi).sqrt() for part in parts])
    grid = ("case", "operator_beta")
    gaps, rows = (torch.stack(each).numpy() for each in zip(*found, strict=True))
    places = ([case_name(*case) for case in config.cases], list(config.operator_betas))
    return xr.Dataset(
        {"affine_gap": (grid, gaps), "row_distance": (grid, rows)},
        dict(zip(grid, places, strict=True)),
    )


def autocorrelated(config: DependentConfig, progress: Progress) -> xr.Dataset:
    """Drawn AR(1) Gaussian tokens in R² against independent ones of the effective number."""
    from scipy.signal import lfilter

    eye, length = torch.eye(2, dtype=F), config.correlated_length
    attention, mu = SoftmaxAttention(eye, eye), Gaussian(0 * eye[0], eye)
    z = torch.tensor([[math.sqrt(q), 0.0] for q in config.score_variances], dtype=F)
    rows = []
    for i, phi in enumerate(config.correlations):
        progress(f"autocorrelated tokens, {phi:g}")
        effective = effective_length(attention, mu, z, length, phi)
        whole = effective.round().clamp_min(1).int().tolist()
        each = zip(z, whole, strict=True)
        predicted = [float(finite_prompt(attention, mu, one, count).mse) for one, count in each]
        random, parts = np.random.default_rng([config.seed, i]), []
        for first in range(0, config.correlated_replicas, 50):
            count = min(50, config.correlated_replicas - first)
            noise = random.standard_normal((count, length, 2))
            noise[:, 1:] *= math.sqrt(1 - phi**2)
            tokens = torch.from_numpy(lfilter([1.0], [1.0, -phi], noise, axis=1)).unsqueeze(1)
            parts.append((attention(Empirical(tokens), z) - z).square().sum(-1))
        squared = torch.cat(parts)  # (replica, query)
        error = squared.std(0) / math.sqrt(len(squared))
        rows.append((effective.numpy(), predicted, squared.mean(0).numpy(), error.numpy()))
    names = ("effective", "correlated_predicted", "correlated_drawn", "correlated_error")
    grid = ("correlation", "score_variance")
    data = {
        name: (grid, np.stack(values))
        for name, values in zip(names, zip(*rows, strict=True), strict=True)
    }
    alone = finite_prompt(attention, mu, z, length).mse.numpy()
    return xr.Dataset(
        {**data, "correlated_independent": ("score_variance", alone)},
        coords={
            "correlation": list(config.correlations),
            "score_variance": list(config.score_variances),
            "correlated_length": length,
        },
    )
