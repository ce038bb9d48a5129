"""The folder that a run lives in: anybody may read it, and what is written appears whole or not at all."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import hashlib
import importlib
import io
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import xarray as xr

from largeprompt.errors import LargePromptError
from largeprompt.runs.study import Study, Verdict


class RunError(LargePromptError):
    """A run cannot be read, computed or stored."""


class StorageError(RunError):
    """A folder refuses what is written to it: it is full, read-only, or no folder."""

    @classmethod
    def of(cls, folder: Path, error: OSError) -> StorageError:
        """What the user is told, and what to do about it."""
        reason = error.strerror or str(error) or type(error).__name__
        if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", None)):
            return cls(
                f"no space left for {folder} ({reason}); finished cells are kept. Free some space and give the same command again."
            )
        return cls(f"--out: cannot write to {folder} ({reason}); choose a folder that you may write to.")


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
            return self.png.read_bytes()[:4] == b"\x89PNG" and self.pdf.read_bytes()[:4] == b"%PDF"
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
    code: str = ""  # fingerprint of the sources that decide numbers

    @classmethod
    def open(cls, folder: Path | str) -> Run:
        """Read what was asked of a run; RunError if the folder holds none."""
        folder = Path(folder)
        found = _read_json(folder / "config.json", f"{folder} is not a run folder")
        try:
            texts = {name: found[name] for name in ("study", "title", "question", "method", "rerun")}
            config, cells = found["config"], found["cells"]
            if not all(isinstance(text, str) for text in [*texts.values(), *cells]) or not isinstance(config, dict):
                raise TypeError("a field has the wrong type")
            return cls(
                folder,
                config=config,
                quick=bool(found["quick"]),
                cells=tuple(cells),
                version=str(found.get("version", "")),
                code=str(found.get("code", "")),
                **texts,
            )
        except (KeyError, TypeError) as error:
            raise RunError(f"{folder} is not a run folder: config.json is not that of a run ({error}).") from None

    @classmethod
    def create(cls, folder: Path, study: Study, config: Any, *, quick: bool, rerun: str) -> Run:
        """Begin a run, or go on with it. Results of another config or version are dropped; its cells stay, under other keys."""
        settings = json.loads(json.dumps(dataclasses.asdict(config)))  # as it will be read: tuples are lists
        cells = tuple(study.cells(config))
        if not cells or len(set(cells)) < len(cells):
            raise RunError(f"{study.name}: these settings give {'the same cell twice' if cells else 'nothing to compute'}.")
        told = (study.title, study.question, study.method)
        run = cls(folder, study.name, *told, settings, quick, rerun, cells, _version(), code_fingerprint())
        try:
            before: Run | None = cls.open(folder)
        except RunError:
            before = None
        with _storing(folder):
            (folder / "cells").mkdir(parents=True, exist_ok=True)
        if before is None or before.identity != run.identity:
            run.drop_results()
        if before != run:
            described = {field.name: getattr(run, field.name) for field in dataclasses.fields(run) if field.name != "folder"}
            run.write("config.json", _json(described))
            run.log(f"run of {study.name} with version {run.version}: {run.rerun}")
        return run

    @property
    def identity(self) -> str:
        """SHA-256 of the study, its config, the version and the code: what decides the numbers."""
        return _hash(self.study, canonical(self.config), self.version, self.code)

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
            return [Verdict(**each) for each in _read_json(path)]
        except TypeError as error:
            raise RunError(f"{path} is not a list of verdicts ({error}).") from None

    @property
    def provenance(self) -> dict[str, Any]:
        """Version, commit, packages, machine, seed and times; empty while the run is not finished."""
        path = self.folder / "provenance.json"
        found = _read_json(path) if path.exists() else {}
        if not isinstance(found, dict):
            raise RunError(f"{path} is not the provenance of a run.")
        return found

    @property
    def dataset(self) -> xr.Dataset:
        """The run's numbers, in memory."""
        return _decode(self.folder / "dataset.nc", self.provenance.get("dataset_sha256"))

    @property
    def figures(self) -> list[StoredFigure]:
        """The figures in the order of the catalogue; empty while there are none."""
        folder = self.folder / "figures"
        if not (folder / "captions.json").exists():
            return []
        try:
            listed = [(str(each["name"]), str(each["caption"])) for each in _read_json(folder / "captions.json")]
        except (TypeError, KeyError) as error:
            raise RunError(f"{folder / 'captions.json'} is not a list of captions ({error}).") from None
        return [StoredFigure(name, caption, folder / f"{name}.png", folder / f"{name}.pdf") for name, caption in listed]

    def key(self, cell: str) -> str:
        """SHA-256 of all that decides the numbers of a cell: study, config, cell, version and code."""
        return _hash(self.study, canonical(self.config), cell, self.version, self.code)

    def cell_file(self, cell: str) -> Path:
        """Where a cell is stored: a readable name and its key."""
        slug = re.sub(r"[^a-z0-9]+", "-", cell.lower()).strip("-")[:40] or "cell"
        return self.folder / "cells" / f"{slug}-{self.key(cell)[:16]}.nc"

    def _record(self, cell: str) -> Path:
        """Beside each cell: its checksum, without which it is not finished, and the seconds that it took."""
        return self.cell_file(cell).with_suffix(".json")

    def write_cell(self, cell: str, data: xr.Dataset, seconds: float) -> None:
        """Store a finished cell; the record comes last, so a cell without one was cut off."""
        content = _encode(data)
        self.write(str(self.cell_file(cell).relative_to(self.folder)), content)
        record = {"cell": cell, "key": self.key(cell), "sha256": hashlib.sha256(content).hexdigest(), "seconds": seconds}
        self.write(str(self._record(cell).relative_to(self.folder)), _json(record))

    def read_cell(self, cell: str) -> xr.Dataset:
        """A stored cell; RunError if it is missing or not what was written."""
        record = _read_json(self._record(cell))
        whole = isinstance(record, dict) and isinstance(record.get("seconds"), int | float)
        if not whole or record.get("key") != self.key(cell):
            raise RunError(f"{self._record(cell)} is not the record of cell {cell!r}.")
        return _decode(self.cell_file(cell), str(record.get("sha256")))

    def cell_seconds(self) -> dict[str, float]:
        """Seconds that each stored cell took."""
        return {cell: float(_read_json(self._record(cell))["seconds"]) for cell in self.cells}

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
                with _storing(self.folder):
                    path.replace(path.with_name(f"{path.name}.corrupt"))
                    record.unlink()
                self.log(f"cell {cell!r} cannot be read, moved to {path.name}.corrupt and computed again: {error}")
                found.append(cell)
        return tuple(found)

    def clear(self) -> None:
        """Remove the results and the cells of this config and version."""
        self.drop_results()
        with _storing(self.folder):
            for cell in self.cells:
                self._record(cell).unlink(missing_ok=True)
                self.cell_file(cell).unlink(missing_ok=True)
        self.log("results and cells removed, to be computed afresh")

    def drop_results(self) -> None:
        """Remove what is made from the cells, first that which says that the run is complete."""
        figures = self.folder / "figures"
        with _storing(self.folder):
            for path in [
                *(self.folder / name for name in ("provenance.json", "verdicts.json", "dataset.nc")),
                figures / "captions.json",
            ]:
                path.unlink(missing_ok=True)
            for path in [*figures.glob("*.png"), *figures.glob("*.pdf")]:
                path.unlink(missing_ok=True)

    def write_dataset(self, data: xr.Dataset) -> str:
        """Store the run's dataset and return its checksum."""
        content = _encode(data)
        self.write("dataset.nc", content)
        return hashlib.sha256(content).hexdigest()

    def write_verdicts(self, verdicts: Sequence[Verdict]) -> None:
        """Store what the data says."""
        self.write("verdicts.json", _json([dataclasses.asdict(each) for each in verdicts]))

    def write_captions(self, captions: Mapping[str, str]) -> None:
        """Store the captions of the figures by name, in order."""
        with _storing(self.folder):
            (self.folder / "figures").mkdir(exist_ok=True)
        self.write("figures/captions.json", _json([{"name": name, "caption": text} for name, text in captions.items()]))

    def write_provenance(self, provenance: Mapping[str, Any]) -> None:
        """Store how the run was made, last of all: with it the run is complete."""
        self.write("provenance.json", _json(dict(provenance)))

    def log(self, message: str) -> None:
        """One line in log.txt, with the time in UTC."""
        line = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {' | '.join(message.splitlines())}\n"
        with _storing(self.folder), (self.folder / "log.txt").open("a", encoding="utf-8") as file:
            file.write(line)

    def write(self, name: str, content: bytes) -> None:
        """Write a file of the run whole or not at all: beside its place, flushed to the disk, then renamed."""
        path = self.folder / name
        draft = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
        with _storing(self.folder):
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


