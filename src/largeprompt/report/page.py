"""The report: runs in, one HTML file out that opens from disk and needs nothing else."""

import base64
import contextlib
import dataclasses
import datetime
import importlib.metadata
import json
import os
import re
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jinja2

from largeprompt.runs.files import read_plain
from largeprompt.runs.judging import Claim, Verdict
from largeprompt.runs.store import Run, StoredFigure

PNG = b"\x89PNG\r\n\x1a\n"
KINDS = {"holds": "good", "holds in part": "part", "fails": "bad", "undecided": "open"}  # class in the style sheet


@dataclasses.dataclass(frozen=True)
class Judgement:
    """A verdict as the page shows it: the badge's words and colour, and the section that it comes from."""

    verdict: Verdict
    badge: str
    kind: str


@dataclasses.dataclass(frozen=True)
class Plate:
    """A figure with its files inside: ``source`` is empty where the image is missing, and ``problem`` says why."""

    anchor: str
    name: str
    caption: str
    source: str
    pdf: str
    width: int
    height: int
    problem: str


@dataclasses.dataclass(frozen=True)
class Section:
    """What the page says of one run."""

    run: Run
    anchor: str
    complete: bool
    judgements: tuple[Judgement, ...]
    plates: tuple[Plate, ...]
    config: tuple[tuple[str, str], ...]
    provenance: tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True)
class Group:
    """What all runs say of one claim; ``see`` are the sections that answer it under other claims, or have begun to."""

    claim: Claim
    rows: tuple[tuple[Judgement, Section], ...]
    see: tuple[Section, ...]


def write_report(runs: Sequence[Run], target: Path) -> Path:
    """Write the report of these runs, in this order, and return its path.

    The file appears whole or not at all; an old one is replaced.
    OSError where it cannot be written, RunError where a run cannot be read.
    """
    text = render(runs)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    return target


def render(runs: Sequence[Run]) -> str:
    """The report as HTML."""
    taken: set[str] = {"top", "summary", "runs"}
    sections = [_section(run, _anchor(f"run-{run.folder.resolve().name}", taken)) for run in runs]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    provenances = [section.run.provenance for section in sections if section.complete]
    return environment.get_template("report.html.j2").render(
        sections=sections,
        heading=sections[0].run.title if len(sections) == 1 else "Softmax attention over long prompts: claims and measurements",
        groups=_groups(sections),
        counts=_counts(sections),
        unfinished=[section for section in sections if not section.complete],
        quick_runs=[section for section in sections if section.run.quick],
        written=_moment(datetime.datetime.now(datetime.UTC).isoformat()),
        version=importlib.metadata.version("largeprompt"),
        computed_with=_distinct(str(each.get("version", "")) for each in provenances),
        machines=_distinct(_machine(each) for each in provenances),
        seconds=_duration(sum(sum(each.get("cells", {}).values()) for each in provenances)),
    )


def _section(run: Run, anchor: str) -> Section:
    complete = run.state == "complete"
    return Section(
        run,
        anchor,
        complete,
        tuple(_judgement(verdict) for verdict in run.verdicts) if complete else (),
        tuple(_plate(figure, f"{anchor}-figure-{place}") for place, figure in enumerate(run.figures, 1)) if complete else (),
        tuple((key, _value(value)) for key, value in run.config.items()),
        tuple(_provenance(run.provenance)) if complete else (),
    )


def _judgement(verdict: Verdict) -> Judgement:
    """A control that fails is good news, and anything else of it a warning."""
    if not verdict.control:
        return Judgement(verdict, verdict.outcome, KINDS.get(verdict.outcome, "open"))
    if verdict.outcome == "fails":
        return Judgement(verdict, "fails, as it must", "control")
    return Judgement(verdict, f"warning: {verdict.outcome}, but must fail", "warning")


