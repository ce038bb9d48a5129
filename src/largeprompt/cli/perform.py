"""What ``run`` and ``reproduce`` share: compute what is missing, show progress, say what was found, and end with the right code."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from largeprompt.runs.execute import Job
    from largeprompt.runs.files import RunError
    from largeprompt.runs.judging import Verdict
    from largeprompt.runs.store import Run
    from largeprompt.runs.study import Study

Workers = Annotated[
    int | None, typer.Option(min=1, help="Worker processes; by default one for each core, at most 8.", show_default=False)
]
Out = Annotated[Path, typer.Option(help="Folder that holds the runs.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Compute again what is stored already.")]


def prepare(study: Study, config: Any, out: Path, *, quick: bool, fresh: bool) -> Run:
    """The run's folder, made or found again."""
    from largeprompt.runs.settings import rerun
    from largeprompt.runs.store import Run, default_folder

    folder = default_folder(out, study, config, quick)
    run = Run.create(folder, study, config, quick=quick, rerun=rerun(study, config, quick, out))
    if fresh:
        run.clear()
    return run


def perform(
    wanted: Sequence[tuple[Study, Any, Run]], workers: int | None, *, quiet: bool = False, after: Callable[[], None] = lambda: None
) -> list[RunError]:
    """Compute what these runs lack in one pool of processes, say what each found as it ends, and return what went wrong.

    ``after`` is called when a run is complete.
    """
    from largeprompt.runs.execute import Finished, Job, execute_all, worker_pool

    console, jobs = Console(quiet=quiet), list[Job]()
    for study, config, run in wanted:
        if run.intact:
            say(console, f"{run.study}: {finding(run.verdicts)} Already complete in {run.folder}; to compute it again: --fresh")
            continue
        jobs.append(Job(run, study, config, run.missing()))
        stored = len(run.cells) - len(jobs[-1].missing)
        if stored:
            say(console, f"{run.study}: {stored} of {len(run.cells)} cells are stored already in {run.folder}")
    if not jobs:
        return []
    count = workers or min(os.cpu_count() or 1, 8)
    errors = []
    with _bar(console, jobs) as (bar, task), worker_pool(count) as pool:
        for event in execute_all(jobs, pool, workers=count):
            if not isinstance(event, Finished):
                bar.update(task, advance=1, description=f"{event.job.study.name}: {event.cell}")
            elif event.error is None:
                _say_result(console, event.job.run, event.verdicts, in_full=len(wanted) == 1)
                after()
            else:
                errors.append(event.error)
    return errors


@contextlib.contextmanager
def reporting_errors(*, fresh: bool = False) -> Iterator[None]:
    """Turn errors into one sentence and an exit code: 2 for what was typed, 1 for what went wrong, 130 for Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        with contextlib.suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command ends here: a second Ctrl-C finds nothing to interrupt
        again = "The same command without --fresh" if fresh else "The same command"
        typer.echo(f"interrupted: finished cells are kept. {again} goes on where this stopped.", err=True)
        raise typer.Exit(130) from None
    except ValueError as error:
        from largeprompt.errors import LargePromptError

        if not isinstance(error, LargePromptError):
            raise
        from largeprompt.runs.files import RunError

        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1 if isinstance(error, RunError) else 2) from None


def finding(verdicts: Sequence[Verdict]) -> str:
    """What a run found, in a sentence or two: its headlines, or how many of its questions hold; and controls that do not fail."""
    asked = [each.outcome for each in verdicts if not each.control]
    wrong = [f"A control does not fail: {each.asked}" for each in verdicts if each.control and each.outcome != "fails"]
    headlines = [each.headline for each in verdicts if each.headline]
    return " ".join([*(headlines or [f"{asked.count('holds')} of {len(asked)} questions hold."]), *wrong])


def left_out(error: RunError) -> None:
    """Say that a run is left out, and why."""
    typer.echo(f"left out: {error}", err=True)


def say(console: Console, text: str) -> None:
    """One plain line, above the bar where there is one."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _say_result(console: Console, run: Run, verdicts: Sequence[Verdict], *, in_full: bool) -> None:
    """Where the run was written and what it found; for a person who asked for one study, the numbers too."""
    say(console, f"{run.study}: {finding(verdicts)} Wrote {run.folder}")
    if in_full and console.is_terminal:
        for each in verdicts:
            say(console, f"  {each.claim} {each.outcome}{' (control)' if each.control else ''}. {each.asked} {each.measured}")


@contextlib.contextmanager
def _bar(console: Console, jobs: Sequence[Job]) -> Iterator[tuple[Progress, Any]]:
    """Cells done and time left on a terminal; nothing in a pipe."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal, speed_estimate_period=3600) as bar:
        yield bar, bar.add_task("computing", total=sum(len(job.missing) for job in jobs))
