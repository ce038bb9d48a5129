"""Errors of output and derivatives by length: exact, certified, drawn; and of several spectra."""

import math
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from largeprompt.attention import SoftmaxAttention
from largeprompt.certificates import jacobian_certificate
from largeprompt.law import finite_prompt, regime
from largeprompt.measures import Gaussian, Measure, Rademacher, Sphere, Uniform
from largeprompt.runs.study import Progress
from largeprompt.sampling import sample_prompts
from largeprompt.studies.convergence.config import Array, ConvergenceConfig, Spectrum, spectrum
from largeprompt.studies.lengths import ENOUGH, drawn_curve, error_curves
from largeprompt.studies.ranges import length_grid, window

F = torch.float64
LOGS = {"output": 1, "jacobian_u": 2, "jacobian_v": 1}  # powers of ln L in the paper's form
DIRECTIONS = ("weak", "strong", "mixed")  # of the query, among the eigenvectors


def standard(law: str, dim: int) -> Measure:
    """Tokens with mean 0 and covariance I."""
    if law == "gaussian":
        return Gaussian(torch.zeros(dim, dtype=F), torch.eye(dim, dtype=F))
    kind = {"rademacher": Rademacher, "uniform": Uniform}.get(law, Sphere)
    return kind(dim)


def paper_form(length: Any, score_variance: float, c1: float, c2: float, logs: int) -> Array:
    """c1 σ⁶ ln(L)^logs / L^{c2/σ²}: logs = 1 for the output (C3), 2 for the derivative in U."""
    length = np.asarray(length, dtype=np.float64)
    power = length ** (-c2 / score_variance)
    return np.asarray(c1 * score_variance**3 * np.log(length) ** logs * power)


def fit_paper_form(length: Any, mse: Array, q: float, logs: int) -> tuple[float, float]:
    """Best c1 and c2 of :func:`paper_form` for one curve, by least squares in logarithms."""
    x = np.log(np.asarray(length, dtype=np.float64))
    slope, intercept = np.polyfit(x, np.log(mse) - logs * np.log(x), 1)
    return math.exp(intercept) / q**3, -slope * q


def errors(config: ConvergenceConfig, q: float, progress: Progress) -> xr.Dataset:
    """Output and both derivatives at one score variance, with the constants fitted to each."""
    d, eye = config.dim, torch.eye(config.dim, dtype=F)
    attention, mu, z = SoftmaxAttention(eye, eye), standard(config.law, d), math.sqrt(q) * eye[0]
    every = length_grid(config.longest, config.points)
    lengths, inside = every.tolist(), window(config.fitted, every)
    progress("exact law and certificates")
    output = error_curves(attention, mu, z, lengths, certified=True)
    law = finite_prompt(attention, mu, z, lengths)
    proved = jacobian_certificate(attention, mu, z, lengths)
    assert proved.jacobian_v_bound is not None  # a certificate of derivatives has both
    exact = np.stack([output.exact, law.jacobian_u_mse, law.jacobian_v_mse])
    fits = [
        fit_paper_form(every[inside], mse[inside], q, logs)
        for mse, logs in zip(exact, LOGS.values(), strict=True)
    ]
    progress("drawing prompts")
    drawn = draws(config, attention, mu, z, config.score_variances.index(q))
    # of Gaussian scores
    frozen = [config.law == "gaussian" and regime(q, length) == "frozen" for length in lengths]
    bounds = np.stack([output.certified, proved.bound, proved.jacobian_v_bound])
    rows = {"exact": exact, "certified": bounds}
    curves = xr.Dataset(
        {name: (("quantity", "length"), value) for name, value in rows.items()}
        | {
            "first_order": output.first_order,
            "frozen": ("length", frozen),
            "c1": ("quantity", [c1 for c1, _ in fits]),
            "c2": ("quantity", [c2 for _, c2 in fits]),
        },
        coords={"quantity": list(LOGS), "length": every.astype(float)},
    )
    return curves.merge(drawn.reindex(quantity=list(LOGS)), join="exact")


