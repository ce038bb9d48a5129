"""In-context regression: best heads over length, dimension, noise and spectrum, and where training
ends.
"""

from typing import Any

import numpy as np
import torch
import xarray as xr

from largeprompt.attention import SoftmaxAttention
from largeprompt.runs.study import Progress
from largeprompt.studies.covariances import KINDS, F, block_start, covariance, largest_alpha
from largeprompt.studies.softmax_vs_linear.config import SoftmaxVsLinearConfig
from largeprompt.studies.softmax_vs_linear.layer_optima import block_optimum, long_prompt_constants
from largeprompt.studies.softmax_vs_linear.several_heads import SeveralHeads
from largeprompt.training import LinearRegression, Trajectory, gradient_flow, linear_optimum

SHORT = 10  # prompts up to this long may need steep tilts


def standard_task(dim: int, noise: float, spectrum: str = "identity") -> LinearRegression:
    """In-context regression with W a multiple of the identity and tr WΣ = 1."""
    if spectrum == "queries near a line":
        sigma = torch.eye(dim, dtype=F)
        query = torch.diag(
            torch.cat([torch.ones(1, dtype=F), torch.full((dim - 1,), 0.01, dtype=F)])
        )
        return LinearRegression(sigma, sigma / dim, noise, query)
    sigma = covariance(spectrum, dim)
    return LinearRegression(sigma, torch.eye(dim, dtype=F) / float(torch.trace(sigma)), noise)


def relative_excess(task: LinearRegression, risk: float) -> float:
    """What is lost of E t²: (2R - s²)/tr WΣ_q, 0 for an infinite prompt and 1
    for reading nothing.
    """
    assert isinstance(task.query_covariance, torch.Tensor)  # made one by the task
    return (2 * risk - task.noise_variance) / float(
        torch.trace(task.prior_covariance @ task.query_covariance)
    )


def one_head(length: float) -> SeveralHeads:
    """Moments of one head, for tilts as large as its length may need."""
    return SeveralHeads.of(length, (1.0,), largest=40.0 if length <= SHORT else 12.0)


def one_head_map(config: SoftmaxVsLinearConfig, progress: Progress) -> xr.Dataset:
    """Best one-head softmax and best linear attention over (L, d, noise)
    for identity covariances.
    """
    tasks = {(d, s2): standard_task(d, s2) for d in config.dims for s2 in config.noises}
    limits = np.reshape(
        [long_prompt_constants(task).ratio for task in tasks.values()],
        (len(config.dims), len(config.noises)),
    )
    c = np.array(
        [
            [[((1 + s2) * d + 1) / length for s2 in config.noises] for d in config.dims]
            for length in config.lengths
        ]
    )
    noisy = [(1 + 2 / d) ** (1 + d / 2) for d in config.dims]
    softmax, linear, tilt = np.empty((3, *c.shape))
    for k, length in enumerate(config.lengths):
        progress(f"one head, L = {length:g}")
        lattice = one_head(length)
        for i, d in enumerate(config.dims):
            for j, s2 in enumerate(config.noises):
                task, best = tasks[d, s2], lattice.optimum(tasks[d, s2])
                softmax[k, i, j], tilt[k, i, j] = relative_excess(task, best.risk), best.a
                linear[k, i, j] = relative_excess(task, linear_optimum(task, length).risk)
    grid = ("length", "dim", "noise")
    return xr.Dataset(
        {
            "limit_ratio": (("dim", "noise"), limits),
            "noise_limit": ("dim", noisy),
            "linear_predicted": (grid, c / (1 + c)),
            "softmax_best": (grid, softmax),
            "linear_best": (grid, linear),
            "softmax_tilt": (grid, tilt),
        },
        coords={
            "length": list(config.lengths),
            "dim": list(config.dims),
            "noise": list(config.noises),
        },
    )


