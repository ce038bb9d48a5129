"""Exact errors of the limit and of the first order, and exact risks at the infinite-prompt optimum,
from L = 1 on.
"""

import math
from collections.abc import Mapping
from typing import Annotated

import numpy as np
import torch
import xarray as xr
from pydantic import Field

from largeprompt.attention import SoftmaxAttention
from largeprompt.law import finite_prompt
from largeprompt.measures import Gaussian
from largeprompt.runs.settings import Dimension, Distinct, Few, NonNegative, Positive, settings
from largeprompt.runs.study import Progress
from largeprompt.studies.anisotropy.formulas import spectrum
from largeprompt.studies.covariances import KINDS
from largeprompt.studies.shortcontext.formulas import ATTENTIONS, SHORT, TOLERANCES, long_enough
from largeprompt.training import LinearRegression

F = torch.float64
Condition = Annotated[float, Field(ge=1, allow_inf_nan=False)]


@settings
class ShortContextConfig:
    """Isotropic tokens in several dimensions, ill-conditioned ones in one, and regression at the
    infinite-prompt optimum.
    """

    dims: Distinct[Dimension] = (1, 4, 16, 64)
    score_variances: Distinct[Positive] = (0.1, 0.5, 1.0, 2.0, 4.0)
    conditions: Distinct[Condition] = (1.0, 1e2, 1e4)
    condition_dim: Dimension = 16
    regression_dim: Dimension = 5
    noise_variance: NonNegative = 0.1
    regression_conditions: Distinct[Condition] = (1.0, 1e2, 1e4)
    longest: Annotated[float, Field(ge=SHORT, le=1e15)] = 1e9
    per_decade: Few = 20
    regression_per_decade: Few = 5


def _lengths(config: ShortContextConfig, per_decade: int) -> list[int]:
    """1 to 30 one by one, then evenly in the logarithm."""
    far = SHORT * 10 ** (
        np.arange(1, round(per_decade * math.log10(config.longest / SHORT)) + 1) / per_decade
    )
    return sorted({*range(1, SHORT + 1), *(round(each) for each in far)})


def output_errors(config: ShortContextConfig, tokens: str, progress: Progress) -> xr.Dataset:
    """Exact errors, first order and limit, of 'isotropic' tokens or of 'conditioned' ones along
    weak and strong directions.
    """
    kinds = [(dim, 1.0, "any") for dim in config.dims]
    if tokens == "conditioned":
        kinds = [
            (config.condition_dim, condition, way)
            for condition in config.conditions
            for way in ("weak", "strong")
        ]
    cases = [(*kind, q) for kind in kinds for q in config.score_variances]
    lengths, rows = _lengths(config, config.per_decade), []
    for dim, condition, direction, q in cases:
        values = torch.from_numpy(spectrum("condition", condition, dim))
        place, eye = -1 if direction == "weak" else 0, torch.eye(dim, dtype=F)
        z = eye[place] * math.sqrt(q / float(values[place]))
        attention, mu = (
            SoftmaxAttention(eye, eye),
            Gaussian(torch.zeros(dim, dtype=F), torch.diag(values)),
        )
        law = finite_prompt(attention, mu, z, lengths)
        rough, at_one = (
            finite_prompt(attention, mu, z, lengths, expansion=True),
            values.sum() + (values * z).square().sum(),
        )
        rows.append(
            (law.mse.numpy(), rough.mse.numpy(), float(law.limit.square().sum()), float(at_one))
        )
    exact, first_order, size, at_ones = (list(column) for column in zip(*rows, strict=True))
    labels = dict(
        zip(
            ("dim", "condition", "direction", "score_variance"),
            zip(*cases, strict=True),
            strict=True,
        )
    )
    return xr.Dataset(
        {
            "exact": (("case", "length"), exact),
            "first_order": (("case", "length"), first_order),
            "size": ("case", size),
            "at_one": ("case", at_ones),
        },
        coords={"length": np.asarray(lengths, float)}
        | {name: ("case", list(values)) for name, values in labels.items()},
    )


def regression(config: ShortContextConfig, condition: float, progress: Progress) -> xr.Dataset:
    """Risk at the infinite-prompt endpoint of Theorem 5.1, b = tr(Σ⁻²)^¼, A = Σ⁻¹/b, with W = I/d,
    by the exact law.
    """
    d, s2 = config.regression_dim, config.noise_variance
    sigma = torch.diag(torch.from_numpy(spectrum("condition", condition, d)))
    task = LinearRegression(sigma, torch.eye(d, dtype=F) / d, s2)
    inverse = torch.linalg.inv(sigma)
    b = float(torch.trace(inverse @ inverse)) ** 0.25
    lengths = _lengths(config, config.regression_per_decade)
    A, read = (inverse / b).expand(len(lengths), d, d), torch.full((len(lengths),), b, dtype=F)
    risk = [task.block_risks(A, read, lengths, KINDS[kind]).numpy() for kind in ATTENTIONS]
    signal = float(torch.trace(sigma)) / d  # tr WΣ
    # the answer is b y_1, which knows nothing of x_q
    at_one = (s2 + signal + b**2 * (signal + s2)) / 2
    return xr.Dataset(
        {
            "risk": (("attention", "regression_length"), risk),
            "zero_risk": (s2 + signal) / 2,
            "risk_at_one": at_one,
        },
        coords={"attention": list(ATTENTIONS), "regression_length": np.asarray(lengths, float)},
    )


def with_long_enough(config: ShortContextConfig, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Outputs and regression side by side, with the smallest lengths that are long enough."""
    data = parts["output"].merge(parts["regression"]).assign(limit_risk=config.noise_variance / 2)

    def within(error: xr.DataArray, axis: str) -> xr.DataArray:
        return xr.concat(
            [long_enough(error, axis, level) for level in TOLERANCES],
            xr.Variable("within", list(TOLERANCES)),
        )

    return data.assign(
        limit_from=within(np.sqrt(data.exact / data["size"]), "length"),
        first_order_from=within(abs(data.first_order / data.exact - 1), "length"),
        regression_from=within(data.risk / data.limit_risk - 1, "regression_length"),
        useful_from=long_enough(data.risk / data.zero_risk - 1, "regression_length", 0.0),
    )
