"""The last tab: a finished run with its verdicts and figures; of an audit, any head."""

import html

import numpy as np
import xarray as xr

from largeprompt.audit.figures import TINTS
from largeprompt.audit.kinds import FINDINGS
from largeprompt.explore.picture import Picture, Scale, decades
from largeprompt.explore.reading import Audit
from largeprompt.explore.text import cards, figure, in_words, note, table
from largeprompt.report.page import typeset
from largeprompt.report.sections import Judgment, Plate, read_section
from largeprompt.runs.files import RunError
from largeprompt.runs.store import Run

LETTERS = dict(zip(FINDINGS, "MCSOUN", strict=True))
TINT = dict(zip(FINDINGS, TINTS, strict=True))
ON_DARK = "M"  # letters that are white on their tint
LABELS = {"mean": "mean", "affine": "affine", "third": "3rd", "fourth": "4th"}
NUMBERS = {
    "score variance": "score_variance",
    "skewness of scores": "score_skewness",
    "excess kurtosis": "score_kurtosis",
    "effective tokens": "effective_tokens",
    "affine error": "affine_error",
    "factor at twice the length": "factor_2",
}


def overview(run: Run) -> str:
    """Title, question, answer, verdicts (controls last) and figures of a run."""
    try:
        section = read_section(run, run.folder.name)
    except RunError as error:
        return note(f"Damaged run: {error}")
    judgments = sorted(section.judgments, key=lambda each: each.verdict.control)
    about = f"<h2>{html.escape(run.title)}</h2><p>{html.escape(run.question)}</p>"
    about += f"<p><strong>{html.escape(section.told.answer)}</strong></p>"
    verdicts = f'<ul class="verdicts">{"".join(map(_verdict, judgments))}</ul>'
    plates = f'<div class="plates">{"".join(map(_plate, section.plates))}</div>'
    return f'<section class="run">{about}{verdicts}{plates}</section>'


def _verdict(each: Judgment) -> str:
    found = each.verdict
    asked, meaning, measured = (
        typeset(text, {}) for text in (found.asked, found.meaning, found.measured)
    )
    badge = f'<span class="badge {each.kind}">{html.escape(each.badge)}</span>'
    meant = f"<strong>{meaning}</strong> " if meaning else ""
    return f'<li>{badge} {asked} {meant}<span class="quiet">{measured}</span></li>'


def _plate(each: Plate) -> str:
    words, kind = html.escape(each.caption), "heat" if each.heat_map else "curves"
    image = f'<img class="{kind}" alt="{words}" src="{each.source}"/>'
    if each.problem:
        image, words = "", f"<strong>{html.escape(each.problem)}</strong>"
    return f'<figure class="plate">{image}<figcaption>{words}</figcaption></figure>'


def head_map(audit: Audit) -> list[dict[str, str]]:
    """Rows of the map: one for each layer, the letter of its verdict for each head."""
    rows: dict[int, dict[str, str]] = {}
    for row in audit.rows.values():
        layer = rows.setdefault(row["layer"], {"layer": str(row["layer"])})
        layer[f"h{row['number']}"] = LETTERS.get(row["verdict"], "?")
    return list(rows.values())


def cell_style(row: str, column: str, letter: object) -> dict[str, str]:
    """Color of a head on the map, by its verdict."""
    finding = {known: name for name, known in LETTERS.items()}.get(str(letter))
    if column == "layer" or finding is None:
        return {}
    tint, ink = _colors(finding)
    return {"backgroundColor": tint, "color": ink, "textAlign": "center", "cursor": "pointer"}


def _colors(finding: str) -> tuple[str, str]:
    """Tint of a verdict, and the color of letters on it."""
    return TINT.get(finding, "#888"), "#fff" if LETTERS.get(finding, "?") in ON_DARK else "#000"


def map_legend(audit: Audit) -> str:
    """What the letters on the map mean, and how many heads have each."""
    found = [row["verdict"] for row in audit.rows.values()]
    keys = []
    for name, letter in LETTERS.items():
        tint, ink = _colors(name)
        chip = f'<i class="chip" style="background:{tint};color:{ink}">{letter}</i>'
        if name in found:
            keys.append(f'<span class="key">{chip}{name} ({found.count(name)})</span>')
    return f'<div class="legend wide">{"".join(keys)}</div>'


def head(audit: Audit, name: str) -> str:
    """One head: verdict and why, its scores, its read-outs."""
    return cards(verdict(audit, name), scores(audit, name), read_outs(audit, name))


def verdict(audit: Audit, name: str) -> str:
    """The verdict, the reason, and the numbers behind it."""
    row = audit.rows[name]
    known = {words: row.get(column) for words, column in NUMBERS.items()}
    rows = [(words, in_words(value, 4)) for words, value in known.items() if value is not None]
    tint, ink = _colors(row["verdict"])
    badge = f'<span class="badge" style="background:{tint};color:{ink}">{row["verdict"]}</span>'
    return (
        f'<div class="card" id="head"><p class="answer">{name}: {badge}</p>'
        f"<p>{html.escape(audit.why(name))}</p>{table('Medians over queries', rows)}</div>"
    )


def scores(audit: Audit, name: str) -> str:
    """Variance of the scores of every query along the text, among the regimes of its keys."""
    one = audit.head(name)
    position, tokens, variance = (
        each.values.ravel() for each in xr.broadcast(one["query"], one.tokens, one.score_variance)
    )
    known = np.flatnonzero(np.isfinite(variance) & (tokens > 1))
    known = known[np.argsort(position[known])]
    position, tokens, variance = position[known], tokens[known], np.maximum(variance[known], 1e-6)
    if not len(variance):
        return figure("head-scores", "Its scores: none known", "")
    linear, frozen = np.log(tokens) / 2, 2 * np.log(tokens)
    low, high = decades(variance, linear.max(), frozen.max())
    axes = Picture(
        Scale(0.0, 1.03 * position[-1]),
        Scale(low, high, True),
        "position of the query",
        "score variance σ²",
    )
    axes.line(position, linear, "ink", "linear below")
    axes.line(position, frozen, "ink dashed", "frozen above")
    axes.dots(position, variance, "c0 see-through", "queries", radius=3.5)
    return axes.card("head-scores", "Its scores")


def read_outs(audit: Audit, name: str) -> str:
    """Errors of all read-outs, medians and the middle 80 % of queries."""
    one, names = audit.head(name), audit.read_outs
    values = [one[f"{each}_error"].values.ravel() for each in names]
    values = [each[np.isfinite(each)] for each in values]
    spread = np.array([np.quantile(x, (0.1, 0.5, 0.9)) if len(x) else [np.nan] * 3 for x in values])
    low, high = decades(audit.tolerance, spread)
    ticks = [LABELS.get(each, each.removeprefix("mixture_")) for each in names]
    mixed = "; Gaussian mixtures of so many" if set(names) - set(LABELS) else ""
    axes = Picture(
        Scale(-0.6, len(names) - 0.4),
        Scale(low, high, True),
        f"read-out by cumulants{mixed}",
        "error over output",
        ticks=ticks,
    )
    axes.level(audit.tolerance, "c4 dotted", f"tolerance {audit.tolerance:g}")
    places, medians = range(len(names)), [in_words(x) for x in spread[:, 1]]
    words = [f"{each}: {median}" for each, median in zip(names, medians, strict=True)]
    axes.bars(places, spread[:, 0], spread[:, 2], "c0 thick")
    legend = "median and middle 80 % of queries"
    axes.dots(places, spread[:, 1], "c0", legend, radius=4.5, words=words)
    return axes.card("head-readouts", "Its read-outs")
