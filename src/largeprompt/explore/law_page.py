"""The first tab: one prompt, in linked pictures and a sentence."""

import base64
import functools
import io
import math
from collections.abc import Callable

import numpy as np

from largeprompt import output_scale
from largeprompt.explore import numbers
from largeprompt.explore.picture import Picture, Scale, decades
from largeprompt.explore.state import LAWS, LENGTHS, LawState
from largeprompt.explore.text import answer, cards, figure, in_words, table
from largeprompt.law import regime

ACROSS, DOWN, SIDE, GAP = 20, 10, 14, 2  # of squares, in the picture of effective tokens
REGIMES = {
    "linear": "linear: an average over many tokens",
    "heavy": "heavy: a few tokens count for much",
    "frozen": "frozen: one token takes all",
}


def stages(state: LawState) -> tuple[Callable[[], str], ...]:
    """The page, first without the answer, which may take half a second."""
    counting = f"Counting the tokens that are needed for an error of {state.tolerance:g} …"
    return (lambda: page(state, counting), lambda: page(state, sentence(state)))


def page(state: LawState, words: str) -> str:
    """Where the softmax looks, what it reads, how far that is from the limit, and the answer."""
    drawings = (scores, effective_tokens, read_out, errors, phase_diagram)
    return cards(*(draw(state) for draw in drawings), summary(state, words))


def scores(state: LawState) -> str:
    """Density of the scores, also as the softmax weighs it, and tokens of one prompt."""
    places, density, tilted = numbers.densities(state)
    top = 1.35 * max(density.max(), tilted.max())
    axes = Picture(Scale(places[0], places[-1]), Scale(0.0, top), "score of a token")
    axes.area(places, density, "c3", "scores")
    axes.area(places, tilted, "c0", "as the softmax weighs them")
    drawn, weights = numbers.prompt(state)
    words = f"{len(drawn)} drawn token{'s' if len(drawn) > 1 else ''}, by weight"
    sizes = 1.0 + 7.0 * np.sqrt(weights)
    axes.dots(drawn, np.full(len(drawn), 0.92 * top), "c1 see-through", words, radius=sizes)
    return axes.card("scores", "Where the softmax looks")


def effective_tokens(state: LawState) -> str:
    """The whole prompt as squares, of which the effective tokens are filled."""
    tokens = float(numbers.curve(state).tokens[LENGTHS.index(state.length)])
    filled = min(1.0, tokens / state.length) * ACROSS * DOWN
    squares = []
    for i in range(ACROSS * DOWN):
        share = min(max(filled - i, 0.0), 1.0)
        high = max(SIDE * share, 0.6)  # one token of millions can still be seen
        marks = [("empty", SIDE), ("full", high)] if share else [("empty", SIDE)]
        a, b = i // DOWN * (SIDE + GAP), i % DOWN * (SIDE + GAP) + SIDE
        squares += [
            f'<rect class="{look}" x="{a}" y="{b - high:.2f}" width="{SIDE}" height="{high:.2f}" '
            f'rx="{min(2.0, high / 2):.1f}"/>'
            for look, high in marks
        ]
    number = f"{tokens:,.0f}" if tokens < 1000 else in_words(tokens)
    title = f"It reads about {number} of {state.length:,} token{'s' if state.length > 1 else ''}"
    each = state.length / (ACROSS * DOWN)
    svg = (
        f'<svg class="picture" viewBox="-8 -34 340 236" role="img" aria-label="{title}">'
        f'<text class="big" x="0" y="-10">{number}</text>{"".join(squares)}</svg>'
    )
    legend = [("c0", f"one square: {each:,g} tokens")] if each > 1 else []
    return figure("tokens", title, svg, legend)


def read_out(state: LawState) -> str:
    """Infinite prompt against affine read-out as the query grows, and the mean at this length."""
    strengths, limit, affine = numbers.read_outs(state)
    here = round(10 * state.strength) - 1
    axes = Picture(
        Scale(0.0, strengths[-1]),
        Scale(0.0, 5.0),
        "query strength (standard deviation of the scores)",
        "output along the query",
    )
    axes.line(strengths, limit, "c0 wide", "infinite prompt")
    axes.line(strengths, affine, "ink dashed", "affine read-out")
    axes.upright(state.strength, "here")
    axes.dots([state.strength], [limit[here]], "c0", radius=5)
    mean = float(numbers.curve(state).along[LENGTHS.index(state.length)])
    axes.dots([state.strength], [mean], "c1", f"mean at L = {state.length:,}", radius=4)
    off = np.abs(limit / affine - 1)
    title = (
        "a linear map of the query"
        if off.max() < 1e-9
        else f"{in_words(100 * float(off[here]), 2)} % off the affine read-out"
    )
    return axes.card("readout", f"What it reads: {title}")


