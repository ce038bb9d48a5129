"""Finished runs and audits, read through the run store; what stands on disk is text to show, never
markup to run.
"""

import dataclasses
import functools
import math
from pathlib import Path
from typing import Any

import xarray as xr

from largeprompt.audit.kinds import FINDINGS, READ_OUTS, mixtures
from largeprompt.explore.picture import in_words
from largeprompt.runs.files import RunError
from largeprompt.runs.store import Run, find_runs
from largeprompt.studies.registry import place

UNKNOWN = "unknown"


def available(folder: Path) -> tuple[dict[str, Run], list[str]]:
    """Finished runs in a folder, or the run that it is, by the names of their folders, as in the
    report; and what is left out.
    """
    left_out: list[str] = []
    try:
        runs = (
            [Run.open(folder)]
            if (folder / "config.json").exists()
            else find_runs(folder, lambda error: left_out.append(str(error)))
        )
    except RunError as error:
        return {}, [str(error)]
    left_out += [f"{run.folder.name} is not finished" for run in runs if run.state != "complete"]
    finished = [run for run in runs if run.state == "complete"]
    return {
        run.folder.name: run for run in sorted(finished, key=lambda run: place(run.study))
    }, left_out


@functools.lru_cache(maxsize=8)
def dataset(run_folder: Path, finished: str) -> xr.Dataset:
    """The numbers of a run, read once for each time that it was finished."""
    return Run.open(run_folder).dataset


@dataclasses.dataclass(frozen=True)
class Audit:
    """An audit at its longest length; heads are named 'layer.head'."""

    data: xr.Dataset
    length: int | None
    tolerance: float

    @classmethod
    def of(cls, run: Run) -> "Audit":
        """RunError where the dataset is not that of an audit."""
        data = dataset(run.folder, str(run.provenance.get("finished", "")))
        missing = {
            "head_finding",
            "head_affine_error",
            "head_score_variance",
            "affine_error",
            "tokens",
            "score_variance",
            "query",
        } - set(map(str, data.data_vars))
        if missing or not {"layer", "head"} <= set(data.dims):
            raise RunError(
                f"{run.folder} has no heads to show ({', '.join(sorted(missing)) or 'no layers'})."
            )
        length = int(data.length[-1]) if "length" in data.dims else None
        last = data.isel(length=-1) if length is not None else data
        return cls(last.load(), length, float(data.attrs.get("tolerance", 0.2)))

    @property
    def heads(self) -> list[str]:
        """Names of all heads, layer by layer."""
        return [
            f"{layer}.{head}"
            for layer in self.data.layer.values.tolist()
            for head in self.data["head"].values.tolist()
        ]

    def chosen(self, name: str) -> str:
        """The head of that name, or the first there is."""
        return name if name in self.heads else self.heads[0]

    def picked(self, cells: list[tuple[Any, str]]) -> str:
        """The head of a cell on the map; the first of its layer where the layer's name was picked,
        the first of all for none.
        """
        if not cells:
            return self.heads[0]
        (row, column), layers = cells[0], self.data.layer.values.tolist()
        first = self.data["head"].values.tolist()[0]
        return self.chosen(
            f"{layers[int(row)]}.{first if column == 'layer' else column.removeprefix('h')}"
        )

    def head(self, name: str) -> xr.Dataset:
        """Everything about one head."""
        layer, head = (int(part) for part in name.split("."))
        return self.data.sel(layer=layer, head=head)

    def finding(self, name: str) -> str:
        """Its verdict."""
        code = int(self.head(name).head_finding)
        return FINDINGS[code] if 0 <= code < len(FINDINGS) else UNKNOWN

    @property
    def read_outs(self) -> list[str]:
        """Names of the read-outs that were tried."""
        return [
            *(name for name in READ_OUTS if f"{name}_error" in self.data),
            *(f"mixture_{count}" for count in mixtures(self.data)),
        ]

    def why(self, name: str) -> str:
        """Why the head got its verdict: the numbers that decided, in the order in which the rule
        asks.
        """
        head, finding = self.head(name), self.finding(name)

        def number(variable: str) -> float:
            return float(head[f"head_{variable}"]) if f"head_{variable}" in head else math.nan

        if finding == UNKNOWN:
            return "No query position sees enough keys for a verdict."
        misses = (
            "The affine read-out of mean and covariance misses "
            f"{in_words(number('affine_error'))} of the output"
        )
        if finding == "uniform":
            mean = in_words(number("mean_error"))
            return (
                f"Uniform weights do: the mean value alone misses {mean} of the output, at a "
                f"tolerance of {self.tolerance:g}."
            )
        if finding == "moments":
            return f"{misses}, which is within the tolerance of {self.tolerance:g}."
        misses += f", more than the tolerance of {self.tolerance:g}."
        if finding == "few clusters":
            count = int(number("clusters"))
            return (
                f"{misses} A Gaussian mixture of {count} misses only "
                f"{in_words(number(f'mixture_{count}_error'))}."
            )
        tokens, alpha = in_words(number("effective_tokens")), in_words(number("alpha"))
        reads = f"it reads {tokens} effective tokens, with scores at σ/√(2 ln L) = {alpha}"
        told = f"{misses} No mixture that was tried is within the tolerance."
        if finding == "selects":
            return f"{told} The head picks tokens: {reads}, where an average has less than 1/2."
        if finding == "mixtures not tried":
            return f"{misses} The head averages: {reads}. Mixtures were not tried."
        return f"{told} Yet the head averages: {reads}. Its keys and values have another shape."


def audit_of(run: Run | None) -> tuple[Audit | None, str]:
    """The audit that a run is, if it is one, and what is wrong with it, if anything."""
    if run is None or run.study != "audit":
        return None, ""
    try:
        return Audit.of(run), ""
    except RunError as error:
        return None, str(error)
