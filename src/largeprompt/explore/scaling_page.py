"""The third tab: how attention should scale with length, against the published rules."""

import functools

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


def page(state: ScalingState) -> str:
    """The factor by score variance and by length, and the numbers."""
    return cards(by_variance(state), by_length(state), summary(state))


@functools.lru_cache(maxsize=64)
def curve(trained: int, longer: int) -> tuple[Array, Array]:
    """Return score variances, and the exact factor for each."""
    variances = np.geomspace(VARIANCES[0], VARIANCES[-1], 25)
    return variances, length_scaling(longer, trained, variances).numpy()


def by_variance(state: ScalingState) -> str:
    """The exact factor against the score variance; each rule crosses it once."""
    longer = state.trained * state.times
    variances, exact = curve(state.trained, longer)
    rules = {name: float(rule(longer, state.trained)) for name, (rule, _) in RULES.items()}
    axes = Picture(
        Scale(variances[0], variances[-1], True),
        Scale(1.0, 1.05 * max(exact.max(), *rules.values())),
        "score variance σ² at the trained length",
        "factor on the scores",
    )
    axes.upright(state.variance, "here")
    axes.line(variances, exact, "c0", "exact")
    for name, factor in rules.items():
        axes.level(factor, RULES[name][1], name)
        crossing = float(np.interp(-factor, -exact, variances))
        axes.dots([crossing], [factor], RULES[name][1], words=[f"σ² = {crossing:.2g}"])
    axes.dots([state.variance], [_exact(state)], "c0", radius=5)
    title = f"The factor at {state.times} times the trained length"
    return axes.card("by-variance", title, f"Exact factor {_exact(state):.3g}.")


def by_length(state: ScalingState) -> str:
    """The factors against the length of the prompt."""
    lengths = state.trained * np.array([1, *TIMES])
    exact = length_scaling(lengths, state.trained, state.variance)
    rules = {name: rule(lengths, state.trained) for name, (rule, _) in RULES.items()}
    top = max(float(each.max()) for each in (exact, *rules.values()))
    axes = Picture(
        Scale(0.0, len(TIMES)),
        Scale(1.0, 1.05 * top),
        "prompt length L",
        "factor on the scores",
        ticks=[_short(int(length)) for length in lengths],
    )
    place = TIMES.index(state.times) + 1
    axes.upright(place, "here")
    axes.line(np.arange(len(lengths)), exact, "c0", "exact")
    for name, factor in rules.items():
        axes.line(np.arange(len(lengths)), factor, RULES[name][1], name)
    axes.dots([place], [exact[place]], "c0", radius=5)
    title = f"The factor for a score variance of {state.variance:g}"
    return axes.card("by-length", title, f"Exact factor {_exact(state):.3g}.")


def summary(state: ScalingState) -> str:
    """What to multiply by, and what softmax reads with and without."""
    longer, exact = state.trained * state.times, _exact(state)
    factors = {"exact": exact} | {
        name: float(rule(longer, state.trained)) for name, (rule, _) in RULES.items()
    }
    kept = float(output_scale(state.trained, state.variance)) ** -2
    words = (
        f"From {state.trained:,} to {longer:,} tokens, multiply the scores by {exact:.3f}: then "
        f"softmax reads {in_words(kept)} tokens, as it was trained to."
    )
    rows = [
        (name, f"{factor:.3f}", in_words(_read(longer, state.variance * factor**2)))
        for name, factor in (factors | {"none": 1.0}).items()
    ]
    headings = ("rule", "factor", "tokens read")
    return answer("scaling", words, table(f"At {longer:,} tokens", rows, headings))


def _exact(state: ScalingState) -> float:
    longer = state.trained * state.times
    return float(length_scaling(longer, state.trained, state.variance))


def _read(length: int, variance: float) -> float:
    return float(output_scale(length, variance)) ** -2


def _short(length: int) -> str:
    """A power of two as models are named after it: 512, 8k, 1M."""
    if length < 1024:
        return str(length)
    return f"{length // 1024}k" if length < 2**20 else f"{length // 2**20}M"
