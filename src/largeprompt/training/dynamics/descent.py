"""Discrete training: gradient descent on the exact risk, and stochastic gradient descent on drawn
prompts.
"""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any, Literal, TypedDict, Unpack

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention
from largeprompt.devices import sheltered
from largeprompt.training.dynamics.flow import BLOW_UP
from largeprompt.training.dynamics.integrate import Ending
from largeprompt.training.dynamics.objective import Form, Objective, make_objective
from largeprompt.training.dynamics.trajectory import Trajectory
from largeprompt.training.risk.average import AVERAGE, SobolAverage
from largeprompt.training.risk.scores import RiskError
from largeprompt.training.tasks.task import Task

# from θ and the gradient of the exact risk there to the next θ
Advance = Callable[[Tensor, Tensor], Tensor]


class DescentOptions(TypedDict, total=False):
    """What every descent takes: the parametrization, how many steps to record, the average of the
    risk, and progress by steps.
    """

    parametrization: Form
    record: int
    average: SobolAverage
    progress: Callable[[int], None] | None


@sheltered
def gradient_descent(
    task: Task,
    attention: Attention,
    length: validation.Lengths,
    step_size: float,
    steps: int,
    **options: Unpack[DescentOptions],
) -> Trajectory:
    """θ <- θ - step_size ∇R_L(θ) on the same exact risk as :func:`gradient_flow`; times are step
    numbers times the step size.

    A step size that is too large is reported as status 'diverged', with the step; no NaN is
    returned.

    Parameters
    ----------
    task, attention, length
        As for :func:`gradient_flow`; several lengths descend side by side.
    step_size, steps
        Positive.
    options
        ``parametrization``, ``average`` as for :func:`gradient_flow`; ``record`` (201), about how
        many steps to record; ``progress``, called with the number of every step.

    Returns
    -------
    Trajectory
        With the steps recorded; its status is 'finished', 'diverged' or 'interrupted'.

    Examples
    --------
    >>> task = lp.LinearRegression([[1.0]], [[1.0]], 0.0)
    >>> attention = lp.SoftmaxAttention([[0.3, 0.0], [0.0, 0.0]], [[0.0, 0.3]])
    >>> lp.gradient_descent(task, attention, 100, 0.1, 100, parametrization="block")
    Trajectory(softmax, length=100, until=10, risk=..., finished)
    """
    step_size = validation.positive("step_size", step_size)

    def start_from(*_: Any) -> Advance:
        return lambda theta, gradient: theta - step_size * gradient

    return descend(
        "gradient descent", task, attention, length, step_size, steps, start_from, {}, **options
    )


def descend(
    dynamics: str,
    task: Task,
    attention: Attention,
    length: validation.Lengths,
    step_size: float,
    steps: int,
    start_from: Callable[[Objective, Tensor], Advance],
    config: dict[str, Any],
    *,
    drawn: bool = False,
    parametrization: Form = "full",
    record: int = 201,
    average: SobolAverage = AVERAGE,
    progress: Callable[[int], None] | None = None,
) -> Trajectory:
    """Take steps, each from θ and its gradient to what ``start_from`` (objective, first θ) makes of
    them.

    Parameters that are not finite, or an absurd risk, end the run as 'diverged'. Risk and gradient
    are evaluated once at every step; with ``drawn``, where steps need no exact gradient, at those
    that are recorded alone.
    """
    step_size, steps = (
        validation.positive("step_size", step_size),
        validation.integer("steps", steps),
    )
    record = min(validation.integer("record", record), steps + 1)
    validation.affordable(
        "steps", steps, seconds=1e-4 * steps, remedy="Take larger steps, or follow gradient_flow."
    )
    objective, start, several = make_objective(task, attention, length, parametrization, average)
    validation.affordable("record", record, needed=32.0 * record * start.numel())
    advance = start_from(objective, start)
    wanted, found = recorded_steps(steps, record), objective.gradient(start)
    kept, path, known = [0], [start], [found]
    largest = BLOW_UP * max(1.0, float(found[0].max()))
    ending: Ending = ("finished", f"{steps} steps of {step_size:g}")
    step, taken, latest = 0, 0, start
    try:
        for step in range(1, steps + 1):
            theta = advance(latest, found[1])
            if not drawn or step in wanted:
                found = _sane(objective, theta, largest)
            elif not bool(torch.isfinite(theta).all()):
                raise RiskError
            taken, latest = step, theta
            if step in wanted:
                kept.append(step)
                path.append(theta)
                known.append(found)
            if progress is not None:
                progress(step)
    except RiskError:
        words = (
            f"the step size {step_size:g} is too large; the limit is 2 over the largest "
            "Hessian eigenvalue"
        )
        ending = "diverged", f"diverged at step {step}: {words}"
    except KeyboardInterrupt:
        ending = "interrupted", f"interrupted after step {taken}"
        with contextlib.suppress(RiskError):
            if taken > kept[-1]:
                known.append(_sane(objective, latest, largest))
                kept.append(taken)
                path.append(latest)
    settings = {"dynamics": dynamics, "task": repr(task), "step_size": step_size, "steps": steps}
    settings |= {**config, **dataclasses.asdict(average)}
    times = step_size * torch.tensor(kept, dtype=torch.float64)
    gradients = torch.stack([gradient for _, gradient in known])
    return Trajectory.of(objective, times, torch.stack(path), gradients, several, ending, settings)


