"""The report: runs in, one HTML file out that opens from disk and needs nothing else."""

import contextlib
import dataclasses
import datetime
import importlib.metadata
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2
import markupsafe

from largeprompt.report.sections import (
    KINDS,
    Judgement,
    Section,
    distinct,
    duration,
    embedded,
    machine,
    moment,
    named,
    read_section,
)
from largeprompt.runs.files import RunError
from largeprompt.runs.judging import Claim
from largeprompt.runs.store import Run, StoredFigure

WORDS = {
    "holds": ("holds", "yes"),
    "holds in part": ("in part", "in part"),
    "fails": ("fails", "no"),
    "undecided": ("open", "open"),
}
LONGEST = 25  # words on a card
POWER = re.compile(r"\^([-−]?)(?:\(((?:[^()]|\([^()]*\))*)\)|([\w½¼|]+(?:\.\d+)?))")


@dataclasses.dataclass(frozen=True)
class Group:
    """What all runs say of one claim; ``see`` are the sections that answer it under other claims,
    or have begun to.
    """

    claim: Claim
    anchor: str
    beyond: bool
    rows: tuple[tuple[Judgement, Section], ...]
    see: tuple[Section, ...]

    @property
    def counts(self) -> list[tuple[str, int, str]]:
        """How many questions have each outcome: word, number, class; a control counts only where it
        does not fail.
        """
        kinds = Counter(judgement.kind for judgement, _ in self.rows)
        words = {
            "good": "hold",
            "part": "in part",
            "bad": "fail",
            "open": "open",
            "warning": "control that does not fail",
        }
        return [
            (
                f"{word}s" if kinds[kind] == 1 and kind in ("good", "bad") else word,
                kinds[kind],
                kind,
            )
            for kind, word in words.items()
            if kinds[kind]
        ]


@dataclasses.dataclass(frozen=True)
class Card:
    """A claim or a question at a glance: a word, its class, a sentence, a small picture, and where
    the rest is.
    """

    claim: Claim
    anchor: str
    word: str
    kind: str
    sentence: str
    picture: str


def write_report(runs: Sequence[Run], target: Path) -> Path:
    """Write the report of these runs, in this order, and return its path.

    The file appears whole or not at all; an old one is replaced.
    OSError where it cannot be written, RunError where a run cannot be read.
    """
    text = render(runs)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        draft.write_text(text, encoding="utf-8", errors="replace")
        draft.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    return target


def render(runs: Sequence[Run]) -> str:
    """The report as HTML."""
    taken: set[str] = {"top", "verdicts", "studies"}
    sections = named(
        [read_section(run, _anchor(f"run-{run.folder.resolve().name}", taken)) for run in runs]
    )
    groups = _groups(sections, taken)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["typeset"] = lambda text: typeset(
        text, {group.claim.id: group for group in groups}
    )
    provenances = [section.run.provenance for section in sections if section.complete]
    controls = [
        judgement.kind
        for section in sections
        for judgement in section.judgements
        if judgement.verdict.control
    ]
    parts = (("What the paper claims", False), ("Beyond the paper", True))
    return environment.get_template("report.html.j2").render(
        sections=sections,
        heading=sections[0].run.title
        if len(sections) == 1
        else "Softmax attention over long prompts",
        parts=[
            (words, [group for group in groups if group.beyond == beyond])
            for words, beyond in parts
        ],
        cards=[
            (
                words,
                [
                    _card(group, groups)
                    for group in groups
                    if group.beyond == beyond and not group.claim.card
                ],
            )
            for words, beyond in parts
        ],
        controls=(len(controls), controls.count("warning")),
        unfinished=[section for section in sections if not section.complete],
        quick_runs=[section for section in sections if section.run.quick],
        written=moment(datetime.datetime.now(datetime.UTC).isoformat()),
        version=importlib.metadata.version("largeprompt"),
        computed_with=distinct(str(each.get("version", "")) for each in provenances),
        machines=distinct(machine(each) for each in provenances),
        seconds=duration(sum(sum(each.get("cells", {}).values()) for each in provenances)),
    )


