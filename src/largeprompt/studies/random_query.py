"""C3 and E3 averaged over a random query: at which power of L does the error fall?"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
import torch
import xarray as xr
from pydantic import Field

from largeprompt.attention import SoftmaxAttention
from largeprompt.measures import Gaussian
from largeprompt.planning import query_average
from largeprompt.runs.judging import Finding, judged, rule
from largeprompt.runs.settings import Dimension, Distinct, Increasing, Positive, Two, settings
from largeprompt.runs.study import Part, Progress, Study, along
from largeprompt.runs.style import COLORS, MARKERS, Axes, describe, study_figure
from largeprompt.studies.claims import claims
from largeprompt.studies.lengths import sharp_exponent
from largeprompt.studies.ranges import Decade
from largeprompt.studies.variables import labels

F = torch.float64


@settings
class RandomQueryConfig:
    """Isotropic Gaussian tokens by H² = ‖Γ^{1/2} U C^{1/2}‖², or with one large eigenvalue."""

    # H² of isotropic tokens
    squares: Increasing[Positive] = (0.15, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
    dims: Distinct[Dimension] = (1, 4)
    # logarithms of the lengths to base 10
    decades: Annotated[Increasing[Decade], Two] = (2, 3, 8, 9, 13, 14)
    # shares of the trace of the largest eigenvalue
    spikes: Increasing[Annotated[float, Field(gt=0, lt=1)]] = (0.05, 0.25, 0.5, 0.75, 0.95)
    spiked_dim: Annotated[Dimension, Field(ge=2)] = 20  # dimension of spiked tokens
    mean_score_variance: Positive = 2.0  # of spiked tokens


def averaged(config: RandomQueryConfig, eigenvalues: torch.Tensor, scale: float) -> torch.Tensor:
    """Mean squared errors over tokens N(0, diag(eigenvalues)) and queries N(0, scale I)."""
    eye, zero = torch.eye(len(eigenvalues), dtype=F), torch.zeros(len(eigenvalues), dtype=F)
    tokens, queries = Gaussian(zero, torch.diag(eigenvalues)), Gaussian(zero, scale * eye)
    lengths = [10**k for k in config.decades]
    return query_average(SoftmaxAttention(eye, eye), tokens, queries, lengths).mse


def with_exponents(
    config: RandomQueryConfig, mse: Sequence[torch.Tensor], case: str, prefix: str = ""
) -> xr.Dataset:
    """Errors by case and decade, with their local exponents from one decade to the next."""
    values = torch.stack(list(mse)).numpy()
    return xr.Dataset(
        {
            f"{prefix}mse": ((case, "decade"), values),
            f"{prefix}exponent": (
                (case, "decade_end"),
                -np.diff(np.log10(values), axis=-1) / np.diff(config.decades),
            ),
        },
        coords={"decade": list(config.decades), "decade_end": list(config.decades[1:])},
    )


def isotropic(config: RandomQueryConfig, dim: int, progress: Progress) -> xr.Dataset:
    """Errors of isotropic tokens in one dimension, for each H²."""
    one = torch.ones(dim, dtype=F)
    found = [averaged(config, one, square) for square in config.squares]
    return with_exponents(config, found, "square").assign_coords(square=list(config.squares))


def spiked(config: RandomQueryConfig, progress: Progress) -> xr.Dataset:
    """Errors of spectra of trace d with one large eigenvalue, all with one mean score variance."""
    d, rest = config.spiked_dim, config.spiked_dim - 1
    found = []
    for share in config.spikes:
        values = d * torch.tensor([share, *[(1 - share) / rest] * rest], dtype=F)
        found.append(averaged(config, values, config.mean_score_variance / d))
    return with_exponents(config, found, "spike", "spiked_").assign_coords(
        spike=list(config.spikes)
    )


def combine(config: RandomQueryConfig, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Both parts, with the exponents that are proposed for them."""
    data = xr.merge(parts.values(), combine_attrs="drop")
    largest = np.maximum(data.spike, (1 - data.spike) / (config.spiked_dim - 1))
    spiked_square = config.mean_score_variance * largest
    return data.assign(
        sharp=sharp_exponent(data.square),
        bohbot=1 / (1 + data.square),
        spiked_square=spiked_square,
        spiked_sharp=sharp_exponent(spiked_square),
        mean_score_variance=config.mean_score_variance,
    )


