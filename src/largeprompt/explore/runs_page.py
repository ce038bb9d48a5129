"""The third tab: a finished run with its verdicts and figures; of an audit, any head: its scores,
read-outs, verdict and why.
"""

import html

import numpy as np
import xarray as xr

from largeprompt.audit.figures import TINTS
from largeprompt.audit.kinds import FINDINGS
from largeprompt.explore.picture import Picture, Scale, decades, figure, in_words
from largeprompt.explore.reading import Audit
from largeprompt.report.page import typeset
from largeprompt.report.sections import embedded, judgement, picture
from largeprompt.runs.store import Run

LETTERS = dict(zip(FINDINGS, "MCSOUN", strict=True))
ON_DARK = "MS"  # letters that are white on their tint
TINT = dict(zip(FINDINGS, TINTS, strict=True))
LABELS = {"mean": "mean", "affine": "affine", "third": "3rd", "fourth": "4th"}


def overview(run: Run) -> str:
    """Title, question and verdicts: of one that fails what it means, and controls last."""
    rows = []
    for each in sorted(map(judgement, run.verdicts), key=lambda each: each.verdict.control):
        asked, meaning, measured = (
            typeset(text, {})
            for text in (each.verdict.asked, each.verdict.meaning, each.verdict.measured)
        )
        badge = f'<span class="badge {each.kind}">{html.escape(each.badge)}</span>'
        meant = f"<strong>{meaning}</strong> " if meaning else ""
        rows.append(f'<li>{badge} {asked} {meant}<span class="quiet">{measured}</span></li>')
    about = f"<h2>{html.escape(run.title)}</h2><p>{html.escape(run.question)}</p>"
    return f'<section class="run">{about}<ul class="verdicts">{"".join(rows)}</ul></section>'


def figures(run: Run) -> str:
    """The figures of a run with their captions; one that is missing or damaged says so."""
    shown = []
    for each in run.figures:
        image = ""
        content = each.read("png") if each.whole else b""
        if found := picture(content):
            kind = "heat" if found[2] else "curves"
            image = (
                f'<img class="{kind}" alt="{html.escape(each.caption)}" '
                f'src="{embedded("image/png", content)}"/>'
            )
        words = html.escape(each.caption) if image else f"Damaged figure: {html.escape(each.name)}."
        shown.append(f'<figure class="plate">{image}<figcaption>{words}</figcaption></figure>')
    return f'<div class="plates">{"".join(shown)}</div>'


def head_map(audit: Audit) -> list[dict[str, str]]:
    """Rows of the map: one for each layer, the letter of its verdict for each head."""
    rows = []
    for layer in audit.data.layer.values.tolist():
        heads = audit.data["head"].values.tolist()
        rows.append(
            {"layer": str(layer)}
            | {f"h{head}": LETTERS.get(audit.finding(f"{layer}.{head}"), "?") for head in heads}
        )
    return rows


def cell_style(row: str, column: str, letter: object) -> dict[str, str]:
    """Colour of a head on the map, by its verdict."""
    tints = {letter: TINT[finding] for finding, letter in LETTERS.items()}
    if column == "layer" or letter not in tints:
        return {}
    return {
        "backgroundColor": tints[str(letter)],
        "color": "#fff" if str(letter) in ON_DARK else "#000",
        "textAlign": "center",
        "cursor": "pointer",
    }


def map_legend(audit: Audit) -> str:
    """What the letters on the map mean, and how many heads have each."""
    found = [audit.finding(name) for name in audit.heads]
    keys = "".join(
        f'<span class="key"><i class="chip" style="background:{TINT[name]}">{letter}</i>{name} '
        f"({found.count(name)})</span>"
        for name, letter in LETTERS.items()
        if name in found
    )
    return f'<div class="legend wide">{keys}</div>'


def head(audit: Audit, name: str) -> str:
    """One head: verdict and why, its scores, its read-outs."""
    return f'<div class="cards">{verdict(audit, name)}{scores(audit, name)}{read_outs(audit, name)}</div>'