def _groups(sections: Sequence[Section], taken: set[str]) -> list[Group]:
    """Verdicts of all runs by claim: the claims that the runs name, by id (C2 before C10), then any
    other id as it appears.
    """
    known = {claim.id: claim for section in sections for claim in section.run.claims}
    ordered = sorted(
        known,
        key=lambda name: [
            int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)
        ],
    )
    rows: dict[str, list[tuple[Judgement, Section]]] = {name: [] for name in ordered}
    for section in sections:
        for judgement in section.judgements:
            rows.setdefault(judgement.verdict.claim, []).append((judgement, section))
    found = []
    for name, spoken in rows.items():
        claim = known.get(name, Claim(name, "", ""))
        if claim.card not in rows:
            claim = dataclasses.replace(claim, card="")
        see = (
            []
            if spoken
            else [each for each in sections if name in {here.id for here in each.run.claims}]
        )
        beyond = bool(known[claim.card].question if claim.card else claim.question)
        found.append(
            Group(claim, _anchor(f"claim-{name}", taken), beyond, tuple(spoken), tuple(see))
        )
    return found


def _card(group: Group, groups: Sequence[Group]) -> Card:
    """The claim and those told with it, by as many of their headlines as a sentence of 25 words
    holds; else the claim's own.
    """
    claim = group.claim
    told = [group, *(each for each in groups if each.claim.card == claim.id)]
    rows = [
        (judgement.verdict, section.name)
        for each in told
        for judgement, section in each.rows
        if not judgement.verdict.control
    ]
    spoken = [(verdict, name) for verdict, name in rows if verdict.headline]
    outcomes = {verdict.outcome for verdict, _ in spoken or rows} & {
        "holds",
        "holds in part",
        "fails",
    }
    outcome = (
        "undecided" if not outcomes else outcomes.pop() if len(outcomes) == 1 else "holds in part"
    )
    sentence = ""
    for verdict, name in spoken:
        longer = _joined(sentence, verdict.headline, name)
        if not sentence or len(longer.split()) <= LONGEST:
            sentence = longer
    runs = [
        section.run
        for each in told
        for section in (*(section for _, section in each.rows), *each.see)
        if section.complete
    ]
    ending = f"{claim.id}.png"
    picture = next((figure for run in runs for figure in run.figures if figure.has(ending)), None)
    return Card(
        claim,
        group.anchor,
        WORDS[outcome][group.beyond] if rows else "to come",
        KINDS[outcome],
        sentence or claim.sentence,
        _embedded_picture(picture, ending) if picture else "",
    )


def _joined(sentence: str, more: str, name: str = "") -> str:
    """Two sentences as one, the second after the name of its run."""
    if name:
        return f"{sentence.removesuffix('.')}; {name}: {more}".removeprefix("; ")
    if not sentence:
        return more
    word = more.split(maxsplit=1)[0]
    small = word[1:].islower() or word == "A"  # not SGD, nor the L of a length
    return f"{sentence.removesuffix('.')}; {more[0].lower() if small else more[0]}{more[1:]}"


def _embedded_picture(figure: StoredFigure, ending: str) -> str:
    try:
        return embedded("image/png", figure.read(ending))
    except RunError:  # the figure itself says what is wrong
        return ""


def typeset(text: str, groups: Mapping[str, Group]) -> markupsafe.Markup:
    """Text as HTML: powers raised, and ids of claims with their names, as links to where they are
    defined.
    """

    def defined(found: re.Match[str]) -> str:
        group = groups.get(found[0])
        if group is None:
            return found[0]
        return (
            f'<a href="#{group.anchor}"><abbr '
            f'title="{markupsafe.escape(group.claim.name)}">{found[0]}</abbr></a>'
        )

    def raised(found: re.Match[str]) -> str:
        power = f"{found[1]}{found[2] or found[3]}"
        return f"<sup>{power.replace('-', '−').replace('¼', '1/4').replace('½', '1/2')}</sup>"

    escaped = POWER.sub(raised, str(markupsafe.escape(text)))
    unbroken = re.sub(
        r"(?<=\w) ([=<>≤≥]) (?=\S)", "\N{NO-BREAK SPACE}\\1\N{NO-BREAK SPACE}", escaped
    )
    return markupsafe.Markup(re.sub(r"\b[A-Z]\d+\b", defined, unbroken))


def _anchor(text: str, taken: set[str]) -> str:
    """A fragment of plain letters that no other element has."""
    base = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    name, count = base, 1
    while name in taken:
        count += 1
        name = f"{base}-{count}"
    taken.add(name)
    return name
