"""What a study is: a question, settings, parts that compute, rules that judge, and figures."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import xarray as xr

from largeprompt.display.labels import label
from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.judging import Claim, Rule, Verdict, judge

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Progress = Callable[[str], None]
Join = Callable[[Any, Mapping[Any, xr.Dataset]], xr.Dataset]
PLAIN_WORD = re.compile(r"[A-Za-z0-9_]+")  # what may become the name of a file


def quiet(message: str) -> None:
    """Progress that nobody watches."""


def side_by_side(config: Any, results: Mapping[Any, xr.Dataset]) -> xr.Dataset:
    """Join results of different variables, or of different places of the same."""
    return xr.merge(results.values(), combine_attrs="drop", compat="no_conflicts", join="outer")


def stacked(dimension: str | xr.Variable) -> Join:
    """Join results that are slices along a dimension which they all have, or along a new one."""
    return lambda config, results: xr.concat(
        list(results.values()), dimension, combine_attrs="drop", join="outer"
    )


def along(*dimensions: str, name: Callable[..., Any] | None = None) -> Join:
    """Join slices along new dimensions, one for each entry of an item; ``name`` names the items."""

    def join(config: Any, results: Mapping[Any, xr.Dataset]) -> xr.Dataset:
        first, *others = dimensions
        if others:
            rows: dict[Any, dict[Any, xr.Dataset]] = {}
            for (value, *rest), data in results.items():
                rows.setdefault(value, {})[tuple(rest) if len(rest) > 1 else rest[0]] = data
            results = {value: along(*others)(config, row) for value, row in rows.items()}
        labels = list(results)
        if name:
            labels = [name(*(item if isinstance(item, tuple) else (item,))) for item in results]
        return stacked(xr.Variable(first, labels))(config, results)

    return join


def _plain(name: str, word: str) -> None:
    """Refuse what cannot name a file."""
    if not PLAIN_WORD.fullmatch(word):
        raise InvalidArgumentError(name, repr(word), "letters, digits and underscores")


@dataclasses.dataclass(frozen=True)
class Part:
    """One kind of computation in a study: what it runs over, and how the results are joined.

    Attributes
    ----------
    compute
        ``compute(config, *item, progress)``: one cell, as a labeled dataset. Cells may run
        anywhere, in any order.
    over
        The items of a config, one cell each: values, or tuples of values. None: one cell.
    join
        ``join(config, {item: dataset})``: see :func:`along`, :func:`stacked`, :func:`side_by_side`.
    """

    name: str
    compute: Callable[..., xr.Dataset]
    over: Callable[[Any], Iterable[Any]] | None = None
    join: Join = dataclasses.field(default_factory=lambda: side_by_side)

    def items(self, config: Any) -> list[Any]:
        """What the part runs over; one empty tuple where it runs over nothing."""
        return [()] if self.over is None else list(self.over(config))


@dataclasses.dataclass(frozen=True)
class Cell:
    """A part at one item: computed by itself, stored by itself."""

    part: Part
    item: Any

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The item as arguments of the computation."""
        return self.item if isinstance(self.item, tuple) else (self.item,)

    @property
    def name(self) -> str:
        """What a person reads in the progress bar and the log; never read back."""
        said = ", ".join(map(str, self.arguments))
        return f"{self.part.name}: {said}" if said else self.part.name

    def compute(self, config: Any, progress: Progress = quiet) -> xr.Dataset:
        """The cell's dataset."""
        return self.part.compute(config, *self.arguments, progress)


@dataclasses.dataclass(frozen=True)
class StudyFigure:
    """A figure of a study: its file name, what draws it (without torch), and its caption.

    Without the variables and dimensions in ``needs`` it is left out. ``cards`` has the panel, by
    number, that the report shows on the card of a claim.
    """

    name: str
    draw: Callable[[xr.Dataset], Figure]
    caption: str
    needs: tuple[str, ...] = ()
    cards: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        _plain("name", self.name)


@dataclasses.dataclass(frozen=True)
class Study:
    """A question that the library answers by computation.

    Attributes
    ----------
    name
        What one types: ``largeprompt run NAME``.
    config, quick
        Class of the settings (see :func:`largeprompt.runs.settings.settings`), and the setting of
        ``--quick``.
    parts, rules, figures
        What is computed, asked of the run's dataset, and drawn of it.
    claims
        What the verdicts are about, for the report.
    combine
        ``combine(config, {part name: dataset})``: the run's dataset, from all parts.
    attach
        ``attach(data)``: further files of the results by name.
    variables
        What :func:`largeprompt.display.labels.label` calls the variables.
    source
        Where a worker finds the study again: ``module:NAME`` or ``file.py:NAME``.
    listed
        Whether the name alone finds it.
    """

    name: str
    title: str
    question: str
    method: str
    config: type
    quick: Any
    parts: Sequence[Part]
    rules: Sequence[Rule]
    figures: Sequence[StudyFigure] = ()
    claims: Sequence[Claim] = ()
    combine: Join = dataclasses.field(default_factory=lambda: side_by_side)
    attach: Callable[[xr.Dataset], Mapping[str, bytes]] = lambda data: {}
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    source: str = ""
    listed: bool = False

    def __post_init__(self) -> None:
        _plain("name", self.name)
        for id in [*(claim.id for claim in self.claims), *(rule.claim for rule in self.rules)]:
            _plain("claim", id)

    @property
    def computing(self) -> list[Any]:
        """What decides the numbers of the cells."""
        return [self.config, *(part.compute for part in self.parts)]

    def cells(self, config: Any) -> dict[str, Cell]:
        """The cells of a run by name, in order."""
        every = [Cell(part, item) for part in self.parts for item in part.items(config)]
        found = {cell.name: cell for cell in every}
        if not found or len(found) < len(every):
            what = "the same cell twice" if found else "nothing to compute"
            raise InvalidArgumentError(
                "config", f"settings of {self.name} that give {what}", "others"
            )
        return found

    def run(self, config: Any = None, progress: Progress = quiet) -> xr.Dataset:
        """All cells in turn, in this process; ``config`` defaults to the full setting."""
        config = self.config() if config is None else config
        cells = self.cells(config).items()
        return self.finish(config, {name: cell.compute(config, progress) for name, cell in cells})

    def finish(self, config: Any, results: Mapping[str, xr.Dataset]) -> xr.Dataset:
        """The run's dataset from those of its cells, with the config that made it."""
        parts: dict[Part, dict[Any, xr.Dataset]] = {}
        for name, cell in self.cells(config).items():
            parts.setdefault(cell.part, {})[cell.item] = results[name]
        joined = {part.name: part.join(config, of_part) for part, of_part in parts.items()}
        data = label(self.combine(config, joined), self.variables)
        data.attrs |= {"study": self.name, "config": json.dumps(dataclasses.asdict(config))}
        return data

    def judge(self, data: xr.Dataset) -> list[Verdict]:
        """Verdicts of a dataset, rule by rule."""
        return judge(self.rules, data)

    def drawable(self, data: xr.Dataset) -> list[StudyFigure]:
        """The figures that this dataset can fill."""
        there = {str(name) for name in (*data.variables, *data.dims)}
        return [figure for figure in self.figures if set(figure.needs) <= there]
