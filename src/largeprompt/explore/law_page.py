"""The first tab: one prompt, in linked pictures and a sentence."""

import base64
import functools
import html
import io
import math

import numpy as np

from largeprompt.explore import numbers
from largeprompt.explore.picture import Picture, Scale, decades
from largeprompt.explore.state import LAWS, LENGTHS, LawState
from largeprompt.explore.text import answer, cards, figure, in_words, table
from largeprompt.law import regime

SQUARES = (20, 10)  # across and down, in the picture of effective tokens
REGIMES = {
    "linear": "linear: an average over many tokens",
    "heavy": "heavy: a few tokens count for much",
    "frozen": "frozen: one token takes all",
}


def first_row(state: LawState) -> str:
    """Where the softmax looks, how much of the prompt it reads, and what it reads."""
    return cards(scores(state), effective_tokens(state), read_out(state))


def second_row(state: LawState, words: str) -> str:
    """How far from the limit, where that lies among the regimes, and the numbers."""
    return cards(errors(state), phase_diagram(state), summary(state, words))


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
    center = in_words(float(np.average(places, weights=tilted)))
    return axes.card(
        "scores",
        "Where the softmax looks",
        f"Density of the scores with standard deviation {state.strength:g}, and of the scores "
        f"weighted by the softmax. The weighted mean score is {center}.",
    )


def effective_tokens(state: LawState) -> str:
    """The whole prompt as squares, of which the effective tokens are filled."""
    tokens = float(numbers.curve(state).tokens[LENGTHS.index(state.length)])
    (across, down), side, full = SQUARES, 16, 14
    count = across * down
    filled = min(1.0, tokens / state.length) * count
    squares = []
    for i in range(count):
        a, b, share = i // down * side, i % down * side, min(max(filled - i, 0.0), 1.0)
        size = f'width="{full}" height="{full}" rx="2"'
        squares.append(f'<rect class="empty" x="{a}" y="{b}" {size}/>')
        if share:
            high = max(full * share, 0.6)  # one token of millions can still be seen
            size = f'width="{full}" height="{high:.2f}" rx="{min(2.0, high / 2):.1f}"'
            squares.append(f'<rect class="full" x="{a}" y="{b + full - high:.2f}" {size}/>')
    number = f"{tokens:,.0f}" if tokens < 1000 else in_words(tokens)
    whole = f"{state.length:,} token{'s' if state.length > 1 else ''}"
    title = f"It reads about {number} of {whole}"
    legend = [("c0", f"one square: {state.length / count:,g} tokens")]
    svg = (
        '<svg class="picture" viewBox="-8 -34 340 236" role="img" '
        f'aria-label="{html.escape(title)}: {filled:.2f} of {count} squares are filled.">'
        f'<text class="big" x="0" y="-10">{html.escape(number)}</text>{"".join(squares)}</svg>'
    )
    return figure("tokens", title, svg, legend if state.length > count else [])


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
    return axes.card(
        "readout",
        f"What it reads: {title}",
        f"Limit {in_words(limit[here])} and affine read-out {in_words(affine[here])} at strength "
        f"{state.strength:g}.",
    )


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
    return axes.card(
        "errors",
        "How far from the infinite prompt",
        f"Exact error {in_words(here)} at length {state.length}.",
    )


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
    described = f"Score variance {variance:.3g}, length {state.length}: regime {name}."
    return axes.card("phase", title, described)


@functools.cache
def _backdrop() -> str:
    """Effective tokens over score variance and length as an image, base64."""
    from matplotlib import image

    tokens, buffer = numbers.regimes()[2], io.BytesIO()
    image.imsave(buffer, np.log10(tokens), cmap="cividis", origin="lower", format="png")
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def counting(state: LawState) -> str:
    """What stands for the sentence until it is there."""
    return f"Counting the tokens that are needed for an error of {state.tolerance:g} …"


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
    return (
        f"{LAWS[state.law]} tokens have a limit for strengths below "
        f"{math.sqrt(2 * (state.dim if state.direction == 'all' else 1)):.3g} only: shown at "
        f"{state.strength:g}."
    )
