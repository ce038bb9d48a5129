"""F1: short prompts, L = 1 to 30. How wrong is the large-prompt theory there, and from which length on is it right?"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from largeprompt.attention import SoftmaxAttention
from largeprompt.law import finite_prompt
from largeprompt.measures import Gaussian
from largeprompt.runs.study import Progress, Study, Verdict
from largeprompt.studies.anisotropy.study import eigenvalues
from largeprompt.training import LinearRegression

F = torch.float64
TOLERANCES = (0.5, 0.1)
SHORT = 30
ATTENTIONS = ("softmax", "linear")


@dataclasses.dataclass(frozen=True)
class ShortContextConfig:
    """Isotropic tokens in several dimensions, ill-conditioned ones in one, and regression at the infinite-prompt optimum."""

    dims: tuple[int, ...] = (1, 4, 16, 64)
    score_variances: tuple[float, ...] = (0.1, 0.5, 1.0, 2.0, 4.0)
    conditions: tuple[float, ...] = (1.0, 1e2, 1e4)
    condition_dim: int = 16
    regression_dim: int = 5
    noise_variance: float = 0.1
    regression_conditions: tuple[float, ...] = (1.0, 1e2, 1e4)
    longest: float = 1e9
    per_decade: int = 20
    regression_per_decade: int = 5
    points: int = 4096
    seed: int = 0


def cells(config: ShortContextConfig) -> list[str]:
    """Isotropic, ill-conditioned, and regression by condition number."""
    return ["isotropic", "conditioned", *(f"regression {c:g}" for c in config.regression_conditions)]


def _lengths(config: ShortContextConfig, per_decade: int) -> list[int]:
    """1 to 30 one by one, then evenly in the logarithm."""
    decades = math.log10(config.longest / SHORT)
    far = SHORT * 10 ** (np.arange(1, round(per_decade * decades) + 1) / per_decade)
    return sorted({*range(1, SHORT + 1), *(round(each) for each in far)})


def compute(config: ShortContextConfig, cell: str, progress: Progress) -> xr.Dataset:
    """Exact errors, first order and limit for the cases of one cell; or exact risks of the trained layer."""
    progress(cell)
    if cell.startswith("regression"):
        return _regression(config, float(cell.split()[1]))
    cases = [(dim, q, 1.0, "any") for dim in config.dims for q in config.score_variances]
    if cell == "conditioned":
        cases = [
            (config.condition_dim, q, condition, direction)
            for condition in config.conditions
            for direction in ("weak", "strong")
            for q in config.score_variances
        ]
    lengths = _lengths(config, config.per_decade)
    columns: dict[str, list[NDArray[np.float64]]] = {"exact": [], "first_order": [], "size": [], "at_one": []}
    for dim, q, condition, direction in cases:
        values = torch.from_numpy(eigenvalues(f"condition {condition:g}", dim))
        place = dim - 1 if direction == "weak" else 0
        z = torch.zeros(dim, dtype=F)
        z[place] = math.sqrt(q / float(values[place]))
        eye = torch.eye(dim, dtype=F)
        attention, mu = SoftmaxAttention(eye, eye), Gaussian(torch.zeros(dim, dtype=F), torch.diag(values))
        law = finite_prompt(attention, mu, z, lengths)
        columns["exact"].append(law.mse.numpy())
        columns["first_order"].append(finite_prompt(attention, mu, z, lengths, expansion=True).mse.numpy())
        columns["size"].append(law.limit.square().sum(-1).numpy())
        columns["at_one"].append((values.sum() + (values * z).square().sum()).numpy())  # tr Γ + ‖Γu‖²
    return xr.Dataset(
        {
            "exact": (("case", "length"), np.stack(columns["exact"]), {"long_name": "E|T_L - T|^2, exact"}),
            "first_order": (("case", "length"), np.stack(columns["first_order"]), {"long_name": "leading order in 1/L"}),
            "size": ("case", np.stack(columns["size"]), {"long_name": "|T|^2"}),
            "at_one": ("case", np.stack(columns["at_one"]), {"long_name": "tr Gamma + |Gamma u|^2, the error at L = 1"}),
        },
        coords={
            "length": np.asarray(lengths, dtype=np.float64),
            "dim": ("case", [case[0] for case in cases]),
            "score_variance": ("case", [case[1] for case in cases]),
            "condition": ("case", [case[2] for case in cases]),
            "direction": ("case", [case[3] for case in cases]),
        },
    )


def _regression(config: ShortContextConfig, condition: float) -> xr.Dataset:
    """Risk at the infinite-prompt endpoint of Theorem 5.1, b = tr(Σ⁻²)^¼, A = Σ⁻¹/b, with W = I/d, by the exact law."""
    d, s2 = config.regression_dim, config.noise_variance
    sigma = torch.diag(torch.from_numpy(eigenvalues(f"condition {condition:g}", d)))
    task = LinearRegression(sigma, torch.eye(d, dtype=F) / d, s2)
    inverse = torch.linalg.inv(sigma)
    b = float(torch.trace(inverse @ inverse)) ** 0.25
    lengths = _lengths(config, config.regression_per_decade)
    runs = len(lengths)
    A, read = (inverse / b).expand(runs, d, d), torch.full((runs,), b, dtype=F)
    queries = task.block_queries(config.points, config.seed)
    risk = [task.block_risks(A, read, queries, lengths, kind == "softmax").numpy() for kind in ATTENTIONS]
    signal = float(torch.trace(sigma)) / d  # tr WΣ
    at_one = (s2 + signal + b**2 * (signal + s2)) / 2  # the answer is b y_1, which knows nothing of x_q
    return xr.Dataset(
        {
            "risk": (("regression_condition", "attention", "regression_length"), np.stack(risk)[None]),
            "limit_risk": s2 / 2,
            "zero_risk": ("regression_condition", [(s2 + signal) / 2], {"long_name": "risk of always answering 0"}),
            "risk_at_one": ("regression_condition", [at_one], {"long_name": "risk of softmax attention at L = 1, predicted"}),
        },
        coords={
            "regression_condition": [condition],
            "attention": list(ATTENTIONS),
            "regression_length": np.asarray(lengths, dtype=np.float64),
        },
    )


def combine(config: ShortContextConfig, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Cases one after the other, regression stacked by condition number, and the smallest lengths that are long enough."""
    options = {"combine_attrs": "drop", "join": "outer", "data_vars": "minimal", "coords": "minimal", "compat": "equals"}
    data: xr.Dataset = xr.concat([parts["isotropic"], parts["conditioned"]], "case", **options)  # type: ignore[call-overload]
    stacked = [parts[f"regression {c:g}"] for c in config.regression_conditions]
    data = data.merge(xr.concat(stacked, "regression_condition", **options))  # type: ignore[call-overload]
    relative = {
        "limit": np.sqrt(data.exact / data["size"]),
        "first_order": abs(data.first_order / data.exact - 1),
        "regression": data.risk / data.limit_risk - 1,
        "useful": data.risk / data.zero_risk - 1,
    }
    for name, error in relative.items():
        axis = "regression_length" if name in ("regression", "useful") else "length"
        levels = (0.0,) if name == "useful" else TOLERANCES
        found = xr.concat([_long_enough(error, axis, level) for level in levels], xr.Variable("within", list(levels)))
        data[f"{name}_from"] = found.isel(within=0, drop=True) if name == "useful" else found
    return data


