"""Training on heavy-tailed prompts: the exact risk, its descent, and SGD on drawn prompts.

Tokens (x, y), y = wx + noise of variance s², w ~ N(0, 1) in each prompt, x and the query x_q of
one Student-t law. With U = diag(a, 0), v = (0, b), which the flow keeps, the layer answers
b Σ_l softmax(a x_q x)_l y_l. With T and Σ w² at the tilt a x_q,

    2R(a, b) = s² + E x_q² - 2b P(a) + b² Q(a),   P = E x_q E T,   Q = E [E T² + s² E Σ w²],

by finite_prompt. For df <= 2 E T² is infinite, and so is the risk of every b ≠ 0.
"""

import dataclasses
import math
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from largeprompt.law import finite_prompt
from largeprompt.measures import Product, ScalarLaw, StudentT, StudentTLaw
from largeprompt.runs.study import Progress
from largeprompt.studies.heavytail.config import HeavyTailConfig
from largeprompt.studies.heavytail.exact import ATTENTION, Array

START = 0.5  # of a and of b
# of a spline good to 1e-5
TILTS = np.concatenate(
    [np.logspace(-3, -1.5, 4), np.logspace(-1.25, 1.25, 20), np.logspace(1.5, 4, 7)]
)
STRENGTHS = np.logspace(-3, 2, 101)  # of a


@dataclasses.dataclass(frozen=True)
class ScalarRisk:
    """R(a, b) at one length: log P and log Q as a spline in log a, and what no layer removes."""

    curves: Any
    constant: float  # s² + E x_q²

    def __call__(self, a: Any, b: Any) -> Any:
        """R(a, b) for a in the range of STRENGTHS."""
        p, q = np.moveaxis(np.exp(self.curves(np.log(a))), -1, 0)
        return (self.constant - 2 * b * p + b**2 * q) / 2

    def least(self) -> float:
        """The least risk: b = P/Q at the a that makes P²/Q largest."""
        fine = np.linspace(math.log(STRENGTHS[0]), math.log(STRENGTHS[-1]), 10_001)
        p, q = np.exp(self.curves(fine)).T
        return float(self.constant - (p**2 / q).max()) / 2

    def descend(self, step_size: float, steps: int) -> float:
        """Risk after gradient descent from the start of the runs."""
        a = b = START
        for _ in range(steps):
            p, q = np.exp(self.curves(math.log(a)))
            slope_p, slope_q = np.array([p, q]) * self.curves(math.log(a), 1) / a
            a, b = a - step_size * (-b * slope_p + b**2 * slope_q / 2), b - step_size * (-p + b * q)
            a = min(max(a, STRENGTHS[0]), STRENGTHS[-1])
        return float(self(a, b))


def scalar_risk(law: StudentTLaw, length: int, noise: float) -> ScalarRisk:
    """The exact risk for a law with df > 2."""
    from scipy.interpolate import CubicSpline

    found = finite_prompt(ATTENTION, Product([law]), torch.from_numpy(TILTS[:, None]), length)
    mean, weights = found.mean[:, 0].numpy(), 1 / found.effective_tokens.numpy()
    square = found.covariance[:, 0, 0].numpy() + mean**2
    moments = CubicSpline(np.log(TILTS), np.log(np.stack([mean, square, weights], -1)))
    x, share = _queries(law)
    tilts = STRENGTHS[:, None] * x
    inside = np.clip(tilts, TILTS[0], TILTS[-1])
    mean, square, weights = np.moveaxis(np.exp(moments(np.log(inside))), -1, 0)
    mean = mean * np.minimum(tilts / TILTS[0], 1.0)  # linear below the table, constant above
    p, q = (mean * x) @ share, (square + noise * weights) @ share
    curves = CubicSpline(np.log(STRENGTHS), np.log(np.stack([p, q], -1)))
    return ScalarRisk(curves, noise + float(x**2 @ share))


