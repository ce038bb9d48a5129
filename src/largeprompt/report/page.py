"""The report: runs in, one HTML file out that opens from disk and needs nothing else."""

import base64
import contextlib
import dataclasses
import datetime
import hashlib
import importlib.metadata
import itertools
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from largeprompt.report.sections import (
    KINDS,
    Judgment,
    Section,
    distinct,
    duration,
    embedded,
    machine,
    moment,
    named,
    picture,
    read_section,
)
from largeprompt.runs.files import RunError
from largeprompt.runs.judging import Claim, Outcome, Verdict
from largeprompt.runs.store import Run, StoredFigure

TEMPLATES = Path(__file__).parent / "templates"
PARTS = ("What the paper claims", "Experiments asked for", "Beyond the paper")
WORDS: dict[Outcome, tuple[str, str]] = {
    "holds": ("holds", "yes"),
    "holds in part": ("in part", "in part"),
    "fails": ("fails", "no"),
    "undecided": ("open", "open"),
}
COUNTED = {"good": "hold", "part": "in part", "bad": "fail", "open": "open"}
COUNTED["warning"] = "control that does not fail"
LONGEST = 25  # words on a card
# in a sentence: "from 10 to 10,000" is one, and C3 and 2D are none
DIGITS = r"[-−]?\d[\d,.]*(?:[×·]10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]*)?"
NUMBER = re.compile(rf"(?<![\w.,]){DIGITS}(?: to {DIGITS})?(?!\w)")
POWER = re.compile(r"\^([-−]?)(?:\(((?:[^()]|\([^()]*\))*)\)|([\w½¼|]+(?:\.\d+)?))")


@dataclasses.dataclass(frozen=True)
class Group:
    """What all runs say of one claim; ``see`` are sections that name it without a verdict."""

    claim: Claim
    anchor: str
    rows: tuple[tuple[Judgment, Section], ...]
    see: tuple[Section, ...]

    @property
    def part(self) -> str:
        """Under which heading it stands."""
        return PARTS[2 if self.claim.question else 1 if self.claim.experiment else 0]

    @property
    def sections(self) -> list[Section]:
        """Where it is answered, or begun."""
        return [*(section for _, section in self.rows), *self.see]

    @property
    def asked(self) -> list[tuple[Verdict, str]]:
        """Its verdicts without controls, and the name of the run of each."""
        return [(row.verdict, run.name) for row, run in self.rows if not row.verdict.control]

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of what the claim says; None while there is no verdict.

        Verdicts with a headline decide where there are some: the others are details of them. A
        stronger reading, and what is undecided, decide nothing where there is more.
        """
        weighed = [verdict for verdict, _ in self.asked if not verdict.stronger]
        spoken = [verdict for verdict in weighed if verdict.headline.strip()]
        found = {verdict.outcome for verdict in spoken or weighed}
        decided = found - {"undecided"} or found
        return decided.pop() if len(decided) == 1 else "holds in part" if decided else None

    @property
    def counts(self) -> list[tuple[str, int, str]]:
        """Word, number and class of each outcome; a control counts where it does not fail."""
        kinds = Counter(judgment.kind for judgment, _ in self.rows)
        found = []
        for kind, word in COUNTED.items():
            verb = "s" if kinds[kind] == 1 and kind in ("good", "bad") else ""
            found += [(f"{word}{verb}", kinds[kind], kind)] if kinds[kind] else []
        return found


@dataclasses.dataclass(frozen=True)
class Card:
    """A claim at a glance: a word, its class, a sentence, a picture, and where the rest is."""

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
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["typeset"] = lambda text: typeset(
        text, {group.claim.id: group for group in groups}
    )
    provenances = [section.run.provenance for section in sections if section.complete]
    judgments = [each for section in sections for each in section.judgments]
    controls = [each.kind for each in judgments if each.verdict.control]
    heading = "Softmax attention over long prompts"
    parts = [(words, [each for each in groups if each.part == words]) for words in PARTS]
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    return environment.get_template("report.html.j2").render(
        script=markupsafe.Markup(script),
        allowed=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        sections=sections,
        heading=sections[0].run.title if len(sections) == 1 else heading,
        parts=parts,
        summary=_summary(parts),
        cards=[(words, [_card(group) for group in found]) for words, found in parts],
        controls=(len(controls), controls.count("warning")),
        unfinished=[section for section in sections if not section.complete],
        quick_runs=[section for section in sections if section.run.quick],
        written=moment(datetime.datetime.now(datetime.UTC).isoformat()),
        version=importlib.metadata.version("largeprompt"),
        computed_with=distinct(str(each.get("version", "")) for each in provenances),
        machines=distinct(machine(each) for each in provenances),
        seconds=duration(sum(sum(each.get("cells", {}).values()) for each in provenances)),
    )


def _summary(parts: Sequence[tuple[str, Sequence[Group]]]) -> list[tuple[str, str]]:
    """What holds, what does not, and what is new: a sentence each, from the verdicts."""
    found = dict(parts)
    claims = [each for each in found[PARTS[0]] if each.outcome]
    asked = [each for part in PARTS[:2] for each in found[part] if each.outcome]
    beyond = [each for each in found[PARTS[2]] if each.outcome]
    if not asked and not beyond:
        return []
    holds = [each for each in claims if each.outcome == "holds"]
    many = f"{len(holds)} of the {len(claims)} claims tested hold"
    if holds and len(holds) == len(claims):
        many = "the claim tested holds" if len(claims) == 1 else f"all {len(claims)} claims hold"
    less = _by_outcome(asked, {"fails": "fails", "holds in part": "only in part"})
    answers = _by_outcome(beyond, {"holds": "yes", "holds in part": "in part", "fails": "no"})
    told = [
        ("What holds", f"{many} ({_ids(holds)})." if holds else ""),
        ("What does not", f"{less}." if less else "nothing that was asked here fails."),
        ("What is new", f"answers beyond the paper: {answers}." if answers else ""),
    ]
    return [(words, sentence) for words, sentence in told if sentence and (asked or answers)]


def _by_outcome(groups: Sequence[Group], words: Mapping[Outcome, str]) -> str:
    """Names of claims after the word for their outcome."""
    found = {
        word: [f"{each.claim.name} ({each.claim.id})" for each in groups if each.outcome == outcome]
        for outcome, word in words.items()
    }
    return "; ".join(f"{word}: {', '.join(names)}" for word, names in found.items() if names)


def _ids(groups: Sequence[Group]) -> str:
    return ", ".join(each.claim.id for each in groups)


def _groups(sections: Sequence[Section], taken: set[str]) -> list[Group]:
    """Verdicts of all runs by claim: claims that runs name, C2 before C10, then any other id."""
    known = {claim.id: claim for section in sections for claim in section.run.claims}
    names = sorted(known, key=_in_order)
    rows: dict[str, list[tuple[Judgment, Section]]] = {name: [] for name in names}
    for section in sections:
        for judgment in section.judgments:
            rows.setdefault(judgment.verdict.claim, []).append((judgment, section))
    found = []
    for name, spoken in rows.items():
        claim = known.get(name, Claim(name, "", ""))
        named = [each for each in sections if name in {here.id for here in each.run.claims}]
        anchor = _anchor(f"claim-{name}", taken)
        found.append(Group(claim, anchor, tuple(spoken), () if spoken else tuple(named)))
    return found


def _in_order(id: str) -> list[Any]:
    """C2 before C10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"([0-9]+)", id)]


