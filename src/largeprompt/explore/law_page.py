"""The first tab: one prompt, in linked pictures and a sentence."""

import base64
import functools
import html
import io
import math

import numpy as np

from largeprompt import TiltDomainError, prompt_length
from largeprompt.explore import numbers
from largeprompt.explore.picture import Picture, Scale, decades, figure, in_words
from largeprompt.explore.state import LENGTHS, LawState
from largeprompt.law import regime

TOKENS = {
    "gaussian": "Gaussian tokens",
    "clusters": "tokens in two clusters",
    "signs": "tokens of signs ±1",
    "uniform": "uniform tokens",
    "laplace": "Laplace tokens",
    "sphere": "tokens on a sphere",
}
SQUARES = (20, 10)  # across and down, in the picture of effective tokens
REGIMES = {
    "linear": "linear: an average over many tokens",
    "heavy": "heavy: a few tokens count for much",
    "frozen": "frozen: one token takes all",
}


def first_row(state: LawState) -> str:
    """Where the softmax looks, how much of the prompt it reads, and what it reads."""
    return f'<div class="cards">{scores(state)}{effective_tokens(state)}{read_out(state)}</div>'


def second_row(state: LawState) -> str:
    """How far from the limit, where that lies among the regimes, and the numbers."""
    return f'<div class="cards">{errors(state)}{phase_diagram(state)}{summary(state)}</div>'


def scores(state: LawState) -> str:
    """Density of the scores, the density as the softmax weighs it, and tokens of one prompt with
    their weights.
    """
    places, density, tilted = numbers.densities(state)
    top = 1.35 * max(density.max(), 0.0 if tilted is None else tilted.max())
    axes = Picture(Scale(places[0], places[-1]), Scale(0.0, top), "score of a token")
    axes.area(places, density, "c3")
    axes.line(places, density, "c3")
    if tilted is not None:
        axes.area(places, tilted, "c0")
        axes.line(places, tilted, "c0")
    drawn, weights = numbers.prompt(state)
    axes.dots(
        drawn,
        np.full(len(drawn), 0.92 * top),
        "c1 see-through",
        radius=1.0 + 7.0 * np.sqrt(weights),
    )
    words = f"{len(drawn)} drawn token{'s' if len(drawn) > 1 else ''}, by weight"
    legend = [("c3", "scores"), ("c1", words)]
    if tilted is not None:
        legend.insert(1, ("c0", "as the softmax weighs them"))
    center = (
        ""
        if tilted is None
        else f" The weighted mean score is {in_words(float(np.average(places, weights=tilted)))}."
    )
    described = (
        f"Density of the scores with standard deviation {state.strength:g}, and of the "
        f"scores weighted by the softmax.{center}"
    )
    return figure("scores", "Where the softmax looks", axes.svg(described), legend)


def effective_tokens(state: LawState) -> str:
    """The whole prompt as squares, of which the effective tokens are filled."""
    found = numbers.curve(state)
    tokens, (across, down) = float(found.tokens[LENGTHS.index(state.length)]), SQUARES
    count, side = across * down, 16.0
    filled = 0.0 if math.isnan(tokens) else min(1.0, tokens / state.length) * count
    squares = []
    for i in range(count):
        a, b, share = i // down * side, i % down * side, min(max(filled - i, 0.0), 1.0)
        squares.append(f'<rect class="empty" x="{a}" y="{b}" width="14" height="14" rx="2"/>')
        if share:
            height = max(14 * share, 0.6)
            size = f'width="14" height="{height:.2f}" rx="{min(2.0, height / 2):.1f}"'
            squares.append(f'<rect class="full" x="{a}" y="{b + 14 - height:.2f}" {size}/>')
    number = f"{tokens:,.0f}" if tokens < 1000 else in_words(tokens)
    whole = f"{state.length:,} token{'s' if state.length > 1 else ''}"
    title = "How much it reads" if math.isnan(tokens) else f"It reads about {number} of {whole}"
    legend = (
        [("c0", f"one square: {state.length / count:,g} tokens")] if state.length > count else []
    )
    described = f"{title}: {filled:.2f} of {count} squares are filled."
    svg = (
        '<svg class="picture" viewBox="-8 -34 340 236" role="img" '
        f'aria-label="{html.escape(described)}">'
        f'<text class="big" x="0" y="-10">{html.escape(number)}</text>{"".join(squares)}</svg>'
    )
    return figure("tokens", title, svg, legend)


