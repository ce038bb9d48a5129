"""Laws read at every tilt, exact and drawn; and where Student-t prompts break."""

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
import xarray as xr

from largeprompt.measures import LaplaceLaw, ScalarLaw, StudentT, StudentTLaw
from largeprompt.measures.scalar.density import HasDensity
from largeprompt.runs.study import Progress
from largeprompt.studies.heavytail.config import HeavyTailConfig
from largeprompt.studies.heavytail.exact import (
    Array,
    asymptote,
    spread_of_squared_weights,
    squared_weights,
)

CHUNK = 2**20  # tokens drawn at a time
FACTOR = 2.0  # a law breaks where E Σ w² is this many times that of Gaussian tokens
NORMAL = StudentT(1, math.inf).law
LASTING = (3.0, 5.0, 10.0, 20.0, 30.0)  # df whose longest safe prompt is computed


def laws(config: HeavyTailConfig) -> dict[str, tuple[ScalarLaw, tuple[float, ...]]]:
    """Each law with its tilts; unit variance where there is one, Student-t unscaled for df <= 2."""
    student = {f"df = {df:g}": (StudentT(1, df).law, config.tilts) for df in config.dfs}
    return {**student, "Laplace": (LaplaceLaw(), config.laplace_tilts)}


def law_with_tilts(config: HeavyTailConfig, name: str, progress: Progress) -> xr.Dataset:
    """One law with its tilts: exact Σ w² at all lengths, then drawn prompts."""
    law, tilts = laws(config)[name]
    assert isinstance(law, HasDensity)
    progress("exact law")
    lengths = grid(config)
    exact = [squared_weights(law, tilt, config.lengths) for tilt in tilts]
    found = {
        "curve": np.stack([squared_weights(law, tilt, lengths) for tilt in tilts]),
        "asymptote": np.stack([asymptote(law, tilt, np.array(lengths, float)) for tilt in tilts]),
        "exact": np.stack(exact),
        "variance": np.stack([spread_of_squared_weights(law, u, config.lengths) for u in tilts]),
    }
    progress("drawing prompts")
    drawn = [_draw(config, law, tilts, index) for index in range(len(config.lengths))]
    for name_, rows in zip(("sampled", "of_largest", "error"), np.stack(drawn, -1), strict=True):
        found[name_] = rows
    axes = {name: "grid" if name in ("curve", "asymptote") else "length" for name in found}
    df = law.df if isinstance(law, StudentTLaw) else math.nan
    replicas = [[_replicas(config, each) for each in config.lengths]] * len(tilts)
    return xr.Dataset(
        {key: (("case", axes[key]), value) for key, value in found.items()}
        | {"replicas": (("case", "length"), replicas)},
        {
            "grid": np.array(lengths, dtype=np.float64),
            "length": list(config.lengths),
            "law": ("case", [name] * len(tilts)),
            "df": ("case", [df] * len(tilts)),
            "tilt": ("case", list(tilts)),
        },
    )


def grid(config: HeavyTailConfig) -> list[int]:
    """Lengths of the exact curves."""
    points = np.logspace(1, config.decades, (config.decades - 1) * config.per_decade + 1)
    return [int(length) for length in np.unique(np.round(points))]