def _queries(law: StudentTLaw) -> tuple[Array, Array]:
    """Nodes and weights of the size of the query: panels that double, as far as E x² reaches."""
    known = law.density()
    far = float(known.upper_quantile(np.array(1e-28)))
    doubled = known.width * 2.0 ** np.arange(-4, math.ceil(math.log2(far / known.width)) + 1)
    breaks = np.append(0.0, doubled)
    nodes, weights = np.polynomial.legendre.leggauss(12)
    half = np.diff(breaks)[:, None] / 2
    points = breaks[:-1, None] + half * (1 + nodes)
    return points.ravel(), (2 * half * weights * known.density(points)).ravel()


def prompts(
    law: ScalarLaw, shape: tuple[int, ...], length: int, noise: float, generator: torch.Generator
) -> tuple[Tensor, ...]:
    """Inputs x and answers y of prompts (*shape, L), queries and their noisy answers (*shape,)."""
    inputs = law.sample(torch.zeros(*shape, length + 1, dtype=torch.float64), generator)
    normal = torch.randn(*shape, length + 2, generator=generator, dtype=torch.float64)
    x, query, w = inputs[..., :-1], inputs[..., -1], normal[..., -1]
    y = w.unsqueeze(-1) * x + math.sqrt(noise) * normal[..., :-2]
    return x, y, query, w * query + math.sqrt(noise) * normal[..., -2]


def read(a: Tensor, x: Tensor, y: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
    """Σ w y and the weighted covariance of x and y, for w = softmax(a x_q x)."""
    weights = torch.softmax((a * query).unsqueeze(-1) * x, -1)
    mean = (weights * y).sum(-1)
    return mean, (weights * x * (y - mean.unsqueeze(-1))).sum(-1)


def stochastic(config: HeavyTailConfig, law: ScalarLaw) -> tuple[Tensor, Tensor]:
    """SGD in parallel runs, every step on fresh prompts: (a, b) at the end, and who diverged."""
    generator = torch.Generator().manual_seed(1000 * config.seed + 77)
    theta = torch.full((config.runs, 2), START, dtype=torch.float64)
    alive = torch.ones(config.runs, dtype=torch.bool)
    shape = (config.runs, config.batch_size)
    for _ in range(config.steps):
        sizes = (config.training_length, config.noise_variance)
        x, y, query, answer = prompts(law, shape, *sizes, generator)
        a, b = theta[:, :1], theta[:, 1:]
        mean, covariance = read(a, x, y, query)
        error = b * mean - answer
        slopes = [(error * b * covariance * query).mean(-1), (error * mean).mean(-1)]
        moved = theta - config.step_size * torch.stack(slopes, -1)
        alive = alive & (moved.abs() < 1e3).all(-1)  # beyond, a run has diverged
        if not bool(alive.any()):
            break
        theta = torch.where(alive.unsqueeze(-1), moved, theta)
    return theta, ~alive


def train(config: HeavyTailConfig, df: float, progress: Progress) -> xr.Dataset:
    """Least risk, risk after exact descent, and after runs of SGD; infinite for df <= 2."""
    law = StudentT(1, df).law
    assert isinstance(law, StudentTLaw)
    least = descent = math.inf
    progress(f"{config.runs} runs of SGD")
    theta, diverged = stochastic(config, law)
    risk = np.full(config.runs, math.inf)
    if df > 2:
        progress("exact risk")
        exact = scalar_risk(law, config.training_length, config.noise_variance)
        least, descent = exact.least(), exact.descend(config.step_size, config.steps)
        a = theta[:, 0].clamp(STRENGTHS[0], STRENGTHS[-1]).numpy()
        risk = np.where(diverged, math.inf, exact(a, theta[:, 1].numpy()))
    return xr.Dataset(
        {
            "diverged": ("run", diverged.numpy()),
            "run_risk": ("run", risk),
            "least_risk": least,
            "descent_risk": descent,
        }
    ).expand_dims(training_df=[df])
