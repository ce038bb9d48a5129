"""Training on heavy-tailed prompts: SGD runs of in-context regression with one scalar input, beside
exact gradient descent.
"""

import math

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from largeprompt.measures import ScalarLaw, StudentT, StudentTLaw
from largeprompt.runs.study import Progress
from largeprompt.studies.heavytail.config import HeavyTailConfig
from largeprompt.studies.heavytail.regression import STRENGTHS, ScalarRegression

START = 0.5  # of a and of b
LOST = 1e3  # size of a parameter beyond which a run counts as diverged
RECORDED = 31


def prompts(
    law: ScalarLaw, shape: tuple[int, ...], length: int, noise: float, generator: torch.Generator
) -> tuple[Tensor, ...]:
    """Inputs x and answers y of the prompt (*shape, L), query x_q and its answer without and with
    noise (*shape,).

    A fixed number of uniform and normal numbers is drawn in a fixed order, so that one seed serves
    every law that is made of them.
    """
    zero = torch.zeros(*shape, length + 1, dtype=torch.float64)
    inputs = law.sample(zero, generator)
    normal = torch.randn(*shape, length + 2, generator=generator, dtype=torch.float64)
    x, query, w = inputs[..., :-1], inputs[..., -1], normal[..., -1]
    y = w.unsqueeze(-1) * x + math.sqrt(noise) * normal[..., :-2]
    clean = w * query
    return x, y, query, clean, clean + math.sqrt(noise) * normal[..., -2]


def read(
    a: Tensor, b: Tensor, x: Tensor, y: Tensor, query: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Answer b Σ w y of the layer, Σ w y, and the weighted covariance of x and y, for w = softmax(a
    x_q x).
    """
    weights = torch.softmax((a * query).unsqueeze(-1) * x, -1)
    mean = (weights * y).sum(-1)
    covariance = (weights * x * (y - mean.unsqueeze(-1))).sum(-1)
    return b * mean, mean, covariance


def descend(
    config: HeavyTailConfig, law: ScalarLaw, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """SGD on a and b in parallel runs, every step on fresh prompts: path (recorded, run, 2), its
    steps, and who diverged.
    """
    theta = torch.full((config.runs, 2), START, dtype=torch.float64)
    alive = torch.ones(config.runs, dtype=torch.bool)
    kept = torch.unique(torch.linspace(0, config.steps, RECORDED).round().long())
    wanted, path = set(kept.tolist()), [theta.clone()]
    shape = (config.runs, config.batch_size)
    for step in range(1, config.steps + 1):
        x, y, query, _, answer = prompts(
            law, shape, config.training_length, config.noise_variance, generator
        )
        a, b = theta[:, :1], theta[:, 1:]
        said, mean, covariance = read(a, b, x, y, query)
        error = said - answer
        gradient = torch.stack(
            [(error * b * covariance * query).mean(-1), (error * mean).mean(-1)], -1
        )
        moved = theta - config.step_size * gradient
        alive = alive & (moved.abs() < LOST).all(-1)
        theta = torch.where(alive.unsqueeze(-1), moved, theta)
        if step in wanted:
            path.append(theta.clone())
        if not bool(alive.any()):
            break
    return torch.stack(path + [theta] * (len(kept) - len(path))), kept, ~alive


def median_error(config: HeavyTailConfig, law: ScalarLaw, theta: Tensor, seed: int) -> Tensor:
    """Median of (answer - w x_q)² over independent prompts, over the median of (w x_q)², for each
    run: saying 0 gives 1.
    """
    generator = torch.Generator().manual_seed(seed)
    x, y, query, clean, _ = prompts(
        law, (config.test_prompts,), config.training_length, config.noise_variance, generator
    )
    errors = torch.stack([(read(a, b, x, y, query)[0] - clean).square().median() for a, b in theta])
    return errors / clean.square().median()


def train(config: HeavyTailConfig, df: float, progress: Progress) -> xr.Dataset:
    """Exact gradient descent and the least risk first (df > 2), then SGD runs and what they are
    worth on independent prompts.
    """
    law, test = StudentT(1, df).law, 1000 * config.seed + 999_983
    assert isinstance(law, StudentTLaw)
    optimum, descent, risk = (
        np.full(4, math.nan),
        np.full(4, math.nan),
        np.full(config.runs, math.nan),
    )
    if df > 2:
        progress("exact descent")
        regression = ScalarRegression(law, config.training_length, config.noise_variance)
        optimum, descent = (
            np.array(
                [
                    *found,
                    float(
                        median_error(
                            config, law, torch.tensor([found[:2]], dtype=torch.float64), test
                        )[0]
                    ),
                ]
            )
            for found in (
                regression.optimum(),
                regression.descend(START, START, config.step_size, config.steps),
            )
        )
    progress(f"{config.runs} runs of SGD")
    path, steps, diverged = descend(
        config, law, torch.Generator().manual_seed(1000 * config.seed + 77)
    )
    final = path[-1]
    if df > 2:
        a = final[:, 0].clamp(STRENGTHS[0], STRENGTHS[-1]).numpy()
        risk = np.where(diverged, math.inf, regression.risk(a, final[:, 1].numpy()))
    error = median_error(config, law, final, test)
    data = xr.Dataset(
        {
            "path": (("step", "run", "parameter"), path.numpy()),
            "diverged": ("run", diverged.numpy()),
            "run_risk": ("run", risk),
            "run_median": ("run", torch.where(diverged, math.inf, error).numpy()),
            "optimum": ("found", optimum),
            "descent": ("found", descent),
        },
        coords={
            "step": steps.numpy(),
            "parameter": ["a", "b"],
            "found": ["a", "b", "risk", "median"],
        },
    )
    return data.expand_dims(training_df=[df])