def _card(group: Group) -> Card:
    """The claim with one headline of at most one number; else with the claim's own sentence."""
    claim, outcome = group.claim, group.outcome
    spoken = [
        (verdict, name)
        for verdict, name in group.asked
        if verdict.headline.strip() and len(NUMBER.findall(verdict.headline)) < 2
    ]
    # what decides the badge comes first: of some that hold and some that do not, the latter
    spoken.sort(key=lambda pair: (pair[0].outcome != outcome, pair[0].outcome == "holds"))
    sentence = ""
    for verdict, name in spoken:
        longer = f"{sentence.removesuffix('.')}; {name}: {verdict.headline}".removeprefix("; ")
        if name and (not sentence or len(longer.split()) <= LONGEST):
            sentence = longer
        sentence = sentence or verdict.headline
    runs = [section.run for section in group.sections if section.complete]
    ending = f"{claim.id}.png"
    shown = next((figure for run in runs for figure in run.figures if figure.has(ending)), None)
    word = WORDS[outcome or "undecided"][bool(claim.question)] if group.asked else "to come"
    told = [row.verdict.claim for each in group.see for row in each.judgments]
    return Card(
        claim,
        group.anchor,
        f"under {', '.join(distinct(told)[:2])}" if told else word,
        KINDS[outcome or "undecided"],
        sentence or claim.sentence,
        _embedded_picture(shown, ending) if shown else "",
    )


def _embedded_picture(figure: StoredFigure, ending: str) -> str:
    try:
        content = figure.read(ending)
    except RunError:  # the figure itself says what is wrong
        return ""
    return embedded("image/png", content) if picture(content) else ""


def typeset(text: str, groups: Mapping[str, Group]) -> markupsafe.Markup:
    """Text as HTML: powers raised, and ids of claims linked to where they are defined."""

    def defined(found: re.Match[str]) -> str:
        group = groups.get(found[0])
        if group is None:
            return found[0]
        title = markupsafe.escape(group.claim.name)
        return f'<a href="#{group.anchor}"><abbr title="{title}">{found[0]}</abbr></a>'

    def raised(found: re.Match[str]) -> str:
        power = f"{found[1]}{found[2] or found[3]}"
        return f"<sup>{power.replace('-', '−').replace('¼', '1/4').replace('½', '1/2')}</sup>"

    escaped = POWER.sub(raised, str(markupsafe.escape(text)))
    space = "\N{NO-BREAK SPACE}"
    unbroken = re.sub(r"(?<=\w) ([=<>≤≥]) (?=\S)", rf"{space}\1{space}", escaped)
    return markupsafe.Markup(re.sub(r"\b[A-Z]\d+\b", defined, unbroken))


def _anchor(text: str, taken: set[str]) -> str:
    """A fragment of plain letters that no other element has."""
    base = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    numbered = (f"{base}-{count}" for count in itertools.count(2))
    name = next(each for each in itertools.chain([base], numbered) if each not in taken)
    taken.add(name)
    return name
