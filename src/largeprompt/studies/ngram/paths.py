"""Dependent tokens: attention over drawn paths of Markov chains against its limit, its exact law
and its first order.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from largeprompt.attention import SoftmaxAttention, affine_limit
from largeprompt.law import finite_prompt
from largeprompt.measures import Gaussian, MarkovChain
from largeprompt.runs.study import Progress
from largeprompt.sampling import sample_prompts
from largeprompt.studies.ngram.config import NgramConfig, case_name
from largeprompt.studies.ngram.exact import chain_error, chain_expansion
from largeprompt.studies.ngram.task import (
    attend,
    drawn_shares,
    limit_shares,
    matching_query,
    next_symbol_head,
    skip_gram_mixture,
)

Array = NDArray[np.float64]
QUERIES = ("likeliest", "rarest", "last")
SOURCES = ("chain", "independent tokens", "independent symbols", "Gaussian tokens")
PATHS = 1000  # drawn at once
# lengths from 40 max(ρ, relaxation time) on enter the extrapolation; what is left beyond 1/L is of
# order 1/40²
SLACK = 40.0


def chunks(
    config: NgramConfig, chain: MarkovChain, generator: torch.Generator, replicas: int
) -> Iterator[Tensor]:
    """Paths of the longest length, some at a time."""
    for first in range(0, replicas, PATHS):
        yield chain.sample(
            max(config.lengths) + chain.order, min(PATHS, replicas - first), generator
        )


def extrapolation(lengths: Sequence[int], shortest: float) -> Array:
    """Weights a_L with Σ a_L L·mse(L) = C where L·mse = C + D/L: least squares over L >=
    ``shortest``; NaN for fewer than three.

    They are fixed before data is drawn, and applied to each path, so that the standard error counts
    the nesting of lengths.
    """
    used = np.asarray(lengths, dtype=np.float64) >= shortest
    weights = np.zeros(len(lengths))
    if used.sum() < 3:
        return np.full(len(lengths), np.nan)
    at = np.asarray(lengths, dtype=np.float64)[used]
    weights[used] = np.linalg.pinv(np.column_stack([np.ones_like(at), 1 / at]))[0]
    return weights


def summary(squared: Array, lengths: Sequence[int], shortest: Array) -> dict[str, Array]:
    """Mean and standard error over paths, and the extrapolated constant: squared (..., length,
    path), shortest (...).
    """
    root = math.sqrt(squared.shape[-1])
    scaled = squared * np.asarray(lengths, dtype=np.float64)[:, None]
    weights = np.stack([extrapolation(lengths, one) for one in shortest.ravel()]).reshape(
        *shortest.shape, len(lengths)
    )
    constant = np.einsum("...lp,...l->...p", scaled, weights)
    return {
        "mse": squared.mean(-1),
        "mse_standard_error": squared.std(-1, ddof=1) / root,
        "extrapolated": constant.mean(-1),
        "extrapolated_standard_error": constant.std(-1, ddof=1) / root,
    }


def convergence(config: NgramConfig, alphabet: int, order: int, progress: Progress) -> xr.Dataset:
    """One chain: predicted constant and exact law for three queries, then paths."""
    generator = torch.Generator().manual_seed(
        1000 * config.seed + config.cases.index((alphabet, order))
    )
    chain = MarkovChain.random(alphabet, order, config.concentration, generator)
    name = case_name(alphabet, order)
    progress(f"{name}: predictions")
    betas, pi = torch.tensor(config.betas, dtype=torch.float64), chain.stationary.flatten()
    fixed = torch.stack([pi.argmax(), pi.argmin()])
    found = _constants(chain, betas)
    # (β, query) each
    constant, independent, rho = torch.cat(
        [found[:, fixed], (pi @ found).unsqueeze(1)], 1
    ).mT.numpy()
    exact = np.full((len(betas), len(QUERIES), len(config.lengths)), np.nan)
    if chain.contexts <= config.exact_contexts:
        z = matching_query(chain, fixed.unsqueeze(-1), betas)
        exact[:, :2] = np.einsum(
            "lqb->bql", chain_error(next_symbol_head(chain), chain, z, config.lengths).numpy()
        )
    if chain.contexts <= config.exact_queries:
        exact[:, 2] = _exact_last(chain, betas, config.lengths)
    progress(f"{name}: paths")
    limits = attend(limit_shares(chain), betas.unsqueeze(-1))  # (β, context, m)
    squared = []
    for symbols in chunks(config, chain, generator, config.replicas):
        part = torch.empty(
            len(betas), len(QUERIES), len(config.lengths), len(symbols), dtype=torch.float64
        )
        for i, query in enumerate([*fixed, None]):
            for j, length in enumerate(config.lengths):
                shares, asked = drawn_shares(chain, symbols, length, query)
                part[:, i, j] = (
                    (attend(shares, betas.unsqueeze(-1)) - limits[:, asked]).square().sum(-1)
                )
        squared.append(part)
    shortest = SLACK * np.maximum(rho, chain.relaxation_time)
    dims = ("beta", "query", "length")
    drawn = summary(torch.cat(squared, -1).numpy(), config.lengths, shortest)
    return xr.Dataset(
        {
            "exact": (dims, exact),
            "constant": (dims[:2], constant),
            "independent_constant": (dims[:2], independent),
            "rho": (dims[:2], rho),
            "shortest": (dims[:2], shortest),
            "relaxation_time": chain.relaxation_time,
            "alphabet": alphabet,
            "order": order,
            **{key: (dims[: value.ndim], value) for key, value in drawn.items()},
        },
        coords={"beta": list(config.betas), "query": list(QUERIES), "length": list(config.lengths)},
    )


def _constants(chain: MarkovChain, betas: Tensor) -> Tensor:
    """C, C of independent tokens and ρ for every query and β, shape (3, query, β): few queries at a
    time, to save memory.
    """
    head, parts = next_symbol_head(chain), []
    for query in torch.arange(chain.contexts).split(16):
        found = chain_expansion(head, chain, matching_query(chain, query.unsqueeze(-1), betas))
        parts.append(torch.stack([found.constant, found.independent_constant, found.rho]))
    return torch.cat(parts, 1)


def _exact_last(chain: MarkovChain, betas: Tensor, lengths: Sequence[int]) -> Array:
    """E‖T_L - T‖² with the context at the end of the path as query, shape (β, length)."""
    query = torch.arange(chain.contexts).unsqueeze(-1)
    z = matching_query(chain, query, betas)
    error = chain_error(
        next_symbol_head(chain), chain, z, lengths, ending=query.expand(-1, len(betas))
    )
    return np.asarray(torch.einsum("lqb,q->bl", error, chain.stationary.flatten()).numpy())


def mixing(config: NgramConfig, progress: Progress) -> xr.Dataset:
    """One chain made ever slower, P = (1 - h) P₀ + h I: the constant against the relaxation time,
    paths at the longest length.
    """
    generator = torch.Generator().manual_seed(1000 * config.seed + 500)
    base = MarkovChain.random(config.mixing_alphabet, 1, config.concentration, generator)
    betas = torch.tensor(config.mixing_betas, dtype=torch.float64)
    dense = 1 - np.geomspace(1.0, 0.01, 41)
    pi, length = base.stationary, max(config.lengths)  # the law is the same for all
    curves, slow = (
        [base.lazy(float(h)) for h in holdings] for holdings in (dense, config.holdings)
    )
    every = (
        np.stack([(pi @ _constants(chain, betas)).numpy() for chain in chains], 1)
        for chains in (curves, slow)
    )
    (curve, curve_alone, _), (at, alone, _) = every
    exact = np.stack([_exact_last(chain, betas, [length])[:, 0] for chain in slow])
    far = chain_expansion(
        next_symbol_head(base), slow[-1], matching_query(base, torch.arange(base.contexts), 30.0)
    )
    mse, error = np.empty(exact.shape), np.empty(exact.shape)
    for i, chain in enumerate(slow):
        progress(f"relaxation time {chain.relaxation_time:.3g}")
        limits, squared = attend(limit_shares(chain), betas.unsqueeze(-1)), []
        for symbols in chunks(config, chain, generator, config.mixing_replicas):
            shares, asked = drawn_shares(chain, symbols, length)
            squared.append(
                (attend(shares, betas.unsqueeze(-1)) - limits[:, asked]).square().sum(-1)
            )
        drawn = torch.cat(squared, -1)
        mse[i], error[i] = drawn.mean(-1), drawn.std(-1, correction=1) / math.sqrt(drawn.shape[-1])
    rows = ("holding", "mixing_beta")
    return xr.Dataset(
        {
            "mixing_curve": (("curve", "mixing_beta"), curve),
            "mixing_curve_independent": (("curve", "mixing_beta"), curve_alone),
            "mixing_curve_time": ("curve", [chain.relaxation_time for chain in curves]),
            "mixing_constant": (rows, at),
            "mixing_independent": (rows, alone),
            "mixing_exact": (rows, exact * length),
            "mixing_drawn": (rows, mse * length),
            "mixing_standard_error": (rows, error * length),
            "mixing_time": ("holding", [chain.relaxation_time for chain in slow]),
            "mixing_ngram_ratio": float((far.constant @ pi) / (far.independent_constant @ pi)),
        },
        coords={"holding": list(config.holdings), "mixing_beta": list(config.mixing_betas)},
    )


def controls(config: NgramConfig, progress: Progress) -> xr.Dataset:
    """One chain beside independent tokens of the same law, independent symbols, Gaussian tokens,
    and its own shuffled symbols.
    """
    generator = torch.Generator().manual_seed(1000 * config.seed + 600)
    chain = MarkovChain.random(config.mixing_alphabet, 1, config.concentration, generator)
    beta, lengths, replicas = config.control_beta, list(config.lengths), config.control_replicas
    q = chain.stationary.argmax()
    head, z, z2 = (
        next_symbol_head(chain),
        matching_query(chain, q, beta),
        torch.tensor([1.0, 0.5, 0.0, 0.0], dtype=torch.float64),
    )
    eye = torch.eye(4, dtype=torch.float64)
    gaussian, layer = Gaussian(torch.zeros(4, dtype=torch.float64), eye), SoftmaxAttention(eye, eye)
    law, alike = chain.ngrams(2), chain.independent()
    matrix, offset = affine_limit(head, law)
    limit, affine = head(law, z), matrix @ z + offset
    base = [
        finite_prompt(head, law, z, 1, expansion=True),
        finite_prompt(layer, gaussian, z2, 1, expansion=True),
    ]
    whole, apart = chain_expansion(head, chain, z), chain_expansion(head, alike, z)
    constant = [whole.constant, base[0].mse, apart.constant, base[1].mse]
    along, single = (chain_error(head, source, z, lengths) for source in (chain, alike))
    exact = [
        along,
        torch.full_like(along, math.nan),
        single,
        finite_prompt(layer, gaussian, z2, lengths).mse,
    ]
    rho = [whole.rho, whole.rho, apart.rho, torch.exp(z2 @ z2)]
    to_affine = chain_error(head, chain, z, lengths, center=affine)
    progress("controls: paths")
    squared: dict[str, list[Tensor]] = {
        "chain": [],
        "affine": [],
        "shuffled": [],
        "independent symbols": [],
    }
    centre = head(alike.ngrams(2), z)

    def compare(source: MarkovChain, symbols: Tensor, **centres: Tensor) -> None:
        at = torch.stack(
            [attend(drawn_shares(source, symbols, length, q)[0], beta) for length in lengths]
        )
        for key, other in centres.items():
            squared[key.replace("_", " ")].append((at - other).square().sum(-1))

    for symbols in chunks(config, chain, generator, replicas):
        compare(chain, symbols, chain=limit, affine=affine)
        order = torch.rand(symbols.shape, generator=generator).argsort(-1)
        compare(chain, symbols.gather(1, order), shuffled=limit)
    for symbols in chunks(config, alike, generator, replicas):
        compare(alike, symbols, independent_symbols=centre)
    found = {key: torch.cat(value, -1) for key, value in squared.items()}
    for key, mu, layer_, query in (
        ("independent tokens", law, head, z),
        ("Gaussian tokens", gaussian, layer, z2),
    ):
        drawn = sample_prompts(layer_, mu, query, lengths, replicas, generator)
        found[key] = (drawn.outputs - layer_(mu, query)).square().sum(-1)
    shortest = SLACK * np.array(
        [max(float(each), chain.relaxation_time if i == 0 else 1.0) for i, each in enumerate(rho)]
    )
    result = summary(torch.stack([found[key] for key in SOURCES]).numpy(), lengths, shortest)
    data: dict[str, Any] = {
        f"control_{key}": (("source", "length")[: value.ndim], value)
        for key, value in result.items()
    }
    data |= {
        "control_exact": (("source", "length"), torch.stack(exact).numpy()),
        "control_constant": ("source", [float(each) for each in constant]),
        "independent_symbols_gap": float(
            abs(apart.constant / finite_prompt(head, alike.ngrams(2), z, 1, expansion=True).mse - 1)
        ),
        "affine_exact": ("length", to_affine.numpy()),
        "affine_level": float((limit - affine).square().sum()),
        "shuffled_level": float((limit - centre).square().sum()),
    }
    for key in ("affine", "shuffled"):
        data[f"{key}_mse"] = ("length", found[key].mean(-1).numpy())
        data[f"{key}_standard_error"] = (
            "length",
            (found[key].std(-1, correction=1) / math.sqrt(replicas)).numpy(),
        )
    return xr.Dataset(data, coords={"source": list(SOURCES), "length": lengths})


def operator(config: NgramConfig, progress: Progress) -> xr.Dataset:
    """The limit against β, all from the law: mixture identity, e^-β law, gap to the affine read-out
    and to its best multiple.
    """
    betas = np.asarray(config.operator_betas)
    names = (
        "identity_error",
        "row_distance",
        "row_leading",
        "affine_gap",
        "best_scaled_gap",
        "affine_outside",
        "unigram_distance",
    )
    found = {name: np.empty((len(config.cases), len(betas))) for name in names}
    closed = 0.0
    for i, (alphabet, order) in enumerate(config.cases):
        progress(f"limit operator: {case_name(alphabet, order)}")
        generator = torch.Generator().manual_seed(1000 * config.seed + i)
        # that of the convergence cell
        chain = MarkovChain.random(alphabet, order, config.concentration, generator)
        pi, head, law = chain.stationary.flatten(), next_symbol_head(chain), chain.ngrams(order + 1)
        asked = pi.argsort(descending=True)[:: max(1, chain.contexts // config.operator_queries)]
        share = pi[asked] / pi[asked].sum()
        unigram, rows = chain.ngram_law(1), chain.rows[asked]
        matrix, offset = affine_limit(head, law)
        leading = _leading(chain, asked)

        def size(values: Tensor) -> float:
            return math.sqrt(float(share @ values.square().sum(-1)))  # noqa: B023

        for j, beta in enumerate(betas):
            z = matching_query(chain, asked, float(beta))
            limit, affine = head(law, z), z @ matrix.mT + offset
            mixture = torch.stack([skip_gram_mixture(chain, int(q), float(beta)) for q in asked])
            found["identity_error"][i, j] = float((limit - mixture).abs().max())
            found["row_distance"][i, j] = size(limit - rows)
            found["row_leading"][i, j] = size(leading) * math.exp(-beta)
            found["affine_gap"][i, j] = size(limit - affine)
            line, wanted = affine - unigram, limit - unigram
            scale = (share @ (line * wanted).sum(-1)) / (share @ line.square().sum(-1)).clamp_min(
                1e-300
            )
            found["best_scaled_gap"][i, j] = size(wanted - scale * line)
            found["unigram_distance"][i, j] = size(rows - unigram)
            found["affine_outside"][i, j] = float(share @ (affine.amin(-1) < 0).to(share.dtype))
            if order == 1:  # both distances in closed form
                away = (rows - unigram).norm(dim=-1)
                gate = pi[asked] * math.expm1(beta) / (1 + pi[asked] * math.expm1(beta))
                closed = max(
                    closed, float(((limit - rows).norm(dim=-1) - (1 - gate) * away).abs().max())
                )
                closed = max(
                    closed,
                    float(
                        ((limit - affine).norm(dim=-1) - (beta * pi[asked] - gate).abs() * away)
                        .abs()
                        .max()
                    ),
                )
    coords = {"case": [case_name(*case) for case in config.cases], "operator_beta": betas}
    data = xr.Dataset(
        {key: (("case", "operator_beta"), value) for key, value in found.items()}, coords=coords
    )
    return data.assign(closed_form_error=closed)


def _leading(chain: MarkovChain, asked: Tensor) -> Tensor:
    """lim e^β (T - P(·|q)) = Σ_i (π(q₋ᵢ)/π(q))(P(·|q₋ᵢ) - P(·|q)), shape (query, m)."""
    shares = limit_shares(chain)[asked]
    whole = chain.stationary.flatten()[asked].unsqueeze(-1)
    near = shares[:, -2] + chain.order * shares[:, -1]
    return (near - near.sum(-1, keepdim=True) * chain.rows[asked]) / whole
