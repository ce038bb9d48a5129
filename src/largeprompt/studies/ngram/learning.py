"""Training of the tilt strength, and its risk beside the empirical n-gram, additive smoothing and
the posterior mean.
"""

import dataclasses
import math
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.polynomial import Chebyshev
from numpy.typing import NDArray
from torch import Tensor

from largeprompt.measures import MarkovChain, sample_chains
from largeprompt.runs.study import Progress
from largeprompt.studies.ngram import task
from largeprompt.studies.ngram.config import NgramConfig

Array = NDArray[np.float64]
# of the polynomial in β, for each unit of β: the risk is analytic for |Im β| < π, the error below
# 1e-10
DEGREE = 4.5
NGRAM = 25.0  # β at which the head is the empirical n-gram to ten digits
PREDICTORS = ("attention", "n-gram", "add one half", "add one", "posterior mean")
PATHS = 1000


@dataclasses.dataclass(frozen=True, eq=False)
class Prompts(task.MatchingRisk):
    """Drawn prompts, with variables of mean zero that carry most of the noise of a difference
    between two risks.

    With S the counts after the query less their expectation (martingale differences) and p the
    unigram: S·p and S·P(q,·), over L(π + a/L)², less their means, which are not 0 because the path
    ends in q. The noise of a difference falls like L^-3/2, the difference itself like L^-2; without
    these the noise wins.
    """

    controls: Tensor  # (i, 2)


def _pull(chain: MarkovChain) -> Tensor:
    """E[S·p | end] and E[S·P(q,·) | end], up to what the past has forgotten: Σ_{k>=1} Cov(s_0, 1[q
    at k])/π, shape (context, 2).
    """
    pi, n, m = chain.stationary.flatten(), chain.contexts, chain.alphabet
    hot = torch.eye(n, dtype=pi.dtype)
    step = (torch.eye(m, dtype=pi.dtype) - chain.rows.unsqueeze(1)).mT  # (query, j, next)
    s = (hot[:, None, :, None] * step.unsqueeze(2)).flatten(2)  # (query, j, window)
    pull = chain.lagged_covariance(s, hot.unsqueeze(1)).squeeze(-1) / pi.unsqueeze(-1)  # (query, j)
    return torch.einsum("qm,qmk->qk", pull, _against(chain))


def _against(chain: MarkovChain) -> Tensor:
    """Unigram and row, shape (context, m, 2)."""
    return torch.stack([chain.ngram_law(1).expand_as(chain.rows), chain.rows], -1)