def _replicas(config: HeavyTailConfig, length: int) -> int:
    return max(40, min(config.most_replicas, config.tokens // length))


def _draw(config: HeavyTailConfig, law: ScalarLaw, tilts: Sequence[float], index: int) -> Array:
    """Mean Σ w², median of T over the largest token, median distance of T to u; shape (3, tilt).

    One seed serves all laws: Student-t laws share their uniform numbers.
    """
    length = config.lengths[index]
    replicas, rows = _replicas(config, length), max(1, CHUNK // length)
    generator = torch.Generator().manual_seed(1000 * config.seed + index)
    found: list[torch.Tensor] = []
    for start in range(0, replicas, rows):
        origin = torch.zeros(1, 1, dtype=torch.float64).expand(min(rows, replicas - start), length)
        tokens = law.sample(origin, generator)
        read = []
        for tilt in tilts:
            weights = torch.softmax(tilt * tokens, -1)
            output = (weights * tokens).sum(-1)
            away = (output - tilt).abs()  # u is the read-out of Gaussian tokens
            read.append(torch.stack([weights.square().sum(-1), output / tokens.amax(-1), away]))
        found.append(torch.stack(read, 1))
    squares, ratios, distances = torch.cat(found, -1)
    middle = (each.quantile(0.5, dim=-1) for each in (ratios, distances))
    return torch.stack([squares.mean(-1), *middle]).numpy()


def breakdown(config: HeavyTailConfig, tilt: float, progress: Progress) -> xr.Dataset:
    """df below which E Σ w² passes the factor, by length; and the length, for a few df."""
    from scipy.optimize import root_scalar

    progress(f"{config.finest} values of df")
    df, lengths = np.geomspace(2.1, 250.0, config.finest), grid(config)

    normal = squared_weights(NORMAL, tilt, lengths)

    def heavy(freedom: float, at: Sequence[int]) -> Array:
        return squared_weights(StudentT(1, freedom).law, tilt, at)

    def refined(place: int, guess: float) -> float:
        """The df at which prompts of this length break, from one that is nearly right."""
        if not math.isfinite(guess):
            return guess
        near, broken = math.log(guess), FACTOR * normal[place]
        excess = lambda x: math.log(heavy(math.exp(x), [lengths[place]])[0] / broken)  # noqa: E731
        # the next step is smaller by far
        return math.exp(root_scalar(excess, x0=near, x1=near + 1e-3, xtol=1e-4).root)

    ratio = np.stack([heavy(each, lengths) for each in df]) / normal
    breaks = [refined(place, crossing(df, column)) for place, column in enumerate(ratio.T)]
    progress("lengths from which prompts break")

    def ratio_of(freedom: float, at: Sequence[int]) -> Array:
        return heavy(freedom, at) / squared_weights(NORMAL, tilt, at)

    lasting = [first_length(functools.partial(ratio_of, each), lengths) for each in LASTING]
    data = xr.Dataset(
        {"breakdown": ("grid", breaks), "lasting": ("lasting_df", lasting)},
        {"grid": np.array(lengths, dtype=np.float64), "lasting_df": list(LASTING)},
    )
    return data.expand_dims(breakdown_tilt=[tilt])


def crossing(df: Array, ratio: Array) -> float:
    """Largest df at which a ratio that falls to 1 is still the factor; inf or nan at the ends."""
    from scipy.interpolate import PchipInterpolator
    from scipy.optimize import brentq

    above = np.flatnonzero(ratio >= FACTOR)
    if not len(above):
        return math.nan
    if above[-1] == len(df) - 1:
        return math.inf
    curve, ends = PchipInterpolator(np.log(df), np.log(ratio)), np.log(df[above[-1] :][:2])
    return math.exp(brentq(lambda x: float(curve(x)) - math.log(FACTOR), *ends))


def first_length(ratio: Callable[[Sequence[int]], Array], lengths: Sequence[int]) -> float:
    """Length from which a function of lengths passes the factor, to one part in a thousand."""
    above = np.flatnonzero(ratio(lengths) >= FACTOR)
    if not len(above):
        return math.inf
    first = max(int(above[0]), 1)
    low, high = lengths[first - 1], lengths[first]
    while high - low > max(1, high // 1000):  # many lengths cost no more than one
        inner = np.unique(np.linspace(low, high, 65).round().astype(np.int64)).tolist()
        first = int(np.flatnonzero(np.append(ratio(inner[1:-1]) >= FACTOR, True))[0]) + 1
        low, high = inner[first - 1], inner[first]
    return float(high)
