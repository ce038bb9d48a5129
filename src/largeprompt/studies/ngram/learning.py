"""Training of the tilt strength, and its risk beside the empirical n-gram, additive smoothing and the posterior mean."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xarray as xr
from numpy.polynomial import Chebyshev
from numpy.typing import NDArray
from torch import Tensor

from largeprompt.measures import MarkovChain, sample_chains
from largeprompt.runs.study import Progress
from largeprompt.studies.ngram.task import (
    MatchingRisk,
    attend,
    drawn_shares,
    exact_matching_risk,
    first_order_matching_risk,
    flow,
    limit_shares,
    matching_expansion,
)

if TYPE_CHECKING:
    from largeprompt.studies.ngram.study import NgramConfig

Array = NDArray[np.float64]
DEGREE = 4.5  # of the polynomial in β, for each unit of β: the risk is analytic for |Im β| < π, the error below 1e-10
NGRAM = 25.0  # β at which the head is the empirical n-gram to ten digits
PREDICTORS = ("attention", "n-gram", "add one half", "add one", "posterior mean")
PATHS = 1000


@dataclasses.dataclass(frozen=True, eq=False)
class Prompts(MatchingRisk):
    """Drawn prompts, with variables of mean zero that carry most of the noise of a difference between two risks.

    With S the counts after the query less their expectation (martingale differences) and p the unigram: S·p and S·P(q,·), over
    L(π + a/L)², less their means, which are not 0 because the path ends in q. The noise of a difference falls like L^-3/2, the
    difference itself like L^-2; without these the noise wins.
    """

    controls: Tensor  # (i, 2)


def _pull(chain: MarkovChain) -> Tensor:
    """E[S·p | end] and E[S·P(q,·) | end], up to what the past has forgotten: Σ_{k>=1} Cov(s_0, 1[q at k])/π, shape (context, 2)."""
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
    chains: list[MarkovChain], lengths: tuple[int, ...], replicas: int, pseudo_count: float, generator: torch.Generator
) -> list[Prompts]:
    """Prompts of every length, prefixes of the same paths, the final context as query; replicas of a chain lie side by side."""
    shares: list[list[Tensor]] = [[] for _ in lengths]
    targets: list[list[Tensor]] = [[] for _ in lengths]
    controls: list[list[Tensor]] = [[] for _ in lengths]
    together = max(1, PATHS // replicas)
    for first in range(0, len(chains), together):
        some = chains[first : first + together]
        paths = sample_chains(some, max(lengths) + some[0].order, replicas, generator)
        for chain, symbols in zip(some, paths, strict=True):
            against, pull, pi = _against(chain), _pull(chain), chain.stationary.flatten()
            for i, length in enumerate(lengths):
                found, asked = drawn_shares(chain, symbols, length)
                shares[i].append(found)
                targets[i].append(chain.rows[asked])
                excess = found[:, -1] - found[:, -1].sum(-1, keepdim=True) * chain.rows[asked]  # S/L
                centred = torch.einsum("im,imk->ik", excess, against[asked]) - pull[asked] / length
                controls[i].append(centred / (pi[asked] + pseudo_count / length).square().unsqueeze(-1))
    count = len(chains) * replicas
    weights = torch.full((count,), 1 / count, dtype=torch.float64)
    return [Prompts(torch.cat(s), torch.cat(y), weights, torch.cat(c)) for s, y, c in zip(shares, targets, controls, strict=True)]


def training(config: NgramConfig, order: int, progress: Progress) -> xr.Dataset:
    """The flow of β: infinite prompts, exact risk of each length (order one), drawn prompts; and the optimum of each length."""
    generator = torch.Generator().manual_seed(1000 * config.seed + 700 + order)
    alphabet = config.training_alphabets[order - 1]
    chains = [MarkovChain.random(alphabet, order, config.concentration, generator) for _ in range(config.training_chains)]
    lengths = config.training_lengths
    progress(f"training, order {order}: predictions")
    expansion, infinite = matching_expansion(chains), MatchingRisk.infinite(chains)
    times = np.unique([0.0, config.tube_until, *np.geomspace(1e-2, config.until, config.times)])
    limit = flow(infinite.gradient, 0.0, times)
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
    rate = curve(first_order_matching_risk(chains, nodes).numpy()).deriv()
    shift = np.full(len(times), np.nan)
    shift[early] = _first_order(infinite, rate, times[early])
    data["first_order_shift"] = ("time", shift)
    if order == 1:
        progress("training: exact risk of every length")
        risk = exact_matching_risk(chains, [*nodes, NGRAM], lengths).numpy()
        slopes = [curve(one).deriv() for one in risk[:, :-1]]
        data["beta_exact"] = (rows, np.stack([_path(slope, times) for slope in slopes]))
        data["best_beta_exact"] = ("training_length", [_root(slope) for slope in slopes])
        least = [curve(one)(_root(slope)) for one, slope in zip(risk[:, :-1], slopes, strict=True)]
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
        parts = [_path(curve(slope[:, first :: config.batches].mean(1)), times) for first in range(config.batches)]
        paths.append(_path(curve(slope.mean(1)), times))
        spread.append(np.std(parts, axis=0, ddof=1) / math.sqrt(config.batches))
    data["beta_drawn"] = (rows, np.stack(paths))
    data["beta_drawn_standard_error"] = (rows, np.stack(spread))
    coords = {"training_length": list(lengths), "time": times, "training_order": [order]}
    return xr.Dataset({key: _under(value) for key, value in data.items()}, coords=coords)


def _under(value: Any) -> tuple[tuple[str, ...], Array]:
    """A variable led by the order of the chains."""
    if not isinstance(value, tuple):
        return ("training_order",), np.asarray([value])
    dims = value[0] if isinstance(value[0], tuple) else (value[0],)
    return ("training_order", *dims), np.asarray(value[1])[None]


def _path(slope: Chebyshev, times: Array) -> Array:
    """Flow on an interpolated risk; past its domain, where a small batch may lead, the slope stays as at its end."""
    return flow(lambda beta: float(slope(min(beta, slope.domain[1]))), 0.0, times)


def _root(slope: Chebyshev) -> float:
    """Where the risk stops falling."""
    from scipy.optimize import brentq

    grid = np.linspace(0.0, float(slope.domain[1]), 201)
    rising = int(np.flatnonzero(slope(grid) > 0)[0])
    return float(brentq(slope, grid[rising - 1], grid[rising], xtol=1e-12)) if rising else 0.0


def _first_order(infinite: MatchingRisk, rate: Chebyshev, times: Array) -> Array:
    """L(β_L - β_∞) as L → ∞ at fixed times: with R_L ≈ R + r/L, δ' = -R''(β_∞) δ - r'(β_∞), along the infinite-prompt flow."""
    from scipy.integrate import solve_ivp

    def slope(time: float, state: Array) -> list[float]:
        _, first, second = infinite.terms(float(state[0]))
        return [-float(first @ infinite.weights), -float(second @ infinite.weights) * float(state[1]) - float(rate(state[0]))]

    found = solve_ivp(slope, (0.0, float(times[-1])), [0.0, 0.0], "LSODA", times, rtol=1e-9, atol=1e-11)
    return np.asarray(found.y[1], dtype=np.float64)


def risks(config: NgramConfig, concentration: float, index: int, progress: Progress) -> xr.Dataset:
    """Chains from the Dirichlet prior: risk of every predictor at every length, β fixed beforehand by the expansion."""
    generator = torch.Generator().manual_seed(1000 * config.seed + 800 + index)
    m, lengths = config.risk_alphabet, config.risk_lengths
    progress(f"risks, concentration {concentration:g}: predictions")
    chains = [MarkovChain.random(m, 1, concentration, generator) for _ in range(config.risk_chains)]
    expansion = matching_expansion(chains)
    betas = np.asarray(config.risk_betas)
    limit = torch.cat([limit_shares(chain) for chain in chains])
    rows = torch.cat([chain.rows for chain in chains])
    share = torch.cat([chain.stationary for chain in chains]) / len(chains)
    far = [attend(limit, float(beta)) for beta in betas]
    distance = {
        "tv": [float(share @ _tv(each, rows)) for each in far],
        "kl": [float(share @ _kl(rows, each)) for each in far],
        "infinite_risk": [float(share @ (each - rows).square().sum(-1)) / 2 for each in far],
    }
    chosen = expansion.best_beta(lengths)
    progress(f"risks, concentration {concentration:g}: paths")
    prompts = drawn(chains, lengths, config.risk_replicas, expansion.pseudo_count, generator)
    shape = (len(lengths), len(betas))
    found: dict[str, Array] = {
        key: np.empty(shape)
        for key in ("risk", "risk_standard_error", "tv_drawn", "tv_drawn_standard_error", "kl_drawn", "kl_drawn_standard_error")
    }
    table = np.empty((len(lengths), len(PREDICTORS)))
    table_error, saved, saved_error = np.empty_like(table), np.empty_like(table), np.empty_like(table)
    best = np.array([one.optimum() for one in prompts])
    for i, (length, one) in enumerate(zip(lengths, prompts, strict=True)):
        ngram = attend(one.shares, math.inf)
        counts = one.shares[:, -1] * length
        values = {
            "attention": attend(one.shares, float(chosen[i])),
            "n-gram": ngram,
            "add one half": _smoothed(counts, 0.5),
            "add one": _smoothed(counts, 1.0),
            "posterior mean": _smoothed(counts, concentration),
        }
        errors = {key: (value - one.targets).square().sum(-1) / 2 for key, value in values.items()}
        for k, key in enumerate(PREDICTORS):
            table[i, k], table_error[i, k] = _mean(errors[key], config)
            saved[i, k], saved_error[i, k] = _mean(_adjusted(errors["n-gram"] - errors[key], one.controls), config)
        for j, beta in enumerate(betas):
            here = attend(one.shares, float(beta))
            found["risk"][i, j], found["risk_standard_error"][i, j] = _mean((here - one.targets).square().sum(-1) / 2, config)
            found["tv_drawn"][i, j], found["tv_drawn_standard_error"][i, j] = _mean(_tv(here, ngram), config)
            found["kl_drawn"][i, j], found["kl_drawn_standard_error"][i, j] = _mean(_kl(ngram, here), config)
    grid = ("concentration", "risk_length", "risk_beta")
    data: dict[str, Any] = {key: (grid, value[None]) for key, value in found.items()}
    data |= {key: (("concentration", "risk_beta"), [value]) for key, value in distance.items()}
    each = ("concentration", "risk_length", "predictor")
    data |= {"predictor_risk": (each, table[None]), "predictor_risk_standard_error": (each, table_error[None])}
    data |= {"saved": (each, saved[None]), "saved_standard_error": (each, saved_error[None])}
    line = ("concentration", "risk_length")
    data |= {"saved_predicted": (line, expansion.best_gain(lengths)[None]), "chosen_beta": (line, chosen[None])}
    data |= {"risk_best_beta": (line, best[:, 0][None]), "risk_best_beta_standard_error": (line, best[:, 1][None])}
    data["risk_pseudo_count"] = (("concentration",), [expansion.pseudo_count])
    coords = {"concentration": [concentration], "risk_length": list(lengths), "risk_beta": betas, "predictor": list(PREDICTORS)}
    return xr.Dataset(data, coords=coords)


def _mean(values: Tensor, config: NgramConfig) -> tuple[float, float]:
    """Mean over prompts and its standard error over these chains, which the prompts of a chain share."""
    within = values.reshape(-1, config.risk_replicas)
    return float(values.mean()), float((within.var(1, correction=1).mean() / values.numel()).sqrt())


def _adjusted(values: Tensor, controls: Tensor) -> Tensor:
    """Values less the part that controls of mean zero explain, by least squares; their mean keeps its expectation up to 1/n."""
    design = torch.cat([torch.ones_like(controls[:, :1]), controls], -1)
    slopes: Tensor = torch.linalg.lstsq(design, values.unsqueeze(-1)).solution[1:, 0]
    return values - controls @ slopes


def _smoothed(counts: Tensor, constant: float) -> Tensor:
    """(N_qj + c)/(N_q + m c)."""
    return (counts + constant) / (counts.sum(-1, keepdim=True) + counts.shape[-1] * constant)


def _tv(p: Tensor, q: Tensor) -> Tensor:
    """½ Σ|p - q|."""
    return (p - q).abs().sum(-1) / 2


def _kl(p: Tensor, q: Tensor) -> Tensor:
    """Σ p ln(p/q), finite where q is positive on the support of p."""
    return torch.where(p > 0, p * torch.log(torch.where(p > 0, p, 1.0) / torch.where(p > 0, q, 1.0)), 0.0).sum(-1)
