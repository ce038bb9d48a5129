"""What commands share: options, tables, progress, what was found, and the right exit code."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import logging
import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from largeprompt.errors import InvalidArgumentError, LargePromptError, interrupted

if TYPE_CHECKING:
    from largeprompt.runs.files import RunError
    from largeprompt.runs.finish import Job
    from largeprompt.runs.judging import Verdict
    from largeprompt.runs.store import Run
    from largeprompt.runs.study import Study

TITLES = ("title", "caption")  # of a table: plain words too
MANY = "Many machines"  # panel of the help
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1024,
        help="Worker processes; by default one for each core, at most 8.",
        show_default=False,
    ),
]
Where = Annotated[
    str,
    typer.Option(
        "--executor",
        help="Where cells are computed: local, dask, dask:tcp://HOST:PORT, dask:FILE (of a "
        "scheduler), or module:factory.",
        rich_help_panel=MANY,
    ),
]
CellLimit = Annotated[
    float | None,
    typer.Option(
        min=0.1,
        metavar="SECONDS",
        help="End a cell that takes longer, and report it.",
        show_default=False,
        rich_help_panel=MANY,
    ),
]
Out = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder that holds the runs.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Compute again what is stored already.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@dataclasses.dataclass(frozen=True)
class Places:
    """Where cells are computed: see the options of the same names."""

    workers: int | None = None
    executor: str = "local"
    cell_limit: float | None = None

    def __post_init__(self) -> None:
        if self.cell_limit is not None and not 0.1 <= self.cell_limit <= 1e6:  # NaN too
            given = str(self.cell_limit)
            raise InvalidArgumentError("--cell-limit", given, "seconds from 0.1 to 1e6")


def prepare(
    study: Study, config: Any, out: Path, *, quick: bool = False, fresh: bool, rerun: str = ""
) -> Run:
    """The run's folder, made or found again; ``rerun``: its command, where it is not ``run``."""
    from largeprompt.runs import settings
    from largeprompt.runs.store import Run, default_folder

    folder = default_folder(out, study, config, quick)
    again = rerun or settings.rerun(study, config, quick, out)
    run = Run.create(folder, study, config, quick=quick, rerun=again)
    if fresh:
        run.clear()
    return run


def perform(
    wanted: Sequence[tuple[Study, Any, Run]],
    places: Places,
    *,
    quiet: bool = False,
    after: Callable[[], None] = lambda: None,
) -> list[RunError]:
    """Compute what these runs lack, say what each found as it ends, and return what went wrong.

    ``after`` is called when a run is complete.
    """
    from largeprompt.runs.execute import execute_all
    from largeprompt.runs.executors import default_workers, executor
    from largeprompt.runs.finish import Finished, Job

    console, jobs = Console(quiet=quiet), list[Job]()
    for study, config, run in wanted:
        if run.intact:
            say(console, f"{run.study}: {finding(run.verdicts)}")
            say(console, f"  Stored in {run.folder}; --fresh computes it again.")
            continue
        jobs.append(Job(run, study, config, run.missing()))
        stored = len(run.cells) - len(jobs[-1].missing)
        if stored:
            say(console, f"{run.study}: {stored} of {len(run.cells)} cells are stored; resuming.")
    if not jobs:
        return []
    workers = places.workers or (default_workers() if places.executor == "local" else None)
    errors = []
    with (
        _bar(console, jobs) as (bar, task),
        _logged(console, bar, task),
        executor(places.executor, workers, places.cell_limit) as found,
    ):
        for event in execute_all(jobs, found, workers=workers, limit=places.cell_limit):
            if not isinstance(event, Finished):
                bar.update(task, advance=1, description=f"{event.job.study.name}: {event.cell}")
            elif event.error is None:
                _say_result(console, event.job.run, event.verdicts, in_full=len(wanted) == 1)
                after()
            else:
                errors.append(event.error)
    return errors


@contextlib.contextmanager
def reporting_errors(*, fresh: bool | None = None) -> Iterator[None]:
    """Turn errors into a sentence and an exit code: 2 typed, 1 went wrong, 130 Ctrl-C.

    ``fresh`` is the option of a command that stores cells; None: it stores none.
    """
    try:
        with _interrupts_as_such():
            yield
    except KeyboardInterrupt:
        if fresh is None:
            raise
        with contextlib.suppress(ValueError):  # not the main thread
            # the command ends here: a second Ctrl-C finds nothing to interrupt
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        again = "The same command without --fresh" if fresh else "The same command"
        typer.echo(f"interrupted: finished cells are kept. {again} resumes.", err=True)
        raise typer.Exit(130) from None
    except UnicodeEncodeError:
        typer.echo("error: a name that was typed, or found, is not UTF-8 text.", err=True)
        raise typer.Exit(2) from None
    except OSError as error:
        if error.errno == errno.EPIPE:  # who reads has gone
            raise
        where = f": {str(error.filename)[:200]}" if error.filename else ""
        typer.echo(printable(f"error: {error.strerror or type(error).__name__}{where}"), err=True)
        raise typer.Exit(1) from None
    except ValueError as error:
        if not isinstance(error, LargePromptError):
            raise
        from largeprompt.runs.files import RunError

        typer.echo(printable(f"error: {error}"), err=True)
        raise typer.Exit(1 if isinstance(error, RunError) else 2) from None


