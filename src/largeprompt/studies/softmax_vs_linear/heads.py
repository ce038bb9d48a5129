"""Several softmax heads against linear attention: exact for tilts along the query, trained on drawn prompts for any matrices."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from largeprompt.law import two_head_overlap, weight_moments
from largeprompt.runs.study import Progress
from largeprompt.studies.covariances import F
from largeprompt.studies.softmax_vs_linear.config import (
    RATIOS,
    SMALL_TILT,
    VERY_SHORT,
    SoftmaxVsLinearConfig,
    one_head,
    relative_excess,
    standard_task,
)
from largeprompt.training import HeadLattice, linear_optimum

Array = NDArray[np.float64]
Layer = Callable[[Tensor], tuple[Tensor, Tensor]]
SPACINGS = {2: (1.0,), 4: (1.0, 0.25), 8: RATIOS}  # tilts of the pairs that free heads start from


def _tasks(config: SoftmaxVsLinearConfig) -> list[tuple[int, float, Any]]:
    return [(d, s2, standard_task(d, s2)) for d in config.head_dims for s2 in config.head_noises]


def _table(config: SoftmaxVsLinearConfig, values: list[float]) -> Array:
    return np.reshape(values, (len(config.head_dims), len(config.head_noises)))


def pairs(config: SoftmaxVsLinearConfig, length: float, progress: Progress) -> xr.Dataset:
    """Predictions for vanishing tilts, then the best of two heads, and of four and eight where the length is one of those."""
    several = length in config.head_lengths
    tasks = _tasks(config)
    linear = [relative_excess(task, linear_optimum(task, length).risk) for _, _, task in tasks]
    # vanishing tilts are linear attention over L - 1 tokens; large L: (sinh(q)Γ + cosh(q)Γuu^TΓ)/L, least as q -> 0
    vanishing = [relative_excess(task, linear_optimum(task, length - 1).risk) for _, _, task in tasks]
    progress(f"pairs of heads, L = {length:g}")
    lattice = HeadLattice.of(
        length, RATIOS if several else RATIOS[:1], odd=True, largest=12.0 if length <= VERY_SHORT else config.largest_scale
    )
    single = one_head(length)
    pair = lattice.only([0])
    found: dict[str, list[float]] = {"1": [], "2": [], "4": [], "8": []}
    tilt, small = [], []
    for _, _, task in tasks:
        best = pair.optimum(task)
        tilt.append(best.a)
        found["1"].append(relative_excess(task, single.optimum(task).risk))
        found["2"].append(relative_excess(task, best.risk))
        small.append(relative_excess(task, pair.best_readouts(task, SMALL_TILT).risk))
        if several:
            four = min(lattice.only([0, k]).optimum(task).risk for k in range(1, len(RATIOS)))
            found["4"].append(relative_excess(task, four))
            found["8"].append(relative_excess(task, lattice.optimum(task).risk))
        else:
            found["4"].append(math.nan)
            found["8"].append(math.nan)
    grid = ("head_dim", "head_noise")
    sigma = torch.tensor([0.1, 0.5, 1.0, 2.0], dtype=F)
    y, w3, y2 = weight_moments(length, sigma, [[(2, 0)], [(3, 0)], [(2, 0), (2, 0)]])
    same = torch.stack(
        [torch.stack(two_head_overlap(length, sigma, sigma)), torch.stack([y, sigma**2 * (1 - y - 6 * w3 + 6 * y2)])]
    )
    return xr.Dataset(
        {
            "heads_excess": (("heads", *grid), np.stack([_table(config, values) for values in found.values()])),
            "heads_linear": (grid, _table(config, linear)),
            "heads_vanishing": (grid, _table(config, vanishing), {"long_name": "predicted as the tilts of a pair vanish"}),
            "pair_small_tilt": (grid, _table(config, small)),
            "pair_tilt": (grid, _table(config, tilt)),
            "identical_heads": ((), float(abs(same[0] / same[1] - 1).max()), {"long_name": "two equal heads against one"}),
        },
        coords={"heads": [1, 2, 4, 8], "head_dim": list(config.head_dims), "head_noise": list(config.head_noises)},
    )


def skewed_pairs(config: SoftmaxVsLinearConfig, progress: Progress) -> xr.Dataset:
    """Two heads whose tilts are not opposite, both read-outs free."""
    rows = []
    for ratio in config.skew_ratios:
        progress(f"two heads, ratio of tilts {ratio:g}")
        lattice = HeadLattice.of(config.skew_length, (1.0, ratio), largest=config.largest_scale)
        rows.append(_table(config, [relative_excess(task, lattice.optimum(task).risk) for _, _, task in _tasks(config)]))
    return xr.Dataset(
        {"skew_excess": (("skew_ratio", "head_dim", "head_noise"), rows)}, coords={"skew_ratio": list(config.skew_ratios)}
    )


def read_risk(x: Tensor, query: Tensor, A: Tensor, b: Tensor, noise: float) -> Tensor:
    """Excess of each drawn prompt, w and noise averaged out: ‖Σ c_l x_l - x_q‖²/d + s² Σ c_l², c = Σ_h b_h softmax(x·A_h x_q).

    x (prompt, L, d), query (prompt, d), A (H, d, d), b (H,); exact given the inputs since the read-out is linear in y.
    """
    u = torch.einsum("hij,nj->nih", A, query)
    share = torch.softmax(x @ u, dim=1) @ b  # (prompt, L)
    read = torch.einsum("nl,nli->ni", share, x)
    return (read - query).square().sum(-1) / x.shape[-1] + noise * share.square().sum(-1)


def _tilts(heads: int, dim: int, point: Tensor) -> tuple[Tensor, Tensor]:
    """A_h = a_h I and b from (a, b)."""
    return point[:heads, None, None] * torch.eye(dim, dtype=point.dtype), point[heads:]


def _matrices(heads: int, dim: int, point: Tensor) -> tuple[Tensor, Tensor]:
    """A_h and b from their entries."""
    return point[: heads * dim**2].reshape(heads, dim, dim), point[heads * dim**2 :]


def _fit(x: Tensor, query: Tensor, start: Tensor, layer: Layer, noise: float) -> tuple[Tensor, Tensor]:
    """Least mean of :func:`read_risk` over given prompts, from a start, for A and b as functions of a flat vector."""
    from scipy.optimize import minimize

    def risk(flat: Array) -> tuple[float, Array]:
        point = torch.from_numpy(flat).requires_grad_()
        value = read_risk(x, query, *layer(point), noise).mean()
        (gradient,) = torch.autograd.grad(value, point)
        return float(value.detach()), gradient.numpy()

    found = minimize(risk, start.numpy(), jac=True, method="L-BFGS-B", options={"maxiter": 100})
    return layer(torch.from_numpy(found.x))


def free_heads(config: SoftmaxVsLinearConfig, index: int, progress: Progress) -> xr.Dataset:
    """H heads trained on drawn prompts from the exact optimum, with tilts along the query, then any matrices; judged on fresh ones.

    The gain of matrices over tilts is a mean over common prompts, so that its error bar is that of the difference.
    """
    d, length, noise = config.free_dim, config.free_length, 0.0
    task = standard_task(d, noise)
    generator = torch.Generator().manual_seed(1000 * config.seed + index)

    def prompts(count: int) -> tuple[Tensor, Tensor]:
        return (
            torch.randn(count, length, d, generator=generator, dtype=F),
            torch.randn(count, d, generator=generator, dtype=F),
        )

    # the widest spacing that is on the lattice: 1; 1 and 1/4; all
    chosen = {heads: tuple(RATIOS.index(ratio) for ratio in SPACINGS[heads]) for heads in config.free_heads if heads > 1}
    needed = sorted({i for each in chosen.values() for i in each})
    lattice = HeadLattice.of(length, [RATIOS[i] for i in needed], odd=True, largest=config.largest_scale) if needed else None
    exact, optima = [], []
    for heads in config.free_heads:
        if lattice is None or heads == 1:
            best, ratios, signs = one_head(length).optimum(task), [1.0], [1.0]
        else:
            best = lattice.only([needed.index(i) for i in chosen[heads]]).optimum(task)
            ratios, signs = [ratio for ratio in SPACINGS[heads] for _ in "+-"], [1.0, -1.0] * len(SPACINGS[heads])
        weights = [b for b in best.readouts for _ in range(1 if heads == 1 else 2)]
        tilts = [best.a * ratio * sign for ratio, sign in zip(ratios, signs, strict=True)]
        read = [weight * sign / (1 if heads == 1 else 2) for weight, sign in zip(weights, signs, strict=True)]
        exact.append(relative_excess(task, best.risk))
        optima.append((torch.tensor(tilts, dtype=F)[:, None, None] * torch.eye(d, dtype=F), torch.tensor(read, dtype=F)))
    x, query = prompts(config.free_prompts)
    trained = []
    for heads, (A, b) in zip(config.free_heads, optima, strict=True):
        jolt = 0.1 * torch.randn(A.shape, generator=generator, dtype=F) * A.abs().max()
        progress(f"{heads} heads on drawn prompts, tilts along the query")
        along = _fit(x, query, torch.cat([A[:, 0, 0], b]), functools.partial(_tilts, heads, d), noise)
        progress(f"{heads} heads on drawn prompts, free matrices")
        start = torch.cat([(along[0] + jolt).reshape(-1), along[1]])
        trained.append((along, _fit(x, query, start, functools.partial(_matrices, heads, d), noise)))
    x, query = prompts(4 * config.free_prompts)
    columns: dict[str, list[float]] = {name: [] for name in ("at_optimum", "at_optimum_error", "gain", "gain_error", "trained")}
    for i, (optimum, layers) in enumerate(zip(optima, trained, strict=True)):
        scalar, tilted, free = (read_risk(x, query, *layer, noise) for layer in (optimum, *layers))
        for name, values in (("at_optimum", scalar), ("gain", tilted - free)):
            columns[name].append(float(values.mean()))
            columns[f"{name}_error"].append(float(values.std()) / math.sqrt(len(values)))
        columns["trained"].append(exact[i] + float((free - scalar).mean()))  # the exact risk takes out most of the noise
    linear = relative_excess(task, linear_optimum(task, length).risk)
    data = {f"free_{name}": ("free_heads", values) for name, values in columns.items()}
    return xr.Dataset(
        data | {"free_exact": ("free_heads", exact), "free_linear": ((), linear)}, coords={"free_heads": list(config.free_heads)}
    )
