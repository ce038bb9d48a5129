"""The folder that a run lives in: anybody may read it, and what is written appears whole or not at all."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import json
import os
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import xarray as xr

from largeprompt.runs.files import RunError, StorageError, decode, digest, encode, read_json, read_plain, storing, to_json
from largeprompt.runs.judging import Claim, Verdict
from largeprompt.runs.sources import fingerprint
from largeprompt.runs.study import PLAIN_WORD, Study


@dataclasses.dataclass(frozen=True)
class StoredFigure:
    """A figure of a run, as PNG and PDF."""

    name: str
    caption: str
    png: Path
    pdf: Path

    @property
    def whole(self) -> bool:
        """Whether both files are there and begin as they should."""
        try:
            return read_plain(self.png)[:4] == b"\x89PNG" and read_plain(self.pdf)[:4] == b"%PDF"
        except OSError:
            return False


@dataclasses.dataclass(frozen=True)
class Run:
    """A run folder. ``open`` reads one that is there, ``create`` makes or continues one."""

    folder: Path
    study: str
    title: str
    question: str
    method: str
    config: dict[str, Any]
    quick: bool
    rerun: str
    cells: tuple[str, ...]
    version: str
    code: str = ""  # fingerprint of the sources that decide cells, dataset and verdicts
    cell_code: str = ""  # fingerprint of those that decide the cells
    claims: tuple[Claim, ...] = ()  # what the verdicts are about

    @classmethod
    def open(cls, folder: Path | str) -> Run:
        """Read what was asked of a run; RunError if the folder holds none."""
        folder = Path(folder)
        found = read_json(folder / "config.json", f"{folder} is not a run folder")
        try:
            texts = {name: found[name] for name in ("study", "title", "question", "method", "rerun")}
            config, cells = found["config"], found["cells"]
            claims = tuple(Claim(**each) for each in found.get("claims", []))
            if not all(isinstance(text, str) for text in [*texts.values(), *cells]) or not isinstance(config, dict):
                raise TypeError("a field has the wrong type")
            return cls(
                folder,
                config=config,
                quick=bool(found["quick"]),
                cells=tuple(cells),
                version=str(found.get("version", "")),
                code=str(found.get("code", "")),
                cell_code=str(found.get("cell_code", "")),
                claims=claims,
                **texts,
            )
        except (KeyError, TypeError) as error:
            raise RunError(f"{folder} is not a run folder: config.json is not that of a run ({error}).") from None

    @classmethod
    def create(cls, folder: Path, study: Study, config: Any, *, quick: bool, rerun: str) -> Run:
        """Begin a run, or go on with it. Results of another config or version are dropped; its cells stay, under other keys."""
        settings = json.loads(json.dumps(dataclasses.asdict(config)))  # as it will be read: tuples are lists
        computing: list[Any] = [study.config, *(part.compute for part in study.parts)]
        joining: list[Any] = [study.combine, *(part.join for part in study.parts), *(rule.answer for rule in study.rules)]
        run = cls(
            folder,
            study.name,
            study.title,
            study.question,
            study.method,
            settings,
            quick,
            rerun,
            tuple(study.cells(config)),
            _version(),
            fingerprint([*computing, *joining]),
            fingerprint(computing),
            tuple(study.claims),
        )
        try:
            before: Run | None = cls.open(folder)
        except RunError:
            before = None
        with storing(folder):
            (folder / "cells").mkdir(parents=True, exist_ok=True)
        run.refuse_links()
        if before is None or before.identity != run.identity:
            run.drop_results()
        if before != run:
            described = dataclasses.asdict(run)
            del described["folder"]
            run.write("config.json", to_json(described))
            run.log(f"run of {study.name} with version {run.version}: {run.rerun}")
        return run

    @property
    def identity(self) -> str:
        """SHA-256 of the study, its config, the version and the code: what decides the numbers."""
        return digest(self.study, canonical(self.config), self.version, self.code)

    @property
    def state(self) -> Literal["complete", "partial"]:
        """'complete' once dataset, verdicts and, last of all, the provenance are stored."""
        there = all((self.folder / name).is_file() for name in ("dataset.nc", "verdicts.json"))
        return "complete" if there and "finished" in self.provenance else "partial"

    @property
    def intact(self) -> bool:
        """Whether the run is complete and all of it can be read."""
        try:
            whole = self.state == "complete" and self.verdicts is not None and self.dataset is not None
            return whole and {each.name for each in self.figures if each.whole} >= set(self.provenance.get("figures", []))
        except RunError:
            return False

    @property
    def finished_cells(self) -> int:
        """How many cells are stored."""
        return sum(self._record(cell).is_file() and self.cell_file(cell).is_file() for cell in self.cells)

    @property
    def verdicts(self) -> list[Verdict]:
        """What the data says; empty while the run is not finished."""
        path = self.folder / "verdicts.json"
        if not path.exists():
            return []
        try:
            found = [Verdict(**each) for each in read_json(path)]
            if not all(isinstance(text, str | bool) for each in found for text in vars(each).values()):
                raise TypeError("a field has the wrong type")
        except TypeError as error:
            raise RunError(f"{path} is not a list of verdicts ({error}).") from None
        return found

    @property
    def provenance(self) -> dict[str, Any]:
        """Version, commit, packages, machine, seed and times; empty while the run is not finished."""
        path = self.folder / "provenance.json"
        found = read_json(path) if path.exists() else {}
        tables = [found.get(name, {}) for name in ("cells", "packages", "machine")] if isinstance(found, dict) else [found]
        whole = all(isinstance(table, dict) for table in tables)
        if not whole or not all(isinstance(each, int | float) for each in (found.get("seconds", 0), *tables[0].values())):
            raise RunError(f"{path} is not the provenance of a run.")
        return found

    @property
    def dataset(self) -> xr.Dataset:
        """The run's numbers, in memory."""
        return decode(self.folder / "dataset.nc", self.provenance.get("dataset_sha256"))

    @property
    def figures(self) -> list[StoredFigure]:
        """The figures in the order of the study; empty while there are none."""
        self.refuse_links()
        folder = self.folder / "figures"
        if not (folder / "captions.json").exists():
            return []
        try:
            listed = [(str(each["name"]), str(each["caption"])) for each in read_json(folder / "captions.json")]
        except (TypeError, KeyError) as error:
            raise RunError(f"{folder / 'captions.json'} is not a list of captions ({error}).") from None
        for name, _ in listed:
            if not PLAIN_WORD.fullmatch(name):  # it becomes the name of a file that the report embeds
                raise RunError(f"{folder / 'captions.json'} names a figure {name!r}; names are letters, digits and underscores.")
        return [StoredFigure(name, caption, folder / f"{name}.png", folder / f"{name}.pdf") for name, caption in listed]

    def key(self, cell: str) -> str:
        """SHA-256 of all that decides the numbers of a cell: study, config, cell, version and the sources that it reaches."""
        return digest(self.study, canonical(self.config), cell, self.version, self.cell_code)

    def cell_file(self, cell: str) -> Path:
        """Where a cell is stored: a readable name and its key."""
        slug = re.sub(r"[^a-z0-9]+", "-", cell.lower()).strip("-")[:40] or "cell"
        return self.folder / "cells" / f"{slug}-{self.key(cell)[:16]}.nc"

    def _record(self, cell: str) -> Path:
        """Beside each cell: its checksum, without which it is not finished, and the seconds that it took."""
        return self.cell_file(cell).with_suffix(".json")

    def write_cell(self, cell: str, data: xr.Dataset, seconds: float) -> None:
        """Store a finished cell; the record comes last, so a cell without one was cut off."""
        content = encode(data)
        self.write(str(self.cell_file(cell).relative_to(self.folder)), content)
        record = {"cell": cell, "key": self.key(cell), "sha256": hashlib.sha256(content).hexdigest(), "seconds": seconds}
        self.write(str(self._record(cell).relative_to(self.folder)), to_json(record))

    def read_cell(self, cell: str) -> xr.Dataset:
        """A stored cell; RunError if it is missing or not what was written."""
        record = read_json(self._record(cell))
        whole = isinstance(record, dict) and isinstance(record.get("seconds"), int | float)
        if not whole or record.get("key") != self.key(cell):
            raise RunError(f"{self._record(cell)} is not the record of cell {cell!r}.")
        return decode(self.cell_file(cell), str(record.get("sha256")))

    def cell_seconds(self) -> dict[str, float]:
        """Seconds that each stored cell took."""
        return {cell: float(read_json(self._record(cell))["seconds"]) for cell in self.cells}

    def missing(self) -> tuple[str, ...]:
        """Cells still to be computed. One that cannot be read is moved aside, logged, and counted among them."""
        found = []
        for cell in self.cells:
            path, record = self.cell_file(cell), self._record(cell)
            if not (path.exists() and record.exists()):
                found.append(cell)
                continue
            try:
                self.read_cell(cell)
            except RunError as error:
                with storing(self.folder):
                    path.replace(path.with_name(f"{path.name}.corrupt"))
                    record.unlink()
                self.log(f"cell {cell!r} cannot be read, moved to {path.name}.corrupt and computed again: {error}")
                found.append(cell)
        return tuple(found)

    def clear(self) -> None:
        """Remove the results and the cells of this config and version."""
        self.drop_results()
        with storing(self.folder):
            for cell in self.cells:
                self._record(cell).unlink(missing_ok=True)
                self.cell_file(cell).unlink(missing_ok=True)
        self.log("results and cells removed, to be computed afresh")

    def drop_results(self) -> None:
        """Remove what is made from the cells, first that which says that the run is complete."""
        self.refuse_links()
        try:
            folder = self.folder / "figures"  # nothing that others put there is removed
            drawn = [path for each in self.figures for path in (each.png, each.pdf, *folder.glob(f"{each.name}.*.png"))]
        except RunError:
            drawn = []
        with storing(self.folder):
            for name in ("provenance.json", "verdicts.json", "dataset.nc", "figures/captions.json"):
                (self.folder / name).unlink(missing_ok=True)
            for path in drawn:
                path.unlink(missing_ok=True)

    def refuse_links(self) -> None:
        """StorageError where a folder or the log of the run is a link: what it points to belongs to somebody else."""
        for name in ("cells", "figures", "log.txt"):
            if (self.folder / name).is_symlink():
                raise StorageError(
                    f"{self.folder / name} is a link; a run writes and deletes only inside its own folder. Remove it."
                )

    def write_dataset(self, data: xr.Dataset) -> str:
        """Store the run's dataset and return its checksum."""
        content = encode(data)
        self.write("dataset.nc", content)
        return hashlib.sha256(content).hexdigest()

    def write_verdicts(self, verdicts: Sequence[Verdict]) -> None:
        """Store what the data says."""
        self.write("verdicts.json", to_json([dataclasses.asdict(each) for each in verdicts]))

    def write_figures(self, drawn: Mapping[str, Mapping[str, bytes]], captions: Mapping[str, str]) -> None:
        """Store figures by name, each as files by their ending, and their captions, in order."""
        self.refuse_links()
        with storing(self.folder):
            (self.folder / "figures").mkdir(exist_ok=True)
        for name, files in drawn.items():
            for ending, content in files.items():
                self.write(f"figures/{name}.{ending}", content)
        self.write("figures/captions.json", to_json([{"name": name, "caption": text} for name, text in captions.items()]))

    def write_provenance(self, provenance: Mapping[str, Any]) -> None:
        """Store how the run was made, last of all: with it the run is complete."""
        self.write("provenance.json", to_json(dict(provenance)))

    def log(self, message: str) -> None:
        """One line in log.txt, with the time in UTC."""
        line = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {' | '.join(message.splitlines())}\n"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        with storing(self.folder), os.fdopen(os.open(self.folder / "log.txt", flags, 0o666), "a", encoding="utf-8") as file:
            file.write(line)

    def write(self, name: str, content: bytes) -> None:
        """Write a file of the run whole or not at all: beside its place, flushed to the disk, then renamed."""
        path = self.folder / name
        draft = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
        with storing(self.folder):
            try:
                with draft.open("xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                draft.replace(path)
            except BaseException:
                with contextlib.suppress(OSError):
                    draft.unlink()
                raise


def canonical(config: Mapping[str, Any]) -> str:
    """A config as JSON with sorted keys, the same text for the same settings."""
    return json.dumps(config, sort_keys=True, ensure_ascii=False)


def default_folder(out: Path, study: Study, config: Any, quick: bool) -> Path:
    """OUT/NAME for the full setting, OUT/NAME-quick for the quick one, OUT/NAME-<hash of the config> for any other."""
    if config == (study.quick if quick else study.config()):
        return out / (f"{study.name}-quick" if quick else study.name)
    return out / f"{study.name}-{digest(canonical(dataclasses.asdict(config)))[:8]}"


def find_runs(folder: Path | str, left_out: Callable[[RunError], None] = lambda error: None) -> list[Run]:
    """Runs directly below a folder, sorted by name; what cannot be read is left out, and why is said to ``left_out``."""
    found = []
    for path in sorted(Path(folder).glob("*/config.json")):
        try:
            run = Run.open(path.parent)
            _ = run.verdicts, run.figures, run.provenance
            found.append(run)
        except RunError as error:
            left_out(error)
    return found


def _version() -> str:
    """The package's own word: an installation's metadata may be older. Not imported above, as the package root needs torch."""
    return str(importlib.import_module(__name__.partition(".")[0]).__version__)