def stepping(optimizer: Any, start: Tensor, **options: Any) -> Advance:
    """Steps of a class of torch.optim, which keeps θ and its own state."""
    theta = start.detach().clone().requires_grad_()
    stepper = optimizer([theta], **options)

    def advance(_: Tensor, gradient: Tensor) -> Tensor:
        theta.grad = gradient
        stepper.step()
        return theta.detach().clone()

    return advance


def recorded_steps(steps: int, count: int) -> set[int]:
    """Steps to record: the first, the last, and about ``count`` in all."""
    return {round(i * steps / max(1, count - 1)) for i in range(count)} | {0, steps}


def _sane(objective: Objective, theta: Tensor, largest: float) -> tuple[Tensor, Tensor]:
    """Exact risks and gradients at θ; RiskError where a number is not finite or a risk absurd."""
    if bool(torch.isfinite(theta).all()):
        risks, gradients = objective.gradient(theta)
        if bool((risks <= largest).all()):
            return risks, gradients
    raise RiskError


@sheltered
def stochastic_gradient_descent(
    task: Task,
    attention: Attention,
    length: int,
    step_size: float,
    steps: int,
    batch_size: int,
    generator: validation.Randomness,
    *,
    optimizer: Literal["SGD", "Adam"] = "SGD",
    **options: Unpack[DescentOptions],
) -> Trajectory:
    """Train on freshly drawn prompts, ``batch_size`` at each step, by SGD or Adam of torch.optim.

    Prompts are drawn on the device of the layer, stream by in chunks, and take no more memory for
    10^6 tokens than for 10^4. The risks reported along the path are the exact ones.

    Parameters
    ----------
    task, attention, step_size, steps, options
        As for :func:`gradient_descent`, with about 101 steps recorded.
    length
        One finite prompt length.
    generator
        Of the prompts.
    optimizer
        Of torch.optim, with its defaults.

    Returns
    -------
    Trajectory
        Times are step numbers times the step size.

    Examples
    --------
    >>> task = lp.LinearRegression([[1.0]], [[1.0]], 0.0)
    >>> attention = lp.SoftmaxAttention([[0.3, 0.0], [0.0, 0.0]], [[0.0, 0.3]])
    >>> block = {"parametrization": "block"}
    >>> lp.stochastic_gradient_descent(task, attention, 100, 0.1, 100, 32, 0, **block)
    Trajectory(softmax, length=100, until=10, risk=..., finished)
    """
    step_size, batch_size = (
        validation.positive("step_size", step_size),
        validation.integer("batch_size", batch_size),
    )
    tokens = int(validation.length("length", length))
    validation.instance("task", task, Task, "a Task, such as LinearRegression")
    task.check(attention)
    generator = validation.generator(generator, attention.U.device)
    validation.choice("optimizer", optimizer, ("SGD", "Adam"))
    validation.affordable(
        "batch_size and length",
        (batch_size, tokens),
        seconds=1e-9 * batch_size * tokens * task.token_dim,
    )

    def start_from(objective: Objective, start: Tensor) -> Advance:
        step = stepping(getattr(torch.optim, optimizer), start, lr=step_size)
        kind, device = type(attention), generator.device

        def advance(theta: Tensor, _: Tensor) -> Tensor:
            with torch.enable_grad():
                point = theta.detach().clone().requires_grad_()
                U, V = objective.parametrization.layer(point)
            layer = kind(U[0].detach().to(device), V[0].detach().to(device))
            _, in_u, in_v = task.prompt_gradients(layer, tokens, batch_size, generator)
            return step(
                theta,
                torch.autograd.grad([U[0], V[0]], point, [in_u.to(U.device), in_v.to(V.device)])[0],
            )

        return advance

    config = {"batch_size": batch_size}
    options.setdefault("record", 101)
    return descend(
        optimizer,
        task,
        attention,
        tokens,
        step_size,
        steps,
        start_from,
        config,
        drawn=True,
        **options,
    )