def read_out(state: LawState) -> str:
    """Infinite prompt against affine read-out as the query grows, and the mean over prompts of this
    length.
    """
    limit, affine = numbers.read_outs(state)
    strengths, here = np.array(numbers.STRENGTHS), numbers.STRENGTHS.index(state.strength)
    mean = float(numbers.curve(state).along[LENGTHS.index(state.length)])
    axes = Picture(
        Scale(0.0, 4.0),
        Scale(0.0, 5.0),
        "query strength (standard deviation of the scores)",
        "output along the query",
    )
    axes.line(strengths, limit, "c0 wide")
    axes.line(strengths, affine, "ink dashed")
    axes.upright(state.strength, "here")
    axes.dots([state.strength], [limit[here]], "c0", radius=5)
    axes.dots([state.strength], [mean], "c1", radius=4)
    gap = abs(limit[here] - affine[here]) / affine[here]
    if math.isnan(limit[here]):
        title = "What it reads: nothing settled, there is no limit"
    elif np.nanmax(np.abs(limit / affine - 1)) < 1e-9:
        title = "What it reads: a linear map of the query"
    else:
        title = f"What it reads: {in_words(100 * gap, 2)} % off the affine read-out"
    legend = [
        ("c0", "infinite prompt"),
        ("ink dashed", "affine read-out"),
        ("c1", f"mean at L = {state.length:,}"),
    ]
    described = (
        f"Limit {in_words(limit[here])} and affine read-out {in_words(affine[here])} at "
        f"strength {state.strength:g}."
    )
    return figure("readout", title, axes.svg(described), legend)


def errors(state: LawState) -> str:
    """Root mean squared error against the length: exact, certified and drawn."""
    found, proved, drawn = numbers.curve(state).errors, numbers.proved(state), numbers.drawn(state)
    if found is None or proved is None or drawn is None:
        return figure(
            "errors",
            "How far from the limit: there is no limit",
            Picture(
                Scale(1, 1e7, True),
                Scale(0.01, 10, True),
                "prompt length L",
                "root mean squared error",
            ).svg("No limit"),
        )
    low, high = decades(np.clip(found, 1e-6, 1e6), state.tolerance)
    axes = Picture(
        Scale(1, LENGTHS[-1], True),
        Scale(low, high, True),
        "prompt length L",
        "root mean squared error",
    )
    axes.level(state.tolerance, "c4 dotted")
    axes.upright(state.length, "here")
    axes.line(LENGTHS, [proved[length] for length in LENGTHS], "c1 dashed")
    axes.line(LENGTHS, found, "c0")
    names = [
        f"drawn, L = {length}: {in_words(mean)} ± {in_words(spread, 2)}"
        for length, mean, spread in zip(numbers.DRAWN, *drawn, strict=True)
    ]
    axes.dots(numbers.DRAWN, drawn[0], "c2", error=drawn[1], names=names)
    here = float(found[LENGTHS.index(state.length)])
    axes.dots(
        [state.length],
        [here],
        "c0",
        radius=5,
        names=[f"exact, L = {state.length}: {in_words(here)}"],
    )
    legend = [
        ("c0", "exact"),
        ("c1 dashed", "certified"),
        ("c2", "drawn"),
        ("c4 dotted", f"{state.tolerance:g} wanted"),
    ]
    return figure(
        "errors",
        "How far from the infinite prompt",
        axes.svg(f"Exact error {in_words(here)} at length {state.length}."),
        legend,
    )