def errors(state: LawState) -> str:
    """Root mean squared error against the length: exact, certified and drawn."""
    found, (drawn, spread) = numbers.curve(state), numbers.drawn(state)
    low, high = decades(np.clip(found.errors, 1e-6, 1e6), state.tolerance)
    axes = Picture(
        Scale(1, LENGTHS[-1], True),
        Scale(low, high, True),
        "prompt length L",
        "root mean squared error",
    )
    axes.upright(state.length, "here")
    axes.line(LENGTHS, found.errors, "c0", "exact")
    axes.line(LENGTHS, found.proved, "c1 dashed", "certified")
    axes.level(state.tolerance, "c4 dotted", f"{state.tolerance:g} wanted")
    words = [
        f"drawn, L = {length}: {in_words(each)} ± {in_words(error, 2)}"
        for length, each, error in zip(numbers.DRAWN, drawn, spread, strict=True)
    ]
    axes.bars(numbers.DRAWN, drawn - spread, drawn + spread, "c2")
    axes.dots(numbers.DRAWN, drawn, "c2", "drawn", words=words)
    here = float(found.errors[LENGTHS.index(state.length)])
    words = [f"exact, L = {state.length}: {in_words(here)}"]
    axes.dots([state.length], [here], "c0", radius=5, words=words)
    return axes.card("errors", "How far from the infinite prompt")


def phase_diagram(state: LawState) -> str:
    """The three regimes over score variance and length, before the tokens that are read."""
    variance, grid = state.strength**2, np.linspace(0.0, 16.0, 81)
    axes = Picture(Scale(0, 16), Scale(1, 1e7, True), "score variance σ²", "prompt length L")
    axes.backdrop(_backdrop())
    axes.line(grid, np.exp(2 * grid), "border")
    axes.line(grid, np.exp(grid / 2), "border dashed")
    for x, y, words in ((0.5, 2e6, "linear"), (8.5, 3e4, "heavy"), (11.5, 5.0, "frozen")):
        axes.text(x, y, words, "on-map")
    axes.dots([variance], [state.length], "point", radius=6)
    axes.legend += [
        ("border-key", "borders of the regimes"),
        ("few", "reads few"),
        ("many", "reads many"),
    ]
    name = regime(variance, state.length)
    title = (
        f"Regime {REGIMES[name]}"
        if state.law == "gaussian"
        else f"Regime, if the scores were Gaussian: {name}"
    )
    return axes.card("phase", title)


@functools.cache
def _backdrop() -> str:
    """Effective tokens over score variance and length as an image, base64."""
    from matplotlib import image

    lengths, buffer = np.logspace(0, 7, 29).round(), io.BytesIO()
    scale = output_scale(lengths[:, None], np.linspace(0.0, 16.0, 41))
    image.imsave(buffer, -scale.log(), cmap="cividis", origin="lower", format="png")
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def sentence(state: LawState) -> str:
    """How long is long enough."""
    exact, proved = (
        f"{int(each):,} tokens" if math.isfinite(each) else "no length up to 10¹⁵"
        for each in numbers.enough(state)
    )
    return f"For an error of {state.tolerance:g}: {exact}. By the certificate: {proved}."


def summary(state: LawState, words: str) -> str:
    """The answer in a sentence, and the error at this length three ways."""
    found, place = numbers.curve(state), LENGTHS.index(state.length)
    seen = f"only up to {numbers.DRAWN[-1]} tokens"
    if state.length in numbers.DRAWN:
        mean, spread = (each[numbers.DRAWN.index(state.length)] for each in numbers.drawn(state))
        seen = f"{in_words(mean)} ± {in_words(spread, 2)}"
    rows = (
        ("exact", in_words(float(found.errors[place]), 4)),
        ("certified", f"at most {in_words(float(found.proved[place]), 4)}"),
        ("drawn", seen),
        ("tokens read", in_words(float(found.tokens[place]), 4)),
    )
    caption = f"Root mean squared error at L = {state.length:,}"
    return answer("answer", words, table(caption, rows))


def too_strong(asked: float, state: LawState) -> str:
    """Why the query is weaker than asked for; empty where it is not."""
    if asked <= state.strongest:
        return ""
    name = LAWS[state.law]
    return f"{name} tokens have no limit at strength {asked:g}: shown at {state.strength:g}."