def draws(
    config: ConvergenceConfig, attention: SoftmaxAttention, mu: Measure, z: Tensor, index: int
) -> xr.Dataset:
    """Mean squared errors over drawn prompts: the output at many lengths, the derivative at few."""
    seed, lengths = 1000 * config.seed + index, config.derivative_lengths
    many = sample_prompts(attention, mu, z, lengths, ENOUGH, seed + 500, jacobian=True)
    assert many.readout_jacobian is not None  # asked for in the line above
    away = many.readout_jacobian - attention.V @ mu.tilted_covariance(attention.tilts(z))
    squared = (z @ z) * away.square().sum((-2, -1))
    exact = finite_prompt(attention, mu, z, lengths).jacobian_u_mse
    in_u = xr.Dataset(
        {
            "drawn": ("drawn_length", squared.mean(1).numpy()),
            "drawn_error": ("drawn_length", squared.std(1).numpy() / math.sqrt(ENOUGH)),
            "exact_at_drawn": ("drawn_length", exact.numpy()),
        },
        coords={"drawn_length": list(lengths)},
    )
    outputs = many.outputs
    if isinstance(mu, Gaussian):
        lengths, generator = config.drawn_lengths, torch.Generator().manual_seed(seed)
        outputs = sample_prompts(attention, mu, z, lengths, config.replicas, generator).outputs
    of_output = drawn_curve(attention, mu, z, lengths, outputs)
    names = xr.Variable("quantity", ["output", "jacobian_u"])
    return xr.concat([of_output, in_u], names, join="outer", combine_attrs="drop")


def spectrum_errors(config: ConvergenceConfig, name: Spectrum, progress: Progress) -> xr.Dataset:
    """Exact errors of one spectrum along weak, strong and mixed directions; constants; draws."""
    d = config.spectrum_dim
    values, eye = torch.from_numpy(spectrum(name, d)), torch.eye(d, dtype=F)
    attention, mu = SoftmaxAttention(eye, eye), Gaussian(0 * eye[0], torch.diag(values))
    mixed = torch.randn(d, generator=torch.Generator().manual_seed(config.seed), dtype=F)
    ways = torch.stack([eye[-1], eye[0], mixed])
    ways = ways / (ways.square() @ values).sqrt().unsqueeze(-1)  # score variance 1
    # (direction, score variance, d)
    z = ways.unsqueeze(1) * torch.tensor(config.score_variances, dtype=F).sqrt().unsqueeze(-1)
    lengths = length_grid(config.spectrum_longest, config.spectrum_points)
    inside = window(config.fitted, lengths)
    exact = finite_prompt(attention, mu, z, lengths.tolist())
    mse = exact.mse.permute(1, 2, 0).numpy()
    x, qs = lengths[inside], config.score_variances
    fits = [
        [fit_paper_form(x, row[inside], q, 1) for row, q in zip(rows, qs, strict=True)]
        for rows in mse
    ]
    c1, c2 = np.moveaxis(np.asarray(fits), -1, 0)
    query = ways * math.sqrt(config.score_variances[len(config.score_variances) // 2])
    generator = torch.Generator().manual_seed(1000 * config.seed + config.spectra.index(name))
    drawn_lengths = config.spectrum_drawn_lengths
    drawn = sample_prompts(attention, mu, query, drawn_lengths, config.replicas, generator).outputs
    drawn_names = {"drawn", "drawn_error", "exact_at_drawn", "drawn_length"}
    grid = ("direction", "score_variance")
    return (
        drawn_curve(attention, mu, query, drawn_lengths, drawn, "direction")
        .rename({each: f"spectrum_{each}" for each in drawn_names})
        .assign(
            {
                "spectrum_exact": ((*grid, "spectrum_length"), mse),
                "spectrum_size": (grid, exact.limit.square().sum(-1).numpy()),  # ‖Γu‖²
                "trace": float(values.sum()),
                "condition": float(values.max() / values.min()),
                "spectrum_c1": (grid, c1),
                "spectrum_c2": (grid, c2),
            }
        )
        .assign_coords(
            direction=list(DIRECTIONS),
            score_variance=list(config.score_variances),
            spectrum_length=lengths.astype(float),
        )
    )