@functools.cache
def code_fingerprint(package: Path = Path(__file__).parents[1]) -> str:
    """SHA-256 of the sources that decide numbers: all of the package but what draws, writes pages and talks to the user."""
    apart = {"report", "cli", "testing"}
    files = sorted(path for path in package.rglob("*.py") if path.relative_to(package).parts[0] not in apart)
    return _hash(*(f"{path.relative_to(package).as_posix()}\n{path.read_text(encoding='utf-8')}" for path in files))


def canonical(config: Mapping[str, Any]) -> str:
    """A config as JSON with sorted keys, the same text for the same settings."""
    return json.dumps(config, sort_keys=True, ensure_ascii=False)


def default_folder(out: Path, study: Study, config: Any, quick: bool) -> Path:
    """OUT/NAME for the full setting, OUT/NAME-quick for the quick one, OUT/NAME-<hash of the config> for any other."""
    if config == (study.quick if quick else study.config()):
        return out / (f"{study.name}-quick" if quick else study.name)
    return out / f"{study.name}-{_hash(canonical(dataclasses.asdict(config)))[:8]}"


def run_folders(folder: Path | str) -> list[Path]:
    """Folders directly below a folder that have a config.json, sorted by name."""
    folder = Path(folder)
    return sorted(path.parent for path in folder.glob("*/config.json")) if folder.is_dir() else []


