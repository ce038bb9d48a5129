"""Several softmax heads against linear attention: exact for tilts along the query, trained on drawn
prompts for any matrices.
"""

import math
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from largeprompt.law import collision_moments
from largeprompt.runs.study import Progress
from largeprompt.studies.covariances import F
from largeprompt.studies.softmax_vs_linear.config import SoftmaxVsLinearConfig, all_head_lengths
from largeprompt.studies.softmax_vs_linear.parts import one_head, relative_excess, standard_task
from largeprompt.studies.softmax_vs_linear.several_heads import SeveralHeads
from largeprompt.studies.softmax_vs_linear.two_heads import two_head_overlap
from largeprompt.training import LinearRegression, linear_optimum

Array = NDArray[np.float64]
RATIOS = (1.0, 0.75, 0.5, 0.25)  # tilts of pairs relative to the largest, for four and eight heads
SMALL_TILT = 3e-3
VERY_SHORT = 3
# tilts of the head, or of the pairs, that free heads start from
SPACINGS = {1: (1.0,), 2: (1.0,), 4: (1.0, 0.25), 8: RATIOS}


def _tasks(config: SoftmaxVsLinearConfig) -> list[LinearRegression]:
    return [standard_task(d, s2) for d in config.head_dims for s2 in config.head_noises]


def _tables(config: SoftmaxVsLinearConfig, rows: list[Any]) -> Array:
    """Values of each task as tables over dimension and noise, shape (value, dim, noise)."""
    return np.moveaxis(
        np.reshape(rows, (len(config.head_dims), len(config.head_noises), -1)), -1, 0
    )


def pairs(config: SoftmaxVsLinearConfig, length: float, progress: Progress) -> xr.Dataset:
    """Predictions for vanishing tilts, then the best of two heads, and of four and eight where the
    length is one of those.
    """
    several, rows = length in config.head_lengths, []
    progress(f"pairs of heads, L = {length:g}")
    largest = 12.0 if length <= VERY_SHORT else config.largest_scale
    lattice = SeveralHeads.of(length, RATIOS if several else RATIOS[:1], odd=True, largest=largest)
    single, pair = one_head(length), lattice.only([0])
    for task in _tasks(config):
        linear = linear_optimum(task, length).risk
        # vanishing tilts are linear attention over L - 1 tokens; large L: (sinh(q)Γ +
        # cosh(q)Γuu^TΓ)/L, least as q -> 0
        vanishing = linear_optimum(task, length - 1).risk
        best, small = pair.optimum(task), pair.best_readouts(task, SMALL_TILT).risk
        four = (
            min(lattice.only([0, k]).optimum(task).risk for k in range(1, len(RATIOS)))
            if several
            else math.nan
        )
        eight = lattice.optimum(task).risk if several else math.nan
        risks = (single.optimum(task).risk, best.risk, four, eight, linear, vanishing, small)
        rows.append((*(relative_excess(task, risk) for risk in risks), best.a))
    *heads, linear, vanishing, small, tilt = _tables(config, rows)
    grid = ("head_dim", "head_noise")
    sigma = torch.tensor([0.1, 0.5, 1.0, 2.0], dtype=F)
    y, w3, y2 = collision_moments(length, sigma)
    alike, one = (
        torch.stack(two_head_overlap(length, sigma, sigma)),
        torch.stack([y, sigma**2 * (1 - y - 6 * w3 + 6 * y2)]),
    )
    return xr.Dataset(
        {
            "heads_excess": (("heads", *grid), np.stack(heads)),
            "heads_linear": (grid, linear),
            "heads_vanishing": (grid, vanishing),
            "pair_small_tilt": (grid, small),
            "pair_tilt": (grid, tilt),
            "identical_heads": float(abs(alike / one - 1).max()),
        },
        coords={
            "heads": [1, 2, 4, 8],
            "head_dim": list(config.head_dims),
            "head_noise": list(config.head_noises),
        },
    )


def skewed_pairs(config: SoftmaxVsLinearConfig, progress: Progress) -> xr.Dataset:
    """Two heads whose tilts are not opposite, both read-outs free."""
    rows = []
    for ratio in config.skew_ratios:
        progress(f"two heads, ratio of tilts {ratio:g}")
        lattice = SeveralHeads.of(config.skew_length, (1.0, ratio), largest=config.largest_scale)
        rows.append(
            _tables(
                config,
                [relative_excess(task, lattice.optimum(task).risk) for task in _tasks(config)],
            )[0]
        )
    dims = ("skew_ratio", "head_dim", "head_noise")
    return xr.Dataset(
        {"skew_excess": (dims, rows)}, coords={"skew_ratio": list(config.skew_ratios)}
    )


