"""The studies by name, and the one function that a worker calls."""

from __future__ import annotations

import contextlib
import difflib
import importlib
from collections.abc import Iterator
from typing import Any

import xarray as xr

from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.study import Progress, Study, quiet

NAMES = (
    "limit",
    "convergence",
    "exponent",
    "phase_diagram",
    "sharpness",
    "trajectory",
    "endpoint",
    "drift",
    "paper",
    "anisotropy",
    "shortcontext",
    "nongaussian",
    "discrete",
    "heavytail",
    "softmax_vs_linear",
    "depth",
    "ngram",
    "trained",
)  # in the order of the report


def study(name: str) -> Study:
    """The study of that name."""
    if name not in NAMES:
        near = [each for each in NAMES if name and each.startswith(name)] or difflib.get_close_matches(name, NAMES, 1)
        raise InvalidArgumentError("study", repr(name), f"one of {', '.join(NAMES)}", f"Did you mean {near[0]!r}?" if near else "")
    found: Study = importlib.import_module(f"largeprompt.studies.{name}.study").STUDY
    return found


def compute_cell(name: str, config: Any, cell: str, progress: Progress = quiet) -> xr.Dataset:
    """One cell of a study on one thread: workers do not fight for cores, and the numbers do not depend on how many there are."""
    # the audit needs a model given, and so has a command of its own
    chosen = importlib.import_module("largeprompt.audit.study").STUDY if name == "audit" else study(name)
    with one_thread():
        return chosen.compute(config, cell, progress)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Run the block with one thread of PyTorch, and give back what there was."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