def last_exponents(data: xr.Dataset) -> xr.DataArray:
    """Last local exponents of isotropic tokens, with (d-1)/(2 ln L) added where H² >= 1/2.

    There queries of norm r ~ √(ln L) set the error, and their density r^{d-1} is a factor
    (ln L)^{(d-1)/2}.
    """
    middle = float(data.decade[-2:].mean()) * math.log(10)
    radius = (data.dim - 1) / (2 * middle) * (data.square >= 0.5)
    last: xr.DataArray = data.exponent.isel(decade_end=-1) + radius
    return last


@rule(
    "C3",
    "Averaged over Gaussian queries, is the exponent g(H) rather than the 1/(1+H²) of 2512.10656?",
    stronger=True,
)
def sharp(data: xr.Dataset) -> Finding:
    """Holds where every exponent is nearer to g(H) than half the distance of the two."""
    last, apart = last_exponents(data), abs(data.sharp - data.bohbot) / 2
    ours, theirs = (abs(last - data[name]) < apart for name in ("sharp", "bohbot"))
    good = bool(ours.all()) and not bool(theirs.any())
    return Finding(
        judged(good, in_part=bool(ours.any()), rests_on=[last]),
        "Averaged over random queries, the error falls with the power of L that we predict, not "
        "with that of earlier work.",
        "Averaged over random queries, the power of L is the one we predict where the lengths "
        "decide it.",
        {
            "from L =": f"10^{int(data.decade[-2])} to 10^{int(data.decade[-1])}",
            "off g(H) by at most": abs(last - data.sharp).max(),
            "off 1/(1+H²) by at most": abs(last - data.bohbot).max(),
            "cases for g(H)": int(ours.sum()),
            "for 1/(1+H²)": int(theirs.sum()),
            "of": int(last.size),
        },
    )


@rule(
    "C3",
    "Is the exponent of the paper's form, c2/H² with one c2?",
    fails="The paper's form, as a description: the true exponent never exceeds 1.",
)
def one_constant(data: xr.Dataset) -> Finding:
    """Fails where the c2 that each H² needs differ by more than a quarter."""
    needed = data.exponent.isel(dim=0, decade_end=-1) * data.square
    spread = float(needed.max() / needed.min())
    return Finding(
        judged(spread <= 1.25, rests_on=[spread]), numbers={"c2 that each H² needs": needed}
    )


@rule(
    "E3", "For spread eigenvalues, does the exponent follow g(H), H² set by the largest eigenvalue?"
)
def largest_eigenvalue(data: xr.Dataset) -> Finding:
    """Holds within 0.06 at the longest prompts."""
    exponents = data.spiked_exponent.isel(decade_end=-1)
    gap = float(abs(exponents - data.spiked_sharp).max())
    return Finding(
        judged(gap < 0.06, rests_on=[exponents]),
        "For random queries the largest eigenvalue alone sets the power of L.",
        "For random queries the power of L is not the one that the largest eigenvalue predicts.",
        {"share of the trace": data.spike, "exponent": exponents, "off g(H) by at most": gap},
    )


@rule("C3", "Does any query-averaged error fall faster than 1/L?", control=True)
def faster(data: xr.Dataset) -> Finding:
    """Fails where no local exponent exceeds 1."""
    largest = max(float(data[name].max()) for name in ("exponent", "spiked_exponent"))
    return Finding(
        judged(largest >= 1.001, rests_on=[largest]), numbers={"largest exponent": largest}
    )


