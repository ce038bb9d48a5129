"""C1, C2, N1: the infinite prompt of Gaussian and other tokens, and finite prompts beside it."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import xarray as xr

from largeprompt.attention import SoftmaxAttention, affine_limit
from largeprompt.law import finite_prompt
from largeprompt.measures import Measure, cumulant_ladder
from largeprompt.runs.study import Part, Progress, Study, along, side_by_side, stacked
from largeprompt.studies.claims import claims
from largeprompt.studies.lengths import error_curves
from largeprompt.studies.limit.checks import identity, operator
from largeprompt.studies.limit.config import LimitConfig
from largeprompt.studies.limit.figures import FIGURES
from largeprompt.studies.limit.laws import FAMILIES, LAWS
from largeprompt.studies.limit.rules import RULES
from largeprompt.studies.ranges import length_grid
from largeprompt.studies.variables import labels

F = torch.float64


def errors(config: LimitConfig, name: str, progress: Progress) -> xr.Dataset:
    """Distances to the limit of one law and to the affine map: exact, and drawn for the limit.

    One query z = (s, ..., s) with U = V = I, so that the score variance is ‖z‖² for every law.
    """
    eye, mu = torch.eye(config.dim, dtype=F), LAWS[name](config.dim)
    z = math.sqrt(config.score_variance / config.dim) * eye.sum(0)
    attention, every = SoftmaxAttention(eye, eye), length_grid(config.longest, config.points)
    progress("exact law, and drawn prompts")
    seed = torch.Generator().manual_seed(1000 * config.seed + list(LAWS).index(name))
    draws: dict[str, Any] = {"drawn": config.drawn_lengths, "generator": seed}
    curves = error_curves(attention, mu, z, every.tolist(), **draws)
    if mu.tilt_range(z)[1] <= 4:  # the squared error has no variance
        curves["drawn_error"] = curves.drawn_error * math.nan
    gap, affine = _to_affine(attention, mu, z, every.tolist())
    return curves.assign(affine=("length", affine[:, 0]), gap=float(gap[0]))


def _to_affine(
    attention: SoftmaxAttention, mu: Measure, z: torch.Tensor, lengths: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Distance of limit and affine map, and mean squared ones of finite prompts to the latter."""
    matrix, offset = affine_limit(attention, mu)
    z = z.reshape(-1, mu.dim)
    law = finite_prompt(attention, mu, z, lengths)
    gap = law.limit - z @ matrix.mT - offset
    # E‖T_L - affine‖² = E‖T_L - T‖² + 2 g·bias + ‖g‖²
    away = law.mse + 2 * (law.bias * gap).sum(-1) + gap.square().sum(-1)
    return gap.norm(dim=-1).numpy(), away.numpy()


def members(config: LimitConfig) -> dict[str, tuple[float, ...]]:
    """Parameters of each family."""
    every = (config.terms, config.shapes, config.separations, config.skews)
    return dict(zip(FAMILIES, every, strict=True))


def family(config: LimitConfig, name: str, progress: Progress) -> xr.Dataset:
    """Errors, gaps and cumulants of one family of scalar laws; U = V = 1: the tilt is the query."""
    attention = SoftmaxAttention(torch.eye(1, dtype=F), torch.eye(1, dtype=F))
    z, lengths = torch.tensor(config.tilts, dtype=F).unsqueeze(-1), length_grid(config.longest, 25)
    rows = []
    for parameter in members(config)[name]:
        progress(f"{parameter:g}")
        mu = FAMILIES[name].make(parameter)
        gap, affine = _to_affine(attention, mu, z, lengths.tolist())
        rungs = (cumulant_ladder(mu, z) / z).numpy()
        exact = finite_prompt(attention, mu, z, lengths.tolist()).mse.numpy()
        rows.append((exact, affine, gap, abs(rungs[:, 2] + rungs[:, 3]), parameter))
    exact, affine, gap, cumulants, parameters = (np.stack(each) for each in zip(*rows, strict=True))
    grid = ("member", "family_length", "tilt")
    data = xr.Dataset(
        {
            "family_exact": (grid, exact),
            "family_affine": (grid, affine),
            "family_gap": (("member", "tilt"), gap),
            "cumulants": (("member", "tilt"), cumulants),
            "law_parameter": ("member", parameters.astype(float)),
        },
        coords={
            "family_length": lengths.astype(float),
            "tilt": list(config.tilts),
            "member": np.arange(len(parameters)),
        },
    )
    return data.merge(_scaling(config, name)).expand_dims(family=[name])