def other_spectra(config: SoftmaxVsLinearConfig, progress: Progress) -> xr.Dataset:
    """Other covariances of inputs and of queries: all d × d matrices A are searched."""
    d, lengths = config.spectrum_dim, list(config.spectrum_lengths)
    tasks = [
        [standard_task(d, s2, name) for s2 in config.spectrum_noises] for name in config.spectra
    ]
    predicted = [[long_prompt_constants(task).ratio for task in row] for row in tasks]

    softmax, linear = np.empty((2, len(config.spectra), len(config.spectrum_noises), len(lengths)))
    for i, row in enumerate(tasks):
        for j, task in enumerate(row):
            for k, length in enumerate(lengths):
                progress(f"{config.spectra[i]}: L = {length:g}")
                softmax[i, j, k] = relative_excess(task, block_optimum(task, length).risk)
                linear[i, j, k] = relative_excess(task, linear_optimum(task, length).risk)
    grid = ("spectrum", "spectrum_noise", "spectrum_length")
    return xr.Dataset(
        {
            "spectrum_limit": (grid[:2], predicted),
            "spectrum_softmax": (grid, softmax),
            "spectrum_linear": (grid, linear),
        },
        coords={
            "spectrum": list(config.spectra),
            "spectrum_noise": list(config.spectrum_noises),
            "spectrum_length": lengths,
        },
    )


def _followed(
    task: LinearRegression, start: Any, length: Any, until: float, **options: Any
) -> Trajectory:
    return gradient_flow(
        task, start, length, until, times=[until], tolerance=1e-6, **options
    ).completed()


def trained(config: SoftmaxVsLinearConfig, spectrum: str, progress: Progress) -> xr.Dataset:
    """Where the flow from the theorem's start ends, against the least risk over all block
    parameters.
    """
    task = standard_task(config.trained_dim, config.trained_noise, spectrum)
    alpha = 0.9 * largest_alpha(task.covariance)
    columns: dict[str, list[float]] = {
        f"{kind}_{name}": [] for kind in KINDS for name in ("trained", "found")
    }
    for kind, attention in KINDS.items():
        for length in config.trained_lengths:
            progress(f"training {kind} attention, {spectrum}, L = {length:g}")
            options = {"parametrisation": "block", "gradient_tolerance": 1e-7}
            flow = _followed(
                task,
                attention(*block_start(config.trained_dim, alpha, alpha)),
                length,
                config.until,
                **options,
            )
            columns[f"{kind}_trained"].append(relative_excess(task, float(flow.risk[-1])))
            columns[f"{kind}_found"].append(
                relative_excess(task, block_optimum(task, length, attention).risk)
            )
    return xr.Dataset(
        {
            name: (("trained_spectrum", "trained_length"), [values])
            for name, values in columns.items()
        },
        coords={"trained_spectrum": [spectrum], "trained_length": list(config.trained_lengths)},
    )


def random_start(config: SoftmaxVsLinearConfig, number: int, progress: Progress) -> xr.Dataset:
    """Flows of all entries of U and V from a random start: does any end below the block optimum, or
    below linear attention?
    """
    d, lengths = 2, list(config.start_lengths)
    task = standard_task(d, config.trained_noise)
    block = [relative_excess(task, one_head(length).optimum(task).risk) for length in lengths]
    linear = [relative_excess(task, linear_optimum(task, length).risk) for length in lengths]
    progress(f"start {number + 1}")
    generator = torch.Generator().manual_seed(1000 * config.seed + number)
    U, V = (torch.randn(n, d + 1, generator=generator, dtype=F) / 2 for n in (d + 1, 1))
    flow = _followed(
        task, SoftmaxAttention(U, V), lengths, config.start_until, gradient_tolerance=1e-5
    )
    return xr.Dataset(
        {
            "start_excess": (
                ("start_length", "start"),
                [[relative_excess(task, float(risk))] for risk in flow.risk[:, -1]],
            ),
            "start_block": ("start_length", block),
            "start_linear": ("start_length", linear),
        },
        coords={"start_length": lengths, "start": [number]},
    )
