"""The third tab: how attention should scale with length, against the published rules."""

import functools
from collections.abc import Callable

import numpy as np

from largeprompt import length_scaling, output_scale
from largeprompt.explore.picture import Array, Picture, Scale
from largeprompt.explore.state import TIMES, VARIANCES, ScalingState
from largeprompt.explore.text import answer, cards, in_words, table
from largeprompt.planning import log_n_scaling, yarn_scaling

RULES = {  # LongRoPE's is log-n for longer prompts
    "log-n, LongRoPE": (log_n_scaling, "c1 dashed"),
    "YaRN": (yarn_scaling, "c2 dotted"),
}
FACTOR = "factor on the scores"


def stages(state: ScalingState) -> tuple[Callable[[], str]]:
    """The page, at once."""
    return (lambda: page(state),)


def page(state: ScalingState) -> str:
    """The factor by score variance and by length, and what softmax reads with each."""
    longer = state.trained * state.times
    exact = float(length_scaling(longer, state.trained, state.variance))
    rules = {name: float(rule(longer, state.trained)) for name, (rule, _) in RULES.items()}
    kept = in_words(_read(state.trained, state.variance))
    words = (
        f"From {state.trained:,} to {longer:,} tokens, multiply the scores by {exact:.3f}: then "
        f"softmax reads {kept} tokens, as it was trained to."
    )
    rows = [
        (name, f"{factor:.3f}", in_words(_read(longer, state.variance * factor**2)))
        for name, factor in ({"exact": exact} | rules | {"none": 1.0}).items()
    ]
    found = table(f"At {longer:,} tokens", rows, ("rule", "factor", "tokens read"))
    return cards(by_variance(state, rules), by_length(state), answer("scaling", words, found))


def by_variance(state: ScalingState, rules: dict[str, float]) -> str:
    """The exact factor against the score variance; each rule crosses it once."""
    variances, exact = _exact(state.trained, state.trained * state.times)
    top = 1.05 * max(exact.max(), *rules.values())
    across = Scale(variances[0], variances[-1], True)
    axes = Picture(across, Scale(1.0, top), "score variance σ² at the trained length", FACTOR)
    axes.upright(state.variance, "here")
    axes.line(variances, exact, "c0", "exact")
    for name, factor in rules.items():
        axes.level(factor, RULES[name][1], name)
        crossing = float(np.interp(-factor, -exact, variances))
        axes.dots([crossing], [factor], RULES[name][1], words=[f"σ² = {crossing:.2g}"])
    return axes.card("by-variance", f"The factor at {state.times} times the trained length")


@functools.lru_cache(maxsize=64)
def _exact(trained: int, longer: int) -> tuple[Array, Array]:
    variances = np.geomspace(VARIANCES[0], VARIANCES[-1], 25)
    return variances, length_scaling(longer, trained, variances).numpy()


def by_length(state: ScalingState) -> str:
    """The factors against the length of the prompt."""
    lengths, places = state.trained * np.array([1, *TIMES]), range(len(TIMES) + 1)
    exact = length_scaling(lengths, state.trained, state.variance)
    rules = {name: rule(lengths, state.trained) for name, (rule, _) in RULES.items()}
    top = 1.05 * max(float(each.max()) for each in (exact, *rules.values()))
    ticks = [_short(int(length)) for length in lengths]
    axes = Picture(Scale(0, len(TIMES)), Scale(1.0, top), "prompt length L", FACTOR, ticks=ticks)
    axes.upright(TIMES.index(state.times) + 1, "here")
    axes.line(places, exact, "c0", "exact")
    for name, factor in rules.items():
        axes.line(places, factor, RULES[name][1], name)
    return axes.card("by-length", f"The factor for a score variance of {state.variance:g}")


def _read(length: int, variance: float) -> float:
    return float(output_scale(length, variance)) ** -2


def _short(length: int) -> str:
    """A power of two as models are named after it: 512, 8k, 1M."""
    if length < 1024:
        return str(length)
    return f"{length // 1024}k" if length < 2**20 else f"{length // 2**20}M"
