"""Training the strength β of a match at order one, on infinite prompts and at each length.

The limit is a gate between the unigram p and the row of the query, T = (1 - κ)p + κP(q, ·) with
κ = (e^β - 1)π_q/(1 + (e^β - 1)π_q). The loss is ½‖T - P(q, ·)‖², averaged over final contexts.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xarray as xr
from numpy.polynomial import Chebyshev
from numpy.typing import NDArray
from torch import Tensor

from largeprompt.measures import MarkovChain
from largeprompt.runs.study import Progress
from largeprompt.studies.dependent.paths import NGRAM_BETA, matching_query, path_error

if TYPE_CHECKING:
    from largeprompt.studies.dependent.study import DependentConfig

Array = NDArray[np.float64]
# of the polynomial in β, for each unit of β: the risk is analytic for |Im β| < π, the error below
# 1e-10
DEGREE = 4.5


def infinite_gradient(chains: Sequence[MarkovChain]) -> Callable[[float], float]:
    """dR/dβ for infinite prompts, R = ½ Σ_q π_q ‖p - P(q, ·)‖²/(1 + (e^β - 1)π_q)²."""
    pi = torch.stack([chain.stationary for chain in chains]).numpy()
    away = torch.stack([chain.ngram_law(1) - chain.rows for chain in chains]).square().sum(-1)
    weight = pi**2 * away.numpy() / len(chains)

    def gradient(beta: float) -> float:
        return -float((weight * math.exp(beta) / (1 + pi * math.expm1(beta)) ** 3).sum())

    return gradient


@dataclasses.dataclass(frozen=True)
class MatchingExpansion:
    """Near β = ∞, in ε = 1/(e^β - 1): R_L ≈ R_L(∞) - B ε/L + A ε²/2, averaged over chains.

    ``curvature`` is A = Σ_q ‖p - P(q, ·)‖²/π_q, and ``gain`` is B: what a little smoothing takes
    off the variance, correlations along the path and with the final context included.
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

    def crossover(self, length: Any) -> Array:
        """Time at which the infinite-prompt flow passes β*(L): (L/a*)²/(2A)."""
        longer = np.asarray(length, dtype=np.float64) / self.pseudo_count
        return np.asarray(longer**2 / (2 * self.curvature))


def matching_expansion(chains: Sequence[MarkovChain]) -> MatchingExpansion:
    """A and B of :class:`MatchingExpansion`, through long-run covariances.

    With S = N_q(·) - N_q P_q, Y = X - L P_q, X the counts of symbols, and the path ending in q,
    -B/L = E[(S/N_q²)·(Y - L S/N_q)] to order 1/L.
    """
    curvature = gain = 0.0
    for chain in chains:
        pi, rows = chain.stationary, chain.rows
        hot = torch.eye(chain.alphabet, dtype=rows.dtype)
        for q, weight in enumerate(pi.tolist()):
            step = (hot - rows[q]).mT.unsqueeze(1)  # (j, 1, next)
            s = (step * hot[q].unsqueeze(-1)).flatten(1)
            y = step.expand(-1, chain.alphabet, -1).flatten(1)
            mean = y @ chain.ngram_law(2).flatten()
            visit = hot[q].unsqueeze(0)
            together = float(chain.long_run_covariance(s, y).diagonal().sum()) / weight**2
            visits = float(chain.long_run_covariance(s, visit)[:, 0] @ mean) / weight**3
            final = float(chain.lagged_covariance(s, visit)[:, 0] @ mean) / weight**3
            noise = float(1 - rows[q].square().sum()) / weight**2
            gain -= weight * (together - 2 * visits + final - noise) / len(chains)
            curvature += float(mean.square().sum()) / weight / len(chains)
    return MatchingExpansion(curvature, gain)


def exact_matching_risk(
    chains: Sequence[MarkovChain], betas: Any, lengths: Sequence[int]
) -> Tensor:
    """Population risk over prompts whose last context is the query, exactly: shape (length, β)."""
    betas = torch.as_tensor(betas, dtype=torch.float64)
    total = torch.zeros(len(lengths), len(betas), dtype=torch.float64)
    for chain in chains:
        query = torch.arange(chain.contexts).unsqueeze(-1)
        z, target = matching_query(chain, query, betas), chain.rows.unsqueeze(1)
        error = path_error(chain, z, lengths, center=target, ending=query)
        total += torch.einsum("lqb,q->lb", error, chain.stationary.flatten()) / 2
    return total / len(chains)


def flow(gradient: Callable[[float], float], times: Array) -> Array:
    """β(t) with β' = -R'(β) and β(0) = 0; the first time may be 0."""
    from scipy.integrate import solve_ivp

    slope = lambda _, state: [-gradient(float(state[0]))]  # noqa: E731
    ends = (0.0, float(times[-1]))
    found = solve_ivp(slope, ends, [0.0], "LSODA", times, rtol=1e-9, atol=1e-11)
    if not found.success:
        raise ArithmeticError(f"the flow stopped: {found.message}")
    return np.asarray(found.y[0], dtype=np.float64)


def training(config: DependentConfig, progress: Progress) -> xr.Dataset:
    """The flow of β on infinite prompts and on the exact risk of each length, and its optimum."""
    from scipy.optimize import brentq

    generator = torch.Generator().manual_seed(1000 * config.seed + 701)
    chains = [
        MarkovChain.random(config.training_alphabet, 1, config.concentration, generator)
        for _ in range(config.training_chains)
    ]
    lengths, expansion = config.training_lengths, matching_expansion(chains)
    times = np.unique([0.0, config.tube_until, *np.geomspace(1e-2, config.until, config.times)])
    highest = float(expansion.best_beta(max(lengths))) + 3.0
    degree = math.ceil(DEGREE * highest)
    nodes = highest / 2 * (1 + np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1)))
    progress("training: exact risk of every length")
    risk = exact_matching_risk(chains, [*nodes, NGRAM_BETA], lengths).numpy()
    curves = [Chebyshev.fit(nodes, one, degree, [0.0, highest]) for one in risk[:, :-1]]
    grid = np.linspace(0.0, highest, 201)
    flows, optima = [], []
    for curve in curves:
        derivative = curve.deriv()

        def slope(beta: float, of: Chebyshev = derivative) -> float:
            return float(of(min(beta, highest)))

        flows.append(flow(slope, times))
        rising = int(np.flatnonzero(derivative(grid) > 0)[0])
        low, high = float(grid[max(rising - 1, 0)]), float(grid[rising])
        optima.append(float(brentq(slope, low, high, xtol=1e-12)) if rising else 0.0)
    least = [curve(beta) for curve, beta in zip(curves, optima, strict=True)]
    predicted = np.append(np.nan, expansion.infinite_flow(times[1:]))
    by_length = {
        "best_beta_predicted": expansion.best_beta(lengths),
        "best_beta_exact": optima,
        "crossover": expansion.crossover(lengths),
        "ngram_risk_exact": risk[:, -1],
        "saved_exact": risk[:, -1] - np.array(least),
        "saved_exact_predicted": expansion.best_gain(lengths),
    }
    return xr.Dataset(
        {
            "beta_infinite": ("time", flow(infinite_gradient(chains), times)),
            "beta_infinite_predicted": ("time", predicted),
            "beta_exact": (("training_length", "time"), np.stack(flows)),
            **{name: ("training_length", values) for name, values in by_length.items()},
            "pseudo_count": expansion.pseudo_count,
            "curvature": expansion.curvature,
            "tube_until": config.tube_until,
        },
        coords={"training_length": list(lengths), "time": times},
    )
