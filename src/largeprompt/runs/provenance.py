"""Where the numbers of a run come from: version, commit, packages, machine."""

import contextlib
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from largeprompt.runs.store import Run

PACKAGES = ("torch", "numpy", "scipy", "xarray", "h5netcdf", "h5py", "pydantic", "matplotlib")


def provenance(run: Run, *, workers: int | None, started: float, resumed: int) -> dict[str, Any]:
    """Return what a reader needs to make the run again; ``started``: seconds since 1970."""
    finished = datetime.now(UTC)
    begun = datetime.fromtimestamp(started, UTC)
    return {
        "version": run.version,
        "commit": commit(),
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "machine": {
            "platform": platform.platform(),
            "processor": _processor(),
            "cpus": os.cpu_count(),
        },
        "seed": run.config.get("seed"),
        "workers": workers,
        "started": begun.isoformat(timespec="seconds"),
        "finished": finished.isoformat(timespec="seconds"),
        "seconds": max(0.0, round((finished - begun).total_seconds(), 3)),
        "resumed_cells": resumed,
        "cells": {cell: round(seconds, 3) for cell, seconds in run.cell_seconds().items()},
    }


def commit(package: Path = Path(__file__).parents[1]) -> str | None:
    """Commit of the package, '-dirty' where files differ; None outside a checkout of its own."""
    options: Any = {"check": True, "capture_output": True, "text": True, "timeout": 20}
    options["env"] = os.environ | {"GIT_OPTIONAL_LOCKS": "0"}  # only look
    git = ["git", "-C", str(package)]
    try:
        # in an environment inside somebody's repository the file is not tracked
        subprocess.run([*git, "ls-files", "--error-unmatch", "__init__.py"], **options)
        words = ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        found = subprocess.run([*git, *words], **options)
    except (OSError, subprocess.SubprocessError):
        return None
    return str(found.stdout).strip() or None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    """The processor's name, where the system says it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
