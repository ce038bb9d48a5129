"""A run whose cells are all there is joined, judged, drawn and stored."""

import dataclasses
import traceback
from typing import Any

from largeprompt.errors import interrupted
from largeprompt.runs.files import RunError, StorageError, to_json
from largeprompt.runs.judging import Verdict
from largeprompt.runs.netcdf import encode, from_bytes
from largeprompt.runs.provenance import provenance
from largeprompt.runs.store import Run
from largeprompt.runs.study import Study
from largeprompt.runs.style import rendered


@dataclasses.dataclass(frozen=True)
class Job:
    """A run to be computed, and the cells that it lacks."""

    run: Run
    study: Study
    config: Any
    missing: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Finished:
    """A run that has ended, with its verdicts, or with the reason why it has none."""

    job: Job
    verdicts: tuple[Verdict, ...] = ()
    error: RunError | None = None


def finish(job: Job, *, workers: int | None = None, started: float) -> Finished:
    """Join the stored cells, judge, draw; write the provenance last, which makes a run complete."""
    run = job.run
    run.drop_drafts()  # of workers that died while they wrote: all cells are there
    run.drop_results()
    try:
        cells = {cell: run.read_cell(cell) for cell in run.cells}
        content = encode(job.study.finish(job.config, cells))
        data = from_bytes(content)  # as a reader will see it
        verdicts = job.study.judge(data)
        files = {
            "dataset.nc": content,
            "verdicts.json": to_json([dataclasses.asdict(each) for each in verdicts]),
        }
        files |= job.study.attach(data)
        drawn = job.study.drawable(data)
        for each in drawn:
            for ending, picture in rendered(each.draw(data), each.cards).items():
                files[f"figures/{each.name}.{ending}"] = picture
        files["figures/captions.json"] = to_json({each.name: each.caption for each in drawn})
        resumed = len(run.cells) - len(job.missing)
        run.write_results(files, provenance(run, workers=workers, started=started, resumed=resumed))
    except StorageError:
        raise
    except Exception as error:
        if interrupted(error):
            raise KeyboardInterrupt from error
        run.log(f"not finished: {type(error).__name__}: {error}\n{traceback.format_exc()}")
        trouble = RunError(
            f"{job.study.name}: all cells are stored, but not the result "
            f"({type(error).__name__}: {error}). Details: {run.folder / 'log.txt'}"
        )
        return Finished(job, error=trouble)
    run.log("complete")
    return Finished(job, tuple(verdicts))