@study_figure(
    "random_query",
    "Decay exponent of the query-averaged error between decades of L (marks: exact law), with our "
    "g(H), the 1/(1+H²) of 2512.10656, and the paper's c2/H². Open marks: without the known factor "
    "(ln L)^((d-1)/2). Right: spread eigenvalues of one trace.",
    size=lambda data: (2.9 * data.sizes["dim"] + 3.3, 3.1),
    panels=lambda data: (1, data.sizes["dim"] + 1),
    sharey=True,
)
def figure(data: xr.Dataset, *panels: Axes) -> None:
    """Local exponents of the exact law at growing L, with the curve that they tend to."""
    last = data.sizes["decade_end"] - 1
    cases: list[tuple[str, xr.DataArray, xr.DataArray, xr.DataArray | None]] = [
        (f"$d={dim}$", data.square, data.exponent.sel(dim=dim), last_exponents(data).sel(dim=dim))
        for dim in data.dim.values
    ]
    title = rf"spiked, mean $\sigma^2={float(data.mean_score_variance):g}$"
    cases.append((title, data.spiked_square, data.spiked_exponent, None))
    for axes, (title, square, exponents, corrected) in zip(panels, cases, strict=True):
        x = np.linspace(0.02, float(square.max()) * 1.05, 400)
        axes.plot(x, sharp_exponent(x), color="black", lw=1.6, label="$g(H)$, ours")
        axes.plot(x, 1 / (1 + x), color="0.5", lw=1.2, ls="--", label="$1/(1+H^2)$")
        axes.plot(x, 1 / x, color="0.7", lw=1.0, ls=":", label="$c_2/H^2$, $c_2=1$")
        for i, k in enumerate(sorted({0, (last + 1) // 2, last})):
            low, high = int(data.decade[k]), int(data.decade_end[k])
            label = rf"$L=10^{{{low}}}$ to $10^{{{high}}}$"
            axes.plot(
                square, exponents.isel(decade_end=k), MARKERS[i], color=COLORS[i], label=label
            )
        if corrected is not None and bool((corrected != exponents.isel(decade_end=-1)).any()):
            axes.plot(square, corrected, MARKERS[i], color=COLORS[i], mfc="none", ms=6)
        describe(axes, r"$H^2=\|\Gamma^{1/2}UC^{1/2}\|^2$", "", title, ylim=(0, 1.1))
    describe(panels[0], "", r"decay exponent of $\mathbf{E}\,\|T_L-T\|^2$", legend=7)


STUDY = Study(
    name="random_query",
    title="Random queries",
    question="At which power of L does the error fall when the query is random?",
    method="For Gaussian tokens and queries the exact error is averaged over the query by "
    "quadrature, decade by decade of L, for isotropic tokens and for spread eigenvalues. The local "
    "exponents are compared with g(H) = min(1, √(1/H² + 1/4) - 1/2), with 1/(1+H²) and with c2/H². "
    "Nothing is fitted.",
    config=RandomQueryConfig,
    quick=RandomQueryConfig(
        decades=(2, 6, 13, 14), squares=(0.15, 0.5, 1.0, 2.0), spikes=(0.05, 0.5, 0.95)
    ),
    parts=[
        Part("isotropic", isotropic, over=lambda config: config.dims, join=along("dim")),
        Part("spiked", spiked),
    ],
    rules=(sharp, one_constant, largest_eigenvalue, faster),
    figures=(figure,),
    claims=claims("C3", "E3"),
    variables=labels(
        {
            "mse": "mean squared error averaged over a random query",
            "exponent": "local exponent of the decay in the prompt length",
            "square": "H², the largest variance of the scores in one direction of the query",
            "sharp": "predicted exponent g(H)",
            "bohbot": "exponent 1/(1+H²) of 2512.10656",
            "spiked_mse": "mean squared error averaged over a random query, spread eigenvalues",
            "spiked_exponent": "local exponent of the decay, spread eigenvalues",
            "spiked_square": "H² by the largest of the spread eigenvalues",
            "spiked_sharp": "predicted exponent g(H), spread eigenvalues",
            "mean_score_variance": "mean over queries of the score variance",
        }
    ),
    combine=combine,
)
