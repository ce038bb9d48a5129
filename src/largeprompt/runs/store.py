"""The folder that a run lives in: anybody may read it; a file appears whole or not at all."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import xarray as xr

import largeprompt
from largeprompt.runs.files import (
    RunError,
    StorageError,
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
from largeprompt.runs.netcdf import decode
from largeprompt.runs.settings import changes
from largeprompt.runs.sources import fingerprint
from largeprompt.runs.study import PLAIN_WORD, Study

Word = Annotated[str, pydantic.Field(pattern=f"^{PLAIN_WORD.pattern}$")]
# no way out of the folder
FileName = Annotated[str, pydantic.Field(pattern=r"^(figures/)?[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)+$")]
# up to some centuries, so that sums of them are finite
Seconds = Annotated[float, pydantic.Field(ge=0, le=1e10, allow_inf_nan=False)]
PLAIN_VALUE = re.compile(r"[A-Za-z0-9_.,+-]+")  # what may stand in the name of a folder
LONGEST_NAME = 80  # characters of a folder's name
# what a run whose provenance is damaged may have written
RESULTS = ("verdicts.json", "dataset.nc", "figures/captions.json", "answer.json", "heads.json")


@dataclasses.dataclass(frozen=True)
class StoredFigure:
    """A figure of a run: PNG, PDF, and small pictures for the cards of claims."""

    run: Run
    name: str
    caption: str

    def read(self, ending: str) -> bytes:
        """Content of the file with this ending: 'png', 'pdf', or 'C1.png' for the card of C1."""
        return self.run.read(f"figures/{self.name}.{ending}")

    def has(self, ending: str) -> bool:
        """Whether the run wrote such a file."""
        return f"figures/{self.name}.{ending}" in self.run.checksums


class _Record(pydantic.BaseModel):
    """What stands beside a cell: without it, the cell is not finished."""

    cell: str
    key: str
    content: str
    seconds: Seconds


class _Provenance(pydantic.BaseModel, extra="allow"):
    """What readers of a provenance rely on."""

    finished: str
    seconds: Seconds = 0.0
    cells: dict[str, Seconds] = {}
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
    code: str = ""  # fingerprint of the sources that decide the numbers
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
        """Begin or continue a run; results of other settings are dropped, their cells stay."""
        run = cls(
            folder,
            study=study.name,
            title=study.title,
            question=study.question,
            method=study.method,
            # as it will be read: tuples are lists
            config=json.loads(json.dumps(dataclasses.asdict(config))),
            quick=quick,
            rerun=rerun,
            cells=tuple(study.cells(config)),
            version=largeprompt.__version__,
            code=fingerprint(study.computing),
            claims=tuple(study.claims),
        )
        with storing(folder):
            (folder / "cells").mkdir(parents=True, exist_ok=True)
        run.refuse_links()
        if run._there() != run:
            with locked(folder, PATIENCE):
                if run._there() != run:  # not just begun by another command
                    run.drop_results()
                    described = dataclasses.asdict(run)
                    del described["folder"]
                    run.write("config.json", sealed(described))
                    run.log(f"run of {run.study} with version {run.version}: {rerun}")
        return run

    def _there(self) -> Run | None:
        """What the folder holds now."""
        try:
            return Run.open(self.folder)
        except RunError:
            return None

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
        return [name for name in self.checksums if not self._is_whole(name)]

    def _is_whole(self, name: str) -> bool:
        try:
            self.read(name)
        except RunError:
            return False
        return True

    @property
    def finished_cells(self) -> int:
        """How many cells are stored."""
        return sum(map(self.is_stored, self.cells))

    def is_stored(self, cell: str) -> bool:
        """Whether a cell is there, with its record."""
        return self._record_file(cell).is_file() and self.cell_file(cell).is_file()

    @property
    def checksums(self) -> dict[str, str]:
        """SHA-256 of each file of the results, by its name; empty while the run is not finished."""
        return dict(self.provenance.get("files", {}))

    def read(self, name: str) -> bytes:
        """Content of a file of the results; RunError unless it is what was written."""
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
        """How the run was made, and checksums; empty while it is not finished."""
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
        """SHA-256 of all that decides the numbers of a cell."""
        return digest(self.study, canonical(self.config), cell, self.version, self.code)

    def cell_file(self, cell: str) -> Path:
        """Where a cell is stored: a readable name and its key."""
        slug = re.sub(r"[^a-z0-9]+", "-", cell.lower()).strip("-")[:40] or "cell"
        return self.folder / "cells" / f"{slug}-{self.key(cell)[:16]}.nc"

    def _record_file(self, cell: str) -> Path:
        return self.cell_file(cell).with_suffix(".json")

    def _record(self, cell: str) -> _Record:
        path = self._record_file(cell)
        trouble = f"{path} is not the record of cell {cell!r}"
        record: _Record = validated(_Record, to_json(read_sealed(path)), trouble)
        if record.key != self.key(cell):
            raise RunError(f"{trouble}.")
        return record

    def write_cell(self, cell: str, content: bytes, seconds: float) -> None:
        """Store a finished cell, as netCDF, and then its record."""
        self.write(f"cells/{self.cell_file(cell).name}", content)
        record = _Record(cell=cell, key=self.key(cell), content=sha256(content), seconds=seconds)
        self.write(f"cells/{self._record_file(cell).name}", sealed(record.model_dump()))

    def read_cell(self, cell: str) -> xr.Dataset:
        """A stored cell; RunError if it is missing or not what was written."""
        return decode(self.cell_file(cell), self._record(cell).content)

    def cell_seconds(self) -> dict[str, float]:
        """Seconds that each stored cell took."""
        return {cell: self._record(cell).seconds for cell in self.cells}

    def missing(self) -> tuple[str, ...]:
        """Cells still to be computed. One that cannot be read is moved aside and logged."""
        for cell in filter(self.is_stored, self.cells):
            try:
                self.read_cell(cell)
            except RunError as error:
                self.refuse_links()
                path = self.cell_file(cell)
                moved = path.with_name(f"{path.name}.corrupt")
                # another command may have moved it
                with storing(self.folder), contextlib.suppress(FileNotFoundError):
                    path.replace(moved)
                    self._record_file(cell).unlink()
                self.log(f"cell {cell!r} cannot be read and was moved to {moved.name}: {error}")
        return tuple(cell for cell in self.cells if not self.is_stored(cell))

    def clear(self) -> None:
        """Remove the results and the cells of this config and version."""
        with locked(self.folder), storing(self.folder):
            self.drop_results()
            for cell in self.cells:
                self._record_file(cell).unlink(missing_ok=True)
                self.cell_file(cell).unlink(missing_ok=True)
        self.log("results and cells removed, to be computed afresh")

    def drop_results(self) -> None:
        """Remove what is made from the cells, first that which says that the run is complete."""
        self.refuse_links()
        written = [*RESULTS]
        with contextlib.suppress(RunError):
            written = [*self.checksums]  # nothing that others put there is removed
        with storing(self.folder):
            for name in ("provenance.json", *written):
                if name != "config.json":
                    (self.folder / name).unlink(missing_ok=True)

    def drop_drafts(self) -> None:
        """Remove what killed writers left; only for who holds the lock of the run."""
        with storing(self.folder):
            for draft in self.folder.rglob(".*.part"):
                draft.unlink(missing_ok=True)

    def refuse_links(self) -> None:
        """StorageError where a folder or the log is a link: its target is somebody else's."""
        for name in ("cells", "figures", "log.txt"):
            if (self.folder / name).is_symlink():
                raise StorageError(
                    f"{self.folder / name} is a link; a run writes and deletes only inside its own "
                    "folder. Remove it."
                )

    def write_results(self, files: Mapping[str, bytes], provenance: Mapping[str, Any]) -> None:
        """Store the results by name, and then how they were made: the run is complete."""
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
        self.refuse_links()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        # a pipe would block without a reader
        flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        with storing(self.folder), os.fdopen(os.open(self.folder / "log.txt", flags, 0o666)) as log:
            if not stat.S_ISREG(os.fstat(log.fileno()).st_mode):
                raise OSError(errno.EINVAL, "log.txt is not a plain file")
            os.write(log.fileno(), line.encode(errors="replace"))

    def write(self, name: str, content: bytes) -> None:
        """Write a file whole or not at all: beside its place, flushed to the disk, then renamed."""
        self.refuse_links()
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
    """Return OUT/NAME, or OUT/NAME-quick, and then the changed settings: ``NAME-dim=20``.

    A hash of the config takes the place of settings that make no short plain name.
    """
    name = f"{study.name}-quick" if quick else study.name
    changed = changes(study, config, quick)
    told = "".join(f"-{key}={text}" for key, text in changed.items())
    plain = all(map(PLAIN_VALUE.fullmatch, changed.values()))
    if not plain or len(name + told) > LONGEST_NAME:
        told = f"-{digest(canonical(dataclasses.asdict(config)))[:8]}"
    return out / f"{name}{told}"


def find_runs(
    folder: Path | str, left_out: Callable[[RunError], None] = lambda error: None
) -> list[Run]:
    """Runs directly below a folder, sorted by name; ``left_out`` hears what cannot be read."""
    found = []
    for path in sorted(Path(folder).glob("*/config.json")):
        try:
            run = Run.open(path.parent)
            _ = run.verdicts, run.figures
            found.append(run)
        except RunError as error:
            left_out(error)
    return found
