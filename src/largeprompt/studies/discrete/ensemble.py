"""Drawn gradients: of single prompts, their covariance, and many runs of SGD side by side."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention
from largeprompt.training.dynamics.descent import recorded_steps
from largeprompt.training.dynamics.prompts import prompt_factors
from largeprompt.training.risk.derivatives import rows
from largeprompt.training.risk.objective import Form, Objective, chosen_parametrisation
from largeprompt.training.tasks.task import Task

CHUNK_NUMBERS = 2**20  # entries of tokens held at a time


def gradient_noise(
    task: Task,
    objective: Objective,
    theta: Tensor,
    length: int,
    prompts: int,
    generator: torch.Generator,
    *,
    groups: int = 1,
) -> Tensor:
    """Covariance of the gradient of a single prompt at θ (p,), from groups of drawn prompts, shape
    (group, p, p).
    """
    each = prompts // groups
    chunk = max(1, min(each, CHUNK_NUMBERS // (length * task.token_dim)))
    with torch.enable_grad():
        point = theta.detach().unsqueeze(0).requires_grad_()
        layer = objective.parametrisation.layer(point)
        flat = torch.cat([part.reshape(-1) for part in layer])
        jacobian = rows(flat.unsqueeze(0), point)[0]  # (m, p)
    U, V = (part.detach() for part in layer)
    found = []
    for _ in range(groups):
        total, square = theta.new_zeros(len(flat)), theta.new_zeros(len(flat), len(flat))
        for done in range(0, each, chunk):
            count = min(chunk, each - done)
            contexts, query, answer = task.draw_contexts(count, generator)
            tokens = task.draw_tokens(contexts, length, generator)
            pull, error, mean = (
                part[0]
                for part in prompt_factors(
                    objective.kind, U, V, tokens[None], query[None], answer[None]
                )
            )
            in_u, in_v = (
                pull.unsqueeze(-1) * query.unsqueeze(-2),
                error.unsqueeze(-1) * mean.unsqueeze(-2),
            )
            drawn = torch.cat([in_u.reshape(count, -1), in_v.reshape(count, -1)], -1)
            total, square = total + drawn.sum(0), square + drawn.mT @ drawn
        centre = total / each
        covariance = (square - each * centre.unsqueeze(-1) * centre) / (each - 1)
        found.append(jacobian.mT @ covariance @ jacobian)
    return torch.stack(found)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Ensemble:
    """Many independent runs of SGD: times (time,), parameters (replica, time, p)."""

    times: Tensor
    parameters: Tensor

    @property
    def mean(self) -> Tensor:
        """Mean over the runs, shape (time, p)."""
        return self.parameters.mean(0)

    @property
    def covariance(self) -> Tensor:
        """Covariance over the runs, shape (time, p, p)."""
        centred = (self.parameters - self.mean).transpose(0, 1)  # (time, replica, p)
        return centred.mT @ centred / (self.parameters.shape[0] - 1)

    def __repr__(self) -> str:
        return f"Ensemble({self.parameters.shape[0]} runs, until={float(self.times[-1]):g})"


def stochastic_ensemble(
    task: Task,
    attention: Attention,
    length: int,
    step_size: float,
    steps: int,
    batch_size: int,
    replicas: int,
    generator: validation.Randomness,
    *,
    parametrisation: Form = "full",
    record: int = 41,
) -> Ensemble:
    """Independent runs of SGD on freshly drawn prompts, all steps taken side by side.

    Parameters
    ----------
    task, attention, length, step_size, steps, batch_size, generator, parametrisation
        As for :func:`stochastic_gradient_descent`.
    replicas
        How many runs.
    record
        About how many steps are kept.

    Returns
    -------
    Ensemble
        Paths of all runs, without their risks.

    Examples
    --------
    >>> from largeprompt.studies.discrete.ensemble import stochastic_ensemble
    >>> task = lp.LinearRegression([[1.0]], [[1.0]], 0.0)
    >>> attention = lp.SoftmaxAttention([[0.3, 0.0], [0.0, 0.0]], [[0.0, 0.3]])
    >>> stochastic_ensemble(task, attention, 20, 0.1, 10, 8, 3, torch.Generator().manual_seed(0))
    Ensemble(3 runs, until=1)
    """
    step_size, steps = (
        validation.positive("step_size", step_size),
        validation.integer("steps", steps),
    )
    batch_size, replicas = (
        validation.integer("batch_size", batch_size),
        validation.integer("replicas", replicas, minimum=2),
    )
    length, record = (
        int(validation.length("length", length)),
        validation.integer("record", record, minimum=2),
    )
    generator = validation.generator(generator, torch.device("cpu"))
    validation.instance("task", task, Task, "a Task, such as LinearRegression")
    task.check(attention)
    drawn = 1.0 * batch_size * length * task.token_dim  # numbers of one step of one run
    validation.affordable("batch_size and length", (batch_size, length), needed=8 * drawn)
    validation.affordable(
        "steps and replicas",
        (steps, replicas),
        seconds=1e-4 * steps + 1e-9 * steps * replicas * drawn,
    )
    validation.affordable(
        "replicas", replicas, needed=8.0 * replicas * min(record, steps) * attention.U.numel()
    )
    chosen = chosen_parametrisation(task, parametrisation)
    theta = chosen.start(attention).detach().expand(replicas, -1).clone()
    # runs whose prompts are drawn together
    side = max(1, CHUNK_NUMBERS // (batch_size * length * task.token_dim))
    wanted = recorded_steps(steps, min(record, steps + 1))
    path = [theta]
    for step in range(1, steps + 1):
        with torch.enable_grad():
            point = theta.detach().requires_grad_()
            U, V = chosen.layer(point)
            slopes = [
                _mean_gradients(
                    task,
                    type(attention),
                    U[now].detach(),
                    V[now].detach(),
                    length,
                    batch_size,
                    generator,
                )
                for now in (slice(begin, begin + side) for begin in range(0, replicas, side))
            ]
            in_u, in_v = (torch.cat(parts) for parts in zip(*slopes, strict=True))
            (gradient,) = torch.autograd.grad([U, V], point, [in_u, in_v])
        theta = theta - step_size * gradient
        if step in wanted:
            path.append(theta)
    return Ensemble(
        step_size * torch.tensor(sorted(wanted), dtype=torch.float64), torch.stack(path, 1)
    )


def _mean_gradients(
    task: Task,
    kind: type[Attention],
    U: Tensor,
    V: Tensor,
    length: int,
    batch: int,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Gradients in U (run, D, D) and V (run, o, D), each run averaged over its own freshly drawn
    prompts.
    """
    runs = len(U)
    contexts, query, answer = task.draw_contexts(runs * batch, generator)
    tokens = task.draw_tokens(contexts, length, generator)
    shaped: Any = (part.reshape(runs, batch, *part.shape[1:]) for part in (tokens, query, answer))
    tokens, query, answer = shaped
    pull, error, mean = prompt_factors(kind, U, V, tokens, query, answer)
    return pull.mT @ query / batch, error.mT @ mean / batch
