"""Finished runs and audits, read through the run store; what they hold is text, never markup."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import xarray as xr

from largeprompt.audit.kinds import READ_OUTS, head_name, longest, mixtures
from largeprompt.audit.table import table
from largeprompt.explore.text import in_words
from largeprompt.runs.files import RunError
from largeprompt.runs.store import Run, find_runs
from largeprompt.studies.registry import place

AFFINE = "The affine read-out of mean and covariance misses {affine_error} of the output"
MISSES = f"{AFFINE}, more than the tolerance of {{tolerance}}."
TRIED = f"{MISSES} No mixture that was tried is within the tolerance."
READS = "it reads {effective_tokens} effective tokens, with scores at σ/√(2 ln L) = {alpha}"
WHY = {
    "not judged": "No query position sees enough keys for a verdict.",
    "uniform": (
        "Uniform weights do: the mean value alone misses {mean_error} of the output, at a "
        "tolerance of {tolerance}."
    ),
    "moments": f"{AFFINE}, which is within the tolerance of {{tolerance}}.",
    "few clusters": f"{MISSES} A Gaussian mixture of {{count}} misses only {{mixture_error}}.",
    "mixtures not tried": f"{MISSES} The head averages: {READS}. Mixtures were not tried.",
    "selects": f"{TRIED} The head picks tokens: {READS}, where an average has less than 1/2.",
    "other shape": (
        f"{TRIED} Yet the head averages: {READS}. Its keys and values have another shape."
    ),
}
PLOTTED = ("query", "tokens", "score_variance", "affine_error")


def available(folder: Path) -> tuple[dict[str, Run], list[str]]:
    """Return finished runs in a folder, or the run that it is, by name; and what is left out."""
    left_out: list[str] = []
    try:
        single = (folder / "config.json").exists()
        runs = (
            [Run.open(folder)] if single else find_runs(folder, lambda e: left_out.append(str(e)))
        )
    except RunError as error:
        return {}, [str(error)]
    left_out += [f"{run.folder.name} is not finished" for run in runs if run.state != "complete"]
    finished = [run for run in runs if run.state == "complete"]
    return {run.folder.name: run for run in sorted(finished, key=_order)}, left_out


def _order(run: Run) -> Any:
    return place(run.study)


@dataclasses.dataclass(frozen=True)
class Audit:
    """An audit at its longest length; ``rows`` of the audit's table by name, layer by layer."""

    data: xr.Dataset
    rows: dict[str, dict[str, Any]]

    @classmethod
    def of(cls, run: Run) -> "Audit":
        """Read an audit; RunError where the dataset is not that of one."""
        return _read(run, str(run.provenance["finished"]))

    @property
    def tolerance(self) -> float:
        """Error of a read-out up to which it is enough."""
        return float(self.data.attrs.get("tolerance", 0.2))

    def chosen(self, name: str) -> str:
        """Return the head of that name, or the first there is."""
        return name if name in self.rows else next(iter(self.rows))

    def picked(self, cells: list[tuple[Any, str]]) -> str:
        """Return the head of a cell on the map, or the first of its layer."""
        (row, column), heads = cells[0], self.data["head"].values.tolist()
        head = heads[0] if column == "layer" else int(column.removeprefix("h"))
        return self.chosen(head_name(self.data.layer.values.tolist()[int(row)], head))

    def where(self, name: str) -> dict[str, int]:
        """Return the coordinates of a head in the run's dataset."""
        row = self.rows[name]
        length = {"length": int(self.data.length)} if "length" in self.data.coords else {}
        return {"layer": row["layer"], "head": row["number"]} | length

    def head(self, name: str) -> xr.Dataset:
        """Return everything about one head."""
        return self.data.sel(layer=self.rows[name]["layer"], head=self.rows[name]["number"])

    @property
    def read_outs(self) -> list[str]:
        """Names of the read-outs that were tried."""
        known = [name for name in READ_OUTS if f"{name}_error" in self.data]
        return [*known, *(f"mixture_{count}" for count in mixtures(self.data))]

    def why(self, name: str) -> str:
        """Return the numbers that decided the verdict, in the order in which the rule asks."""
        row = self.rows[name]
        known = {key: in_words(x) for key, x in row.items() if isinstance(x, float)}
        known |= {"tolerance": f"{self.tolerance:g}"}
        if row["verdict"] == "few clusters":
            count = int(row["clusters"])
            known |= {"count": str(count), "mixture_error": known[f"mixture_{count}_error"]}
        return WHY[row["verdict"]].format(**known)


@functools.lru_cache(maxsize=8)
def _numbers(folder: Path, finished: str) -> xr.Dataset:
    """Return the numbers of a run, read once for each time that it was finished."""
    return Run.open(folder).dataset


def _read(run: Run, finished: str) -> Audit:
    data = longest(_numbers(run.folder, finished))
    try:
        rows = sorted(table(data).rows, key=lambda row: (row["layer"], row["number"]))
        _ = data[list(PLOTTED)], rows[0]
    except (KeyError, IndexError, TypeError, ValueError) as error:  # of a damaged or older audit
        raise RunError(f"{run.folder} has no heads to show: {error}") from None
    return Audit(data, {row["head"]: row for row in rows})


def audit_of(run: Run | None) -> tuple[Audit | None, str]:
    """Return the audit that a run is, if it is one, and what is wrong with it, if anything."""
    if run is None or run.study != "audit":
        return None, ""
    try:
        return Audit.of(run), ""
    except RunError as error:
        return None, f"Damaged audit: {error}"
