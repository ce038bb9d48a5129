"""The folder that a run lives in: anybody may read it, and what is written appears whole or not at
all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import re
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import xarray as xr

from largeprompt.runs.files import (
    RunError,
    StorageError,
    decode,
    digest,
    read_checked,
    read_plain,
    read_sealed,
    sealed,
    sha256,
    storing,
    to_json,
    validated,
)
from largeprompt.runs.judging import Claim, Verdict
from largeprompt.runs.lock import PATIENCE, locked
from largeprompt.runs.sources import fingerprint
from largeprompt.runs.study import PLAIN_WORD, Study

Word = Annotated[str, pydantic.Field(pattern=f"^{PLAIN_WORD.pattern}$")]
# no way out of the folder
FileName = Annotated[str, pydantic.Field(pattern=r"^(figures/)?[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)+$")]


@dataclasses.dataclass(frozen=True)
class StoredFigure:
    """A figure of a run, as PNG and PDF, and as small pictures for the cards of claims."""

    run: Run
    name: str
    caption: str

    @property
    def whole(self) -> bool:
        """Whether both files are there, as they were written."""
        try:
            return bool(self.read("png") and self.read("pdf"))
        except RunError:
            return False

    def read(self, ending: str) -> bytes:
        """Content of the figure's file with this ending: 'png', 'pdf', or 'C1.png' for the card of
        a claim.
        """
        return self.run.read(f"figures/{self.name}.{ending}")

    def has(self, ending: str) -> bool:
        """Whether the run wrote such a file."""
        return f"figures/{self.name}.{ending}" in self.run.checksums


class _Provenance(pydantic.BaseModel, extra="allow"):
    """What readers of a provenance rely on."""

    finished: str
    seconds: float = 0.0
    cells: dict[str, float] = {}
    packages: dict[str, str] = {}
    machine: dict[str, str | int | None] = {}
    files: dict[FileName, str] = {}


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
        trouble = f"{folder} is not a run folder"
        found = read_sealed(folder / "config.json", trouble) | {"folder": ""}
        read: Run = validated(cls, to_json(found), f"{trouble}: config.json is not that of a run")
        run = dataclasses.replace(read, folder=folder)
        if "config.json" in run.checksums:
            run.read("config.json")  # it may be of another run
        return run

    @classmethod
    def create(cls, folder: Path, study: Study, config: Any, *, quick: bool, rerun: str) -> Run:
        """Begin a run, or go on with it. Results of another config or version are dropped; its
        cells stay, under other keys.
        """
        run = cls._described(folder, study, config, quick, rerun)
        with storing(folder):
            (folder / "cells").mkdir(parents=True, exist_ok=True)
        run.refuse_links()
        if run._there() != run:
            try:
                with locked(folder, patience=PATIENCE):
                    run._begin()
            except RunError:
                if run._there() != run:  # not just begun by another shard of it
                    raise
        return run

    def _there(self) -> Run | None:
        """What the folder holds now."""
        try:
            return Run.open(self.folder)
        except RunError:
            return None

    def _begin(self) -> None:
        before = self._there()
        if before == self:
            return
        if before is None or before.identity != self.identity:
            self.drop_results()
        described = dataclasses.asdict(self)
        del described["folder"]
        content = sealed(described)
        self.write("config.json", content)
        if kept := self.provenance:
            self.write(
                "provenance.json",
                sealed(kept | {"files": kept["files"] | {"config.json": sha256(content)}}),
            )
        self.log(f"run of {self.study} with version {self.version}: {self.rerun}")

    def describes(self, study: Study, config: Any) -> bool:
        """Whether the run is of this study, as its code is now, with these settings."""
        return self == self._described(self.folder, study, config, self.quick, self.rerun)

    @classmethod
    def _described(cls, folder: Path, study: Study, config: Any, quick: bool, rerun: str) -> Run:
        # as it will be read: tuples are lists
        settings = json.loads(json.dumps(dataclasses.asdict(config)))
        joining: list[Any] = [
            study.combine,
            *(part.join for part in study.parts),
            *(rule.answer for rule in study.rules),
        ]
        return cls(
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
            fingerprint([*study.computing, *joining]),
            fingerprint(study.computing),
            tuple(study.claims),
        )

    @property
    def identity(self) -> str:
        """SHA-256 of the study, its config, the version and the code: what decides the numbers."""
        return digest(self.study, canonical(self.config), self.version, self.code)

    @property
    def state(self) -> Literal["complete", "partial"]:
        """'complete' once dataset, verdicts and, last of all, the provenance are stored."""
        there = all((self.folder / name).is_file() for name in ("dataset.nc", "verdicts.json"))
        return "complete" if there and self.checksums else "partial"

    @property
    def intact(self) -> bool:
        """Whether the run is complete and every file of it is what was written."""
        try:
            return self.state == "complete" and not self.damaged and bool(self.dataset)
        except RunError:
            return False

    @property
    def damaged(self) -> list[str]:
        """Files of the results, by name, that are missing or not what was written."""
        found = []
        for name in self.checksums:
            try:
                self.read(name)
            except RunError:
                found.append(name)
        return found

    @property
    def finished_cells(self) -> int:
        """How many cells are stored."""
        return sum(map(self.is_stored, self.cells))

    def is_stored(self, cell: str) -> bool:
        """Whether a cell is there, with its record."""
        return self._record(cell).is_file() and self.cell_file(cell).is_file()

    @property
    def checksums(self) -> dict[str, str]:
        """SHA-256 of each file of the results, by its name; empty while the run is not finished."""
        return dict(self.provenance.get("files", {}))

    def read(self, name: str) -> bytes:
        """Content of a file of the results; RunError if it is not there, or not
        what was written.
        """
        self.refuse_links()
        if (checksum := self.checksums.get(name)) is None:
            raise RunError(f"{self.folder / name} is not among the results of this run.")
        return read_checked(self.folder / name, checksum)

    @property
    def verdicts(self) -> list[Verdict]:
        """What the data says; empty while the run is not finished."""
        name = "verdicts.json"
        if not self.checksums:
            return []
        found: list[Verdict] = validated(
            list[Verdict], self.read(name), f"{self.folder / name} is not a list of verdicts"
        )
        return found

    @property
    def provenance(self) -> dict[str, Any]:
        """Version, commit, packages, machine, seed, times and checksums; empty while the run is not
        finished.
        """
        path = self.folder / "provenance.json"
        if not os.path.lexists(path):
            return {}
        trouble = f"{path} is not the provenance of a run"
        found: _Provenance = validated(_Provenance, to_json(read_sealed(path, trouble)), trouble)
        return found.model_dump()

    @property
    def dataset(self) -> xr.Dataset:
        """The run's numbers, in memory."""
        return decode(self.folder / "dataset.nc", self.checksums.get("dataset.nc", ""))

    @property
    def figures(self) -> list[StoredFigure]:
        """The figures in the order of the study; empty while there are none."""
        name = "figures/captions.json"
        if name not in self.checksums:
            return []
        found = validated(
            dict[Word, str], self.read(name), f"{self.folder / name} is not a list of captions"
        )
        return [StoredFigure(self, each, caption) for each, caption in found.items()]

    def key(self, cell: str) -> str:
        """SHA-256 of all that decides the numbers of a cell: study, config, cell, version and the
        sources that it reaches.
        """
        return digest(self.study, canonical(self.config), cell, self.version, self.cell_code)

    def cell_file(self, cell: str) -> Path:
        """Where a cell is stored: a readable name and its key."""
        slug = re.sub(r"[^a-z0-9]+", "-", cell.lower()).strip("-")[:40] or "cell"
        return self.folder / "cells" / f"{slug}-{self.key(cell)[:16]}.nc"

    def _record(self, cell: str) -> Path:
        """Beside each cell: its checksum, without which it is not finished, and the seconds that it
        took.
        """
        return self.cell_file(cell).with_suffix(".json")

    def write_cell(self, cell: str, content: bytes, seconds: float) -> None:
        """Store a finished cell, as NetCDF; the record comes last, so a cell without one was cut
        off.
        """
        self.write(str(self.cell_file(cell).relative_to(self.folder)), content)
        record = {
            "cell": cell,
            "key": self.key(cell),
            "content": sha256(content),
            "seconds": seconds,
        }
        self.write(str(self._record(cell).relative_to(self.folder)), sealed(record))

    def read_cell(self, cell: str) -> xr.Dataset:
        """A stored cell; RunError if it is missing or not what was written."""
        record = read_sealed(self._record(cell))
        if record.get("key") != self.key(cell) or not isinstance(record.get("seconds"), float):
            raise RunError(f"{self._record(cell)} is not the record of cell {cell!r}.")
        return decode(self.cell_file(cell), str(record.get("content")))

    def cell_seconds(self) -> dict[str, float]:
        """Seconds that each stored cell took."""
        return {cell: float(read_sealed(self._record(cell))["seconds"]) for cell in self.cells}

    def missing(self) -> tuple[str, ...]:
        """Cells still to be computed. One that cannot be read is moved aside, logged, and counted
        among them.
        """
        found = []
        for cell in self.cells:
            path, record = self.cell_file(cell), self._record(cell)
            if not self.is_stored(cell):
                found.append(cell)
                continue
            try:
                self.read_cell(cell)
            except RunError as error:
                # another shard may have moved it
                with storing(self.folder), contextlib.suppress(FileNotFoundError):
                    path.replace(path.with_name(f"{path.name}.corrupt"))
                    record.unlink()
                self.log(
                    f"cell {cell!r} cannot be read, moved to {path.name}.corrupt and computed "
                    f"again: {error}"
                )
                found.append(cell)
        return tuple(found)

    def clear(self) -> None:
        """Remove the results and the cells of this config and version."""
        with locked(self.folder), storing(self.folder):
            self.drop_results()
            for cell in self.cells:
                self._record(cell).unlink(missing_ok=True)
                self.cell_file(cell).unlink(missing_ok=True)
        self.log("results and cells removed, to be computed afresh")

    def drop_results(self) -> None:
        """Remove what is made from the cells, first that which says that the run is complete."""
        self.refuse_links()
        try:
            written = [*self.checksums]  # nothing that others put there is removed
        except RunError:
            written = [
                "verdicts.json",
                "dataset.nc",
                "figures/captions.json",
                "answer.json",
                "heads.json",
            ]
        with storing(self.folder):
            for name in ("provenance.json", *written):
                if name != "config.json":
                    (self.folder / name).unlink(missing_ok=True)

    def drop_drafts(self) -> None:
        """Remove what writers left that were killed; only for who holds the lock of
        the whole run.
        """
        with storing(self.folder):
            for draft in self.folder.rglob(".*.part"):
                draft.unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove what killed writers left in a run that is complete, unless another command is at
        it, or it is not ours.
        """
        if any(self.folder.rglob(".*.part")):
            with contextlib.suppress(RunError), locked(self.folder):
                self.drop_drafts()

    def refuse_links(self) -> None:
        """StorageError where a folder or the log of the run is a link: what it points to belongs to
        somebody else.
        """
        for name in ("cells", "figures", "log.txt"):
            if (self.folder / name).is_symlink():
                raise StorageError(
                    f"{self.folder / name} is a link; a run writes and deletes only inside its own "
                    "folder. Remove it."
                )

    def write_results(self, files: Mapping[str, bytes], provenance: Mapping[str, Any]) -> None:
        """Store the results, by name, and last of all how they were made, with their checksums:
        then the run is complete.
        """
        self.refuse_links()
        with storing(self.folder):
            (self.folder / "figures").mkdir(exist_ok=True)
        for name, content in files.items():
            self.write(name, content)
        checksums = {name: sha256(content) for name, content in files.items()}
        checksums["config.json"] = sha256(read_plain(self.folder / "config.json"))
        self.write("provenance.json", sealed(dict(provenance) | {"files": checksums}))

    def log(self, message: str) -> None:
        """One line in log.txt, with the time in UTC."""
        line = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {' | '.join(message.splitlines())}\n"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        with (
            storing(self.folder),
            os.fdopen(
                os.open(self.folder / "log.txt", flags, 0o666), "a", encoding="utf-8"
            ) as file,
        ):
            file.write(line)

    def write(self, name: str, content: bytes) -> None:
        """Write a file of the run whole or not at all: beside its place, flushed to the disk, then
        renamed.
        """
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
    """OUT/NAME for the full setting, OUT/NAME-quick for the quick one, OUT/NAME-<hash of the
    config> for any other.
    """
    if config == (study.quick if quick else study.config()):
        return out / (f"{study.name}-quick" if quick else study.name)
    return out / f"{study.name}-{digest(canonical(dataclasses.asdict(config)))[:8]}"


def find_runs(
    folder: Path | str, left_out: Callable[[RunError], None] = lambda error: None
) -> list[Run]:
    """Runs directly below a folder, sorted by name; what cannot be read is left out, and why is
    said to ``left_out``.
    """
    found = []
    for path in sorted(Path(folder).glob("*/config.json")):
        try:
            run = Run.open(path.parent)
            _ = run.verdicts, run.figures
            found.append(run)
        except RunError as error:
            left_out(error)
    return found


def _version() -> str:
    """The package's own word: an installation's metadata may be older. Not imported above, as the
    package root needs torch.
    """
    return str(importlib.import_module(__name__.partition(".")[0]).__version__)