def read_risk(x: Tensor, query: Tensor, A: Tensor, b: Tensor, noise: float) -> Tensor:
    """Excess of each drawn prompt, w and noise averaged out: ‖Σ c_l x_l - x_q‖²/d + s² Σ c_l², c =
    Σ_h b_h softmax(x·A_h x_q).

    x (prompt, L, d), query (prompt, d), A (H, d, d), b (H,); exact given the inputs since the
    read-out is linear in y.
    """
    u = torch.einsum("hij,nj->nih", A, query)
    share = torch.softmax(x @ u, dim=1) @ b  # (prompt, L)
    read = torch.einsum("nl,nli->ni", share, x)
    return (read - query).square().sum(-1) / x.shape[-1] + noise * share.square().sum(-1)


def _layer(point: Tensor, heads: int, eye: Tensor) -> tuple[Tensor, Tensor]:
    """A_h and b from all entries of A_h, or from one a_h each, A_h = a_h I."""
    entries, b = point[:-heads], point[-heads:]
    return entries[:, None, None] * eye if len(entries) == heads else entries.reshape(
        heads, *eye.shape
    ), b


def _fit(
    x: Tensor, query: Tensor, start: Tensor, heads: int, noise: float
) -> tuple[Tensor, Tensor]:
    """Least mean of :func:`read_risk` over given prompts, from a start that says which entries of A
    are free.
    """
    from scipy.optimize import minimize

    eye = torch.eye(x.shape[-1], dtype=F)

    def risk(flat: Array) -> tuple[float, Array]:
        point = torch.from_numpy(flat).requires_grad_()
        value = read_risk(x, query, *_layer(point, heads, eye), noise).mean()
        (gradient,) = torch.autograd.grad(value, point)
        return float(value.detach()), gradient.numpy()

    found = minimize(risk, start.numpy(), jac=True, method="L-BFGS-B", options={"maxiter": 100})
    return _layer(torch.from_numpy(found.x), heads, eye)


def free_heads(config: SoftmaxVsLinearConfig, progress: Progress) -> xr.Dataset:
    """H heads trained on drawn prompts from the exact optimum, with tilts along the query, then any
    matrices; judged on fresh ones.

    The gain of matrices over tilts is a mean over common prompts, so that its error bar is that of
    the difference.
    """
    d, length, noise = config.free_dim, config.free_length, 0.0
    task, eye = standard_task(d, noise), torch.eye(d, dtype=F)
    stream = len(all_head_lengths(config)) + len(config.trained_spectra) + 1
    generator = torch.Generator().manual_seed(1000 * config.seed + stream)

    def prompts(count: int) -> tuple[Tensor, Tensor]:
        return (
            torch.randn(count, length, d, generator=generator, dtype=F),
            torch.randn(count, d, generator=generator, dtype=F),
        )

    needed = sorted(
        {ratio for heads in config.free_heads if heads > 1 for ratio in SPACINGS[heads]},
        reverse=True,
    )
    lattice = (
        SeveralHeads.of(length, needed, odd=True, largest=config.largest_scale) if needed else None
    )
    exact, optima = [], []
    for heads in config.free_heads:
        signs = (1.0,) if heads == 1 else (1.0, -1.0)
        layout = (
            one_head(length)
            if lattice is None or heads == 1
            else lattice.only([needed.index(r) for r in SPACINGS[heads]])
        )
        best = layout.optimum(task)
        tilts = [best.a * ratio * sign for ratio in SPACINGS[heads] for sign in signs]
        read = [weight * sign / len(signs) for weight in best.readouts for sign in signs]
        exact.append(relative_excess(task, best.risk))
        optima.append(
            (torch.tensor(tilts, dtype=F)[:, None, None] * eye, torch.tensor(read, dtype=F))
        )
    x, query = prompts(config.free_prompts)
    trained = []
    for heads, (A, b) in zip(config.free_heads, optima, strict=True):
        jolt = 0.1 * torch.randn(A.shape, generator=generator, dtype=F) * A.abs().max()
        progress(f"{heads} heads on drawn prompts, tilts along the query")
        along = _fit(x, query, torch.cat([A[:, 0, 0], b]), heads, noise)
        progress(f"{heads} heads on drawn prompts, free matrices")
        start = torch.cat([(along[0] + jolt).reshape(-1), along[1]])
        trained.append((along, _fit(x, query, start, heads, noise)))
    x, query = prompts(4 * config.free_prompts)
    columns: dict[str, list[float]] = {
        name: [] for name in ("at_optimum", "at_optimum_error", "gain", "gain_error", "trained")
    }
    for i, (optimum, layers) in enumerate(zip(optima, trained, strict=True)):
        scalar, tilted, free = (read_risk(x, query, *layer, noise) for layer in (optimum, *layers))
        for name, values in (("at_optimum", scalar), ("gain", tilted - free)):
            columns[name].append(float(values.mean()))
            columns[f"{name}_error"].append(float(values.std()) / math.sqrt(len(values)))
        # the exact risk takes out most of the noise
        columns["trained"].append(exact[i] + float((free - scalar).mean()))
    linear = relative_excess(task, linear_optimum(task, length).risk)
    data = {
        f"free_{name}": ("free_heads", values)
        for name, values in (columns | {"exact": exact}).items()
    }
    return xr.Dataset(data, coords={"free_heads": list(config.free_heads)}).assign(
        free_linear=linear
    )