@contextlib.contextmanager
def _interrupts_as_such() -> Iterator[None]:
    """Raise KeyboardInterrupt for what it became: modules in C raise ImportError of it."""
    try:
        yield
    except Exception as error:
        if interrupted(error):
            raise KeyboardInterrupt from error
        raise


def finding(verdicts: Sequence[Verdict]) -> str:
    """What a run found: its headlines, or how many questions hold; and controls that hold."""
    asked = [each.outcome for each in verdicts if not each.control]
    bad = [each.asked for each in verdicts if each.control and each.outcome != "fails"]
    headlines = [each.headline for each in verdicts if each.headline]
    said = headlines or [f"{asked.count('holds')} of {len(asked)} questions hold."]
    return " ".join([*said, *(f"A control does not fail: {each}" for each in bad)])


def table(
    columns: Sequence[str],
    lines: Iterable[Sequence[str]],
    *,
    right: Collection[str] = (),
    whole: Collection[str] = (),
    **options: Any,
) -> Table:
    """Return a table of plain words. Columns in ``right`` are aligned right, those in ``whole`` are
    never broken; other long words are folded, since two that are cut off look alike.
    """
    words = {name: Text(printable(options.pop(name))) for name in TITLES if name in options}
    left = {"title_justify": "left", "caption_justify": "left"}
    found = Table(**{"box": None, "pad_edge": False, **left} | words | options)
    for each in columns:
        justify: Literal["left", "right"] = "right" if each in right else "left"
        found.add_column(each, justify=justify, no_wrap=each in whole, overflow="fold")
    for line in lines:
        found.add_row(*(Text(printable(word)) for word in line))
    return found


def print_rows(columns: Sequence[str], lines: Iterable[Sequence[str]], **options: Any) -> None:
    """Print a table on a terminal, else lines with tabs between words."""
    console = Console()
    if console.is_terminal:
        console.print(table(columns, lines, **options))
        return
    for line in (columns, *lines):
        typer.echo(printable("\t".join(line)))


def left_out(error: RunError) -> None:
    """Say that a run is left out, and why."""
    typer.echo(printable(f"left out: {error}"), err=True)


def printable(text: str) -> str:
    """Text without what a terminal would obey: names on disk may hold escapes."""
    return "".join(each if each.isprintable() or each in "\n\t" else "�" for each in text)


def say(console: Console, text: str) -> None:
    """One plain line, above the bar where there is one."""
    console.print(printable(text), markup=False, highlight=False, soft_wrap=True)


def _say_result(console: Console, run: Run, verdicts: Sequence[Verdict], *, in_full: bool) -> None:
    """What a run found and where it is; for one study alone, the numbers and figures too."""
    say(console, f"{run.study}: {finding(verdicts)}")
    if not in_full:
        say(console, f"  Stored in {run.folder}")
        return
    if console.is_terminal:
        for each in verdicts:
            kind = f"{each.claim} {each.outcome}{' (control)' if each.control else ''}"
            say(console, f"  {kind}. {each.asked} {each.measured}")
    say(console, f"  Dataset: {run.folder / 'dataset.nc'}")
    for figure in run.figures:
        say(console, f"  Figure: {run.folder / 'figures' / figure.name}.png")


class _Display(logging.Handler):
    """What workers say, wherever they are: progress beside the bar, warnings above it."""

    def __init__(self, console: Console, bar: Progress, task: Any) -> None:
        super().__init__()
        self._console, self._bar, self._task = console, bar, task

    def emit(self, record: logging.LogRecord) -> None:
        text = printable(record.getMessage())
        if record.levelno >= logging.WARNING:
            say(self._console, text)
        else:
            self._bar.update(self._task, description=text)


@contextlib.contextmanager
def _logged(console: Console, bar: Progress, task: Any) -> Iterator[None]:
    """Show what the library logs, here or in workers, while the block runs."""
    from largeprompt.runs.pool import LOGGER

    handler, before = _Display(console, bar, task), LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(before)


@contextlib.contextmanager
def _bar(console: Console, jobs: Sequence[Job]) -> Iterator[tuple[Progress, Any]]:
    """Cells done and time left on a terminal; nothing in a pipe."""
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        speed_estimate_period=3600,
    ) as bar:
        yield bar, bar.add_task("computing", total=sum(len(job.missing) for job in jobs))
