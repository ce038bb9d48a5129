"""Gradient flow θ' = -∇R_L(θ) on the exact risk, all lengths side by side, with dense output."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention
from largeprompt.errors import InvalidArgumentError
from largeprompt.training.dynamics.parameters import Parametrisation
from largeprompt.training.dynamics.trajectory import Status, Trajectory
from largeprompt.training.risk.exact import RiskError
from largeprompt.training.risk.objective import Kind, Objective, make_objective
from largeprompt.training.tasks.task import Task

Array = NDArray[np.float64]
SMALL = 150  # parameters up to which a Hessian is worth its cost
BLOW_UP = 1e6  # times the first risk: a flow cannot do that, so that numbers have gone wrong


def gradient_flow(
    task: Task,
    attention: Attention,
    length: Any,
    until: float,
    *,
    parametrisation: Kind | Parametrisation = "full",
    times: Any = None,
    gradient_tolerance: float = 0.0,
    method: Literal["auto", "BDF", "Radau", "DOP853", "RK45"] = "auto",
    tolerance: float = 1e-9,
    points: int = 4096,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Trajectory:
    """Integrate the gradient flow of the exact population risk. No prompt is drawn.

    Parameters
    ----------
    task, attention
        The task and the layer at time 0; softmax or linear attention.
    length
        One prompt length, or several: their flows are integrated side by side in one system.
    until
        Last time.
    parametrisation
        'full' (U, V), 'block' (A, b), or :class:`Factorised` (K, Q, V, read-out), which brings its own start.
    times
        Times to report; 201 equally spaced ones when left out. Between them the dense output answers.
    gradient_tolerance
        Stop when the largest gradient norm of all runs falls below this.
    method
        'auto' takes BDF with the exact Hessian for few parameters (stiffness costs nothing then), DOP853 for many.
    tolerance
        Relative error of a step; the absolute one is a thousandth of it.
    points, seed
        Sobol points of the average over contexts, common to all times and lengths, calibrated where there are enough of them.
    progress
        Called with the time reached after every step.

    Examples
    --------
    >>> task = lp.LinearRegression([[1.0]], [[1.0]], 0.0)
    >>> attention = lp.SoftmaxAttention([[0.1, 0.0], [0.0, 0.0]], [[0.0, 0.1]])
    >>> flow = lp.gradient_flow(task, attention, math.inf, until=60.0, parametrisation="block")
    >>> flow
    Trajectory(softmax, length=inf, until=60, risk=..., finished)
    >>> flow.at(60.0).V.round(decimals=6)  # tr(Σ^{-2})^{1/4} = 1
    tensor([[0., 1.]], dtype=torch.float64)
    """
    from scipy.integrate import BDF, DOP853, RK45, Radau

    until = validation.positive("until", until)
    tolerance = validation.positive("tolerance", tolerance)
    if not gradient_tolerance >= 0:
        raise InvalidArgumentError("gradient_tolerance", str(gradient_tolerance), "a nonnegative number")
    objective, start, several = make_objective(task, attention, length, parametrisation, points, seed)
    runs, size = start.shape
    solvers = {"BDF": BDF, "Radau": Radau, "DOP853": DOP853, "RK45": RK45}
    if method == "auto":
        method = "BDF" if size <= SMALL else "DOP853"
    if method not in solvers:
        raise InvalidArgumentError("method", repr(method), f"'auto' or one of {', '.join(solvers)}")
    reported = _report_times(times, until)

    latest: list[Tensor] = []  # risks and gradients of the last evaluation, within the solver's error of those of its last step

    def slope(_: float, flat: Array) -> Array:
        latest[:] = objective.gradient(torch.from_numpy(flat).reshape(runs, size))
        return -latest[1].reshape(-1).numpy()

    options: dict[str, Any] = {"rtol": tolerance, "atol": tolerance / 1000}
    if method in ("BDF", "Radau"):
        options["jac"] = _jacobian(objective, runs, size)
    first = float(objective.gradient(start)[0].max())
    solver = solvers[method](slope, 0.0, start.reshape(-1).numpy(), until, **options)
    pieces, status, message = [], "finished", f"reached time {until:g}"
    try:
        while solver.status == "running":
            failure = solver.step()
            if solver.status == "failed":
                status, message = "diverged", f"the solver stopped at time {solver.t:g}: {failure}"
                break
            risks, gradient = latest  # before the dense output, which may evaluate elsewhere
            pieces.append(solver.dense_output())
            if progress is not None:
                progress(float(solver.t))
            if not bool(torch.isfinite(risks).all()) or float(risks.max()) > BLOW_UP * max(first, 1.0):
                status, message = "diverged", f"the risk is {float(risks.max()):.3g} at time {solver.t:g}"
                break
            if float(gradient.norm(dim=-1).max()) < gradient_tolerance:
                status, message = "converged", f"gradient norm below {gradient_tolerance:g} at time {solver.t:g}"
                break
    except KeyboardInterrupt:
        status, message = "interrupted", f"interrupted at time {pieces[-1].t if pieces else 0.0:g}"
    except RiskError as error:
        status, message = "diverged", str(error)
    reached = pieces[-1].t if pieces else 0.0
    kept = reported[reported <= reached]
    if reached > kept[-1]:
        kept = np.append(kept, reached)
    ends = np.array([piece.t for piece in pieces])

    def interpolate(time: float) -> Array:
        if not pieces:
            return start.reshape(-1).numpy()
        value: Array = pieces[min(int(np.searchsorted(ends, time)), len(pieces) - 1)](time)
        return value

    path = torch.from_numpy(np.stack([interpolate(time) for time in kept])).reshape(len(kept), runs, size)
    config = {
        "dynamics": "gradient flow",
        "task": repr(task),
        "method": method,
        "tolerance": tolerance,
        "points": points,
        "seed": seed,
        "calibrated": objective.calibrated,
        "until": until,
    }
    return build(objective, torch.from_numpy(kept), path, several, status, message, config, interpolate)  # type: ignore[arg-type]


def _report_times(times: Any, until: float) -> Array:
    if times is None:
        return np.linspace(0.0, until, 201)
    chosen = np.unique(np.asarray(times, dtype=np.float64))
    if chosen.ndim != 1 or not len(chosen) or chosen[0] < 0 or chosen[-1] > until * (1 + 1e-12) or not np.isfinite(chosen).all():
        raise InvalidArgumentError("times", str(times), f"numbers from 0 to {until:g}")
    return np.unique(np.append(0.0, np.minimum(chosen, until)))


def _jacobian(objective: Objective, runs: int, size: int) -> Callable[[float, Array], Any]:
    """Minus the Hessian, block diagonal because runs do not interact."""
    from scipy.sparse import block_diag

    def jacobian(_: float, flat: Array) -> Any:
        blocks = -objective.hessian(torch.from_numpy(flat).reshape(runs, size)).numpy()
        return blocks[0] if runs == 1 else block_diag(list(blocks), format="csc")

    return jacobian


def build(
    objective: Objective,
    times: Tensor,
    path: Tensor,
    several: bool,
    status: Status,
    message: str,
    config: dict[str, Any],
    interpolate: Callable[[float], Array] | None,
) -> Trajectory:
    """Assemble a trajectory from θ at the reported times, path (time, run, p)."""
    found = [objective.gradient(theta) for theta in path]
    risk = torch.stack([risks for risks, _ in found], dim=1)
    norm = torch.stack([gradient.norm(dim=-1) for _, gradient in found], dim=1)
    conserved = torch.stack([objective.parametrisation.conserved(theta) for theta in path], dim=1)
    parameters = path.transpose(0, 1)
    pick = slice(None) if several else 0
    lengths = objective.lengths if several else objective.lengths[0]
    names = [str(x) if math.isinf(x) else x for x in objective.lengths]
    return Trajectory(
        times,
        parameters[pick],
        risk[pick],
        norm[pick],
        conserved[pick],
        lengths,
        objective.softmax,
        objective.parametrisation,
        status,
        message,
        {**config, "lengths": names, "attention": "softmax" if objective.softmax else "linear"},
        interpolate,
    )
