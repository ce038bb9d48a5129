"""The second tab: training by gradient flow, at several lengths against infinity."""

import functools
from collections.abc import Callable
from typing import Any

from largeprompt.explore.code import executed, training_setup
from largeprompt.explore.picture import Picture, Scale, decades
from largeprompt.explore.state import TrainingState
from largeprompt.explore.text import answer, cards, in_words, note, table

COLORS = ("c1", "c2", "c4")
SHOWN = 1e-6  # smaller distances between parameters are those of the solver
HIGHEST = 1e2  # envelopes beyond this say nothing, and would squeeze the rest


@functools.lru_cache(maxsize=32)
def flows(state: TrainingState, fine: bool = True) -> dict[str, Any]:
    """Return the names that the code of the state defines; ``fine`` ones take about a second."""
    return executed(training_setup(state, fine))


def stages(state: TrainingState) -> tuple[Callable[[], str], ...]:
    """A word, the page with coarse flows, and that of the code."""
    return (
        lambda: note("Computing the flows …"),
        lambda: page(state, False),
        lambda: page(state, True),
    )


def page(state: TrainingState, fine: bool) -> str:
    """Risks in time, distances from the infinite-prompt flow, and the risks at the end."""
    found = flows(state, fine)
    return cards(risks(found), distances(found), ends(state, found, fine))


def risks(found: dict[str, Any]) -> str:
    """Population risk in time; dotted: the least risk of any predictor that sees as many tokens."""
    tube, limit = found["tube"], found["tube"].limit.risk[0]
    top = 1.05 * float(max(tube.flow.risk.max(), limit.max()))
    axes = Picture(_times(found), Scale(0.0, top), "time of gradient flow", "risk")
    rows = zip(COLORS, found["lengths"], tube.flow.risk, found["bayes"], strict=True)
    for look, length, risk, bayes in rows:
        axes.level(bayes, f"{look} dotted")
        axes.line(tube.times, risk, look, f"L = {length:,}")
    axes.level(_floor(found), "c0 dotted")
    axes.line(tube.times, limit, "c0", "L = ∞")
    axes.named("ink dotted", "Bayes")
    return axes.card("risks", "Risk along training")


def distances(found: dict[str, Any]) -> str:
    """Distance of the parameters from those of the infinite prompt, and Grönwall's envelope."""
    tube = found["tube"]
    ends = tube.envelope[:, -1].clamp_max(HIGHEST)
    low, high = decades(tube.distance[:, 1:].clamp_min(SHOWN), ends)
    axes = Picture(_times(found), Scale(low, high, True), "time of gradient flow", "distance")
    rows = zip(COLORS, found["lengths"], tube.distance, tube.envelope, strict=True)
    for look, length, distance, envelope in rows:
        axes.line(tube.times[1:], envelope[1:], f"{look} dotted")
        axes.line(tube.times[1:], distance[1:], look, f"L = {length:,}")
    axes.named("ink dotted", "tube (Grönwall)")
    return axes.card("tube", "Distance from the infinite-prompt flow")


def ends(state: TrainingState, found: dict[str, Any], fine: bool) -> str:
    """What is lost at each length, in a sentence and a table."""
    tube, lengths = found["tube"], found["lengths"]
    risk, limit = tube.flow.risk[:, -1].tolist(), float(tube.limit.risk[0, -1])
    short, long = (in_words(each - limit, 2) for each in (risk[0], risk[-1]))
    words = (
        f"Trained on prompts of {lengths[0]} tokens, {state.attention} attention ends {short} "
        f"above the risk of an infinite prompt; with {lengths[-1]:,} tokens, {long}."
    )
    columns = (risk, found["bayes"], tube.distance.amax(1).tolist())
    rows = [
        (f"{length:,}", in_words(end, 4), in_words(bayes, 4), in_words(far))
        for length, end, bayes, far in zip(lengths, *columns, strict=True)
    ]
    rows.append(("∞", in_words(limit, 4), in_words(_floor(found), 4), "0"))
    caption = f"At time {state.until:g}{'' if fine else ' (coarse; refining …)'}"
    return answer("ends", words, table(caption, rows, ("L", "risk", "Bayes", "farthest")))


def _times(found: dict[str, Any]) -> Scale:
    return Scale(float(found["times"][1]), float(found["times"][-1]), True)


def _floor(found: dict[str, Any]) -> float:
    return float(found["task"].bayes_risk(float("inf")))