def _long_enough(error: xr.DataArray, axis: str, tolerance: float) -> xr.DataArray:
    """Smallest length from which on the error is within the tolerance, up to the longest; infinite if there is none."""
    outside = error > tolerance
    lengths = error[axis].values
    after = np.append(lengths[1:], np.inf)
    next_one = xr.DataArray(after, dims=axis, coords={axis: lengths}).broadcast_like(error)
    return next_one.where(outside, lengths[0]).max(axis)


def verdicts(data: xr.Dataset) -> list[Verdict]:
    """The theory of large prompts fails below the lengths found; each rule asks whether L = 10 would already do."""
    isotropic = data.isel(case=np.flatnonzero(data.direction.values == "any"))
    tilted = data.isel(case=np.flatnonzero(data.direction.values != "any"))
    at_one = float(abs(data.exact.sel(length=1.0) / data.at_one - 1).max())
    risk_one = data.risk.sel(attention="softmax", regression_length=1.0)
    risk_error = float(abs(risk_one / data.risk_at_one - 1).max())
    ratio = np.sqrt(data.exact.sel(length=1.0) / data["size"])
    return [
        Verdict(
            "F1",
            "At L = 1, where T_1 = V z_1, is the error tr VΓVᵀ + ‖VΓu‖² and the regression risk that of answering b y_1?",
            "holds" if at_one < 1e-10 and risk_error < 1e-6 else "fails",
            f"Output to {at_one:.1e} in {data.sizes['case']} cases, risk to {risk_error:.1e}.",
        ),
        _output(isotropic, "isotropic tokens"),
        _output(tilted, "ill-conditioned tokens"),
        _first_order(isotropic),
        *(_regression_verdict(data, kind) for kind in ATTENTIONS),
        Verdict(
            "F1",
            "Does one token suffice for an answer within 50 %?",
            "fails" if float(ratio.min()) > 0.5 else "holds",
            f"The relative error at L = 1 is {float(ratio.min()):.2f} to {float(ratio.max()):.3g}.",
            control=True,
        ),
    ]


