"""N2: how far are gradient descent, SGD and Adam from the gradient flow that the theory speaks of? Laws of the gap."""

from __future__ import annotations

import math
from collections.abc import Mapping

import xarray as xr

from largeprompt.runs.study import Progress, Study, merged
from largeprompt.studies.covariances import KINDS
from largeprompt.studies.discrete import adam as discrete_adam
from largeprompt.studies.discrete import descent as discrete_descent
from largeprompt.studies.discrete import noise as discrete_noise
from largeprompt.studies.discrete.config import DiscreteConfig
from largeprompt.studies.discrete.rules import verdicts


def cells(config: DiscreteConfig) -> list[str]:
    """The longest first, so that workers end together."""
    return [
        "sgd",
        "paper",
        *(f"stability {length:g}" for length in config.lengths),
        *(f"descent {kind}" for kind in KINDS),
        *(f"adam {length:g}" for length in config.adam_lengths),
        "sign flow",
        "arrival",
        *(f"wander {case}" for case in config.wander_cases),
        "bowl",
    ]


def compute(config: DiscreteConfig, cell: str, progress: Progress) -> xr.Dataset:
    """One part; whatever is predicted comes before what is measured."""
    what, _, rest = cell.partition(" ")
    match what:
        case "descent":
            return discrete_descent.descent(config, rest, progress)
        case "stability":
            return discrete_descent.stability(config, float(rest), progress)
        case "bowl":
            return discrete_descent.bowl(config, progress)
        case "adam":
            return discrete_adam.paths(config, float(rest), progress)
        case "sign":
            return discrete_adam.first_order(config, progress)
        case "arrival":
            return discrete_adam.arrival(config, progress)
        case "wander":
            return discrete_noise.wander(config, rest, progress)
        case "paper":
            return discrete_noise.authors(config, progress)
    return discrete_noise.batches(config, progress)


def combine(config: DiscreteConfig, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Descent by attention and length, stability by length, Adam by length, wandering by case; the rest has names of its own."""

    def stacked(names: list[str], dimension: str, values: list[float] | list[str]) -> xr.Dataset:
        return xr.concat([parts[name] for name in names], xr.Variable(dimension, values), combine_attrs="drop", join="outer")

    lengths = [float(length) for length in config.lengths]
    return merged(
        config,
        {
            "descent": stacked([f"descent {kind}" for kind in KINDS], "attention", list(KINDS)),
            "stability": stacked([f"stability {length:g}" for length in lengths], "length", lengths),
            "adam": stacked(
                [f"adam {length:g}" for length in config.adam_lengths], "adam_length", [float(x) for x in config.adam_lengths]
            ),
            "wander": stacked([f"wander {case}" for case in config.wander_cases], "wander_case", list(config.wander_cases)),
            **{name: parts[name] for name in ("sgd", "paper", "sign flow", "arrival", "bowl")},
        },
    )


STUDY = Study(
    "discrete",
    "Gradient descent, SGD and Adam against gradient flow",
    "How far are discrete gradient descent, SGD and Adam from the gradient flow of the theory, and by which laws?",
    "Each gap is predicted from the flow alone, by equations linearised along it (backward error analysis for descent, a Lyapunov "
    "equation for SGD, a flow with memory for Adam), before a step is taken. Descent and Adam then run on the exact risk, SGD in "
    "many copies on drawn prompts, and the authors' own SGD over its first part.",
    DiscreteConfig,
    DiscreteConfig(
        lengths=(30, math.inf),
        until=3.0,
        step_sizes=(0.2, 0.1, 0.05, 0.025),
        modified_step_sizes=(0.2, 0.1),
        times=41,
        points=32,
        settled=300.0,
        sections=12,
        rounds=2,
        large_steps=5,
        large_until=60.0,
        sgd_until=0.5,
        sgd_times=6,
        batches=((0.05, 16, 64), (0.05, 128, 64), (0.05, 256, 64), (0.025, 128, 64)),
        wander_until=0.6,
        wander_cases=("softmax 30", "linear 30"),
        wander_batch=(0.02, 64, 24),
        noise_prompts=2**11,
        sgd_points=2**9,
        adam_lengths=(math.inf,),
        adam_until=0.3,
        adam_step_sizes=(1e-2, 5e-3),
        sign_until=0.02,
        sign_step_sizes=(4e-5, 2e-5),
        arrival_lengths=(30,),
        arrival_steps=450,
        paper_until=0.3,
        paper_steps=50,
        paper_runs=4,
        paper_prompts=2**9,
        paper_times=3,
        paper_records=3,
        paper_points=64,
    ),
    cells,
    compute,
    combine,
    verdicts,
)