def drawn(
    chains: list[MarkovChain],
    lengths: tuple[int, ...],
    replicas: int,
    pseudo_count: float,
    generator: torch.Generator,
) -> list[Prompts]:
    """Prompts of every length, prefixes of the same paths, the final context as query; replicas of
    a chain lie side by side.
    """
    # shares, targets, controls of each chain
    parts: list[list[tuple[Tensor, ...]]] = [[] for _ in lengths]
    together = max(1, PATHS // replicas)
    for first in range(0, len(chains), together):
        some = chains[first : first + together]
        paths = sample_chains(some, max(lengths) + some[0].order, replicas, generator)
        for chain, symbols in zip(some, paths, strict=True):
            against, pull, pi = _against(chain), _pull(chain), chain.stationary.flatten()
            for part, length in zip(parts, lengths, strict=True):
                found, asked = task.drawn_shares(chain, symbols, length)
                # S/L
                excess = found[:, -1] - found[:, -1].sum(-1, keepdim=True) * chain.rows[asked]
                centred = torch.einsum("im,imk->ik", excess, against[asked]) - pull[asked] / length
                controls = centred / (pi[asked] + pseudo_count / length).square().unsqueeze(-1)
                part.append((found, chain.rows[asked], controls))
    count = len(chains) * replicas
    weights = torch.full((count,), 1 / count, dtype=torch.float64)
    joined = [[torch.cat(each) for each in zip(*part, strict=True)] for part in parts]
    return [Prompts(shares, targets, weights, controls) for shares, targets, controls in joined]


def training(config: NgramConfig, order: int, progress: Progress) -> xr.Dataset:
    """The flow of β: infinite prompts, exact risk of each length (order one), drawn prompts; and
    the optimum of each length.
    """
    generator = torch.Generator().manual_seed(1000 * config.seed + 700 + order)
    alphabet = config.training_alphabets[order - 1]
    chains = [
        MarkovChain.random(alphabet, order, config.concentration, generator)
        for _ in range(config.training_chains)
    ]
    lengths = config.training_lengths
    progress(f"training, order {order}: predictions")
    expansion, infinite = task.matching_expansion(chains), task.MatchingRisk.infinite(chains)
    times = np.unique([0.0, config.tube_until, *np.geomspace(1e-2, config.until, config.times)])
    limit = task.flow(infinite.gradient, 0.0, times)
    data: dict[str, Any] = {
        "beta_infinite": ("time", limit),
        "beta_infinite_predicted": ("time", np.append(np.nan, expansion.infinite_flow(times[1:]))),
        "best_beta_predicted": ("training_length", expansion.best_beta(lengths)),
        "crossover": ("training_length", [expansion.crossover(length) for length in lengths]),
        "pseudo_count": expansion.pseudo_count,
        "curvature": expansion.curvature,
    }
    rows = ("training_length", "time")
    highest = float(expansion.best_beta(max(lengths))) + 3.0
    degree = math.ceil(DEGREE * highest)
    nodes = highest / 2 * (1 + np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1)))

    def curve(values: Array) -> Chebyshev:
        return Chebyshev.fit(nodes, values, degree, [0.0, highest])

    early = times <= config.tube_until
    rate = curve(task.first_order_matching_risk(chains, nodes).numpy()).deriv()
    shift = np.full(len(times), np.nan)
    shift[early] = _first_order(infinite, rate, times[early])
    data["first_order_shift"] = ("time", shift)
    if order == 1:
        progress("training: exact risk of every length")
        risk = task.exact_matching_risk(chains, [*nodes, NGRAM], lengths).numpy()
        slopes = [curve(one).deriv() for one in risk[:, :-1]]
        data["beta_exact"] = (rows, np.stack([_path(slope, times) for slope in slopes]))
        optima = [task.first_root(slope, np.linspace(0.0, highest, 201)) for slope in slopes]
        data["best_beta_exact"] = ("training_length", optima)
        least = [curve(one)(beta) for one, beta in zip(risk[:, :-1], optima, strict=True)]
        data["ngram_risk_exact"] = ("training_length", risk[:, -1])
        data["saved_exact"] = ("training_length", risk[:, -1] - np.array(least))
        data["saved_exact_predicted"] = ("training_length", expansion.best_gain(lengths))
    progress(f"training, order {order}: drawn prompts")
    prompts = drawn(chains, lengths, config.training_replicas, expansion.pseudo_count, generator)
    best = np.array([one.optimum() for one in prompts])
    data["best_beta"] = ("training_length", best[:, 0])
    data["best_beta_standard_error"] = ("training_length", best[:, 1])
    paths, spread = [], []
    for one in prompts:
        slope = torch.stack([one.terms(float(node))[1] for node in nodes]).numpy()  # (node, prompt)
        parts = [
            _path(curve(slope[:, first :: config.batches].mean(1)), times)
            for first in range(config.batches)
        ]
        paths.append(_path(curve(slope.mean(1)), times))
        spread.append(np.std(parts, axis=0, ddof=1) / math.sqrt(config.batches))
    data["beta_drawn"] = (rows, np.stack(paths))
    data["beta_drawn_standard_error"] = (rows, np.stack(spread))
    return xr.Dataset(data, coords={"training_length": list(lengths), "time": times}).expand_dims(
        training_order=[order]
    )


def _path(slope: Chebyshev, times: Array) -> Array:
    """Flow on an interpolated risk; past its domain, where a small batch may lead, the slope stays
    as at its end.
    """
    return task.flow(lambda beta: float(slope(min(beta, slope.domain[1]))), 0.0, times)


def _first_order(infinite: task.MatchingRisk, rate: Chebyshev, times: Array) -> Array:
    """L(β_L - β_∞) as L → ∞ at fixed times: with R_L ≈ R + r/L, δ' = -R''(β_∞) δ - r'(β_∞), along
    the infinite-prompt flow.
    """

    def slope(time: float, state: Array) -> list[float]:
        _, first, second = infinite.terms(float(state[0]))
        return [
            -float(first @ infinite.weights),
            -float(second @ infinite.weights) * float(state[1]) - float(rate(state[0])),
        ]

    return np.asarray(task.integrated(slope, [0.0, 0.0], times)[1])