def phase_diagram(state: LawState) -> str:
    """The three regimes over score variance and length, with effective tokens of Gaussian scores
    behind, and the current point.
    """
    variance, axes = (
        state.strength**2,
        Picture(Scale(0, 16), Scale(1, 1e7, True), "score variance σ²", "prompt length L"),
    )
    axes.backdrop(_backdrop())
    grid = np.linspace(0.0, 16.0, 81)
    axes.line(grid, np.exp(2 * grid), "border")
    axes.line(grid, np.exp(grid / 2), "border dashed")
    for x, y, words in ((0.5, 2e6, "linear"), (8.5, 3e4, "heavy"), (11.5, 5.0, "frozen")):
        axes.text(x, y, words, "on-map")
    axes.dots([variance], [state.length], "point", radius=6)
    name = regime(variance, state.length)
    described = f"Score variance {variance:.3g}, length {state.length}: regime {name}."
    legend = [
        ("border-key", "borders of the regimes"),
        ("few", "reads few"),
        ("many", "reads many"),
    ]
    title = (
        f"Regime {REGIMES[name]}"
        if state.law == "gaussian"
        else f"Regime, were the scores Gaussian: {name}"
    )
    return figure("phase", title, axes.svg(described), legend)


@functools.cache
def _backdrop() -> str:
    """Effective tokens over score variance and length as an image, base64."""
    from matplotlib import image

    tokens, buffer = numbers.regimes()[2], io.BytesIO()
    image.imsave(buffer, np.log10(tokens), cmap="cividis", origin="lower", format="png")
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def summary(state: LawState) -> str:
    """The answer in a sentence, and the error at this length three ways."""
    return (
        '<div class="card" id="answer"><p '
        f'class="answer">{html.escape(sentence(state))}</p>{_table(state)}</div>'
    )


def sentence(state: LawState) -> str:
    """How long is long enough."""
    found = numbers.curve(state)
    about = f"{TOKENS[state.law]} and a query of strength {state.strength:g}"
    if found.errors is None:
        return (
            f"No prompt is long enough. With {about} the scores have no exponential moment, and "
            "attention has no limit."
        )
    needed, proved = (
        numbers.needed_length(found.errors, state.tolerance),
        numbers.proved_length(state),
    )
    if math.isinf(needed):
        return (
            f"With {about}, more than ten million tokens are needed for an error of "
            f"{state.tolerance:g}."
        )
    number = in_words(needed, 2) if needed >= 100 else math.ceil(needed)
    sure = "no number up to ten million is" if math.isinf(proved) else f"{proved:,.0f} are"
    return (
        f"With {about}, about {number} tokens are enough for an error of {state.tolerance:g}; "
        f"{sure} proved to be."
    )


def to_the_token(state: LawState) -> str:
    """The same with the exact lengths, by ``prompt_length``: up to a few seconds."""
    here = numbers.problem(state)
    try:
        exact, proved = (
            prompt_length(here.attention, here.mu, here.z, state.tolerance, method)
            for method in ("exact", "certified")
        )
    except TiltDomainError as error:
        return str(error)
    lengths = [
        f"{int(found):,} tokens" if math.isfinite(found) else "no length up to 10¹⁵"
        for found in (exact, proved)
    ]
    return (
        f"Exactly: {lengths[0]} for an error of {state.tolerance:g} ({exact.reason}). "
        f"Certified: {lengths[1]}."
    )


def _table(state: LawState) -> str:
    found, proved, drawn = numbers.curve(state), numbers.proved(state), numbers.drawn(state)
    place = LENGTHS.index(state.length)
    exact = "no limit" if found.errors is None else in_words(float(found.errors[place]), 4)
    certified = "–" if proved is None else f"at most {in_words(proved[state.length], 4)}"
    if drawn is None:
        seen = "–"
    elif state.length in numbers.DRAWN:
        mean, spread = (float(each[numbers.DRAWN.index(state.length)]) for each in drawn)
        seen = f"{in_words(mean)} ± {in_words(spread, 2)}"
    else:
        seen = f"only up to {numbers.DRAWN[-1]} tokens"
    rows = {
        "exact": exact,
        "certified": certified,
        "drawn": seen,
        "tokens read": in_words(float(found.tokens[place]), 4),
    }
    cells = "".join(
        f'<tr><th scope="row">{name}</th><td data-value="{name}">{html.escape(text)}</td></tr>'
        for name, text in rows.items()
    )
    return (
        '<table class="numbers"><caption>Root mean squared error at L = '
        f"{state.length:,}</caption><tbody>{cells}</tbody></table>"
    )
