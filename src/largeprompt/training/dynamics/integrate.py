"""The one place where differential equations are solved: steps, dense output, and how it ended."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.training.dynamics.progress import Progress
from largeprompt.training.risk.scores import RiskError

Array = NDArray[np.float64]
Slope = Callable[[float, Array], Array]
Status = Literal["finished", "converged", "interrupted", "diverged"]
Ending = tuple[Status, str]


class Outcome:
    """A result that may have ended early: its status and message say how."""

    status: Status
    message: str

    def completed(self) -> Self:
        """Itself if it ran to its end; RiskError if it diverged, KeyboardInterrupt if it was
        interrupted.
        """
        if self.status == "interrupted":
            raise KeyboardInterrupt(self.message)
        if self.status == "diverged":
            raise RiskError(f"{self!r}: {self.message}")
        return self


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Solution(Outcome):
    """Solution of y' = f(t, y): states (time, n) at the reported times that were reached and at the
    last one, dense output ``at`` any of them, and how it ended.
    """

    times: Array
    states: Array
    at: Callable[[Any], Array]
    status: Status
    message: str

    def __repr__(self) -> str:
        return f"Solution(until={self.times[-1]:g}, {self.status})"


def report_times(times: Any, until: float) -> Array:
    """Times to report, 0 included; 201 equally spaced ones where none are given."""
    if times is None:
        return np.linspace(0.0, until, 201)
    chosen = np.unique(validation.tensor("times", times).detach().cpu().double().numpy())
    if not len(chosen) or chosen[0] < 0 or chosen[-1] > until * (1 + 1e-12):
        raise InvalidArgumentError("times", validation.text(times), f"numbers from 0 to {until:g}")
    return np.unique(np.append(0.0, np.minimum(chosen, until)))


def integrate(
    slope: Slope,
    start: Array,
    until: float,
    times: Array,
    *,
    method: str = "DOP853",
    ending: Callable[[float], Ending | None] | None = None,
    progress: Callable[[float], None] | None = None,
    **options: Any,
) -> Solution:
    """Solve y' = slope(t, y), y(0) = start. A solver that fails, a risk that is not a number and
    Ctrl-C end it with a status.

    Parameters
    ----------
    times
        Times to report, increasing from 0.
    method
        Name of a solver of :mod:`scipy.integrate`.
    ending
        Called with the time after every step; a status and a message end the integration.
    progress
        Called with the time after every step; shown in a terminal when left out.
    options
        Of the solver: ``rtol``, ``atol``, ``jac``, ``max_step``.
    """
    import scipy.integrate

    solver = getattr(scipy.integrate, method)(slope, 0.0, start, until, **options)
    shown = Progress("flow", until) if progress is None else progress
    pieces: list[Any] = []
    status: Status = "finished"
    message = f"reached time {until:g}"
    try:
        while solver.status == "running":
            failure = solver.step()
            if solver.status == "failed":
                status, message = "diverged", f"the solver stopped at time {solver.t:g}: {failure}"
                break
            if not np.isfinite(solver.y).all():
                status, message = "diverged", f"numbers that are not finite at time {solver.t:g}"
                break
            # before the dense output, which may evaluate elsewhere
            ended = None if ending is None else ending(float(solver.t))
            pieces.append(solver.dense_output())
            shown(float(solver.t))
            if ended is not None:
                status, message = ended
                break
    except KeyboardInterrupt:
        status, message = "interrupted", f"interrupted at time {pieces[-1].t if pieces else 0.0:g}"
    except RiskError as error:
        status, message = "diverged", str(error)
    finally:
        if isinstance(shown, Progress):
            shown.close()
    ends = [0.0, *(float(piece.t) for piece in pieces)]
    kept = times[times <= ends[-1]]
    if ends[-1] > kept[-1]:
        kept = np.append(kept, ends[-1])
    if not pieces:
        return Solution(kept, start[None], lambda time: start, status, message)
    at = scipy.integrate.OdeSolution(ends, pieces)
    return Solution(kept, np.stack([at(time) for time in kept]), at, status, message)
