"""Adam on the exact risk, and the flow with memory that it follows."""

import dataclasses
import math
from typing import Any

import numpy as np
import torch
import xarray as xr

from largeprompt.runs.study import Progress
from largeprompt.studies.discrete.config import DiscreteConfig, path_at, problem
from largeprompt.training import adam_descent, gradient_flow
from largeprompt.training.dynamics.integrate import Array, integrate
from largeprompt.training.dynamics.objective import Objective
from largeprompt.training.dynamics.trajectory import Trajectory

BETAS, EPSILON = (0.9, 0.999), 1e-8  # the defaults of torch.optim.Adam
TINY = 1e-6  # gradients below this need not be distinguished


def memory_flow(flow: Trajectory, step_size: float, times: Array) -> Trajectory:
    """The flow that Adam of step size η follows, from where a gradient flow starts.

    In θ, m and r = √v: θ' = -m/(r + ε), and averages with a memory of τ = η(1 + β)/(2(1 - β)),
    formulas (dyn.16-17) of docs/mathematics/dynamics.md.
    """
    objective: Objective = flow.objective
    tau = [step_size * (1 + beta) / (2 * (1 - beta)) for beta in BETAS]

    def rates(time: float) -> list[float]:
        return [-1 / (each * math.expm1(-(time + step_size / 2) / each)) for each in tau]

    def gradient(theta: Array) -> Array:
        return objective.gradient(torch.from_numpy(theta).unsqueeze(0))[1][0].numpy()

    def slope(time: float, flat: Array) -> Array:
        theta, m, r = np.split(flat, 3)
        now, (first, second) = gradient(theta), rates(time)
        rest = [first * (now - m), second * (now**2 / r - r) / 2]
        return np.concatenate([-m / (r + EPSILON), *rest])

    def jacobian(time: float, flat: Array) -> Array:
        theta, m, r = np.split(flat, 3)
        now, (first, second) = gradient(theta), rates(time)
        hessian = objective.hessian(torch.from_numpy(theta).unsqueeze(0))[0].numpy()
        zero, eye = np.zeros_like(hessian), np.eye(len(theta))
        moved = [zero, -np.diag(1 / (r + EPSILON)), np.diag(m / (r + EPSILON) ** 2)]
        forgets = -second / 2 * np.diag((now / r) ** 2 + 1)
        averages = [[first * hessian, -first * eye, zero]]
        averages += [[second * (now / r)[:, None] * hessian, zero, forgets]]
        return np.block([moved, *averages])

    start = flow.parameters[0].numpy()
    first, p, tolerance = gradient(start), len(start), 1e-8
    found = integrate(
        slope,
        np.concatenate([start, first, np.abs(first) + TINY]),
        float(times[-1]),
        times,
        method="BDF",
        jac=jacobian,
        rtol=tolerance,
        atol=np.repeat([tolerance / 100, tolerance * TINY, tolerance * TINY], p),
    )
    states = found.states[:, :p]
    moved = dataclasses.replace(found, states=states, at=lambda time: found.at(time)[:p])
    return Trajectory.of_flow(objective, moved, False, {"dynamics": "Adam's flow"}).completed()


def adam(config: DiscreteConfig, progress: Progress) -> xr.Dataset:
    """Adam against its flow at every step size, and where gradient flow ends, at L = ∞."""
    (task, start), until = problem(config), config.adam_until
    times = np.linspace(0, until, config.times)
    progress("gradient flow")
    options: dict[str, Any] = {"tolerance": 1e-8, "parametrization": "block"}
    options["times"] = [0.0, config.settled]
    flow = gradient_flow(task, start, math.inf, config.settled, **options).completed()
    rows: list[dict[str, float | list[float]]] = []
    for step_size in config.adam_step_sizes:
        progress(f"step size {step_size:g}")
        memory = memory_flow(flow, step_size, times)
        options = {"record": config.times, "parametrization": "block"}
        steps = round(until / step_size)
        run = adam_descent(task, start, math.inf, step_size, steps, **options).completed()
        apart = run.parameters - path_at(memory, run.times, until)
        rows.append({"memory_gap": float(apart.norm(dim=-1).max())})
        for name, each in (("adam", run), ("memory", memory)):
            path = path_at(each, torch.from_numpy(times), float(each.times[-1]))
            rows[-1][f"{name}_b"] = path[:, -1].tolist()
            rows[-1][f"{name}_gauge"] = float(each.conserved[-1])
    grid = ("adam_step_size", "adam_time")
    data = {
        name: (grid if name.endswith("_b") else grid[:1], [row[name] for row in rows])
        for name in rows[0]
    }
    ends = {"flow_b": float(flow.parameters[-1, -1]), "flow_gauge": float(flow.conserved[-1])}
    places = {"adam_step_size": list(config.adam_step_sizes), "adam_time": times}
    return xr.Dataset(data | ends, places)