def _length(value: float, data: xr.Dataset, axis: str = "length") -> str:
    return f"{value:.3g}" if math.isfinite(value) else f"more than {float(data[axis][-1]):.0e}"


def _output(data: xr.Dataset, words: str) -> Verdict:
    half, tenth = (data.limit_from.sel(within=level) for level in TOLERANCES)
    best, worst = (data.isel(case=int(pick(half.values))) for pick in (np.argmin, np.argmax))

    def name(case: xr.Dataset) -> str:
        where = (
            f"d = {int(case.dim)}"
            if str(case.direction.values) == "any"
            else f"condition {float(case.condition):g}, {case.direction.values}"
        )
        return f"{where}, σ² = {float(case.score_variance):g}"

    return Verdict(
        "F1",
        f"Is the limit within 50 % of a short prompt's output, {words}?",
        "fails" if float(half.max()) > 10 else "holds",
        f"It fails below L = {_length(float(half.min()), data)} ({name(best)}) at best and below "
        f"{_length(float(half.max()), data)} ({name(worst)}) at worst; for 10 % below {_length(float(tenth.min()), data)} and "
        f"{_length(float(tenth.max()), data)}. {int((half <= SHORT).sum())} of {half.size} cases are within 50 % at L = {SHORT}.",
    )


def _first_order(data: xr.Dataset) -> Verdict:
    rows = data.first_order_from.where(data.dim == data.dim.max(), drop=True)
    text = ", ".join(
        f"{_length(float(row[0]), data)} and {_length(float(row[1]), data)} (σ² = {float(row.score_variance):g})"
        for row in rows.transpose("case", "within")
    )
    return Verdict(
        "F1",
        "Is the first order in 1/L within 50 % and 10 % of the exact error for short prompts?",
        "fails" if float(rows.max()) > 10 else "holds",
        f"It fails below L = {text}, d = {int(data.dim.max())}.",
    )


def _regression_verdict(data: xr.Dataset, kind: str) -> Verdict:
    part = data.sel(attention=kind)
    half, tenth = (part.regression_from.sel(within=level) for level in TOLERANCES)
    axis = "regression_length"
    lengths = [[_length(float(each), data, axis) for each in row] for row in zip(half, tenth, part.useful_from, strict=True)]
    text = "; ".join(
        f"{first}, {second} and {third} (condition {float(c):g})"
        for (first, second, third), c in zip(lengths, data.regression_condition, strict=True)
    )
    return Verdict(
        "F1",
        f"Is the risk of {kind} attention at the infinite-prompt optimum near its limit for short prompts?",
        "fails" if float(half.max()) > 10 else "holds",
        f"It is not within 50 %, not within 10 %, and not better than that of always answering 0, below L = {text}.",
    )


STUDY = Study(
    "shortcontext",
    "Short contexts",
    "How wrong is the large-prompt theory for L = 1 to 30, and from which length on is it right?",
    "The exact law gives the error of the limit and of the first order for every L from 1 to 30 and on to 10⁹, in several "
    "dimensions, score variances and condition numbers. The risk of in-context regression at the infinite-prompt optimum is "
    "computed likewise. The smallest lengths from which on the theory is within 50 % and 10 % are read off.",
    ShortContextConfig,
    ShortContextConfig(
        score_variances=(0.5, 2.0),
        dims=(1, 16),
        per_decade=5,
        regression_per_decade=2,
        regression_conditions=(1.0, 1e4),
        points=512,
    ),
    cells,
    compute,
    combine,
    verdicts,
)
