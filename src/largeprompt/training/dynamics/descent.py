"""Discrete training: gradient descent on the exact risk, and stochastic gradient descent on drawn prompts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention, SoftmaxAttention
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures import RunningTilt
from largeprompt.training.dynamics.flow import BLOW_UP, build
from largeprompt.training.dynamics.parameters import Parametrisation
from largeprompt.training.dynamics.trajectory import Status, Trajectory
from largeprompt.training.risk.exact import RiskError
from largeprompt.training.risk.objective import Kind, Objective, make_objective
from largeprompt.training.tasks.task import Task

CHUNK_NUMBERS = 2**22  # drawn at a time while a long prompt streams by


def _recorded(steps: int, count: int) -> set[int]:
    """Steps to record: the first, the last, and about ``count`` in all."""
    return {round(i * steps / max(1, count - 1)) for i in range(count)} | {0, steps}


def gradient_descent(
    task: Task,
    attention: Attention,
    length: Any,
    step_size: float,
    steps: int,
    *,
    parametrisation: Kind | Parametrisation = "full",
    record: int = 201,
    points: int = 4096,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Trajectory:
    """θ <- θ - step_size ∇R_L(θ) on the same exact risk as :func:`gradient_flow`; times are step numbers times the step size.

    A step size that is too large is reported as status 'diverged', with the step; no NaN is returned.
    """
    step_size, steps = validation.positive("step_size", step_size), validation.integer("steps", steps)
    objective, theta, several = make_objective(task, attention, length, parametrisation, points, seed)
    wanted, kept, path = _recorded(steps, record), [0], [theta]
    largest = _largest_risk(objective, theta)
    status, message, taken = "finished", f"{steps} steps of {step_size:g}", 0
    try:
        for step in range(1, steps + 1):
            theta = theta - step_size * objective.gradient(theta)[1]
            if not _sane(objective, theta, largest):
                status, message = "diverged", _too_large(step, step_size)
                break
            taken, latest = step, theta
            if step in wanted:
                kept.append(step)
                path.append(theta)
            if progress is not None:
                progress(step)
    except KeyboardInterrupt:
        status, message = "interrupted", f"interrupted after step {taken}"
        if taken > kept[-1]:
            kept.append(taken)
            path.append(latest)
    config = {
        "dynamics": "gradient descent",
        "task": repr(task),
        "step_size": step_size,
        "steps": steps,
        "points": points,
        "seed": seed,
    }
    return _assemble(objective, kept, path, step_size, several, status, message, config)  # type: ignore[arg-type]


def _largest_risk(objective: Objective, start: Tensor) -> float:
    """Risk above which a run counts as diverged."""
    return BLOW_UP * max(1.0, float(objective.gradient(start)[0].max()))


def _sane(objective: Objective, theta: Tensor, largest: float) -> bool:
    """Whether the parameters are finite, and their exact risk is a number that is not absurd."""
    if not bool(torch.isfinite(theta).all()):
        return False
    try:
        with torch.no_grad():
            risks = objective.risks(theta)
    except RiskError:
        return False
    return bool((risks <= largest).all())


def _too_large(step: int, step_size: float) -> str:
    return f"diverged at step {step}: the step size {step_size:g} is too large; the limit is 2 over the largest Hessian eigenvalue"


def _assemble(
    objective: Objective,
    kept: list[int],
    path: list[Tensor],
    step_size: float,
    several: bool,
    status: Status,
    message: str,
    config: dict[str, Any],
) -> Trajectory:
    times = step_size * torch.tensor(kept, dtype=torch.float64)
    return build(objective, times, torch.stack(path), several, status, message, config, None)


def prompt_gradients(
    task: Task, attention: Attention, length: int, batch: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean loss ½‖read-out - answer‖² over drawn prompts, and its gradients in U and V.

    The gradients need the tilted mean m and covariance C alone: ∂/∂U = (V C)^T e z^T and ∂/∂V = e m^T, e the error. For linear
    attention m = (1/L) Σ z_l z_l^T u and C = (1/L) Σ z_l z_l^T. Prompts too long for memory stream by in chunks.
    """
    chunk = max(1, CHUNK_NUMBERS // (batch * task.token_dim**2))
    contexts, query, answer = task.draw_contexts(batch, generator)
    if length <= chunk:
        return _gradients_in_memory(attention, task.draw_tokens(contexts, length, generator), query, answer)
    parts = task.draw_parts(contexts, length, chunk, generator)
    with torch.no_grad():
        U, V = attention.U.detach(), attention.V.detach()
        u = query @ U.mT
        if isinstance(attention, SoftmaxAttention):
            states = (RunningTilt.of(u.unsqueeze(-2), tokens, covariance=True) for tokens in parts)
            state = functools.reduce(RunningTilt.merge, states)
            assert state.covariance is not None  # asked for above
            mean, covariance = state.mean.squeeze(-2), state.covariance.squeeze(-3)
        else:
            covariance = functools.reduce(torch.add, (tokens.mT @ tokens for tokens in parts)) / length
            mean = (covariance @ u.unsqueeze(-1)).squeeze(-1)
        error = mean @ V.mT - answer  # (batch, o)
        in_u = torch.einsum("bo,oi,bij,bk->jk", error, V, covariance, query) / batch
        in_v = error.mT @ mean / batch
        return error.square().sum(-1).mean() / 2, in_u, in_v


def _gradients_in_memory(attention: Attention, tokens: Tensor, query: Tensor, answer: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same over prompts (batch, L, D) that fit: C V^Te is a weighted sum over tokens, and C itself is not needed."""
    with torch.no_grad():
        U, V = attention.U.detach(), attention.V.detach()
        batch, length = tokens.shape[:2]
        scores = (tokens @ (query @ U.mT).unsqueeze(-1)).squeeze(-1)
        softmax = isinstance(attention, SoftmaxAttention)
        weights = torch.softmax(scores, -1) if softmax else scores / length
        mean = (weights.unsqueeze(-2) @ tokens).squeeze(-2)
        error = mean @ V.mT - answer
        back = (tokens @ (error @ V).unsqueeze(-1)).squeeze(-1)  # z_l·V^Te
        back = weights * (back - (weights * back).sum(-1, keepdim=True)) if softmax else back / length
        in_u = (back.unsqueeze(-2) @ tokens).squeeze(-2).mT @ query / batch
        return error.square().sum(-1).mean() / 2, in_u, error.mT @ mean / batch


def stochastic_gradient_descent(
    task: Task,
    attention: Attention,
    length: int,
    step_size: float,
    steps: int,
    batch_size: int,
    generator: torch.Generator,
    *,
    parametrisation: Kind | Parametrisation = "full",
    optimizer: Literal["SGD", "Adam"] = "SGD",
    record: int = 101,
    points: int = 4096,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Trajectory:
    """Train on freshly drawn prompts, ``batch_size`` at each step, by SGD or Adam of torch.optim.

    This is the only place where prompts are drawn. The risks reported along the path are the exact ones. Prompts of 10^6 tokens
    stream by in chunks.
    """
    step_size, steps = validation.positive("step_size", step_size), validation.integer("steps", steps)
    batch_size = validation.integer("batch_size", batch_size)
    tokens = int(validation.length("length", length))
    validation.generator(generator, torch.device("cpu"))
    if optimizer not in ("SGD", "Adam"):
        raise InvalidArgumentError("optimizer", repr(optimizer), "'SGD' or 'Adam'")
    objective, start, _ = make_objective(task, attention, tokens, parametrisation, points, seed)
    theta = start.clone().requires_grad_()
    stepper = getattr(torch.optim, optimizer)([theta], lr=step_size)
    kind, largest = type(attention), _largest_risk(objective, start)
    wanted, kept, path = _recorded(steps, record), [0], [start]
    status, message, taken = "finished", f"{steps} steps of {step_size:g}", 0
    try:
        for step in range(1, steps + 1):
            stepper.zero_grad()
            U, V = objective.parametrisation.layer(theta)
            _, in_u, in_v = prompt_gradients(task, kind(U[0].detach(), V[0].detach()), tokens, batch_size, generator)
            torch.autograd.backward([U[0], V[0]], [in_u, in_v])
            stepper.step()
            taken = step
            recorded = step in wanted
            if not bool(torch.isfinite(theta).all()) or (recorded and not _sane(objective, theta.detach(), largest)):
                status, message = "diverged", _too_large(step, step_size)
                break
            if recorded:
                kept.append(step)
                path.append(theta.detach().clone())
            if progress is not None:
                progress(step)
    except KeyboardInterrupt:
        status, message = "interrupted", f"interrupted after step {taken}"
        if taken > kept[-1] and _sane(objective, theta.detach(), largest):
            kept.append(taken)
            path.append(theta.detach().clone())
    config = {
        "dynamics": optimizer,
        "task": repr(task),
        "step_size": step_size,
        "steps": steps,
        "batch_size": batch_size,
        "points": points,
        "seed": seed,
    }
    return _assemble(objective, kept, path, step_size, False, status, message, config)  # type: ignore[arg-type]
