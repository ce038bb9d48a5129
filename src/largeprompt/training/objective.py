"""The function that a dynamics descends: the exact risk of every run as a function of its parameters, with gradient and Hessian."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention, SoftmaxAttention
from largeprompt.errors import InvalidArgumentError
from largeprompt.training.parameters import Block, Factorised, Full, Parametrisation
from largeprompt.training.regression import LinearRegression
from largeprompt.training.task import GaussianTask

Kind = Literal["full", "block"]


@dataclasses.dataclass(frozen=True, eq=False)
class Objective:
    """Risks of several runs, one for each length, at θ of shape (run, p)."""

    lengths: tuple[float, ...]
    softmax: bool
    parametrisation: Parametrisation
    risks: Callable[[Tensor], Tensor]

    def gradient(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Risks (run,) and their gradients (run, p)."""
        with torch.enable_grad():
            point = theta.detach().clone().requires_grad_()
            risks = self.risks(point)
            (gradient,) = torch.autograd.grad(risks.sum(), point)
        return risks.detach(), gradient

    def hessian(self, theta: Tensor) -> Tensor:
        """Hessians of the risks, shape (run, p, p): runs do not interact, so p backward passes serve all of them."""
        with torch.enable_grad():
            point = theta.detach().clone().requires_grad_()
            (gradient,) = torch.autograd.grad(self.risks(point).sum(), point, create_graph=True)
            rows = [torch.autograd.grad(gradient[:, i].sum(), point, retain_graph=True)[0] for i in range(theta.shape[-1])]
        return torch.stack(rows, dim=-2)


def make_objective(
    task: GaussianTask,
    attention: Attention,
    length: Any,
    parametrisation: Kind | Parametrisation,
    points: int,
    seed: int,
) -> tuple[Objective, Tensor, bool]:
    """Objective, starting point (run, p), and whether several lengths were given."""
    if not isinstance(task, GaussianTask):
        raise InvalidArgumentError("task", type(task).__name__, "a GaussianTask, such as LinearRegression")
    task.check(attention)
    if attention.heads:
        raise InvalidArgumentError("attention", repr(attention), "one layer, without leading dimensions")
    lengths, several = validation.lengths("length", length, allow_infinity=True)
    softmax = isinstance(attention, SoftmaxAttention)
    chosen = _parametrisation(task, parametrisation)
    start = chosen.start(attention).detach()
    if isinstance(chosen, Block) and isinstance(task, LinearRegression):
        queries = task.block_queries(points, seed)

        def risks(theta: Tensor) -> Tensor:
            return task.block_risks(*chosen.split(theta), queries, lengths, softmax)
    else:
        contexts = task.contexts(points, seed)

        def risks(theta: Tensor) -> Tensor:
            return task.risks(*chosen.layer(theta), contexts, lengths, softmax)

    return Objective(tuple(lengths), softmax, chosen, risks), start.expand(len(lengths), -1).clone(), several


def _parametrisation(task: GaussianTask, wanted: Kind | Parametrisation) -> Parametrisation:
    if isinstance(wanted, Factorised):
        if wanted.K.shape[-1] != task.token_dim or wanted.readout.shape[0] != task.target_dim:
            raise InvalidArgumentError(
                "parametrisation", "K on other tokens", f"tokens in R^{task.token_dim}, {task.target_dim} answers"
            )
        return wanted
    if isinstance(wanted, Parametrisation):
        return wanted
    if wanted == "full":
        return Full(task.token_dim, task.target_dim)
    if wanted == "block":
        if not isinstance(task, LinearRegression):
            raise InvalidArgumentError("parametrisation", "'block'", "'full' for this task")
        return Block(task.dim)
    raise InvalidArgumentError("parametrisation", repr(wanted), "'full', 'block', or a Factorised(K, Q, V, readout)")
