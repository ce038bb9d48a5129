"""The second tab: training by gradient flow, at several lengths against infinity."""

import html

import numpy as np

from largeprompt.explore.picture import Picture, Scale, decades, figure, in_words
from largeprompt.explore.state import TrainingState
from largeprompt.explore.training import Flows, flows

COLOURS = ("c1", "c2", "c4")


def page(state: TrainingState) -> str:
    """Risk in time, distance from the infinite-prompt flow with its tube, and the risks
    at the end.
    """
    found = flows(state)
    return f'<div class="cards">{risks(found)}{tube(found)}{ends(state, found)}</div>'


def risks(found: Flows) -> str:
    """Population risk in time; dotted: the least risk of any predictor that sees as many tokens."""
    top = 1.05 * float(max(found.risks.max(), found.limit_risks.max()))
    axes = Picture(
        Scale(float(found.times[1]), float(found.times[-1]), True),
        Scale(0.0, top),
        "time of gradient flow",
        "risk",
    )
    for look, risk, bayes in zip(COLOURS, found.risks, found.bayes, strict=True):
        axes.level(bayes, f"{look} dotted")
        axes.line(found.times, risk, look)
    axes.level(found.floor, "c0 dotted")
    axes.line(found.times, found.limit_risks, "c0")
    legend = [
        *((look, f"L = {length:,}") for look, length in zip(COLOURS, found.lengths, strict=True)),
        ("c0", "L = ∞"),
        ("ink dotted", "Bayes"),
    ]
    ends = ", ".join(
        f"{in_words(float(risk[-1]))} at L = {length}"
        for risk, length in zip(found.risks, found.lengths, strict=True)
    )
    return figure(
        "risks",
        "Risk along training",
        axes.svg(f"Risk at the end: {ends}; {in_words(float(found.limit_risks[-1]))} at infinity."),
        legend,
    )


def tube(found: Flows) -> str:
    """Distance of the parameters from those of the infinite prompt, and the envelope that
    Grönwall's lemma gives.
    """
    shown = slice(1, None)
    low, high = decades(
        np.clip(found.distances[:, shown], 1e-6, None), np.clip(found.envelopes[:, -1], None, 1e2)
    )
    axes = Picture(
        Scale(float(found.times[1]), float(found.times[-1]), True),
        Scale(low, high, True),
        "time of gradient flow",
        "distance",
    )
    for look, distance, envelope in zip(COLOURS, found.distances, found.envelopes, strict=True):
        axes.line(found.times[shown], envelope[shown], f"{look} dotted")
        axes.line(found.times[shown], distance[shown], look)
    legend = [
        *((look, f"L = {length:,}") for look, length in zip(COLOURS, found.lengths, strict=True)),
        ("ink dotted", "tube (Grönwall)"),
    ]
    words = ", ".join(
        f"{in_words(float(each.max()))} at L = {length}"
        for each, length in zip(found.distances, found.lengths, strict=True)
    )
    return figure(
        "tube",
        "Distance from the infinite-prompt flow",
        axes.svg(f"Largest distance: {words}."),
        legend,
    )


def ends(state: TrainingState, found: Flows) -> str:
    """What is lost at each length, in a sentence and a table."""
    first, last = found.lengths[0], found.lengths[-1]
    lost = [float(risk[-1] - found.limit_risks[-1]) for risk in found.risks]
    words = (
        f"Trained on prompts of {first} tokens, {state.attention} attention ends "
        f"{in_words(lost[0], 2)} above the risk of an "
        f"infinite prompt; with {last:,} tokens, {in_words(lost[-1], 2)}."
    )
    head = "".join(f'<th scope="col">{each}</th>' for each in ("L", "risk", "Bayes", "farthest"))
    rows = [
        (
            f"{length:,}",
            in_words(float(risk[-1]), 4),
            in_words(bayes, 4),
            in_words(float(distance.max())),
        )
        for length, risk, bayes, distance in zip(
            found.lengths, found.risks, found.bayes, found.distances, strict=True
        )
    ]
    rows.append(("∞", in_words(float(found.limit_risks[-1]), 4), in_words(found.floor, 4), "0"))
    cells = "".join(
        f'<tr data-length="{row[0]}">' + "".join(f"<td>{each}</td>" for each in row) + "</tr>"
        for row in rows
    )
    body = f"<thead><tr>{head}</tr></thead><tbody>{cells}</tbody>"
    table = f'<table class="numbers"><caption>At time {found.times[-1]:g}</caption>{body}</table>'
    return f'<div class="card" id="ends"><p class="answer">{html.escape(words)}</p>{table}</div>'