def verdict(audit: Audit, name: str) -> str:
    """The verdict, the reason, and the numbers behind it."""
    one, finding = audit.head(name), audit.finding(name)
    layer, number = name.split(".")
    rows = {
        "score variance": "score_variance",
        "skewness of scores": "score_skewness",
        "excess kurtosis": "score_kurtosis",
        "effective tokens": "effective_tokens",
        "affine error": "affine_error",
    }
    cells = "".join(
        f'<tr><th scope="row">{words}</th><td '
        f'data-value="{words}">{in_words(float(one[f"head_{variable}"]), 4)}</td></tr>'
        for words, variable in rows.items()
        if f"head_{variable}" in one
    )
    ink = "#fff" if LETTERS.get(finding, "?") in ON_DARK else "#000"
    badge = (
        '<span class="badge" '
        f'style="background:{TINT.get(finding, "#888")};color:{ink}">{finding}</span>'
    )
    return (
        f'<div class="card" id="head"><p class="answer">Layer {layer}, head {number}: {badge}</p>'
        f"<p>{html.escape(audit.why(name))}</p>"
        '<table class="numbers"><caption>Medians over '
        f"queries</caption><tbody>{cells}</tbody></table></div>"
    )


def scores(audit: Audit, name: str) -> str:
    """Variance of the scores of every query along the text, among the regimes of as many keys as
    the query sees.
    """
    one = audit.head(name)
    position, tokens, variance = (
        each.values.ravel() for each in xr.broadcast(one["query"], one.tokens, one.score_variance)
    )
    known = np.isfinite(variance) & (tokens > 1)
    position, tokens, variance = position[known], tokens[known], np.maximum(variance[known], 1e-6)
    if not len(variance):
        return figure("head-scores", "Its scores: none known", "")
    low, high = decades(variance, np.log(tokens.max()) / 2, 2 * np.log(tokens.max()))
    axes = Picture(
        Scale(0.0, 1.03 * position.max()),
        Scale(low, high, True),
        "position of the query",
        "score variance σ²",
    )
    order = np.argsort(position)
    axes.line(position[order], np.log(tokens[order]) / 2, "ink")
    axes.line(position[order], 2 * np.log(tokens[order]), "ink dashed")
    axes.dots(position, variance, "c0 see-through", radius=3.5)
    legend = [("c0", "queries"), ("ink", "linear below"), ("ink dashed", "frozen above")]
    described = (
        f"Score variances of {len(variance)} queries, median "
        f"{in_words(float(np.median(variance)))}."
    )
    return figure("head-scores", "Its scores", axes.svg(described), legend)


def read_outs(audit: Audit, name: str) -> str:
    """Errors of all read-outs, medians and the middle 80 % of queries."""
    one, names = audit.head(name), audit.read_outs
    values = [one[f"{each}_error"].values.ravel() for each in names]
    values = [each[np.isfinite(each)] for each in values]
    low, high = decades(
        audit.tolerance, *(np.quantile(each, (0.1, 0.9)) for each in values if len(each))
    )
    ticks = [LABELS.get(each, each.removeprefix("mixture_")) for each in names]
    words = "read-out by cumulants" + (
        "; Gaussian mixtures of so many" if any(each not in LABELS for each in names) else ""
    )
    axes = Picture(
        Scale(-0.6, len(names) - 0.4),
        Scale(low, high, True),
        words,
        "error over output",
        ticks=ticks,
    )
    axes.level(audit.tolerance, "c4 dotted")
    for place, (label, each) in enumerate(zip(names, values, strict=True)):
        if len(each):
            ends = np.maximum(np.quantile(each, (0.1, 0.9)), low / 2)
            axes.line([place, place], ends, "c0 thick")
            axes.dots(
                [place],
                [np.median(each)],
                "c0",
                radius=4.5,
                names=[f"{label}: {in_words(float(np.median(each)))}"],
            )
    legend = [
        ("c0", "median and middle 80 % of queries"),
        ("c4 dotted", f"tolerance {audit.tolerance:g}"),
    ]
    described = "Median errors: " + ", ".join(
        f"{label} {in_words(float(np.median(each)))}"
        for label, each in zip(names, values, strict=True)
        if len(each)
    )
    return figure("head-readouts", "Its read-outs", axes.svg(described), legend)