def find_runs(folder: Path | str) -> list[Run]:
    """Runs directly below a folder, sorted by name; folders that hold something else are left out."""
    found = []
    for path in run_folders(folder):
        with contextlib.suppress(RunError):
            found.append(Run.open(path))
    return found


@contextlib.contextmanager
def _storing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError.of(folder, error) from error


def _version() -> str:
    """The package's own word: an installation's metadata may be older. Not imported above, as the package root needs torch."""
    return str(importlib.import_module(__name__.partition(".")[0]).__version__)


def _hash(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False).encode()


def _read_json(path: Path, trouble: str = "") -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise RunError(f"{trouble or 'cannot read a file of the run'}: {path} ({error.strerror}).") from None
    except ValueError as error:
        raise RunError(f"{trouble or 'cannot read a file of the run'}: {path} is not JSON ({error}).") from None


def _encode(data: xr.Dataset) -> bytes:
    """NetCDF4 in memory: the same bytes for the same data, and the disk is only touched by ``write``."""
    return bytes(data.drop_encoding().to_netcdf(engine="h5netcdf"))


def _decode(path: Path, checksum: str | None) -> xr.Dataset:
    """Read a dataset. The checksum is compared first, as the HDF5 library may crash on a damaged file."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RunError(f"cannot read {path} ({error.strerror}).") from None
    if checksum is not None and hashlib.sha256(content).hexdigest() != checksum:
        raise RunError(f"{path} is damaged: it is not what was written (checksum).")
    try:
        return xr.load_dataset(io.BytesIO(content), engine="h5netcdf").drop_encoding()
    except Exception as error:  # the reader has many kinds of complaint
        raise RunError(f"{path} is not a netCDF file that can be read ({type(error).__name__}: {error}).") from None
