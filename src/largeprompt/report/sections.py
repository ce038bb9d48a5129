"""What the page says of one run: verdicts, figures, settings, and how it was made."""

import base64
import contextlib
import dataclasses
import datetime
import io
import json
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from largeprompt.runs.files import RunError, from_json
from largeprompt.runs.judging import Verdict
from largeprompt.runs.store import Run, StoredFigure
from largeprompt.runs.words import typeset

PNG = b"\x89PNG\r\n\x1a\n"
MOST_PIXELS = 2 * 10**7  # far above our largest figure, far below what fills memory
# class in the style sheet
KINDS = {"holds": "good", "holds in part": "part", "fails": "bad", "undecided": "open"}


@dataclasses.dataclass(frozen=True)
class Judgment:
    """A verdict as the page shows it: the badge's words and color."""

    verdict: Verdict
    badge: str
    kind: str


@dataclasses.dataclass(frozen=True)
class Plate:
    """A figure with its files inside; ``problem`` says why ``source`` is empty.

    ``heat_map``: its colors mean numbers, and are not inverted in the dark.
    """

    anchor: str
    name: str
    caption: str
    source: str
    pdf: str
    width: int
    height: int
    problem: str
    heat_map: bool


@dataclasses.dataclass(frozen=True)
class Told:
    """What a run answers before anything else, with a table that the reader can sort."""

    answer: str = ""
    headings: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    meanings: tuple[tuple[str, str], ...] = ()  # of the headings


@dataclasses.dataclass(frozen=True)
class Section:
    """What the page says of one run."""

    run: Run
    anchor: str
    complete: bool
    judgments: tuple[Judgment, ...] = ()
    plates: tuple[Plate, ...] = ()
    config: tuple[tuple[str, str], ...] = ()
    provenance: tuple[tuple[str, str], ...] = ()
    told: Told = Told()
    name: str = ""  # which run of its study it is, where others of other titles are beside it


def named(sections: Sequence[Section]) -> list[Section]:
    """The sections, named by the end of their titles where runs of one study differ in them."""
    titles: dict[str, set[str]] = {}
    for each in sections:
        titles.setdefault(each.run.study, set()).add(each.run.title)
    several = {study for study, found in titles.items() if len(found) > 1}
    return [
        dataclasses.replace(each, name=each.run.title.rpartition(": ")[2])
        if each.run.study in several
        else each
        for each in sections
    ]


def read_section(run: Run, anchor: str) -> Section:
    """The section of a run, at this place of the page; RunError where the run cannot be read."""
    config = tuple((key, _value(value)) for key, value in run.config.items())
    if run.state != "complete":
        return Section(run, anchor, complete=False, config=config)
    plates = (_plate(each, f"{anchor}-figure-{i}") for i, each in enumerate(run.figures, 1))
    return Section(
        run,
        anchor,
        complete=True,
        judgments=tuple(judgment(verdict) for verdict in run.verdicts),
        plates=tuple(plates),
        config=config,
        provenance=tuple(_provenance(run.provenance)),
        told=told(run),
    )


def told(run: Run) -> Told:
    """What ``answer.json`` in the run's folder says; nothing where there is none."""
    if "answer.json" not in run.checksums:
        return Told()
    try:
        found = from_json(run.read("answer.json"))
        rows = tuple(tuple(map(str, row)) for row in found["rows"])
        meanings = tuple((str(key), str(words)) for key, words in found.get("meanings", {}).items())
        return Told(str(found["answer"]), tuple(map(str, found["headings"])), rows, meanings)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        place = run.folder / "answer.json"
        raise RunError(f"{place} is not the answer of a run ({error}).") from None


def judgment(verdict: Verdict) -> Judgment:
    """The badge of a verdict: a control that fails is good news, any other one a warning."""
    if not verdict.control:
        return Judgment(verdict, verdict.outcome, KINDS[verdict.outcome])
    if verdict.outcome == "fails":
        return Judgment(verdict, "fails, as it must", "control")
    return Judgment(verdict, f"warning: {verdict.outcome}, but must fail", "warning")


def _plate(figure: StoredFigure, anchor: str) -> Plate:
    problem = source = pdf = ""
    found = None
    try:
        content = figure.read("png")
        if found := picture(content):
            source = embedded("image/png", content)
        else:
            problem = f"Damaged figure: figures/{figure.name}.png is not a picture that can be read"
    except RunError as error:
        problem = f"Damaged figure: {error}"
    with contextlib.suppress(RunError):
        pdf = embedded("application/pdf", figure.read("pdf"))
    width, height, heat = found or (0, 0, False)
    return Plate(
        anchor, figure.name, figure.caption, source, pdf, width, height, problem, bool(heat)
    )


def picture(content: bytes) -> tuple[int, int, bool] | None:
    """Return width, height and whether colors fill a PNG; None where it cannot be shown.

    Curves leave 75 % and more of a picture white, heat maps less than 60 %.
    """
    from PIL import Image

    if content[:8] != PNG or len(content) < 24:
        return None
    width, height = struct.unpack(">II", content[16:24])
    if not 0 < width * height <= MOST_PIXELS:
        return None
    try:
        image = Image.open(io.BytesIO(content), formats=["PNG"])
        small = image.convert("L").resize((80, 60))
    except Exception:  # a stranger's file: decoders have many kinds of complaint
        return None
    return width, height, sum(small.histogram()[235:]) < 0.6 * 80 * 60


def embedded(kind: str, content: bytes) -> str:
    """A file as an address that holds it."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def _provenance(found: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """Rows of the table; what the run did not store is left out."""
    cells, packages = found.get("cells") or {}, found.get("packages") or {}
    rows = {
        "largeprompt": found.get("version"),
        "Commit": found.get("commit"),
        "Python": found.get("python"),
        "Packages": ", ".join(f"{name} {version}" for name, version in packages.items()),
        "Machine": machine(found),
        "Seed": found.get("seed"),
        "Workers": found.get("workers"),
        "Started": moment(found.get("started")),
        "Finished": moment(found.get("finished")),
        "Elapsed": duration(float(found["seconds"])) if found.get("seconds") is not None else "",
        "Cells": f"{len(cells)}, the slowest in {duration(max(cells.values()))}" if cells else "",
    }
    return ((name, str(value)) for name, value in rows.items() if value not in (None, ""))


def machine(provenance: dict[str, Any]) -> str:
    """Platform, processor and number of cores, as far as they are stored."""
    found = provenance.get("machine") or {}
    cpus = found.get("cpus")
    parts = [
        found.get("platform"),
        found.get("processor"),
        f"{cpus} CPU{'' if cpus == 1 else 's'}" if cpus else "",
    ]
    return ", ".join(distinct(str(part) for part in parts if part))


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
    if isinstance(value, int | float):
        return typeset(f"{value:.12g}" if isinstance(value, float) else str(value))
    return json.dumps(value, ensure_ascii=False)


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, as one would say it."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def moment(text: Any) -> str:
    """An ISO time to the minute; anything else as it stands."""
    try:
        moment = datetime.datetime.fromisoformat(str(text))
    except ValueError:
        return str(text or "")
    return f"{moment:%Y-%m-%d %H:%M}" + (f" {moment.tzname()}" if moment.tzinfo else "")


def distinct(words: Iterable[str]) -> list[str]:
    """Each word once, in order; empty ones are left out."""
    return [word for word in dict.fromkeys(words) if word]
