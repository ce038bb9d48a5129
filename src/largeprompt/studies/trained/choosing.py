"""Which models a rule is about, and how their risks are compared."""

import functools
import math
from collections.abc import Callable

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from largeprompt.runs.judging import Answer, Rule

Choice = Callable[[xr.Dataset], xr.Dataset | None]


def choice(mask: Callable[[xr.Dataset], NDArray[np.bool_]], *, first: bool = False) -> Choice:
    """Choose the models of a mask, or the first of them; None where there is none."""

    def chosen(data: xr.Dataset) -> xr.Dataset | None:
        found = np.flatnonzero(mask(data))
        return data.isel(model=int(found[0]) if first else found) if len(found) else None

    return chosen


def is_shuffled(data: xr.Dataset) -> NDArray[np.bool_]:
    """Whether each model was trained on shuffled prompts."""
    return np.asarray(data.shuffled.values, dtype=bool)


def _one_bare_layer(data: xr.Dataset) -> NDArray[np.bool_]:
    return np.asarray(
        ~is_shuffled(data) & (data.kind.values == "attention") & (data.layers.values == 1)
    )


shuffled_models = choice(is_shuffled)
genuine = choice(lambda data: ~is_shuffled(data))
deep_models = choice(lambda data: ~is_shuffled(data) & ~_one_bare_layer(data))
# what the exact theory is about
one_head = choice(lambda data: _one_bare_layer(data) & (data.heads.values == 1), first=True)
several_heads = choice(lambda data: _one_bare_layer(data) & (data.heads.values > 1), first=True)


def about(
    choose: Choice,
    claim: str,
    question: str | Callable[[xr.Dataset], str],
    *,
    control: bool = False,
    fails: str = "",
) -> Callable[[Callable[[xr.Dataset], Answer | None]], Rule]:
    """Make a function of some models the rule for a question about them; no verdict where the
    settings have none of them.
    """

    def made(answer: Callable[[xr.Dataset], Answer | None]) -> Rule:
        @functools.wraps(answer)  # its module too, which decides when a run is judged again
        def of_chosen(data: xr.Dataset) -> Answer | None:
            chosen = choose(data)
            return None if chosen is None else answer(chosen)

        return Rule(claim, question, of_chosen, control, fails)

    return made


def z_scores(data: xr.Dataset, against: xr.DataArray, name: str = "risk") -> xr.DataArray:
    """Distance of each sampled mean from a number in standard errors, with the skewness of the
    samples taken out (Hall, 1992).

    A mean of n squares is skewed to the right and its standard error rises with it: t = (mean -
    number)/error alone strays too far below 0. With a = g/(3√n), g the skewness of one prompt, t +
    at² + a²t³/3 + a/2 is normal to the next order, and rises with t.
    """
    t: xr.DataArray = (data[name] - against) / data[f"{name}_error"]
    a: xr.DataArray = data[f"{name}_skewness"] / (3 * np.sqrt(data.test_prompts))
    score: xr.DataArray = t + a * t**2 + a**2 * t**3 / 3 + a / 2
    return score


def share_interval(share: xr.DataArray) -> tuple[float, float, float]:
    """Mean of shares over independent trainings and its 95 % interval, as if the heads of a
    training were one (Clopper, Pearson).

    Trainings of different models do not have the same chance; the spread of their mean is then less
    than that of equal ones.
    """
    from scipy.stats import beta

    values = share.values.ravel()
    n, x = len(values), float(values.sum())
    lower = float(beta.ppf(0.025, x, n - x + 1)) if x > 0 else 0.0
    upper = float(beta.ppf(0.975, x + 1, n - x)) if x < n else 1.0
    return x / n, lower, upper


def excess_ratio(data: xr.Dataset, of: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Risk above the noise, over that of ``of``: mean over runs and its standard error (trainings
    and prompts together).
    """
    ratio = (data.risk - data.floor) / (of - data.floor)
    return ratio.mean("run"), ratio.std("run", ddof=1) / math.sqrt(ratio.sizes["run"])


def longest(data: xr.Dataset) -> int:
    """Longest length of training."""
    return int(data.training_length.max())


def trained_on(data: xr.Dataset) -> xr.Dataset:
    """Test lengths within the range of training."""
    inside = (data.length >= data.training_length.min()) & (
        data.length <= data.training_length.max()
    )
    return data.sel(length=data.length[inside])