def _scaling(config: LimitConfig, name: str) -> xr.Dataset:
    """Exact gap on the way to the Gaussian, and the predicted one, at the middle tilt."""
    one, u = FAMILIES[name], config.tilts[len(config.tilts) // 2]
    nearest = 1e-6 ** (1 / one.power)  # where the predicted gap is about a millionth
    distance = np.geomspace(nearest, 0.5, config.scaling_points)
    parameters = [one.at(float(x)) for x in distance]
    tilt = torch.tensor([u], dtype=F)
    gaps = [abs(float(one.make(each).tilted_mean(tilt)) - u) for each in parameters]
    if name == "Rademacher sum":  # a whole number of terms
        distance = 1 / np.array(parameters)
    return xr.Dataset(
        {
            "distance": ("step", distance),
            "scaling_gap": ("step", gaps),
            "scaling_predicted": ("step", abs(one.slope(u)) * distance**one.power),
            "power": one.power,
        },
        coords={"step": np.arange(config.scaling_points)},
    )


def combine(config: LimitConfig, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """All side by side, with names as plain text."""
    data = side_by_side(config, parts)
    named = [name for name in data.coords if data[name].dtype.kind == "O"]
    return data.assign_coords({name: data[name].astype(str) for name in named})


STUDY = Study(
    name="limit",
    title="The infinite-prompt limit",
    question="Is attention over an infinite Gaussian prompt affine, and what is it for other laws?",
    method="The operator is compared with quadratures for random layers, d up to 200, singular "
    "covariances, non-zero means and mixtures. For six laws the exact law of a finite prompt gives "
    "its distance to the limit and to the affine map from L = 1 to 10¹²; drawn prompts check it. "
    "Four families of scalar laws leave the Gaussian by one parameter each.",
    config=LimitConfig,
    quick=LimitConfig(
        dims=(1, 2, 10, 50, 200),
        layers=4,
        points=25,
        terms=(1, 8),
        shapes=(1.5, 8.0),
        separations=(0.5, 0.8),
        skews=(0.1, 0.9),
        scaling_points=5,
    ),
    parts=[
        Part("identity", identity, over=lambda config: config.dims, join=along("dim")),
        Part("operator", operator),
        Part("errors", errors, over=lambda _: LAWS, join=along("law")),
        Part("family", family, over=lambda _: FAMILIES, join=stacked("family")),
    ],
    rules=RULES,
    figures=FIGURES,
    claims=claims("C1", "C2", "N1"),
    variables=labels(
        {
            "identity_error": "relative error of the operator against quadrature",
            "affine_error": "relative error of the affine map, median over layers",
            "kind": "kind of tokens",
            "nodes_error": "relative error on Gauss-Hermite nodes",
            "nodes": "Gauss-Hermite nodes in each direction",
            "prompt_error": "relative difference from PyTorch's softmax attention",
            "prompt": "prompt length [tokens]",
            "affine": "mean squared distance to the affine map, exact",
            "gap": "distance of limit and affine map",
            "family": "family of scalar laws",
            "member": "member of the family",
            "law_parameter": "parameter of the law",
            "*_affine": "mean squared distance to the affine map, exact, *",
            "*_gap": "distance of limit and affine map, *",
            "cumulants": "that distance by third and fourth cumulant",
            "distance": "distance of the parameter from the Gaussian",
            "scaling_predicted": "that distance, predicted",
            "power": "predicted power of the distance from the Gaussian",
            "step": "step towards the Gaussian",
        }
    ),
    combine=combine,
)