def risks(config: NgramConfig, concentration: float, progress: Progress) -> xr.Dataset:
    """Chains from the Dirichlet prior: risk of every predictor at every length, β fixed beforehand
    by the expansion.
    """
    generator = torch.Generator().manual_seed(
        1000 * config.seed + 800 + config.risk_concentrations.index(concentration)
    )
    m, lengths = config.risk_alphabet, config.risk_lengths
    progress(f"risks, concentration {concentration:g}: predictions")
    chains = [MarkovChain.random(m, 1, concentration, generator) for _ in range(config.risk_chains)]
    expansion = task.matching_expansion(chains)
    betas = np.asarray(config.risk_betas)
    limit = torch.cat([task.limit_shares(chain) for chain in chains])
    rows = torch.cat([chain.rows for chain in chains])
    share = torch.cat([chain.stationary for chain in chains]) / len(chains)
    far = [task.attend(limit, float(beta)) for beta in betas]
    distance = {
        "tv": [float(share @ _tv(each, rows)) for each in far],
        "kl": [float(share @ _kl(rows, each)) for each in far],
        "infinite_risk": [float(share @ _squared(each, rows)) / 2 for each in far],
    }
    chosen = expansion.best_beta(lengths)
    progress(f"risks, concentration {concentration:g}: paths")
    prompts = drawn(chains, lengths, config.risk_replicas, expansion.pseudo_count, generator)
    found: dict[str, list[Any]] = {
        name: [] for name in ("risk", "tv_drawn", "kl_drawn", "predictor_risk", "saved")
    }
    for length, one, best in zip(lengths, prompts, chosen, strict=True):
        ngram, counts = task.attend(one.shares, math.inf), one.shares[:, -1] * length
        smoothed = [
            (counts + c) / (counts.sum(-1, keepdim=True) + m * c) for c in (0.5, 1.0, concentration)
        ]
        errors = [
            _squared(each, one.targets) / 2
            for each in (task.attend(one.shares, float(best)), ngram, *smoothed)
        ]
        saved = [
            _adjusted(errors[PREDICTORS.index("n-gram")] - each, one.controls) for each in errors
        ]
        at = [task.attend(one.shares, float(beta)) for beta in betas]
        off = [_squared(each, one.targets) / 2 for each in at]
        columns = (
            off,
            [_tv(each, ngram) for each in at],
            [_kl(ngram, each) for each in at],
            errors,
            saved,
        )
        for name, values in zip(found, columns, strict=True):
            found[name].append([_mean(each, config) for each in values])
    data: dict[str, Any] = {name: ("risk_beta", values) for name, values in distance.items()}
    for name, pairs in found.items():
        dims = ("risk_length", "predictor" if name in ("predictor_risk", "saved") else "risk_beta")
        mean, error = np.moveaxis(np.array(pairs), -1, 0)
        data |= {name: (dims, mean), f"{name}_standard_error": (dims, error)}
    optima = np.array([one.optimum() for one in prompts])
    data |= {
        "saved_predicted": ("risk_length", expansion.best_gain(lengths)),
        "chosen_beta": ("risk_length", chosen),
        "risk_best_beta": ("risk_length", optima[:, 0]),
        "risk_best_beta_standard_error": ("risk_length", optima[:, 1]),
        "risk_pseudo_count": expansion.pseudo_count,
    }
    coords = {"risk_length": list(lengths), "risk_beta": betas, "predictor": list(PREDICTORS)}
    return xr.Dataset(data, coords=coords).expand_dims(concentration=[concentration])


def _mean(values: Tensor, config: NgramConfig) -> tuple[float, float]:
    """Mean over prompts and its standard error over these chains, which the prompts of a chain
    share.
    """
    within = values.reshape(-1, config.risk_replicas)
    return float(values.mean()), float((within.var(1, correction=1).mean() / values.numel()).sqrt())


def _adjusted(values: Tensor, controls: Tensor) -> Tensor:
    """Values less the part that controls of mean zero explain, by least squares; their mean keeps
    its expectation up to 1/n.
    """
    design = torch.cat([torch.ones_like(controls[:, :1]), controls], -1)
    slopes: Tensor = torch.linalg.lstsq(design, values.unsqueeze(-1)).solution[1:, 0]
    return values - controls @ slopes


def _squared(p: Tensor, q: Tensor) -> Tensor:
    """‖p - q‖²."""
    return (p - q).square().sum(-1)


def _tv(p: Tensor, q: Tensor) -> Tensor:
    """½ Σ|p - q|."""
    return (p - q).abs().sum(-1) / 2


def _kl(p: Tensor, q: Tensor) -> Tensor:
    """Σ p ln(p/q), finite where q is positive on the support of p."""
    return torch.where(
        p > 0, p * torch.log(torch.where(p > 0, p, 1.0) / torch.where(p > 0, q, 1.0)), 0.0
    ).sum(-1)