def _groups(sections: Sequence[Section]) -> list[Group]:
    """Verdicts of all runs by claim: the claims that the runs name, by id (C2 before C10), then any other id as it appears."""
    known = {claim.id: claim for section in sections for claim in section.run.claims}
    ordered = sorted(known, key=lambda name: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)])
    rows: dict[str, list[tuple[Judgement, Section]]] = {name: [] for name in ordered}
    for section in sections:
        for judgement in section.judgements:
            rows.setdefault(judgement.verdict.claim, []).append((judgement, section))
    found = []
    for name, spoken in rows.items():
        claim = known.get(name, Claim(name, "", ""))
        see = [] if spoken else [each for each in sections if claim in each.run.claims]
        found.append(Group(claim, tuple(spoken), tuple(see)))
    return found


def _counts(sections: Iterable[Section]) -> list[tuple[str, int, str]]:
    """How many verdicts of each kind: words, number, class."""
    kinds = [judgement.kind for section in sections for judgement in section.judgements]
    words = {kind: outcome for outcome, kind in KINDS.items()}
    words |= {"control": "controls that fail, as they must", "warning": "controls that do not fail"}
    shown = ((words[kind], kinds.count(kind), kind) for kind in words)
    return [(word, number, kind) for word, number, kind in shown if number or kind in ("good", "part", "bad")]


def _plate(figure: StoredFigure, anchor: str) -> Plate:
    problem, source, size = "", "", (0, 0)
    try:
        image = read_plain(figure.png)
        if image[:8] != PNG or len(image) < 24:
            problem = f"figures/{figure.png.name} is not a PNG file"
        else:
            size = struct.unpack(">II", image[16:24])
            source = _data("image/png", image)
    except OSError:
        problem = f"figures/{figure.png.name} is missing"
    try:
        pdf = _data("application/pdf", read_plain(figure.pdf))
    except OSError:
        pdf = ""
    return Plate(anchor, figure.name, figure.caption, source, pdf, *size, problem)


def _data(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def _provenance(found: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """Rows of the table; what the run did not store is left out."""
    cells = found.get("cells") or {}
    rows = {
        "largeprompt": found.get("version"),
        "Commit": found.get("commit"),
        "Python": found.get("python"),
        "Packages": ", ".join(f"{name} {version}" for name, version in (found.get("packages") or {}).items()),
        "Machine": _machine(found),
        "Seed": found.get("seed"),
        "Workers": found.get("workers"),
        "Started": _moment(found.get("started")),
        "Finished": _moment(found.get("finished")),
        "Time": _duration(float(found["seconds"])) if found.get("seconds") is not None else "",
        "Cells": f"{len(cells)}, the slowest in {_duration(max(cells.values()))}" if cells else "",
    }
    return ((name, str(value)) for name, value in rows.items() if value not in (None, ""))


def _machine(provenance: dict[str, Any]) -> str:
    machine = provenance.get("machine") or {}
    cpus = machine.get("cpus")
    parts = [machine.get("platform"), machine.get("processor"), f"{cpus} CPU{'' if cpus == 1 else 's'}" if cpus else ""]
    return ", ".join(_distinct(str(part) for part in parts if part))


def _value(value: Any) -> str:
    """A setting as one would say it: lists with commas, numbers short."""
    if isinstance(value, list) and not any(isinstance(each, (list, dict)) for each in value):
        return ", ".join(_value(each) for each in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:.12g}"
    return json.dumps(value, ensure_ascii=False)


def _duration(seconds: float) -> str:
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _moment(text: Any) -> str:
    """An ISO time to the minute; anything else as it stands."""
    try:
        moment = datetime.datetime.fromisoformat(str(text))
    except ValueError:
        return str(text or "")
    return f"{moment:%Y-%m-%d %H:%M}" + (f" {moment.tzname()}" if moment.tzinfo else "")


def _distinct(words: Iterable[str]) -> list[str]:
    return [word for word in dict.fromkeys(words) if word]


def _anchor(text: str, taken: set[str]) -> str:
    """A fragment of plain letters that no other element has."""
    base = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    name, count = base, 1
    while name in taken:
        count += 1
        name = f"{base}-{count}"
    taken.add(name)
    return name
