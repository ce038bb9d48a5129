"""What a study is: a question, a config, independent cells, and a rule that turns the numbers into a verdict."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr

Progress = Callable[[str], None]
Outcome = Literal["holds", "holds in part", "fails", "undecided"]


def quiet(message: str) -> None:
    """Progress that nobody watches."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What the data says about one claim, by a rule written in the study's code.

    Attributes
    ----------
    claim
        Id in the paper's table: C1 to C7, or the experiment's own (E3, F1, P1).
    asked
        What was asked, in one sentence.
    outcome
        'holds', 'holds in part', 'fails' or 'undecided'.
    measured
        The numbers behind it, in one or two sentences.
    control
        Whether this is a negative control, one that must fail for the others to mean anything.
    """

    claim: str
    asked: str
    outcome: Outcome
    measured: str
    control: bool = False


@dataclasses.dataclass(frozen=True)
class Study:
    """A question that the library answers by computation.

    Attributes
    ----------
    name
        What one types: ``largeprompt run NAME``.
    config
        Frozen dataclass; its defaults are the full setting.
    quick
        The setting of ``--quick``.
    cells
        Names of the independent parts of a run, in order.
    compute
        One part, as a labelled dataset. Must not depend on the other parts: they may run anywhere, in any order.
    combine
        All parts into the dataset of the run.
    verdicts
        What that dataset says.
    """

    name: str
    title: str
    question: str
    method: str
    config: type
    quick: Any
    cells: Callable[[Any], Sequence[str]]
    compute: Callable[[Any, str, Progress], xr.Dataset]
    combine: Callable[[Any, Mapping[str, xr.Dataset]], xr.Dataset]
    verdicts: Callable[[xr.Dataset], list[Verdict]]

    def run(self, config: Any = None, progress: Progress = quiet) -> xr.Dataset:
        """All cells in turn, in this process; ``config`` defaults to the full setting."""
        config = self.config() if config is None else config
        return self.finish(config, {cell: self.compute(config, cell, progress) for cell in self.cells(config)})

    def judge(self, data: xr.Dataset) -> list[Verdict]:
        """Verdicts of a dataset; 'undecided' where one rests on a NaN, or where the settings leave the rule nothing to look at."""
        try:
            found = self.verdicts(data)
        except (ArithmeticError, LookupError, ValueError) as error:
            trouble = (
                f"The rules cannot be applied to what these settings gave ({type(error).__name__}: {error}): nothing is judged."
            )
            return [Verdict("", self.question, "undecided", trouble)]
        return [dataclasses.replace(each, outcome="undecided") if re.search(r"\bnan\b", each.measured) else each for each in found]

    def finish(self, config: Any, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
        """The run's dataset, with the config that made it."""
        data = self.combine(config, parts)
        data.attrs |= {"study": self.name, "config": json.dumps(dataclasses.asdict(config))}
        return data


def merged(config: Any, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Combine parts whose variables have different names."""
    return xr.merge(parts.values(), combine_attrs="drop", compat="no_conflicts", join="outer")


def along(dimension: str) -> Callable[[Any, Mapping[str, xr.Dataset]], xr.Dataset]:
    """Combine parts that are slices: the names of the cells become the coordinate."""

    def combine(config: Any, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
        return xr.concat(list(parts.values()), xr.Variable(dimension, list(parts)), combine_attrs="drop", join="outer")

    return combine


def log_slope(x: Any, y: Any) -> float:
    """Least-squares slope of log y against log x."""
    return float(np.polyfit(np.log(np.asarray(x, dtype=np.float64)), np.log(np.asarray(y, dtype=np.float64)), 1)[0])
