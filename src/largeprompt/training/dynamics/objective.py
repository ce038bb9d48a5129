"""The function that a dynamics descends: the exact risk of every run as a function of its
parameters, with gradient and Hessian.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Literal

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention
from largeprompt.errors import InvalidArgumentError
from largeprompt.training.dynamics.parameters import Block, Factorized, Full, Parametrization
from largeprompt.training.risk.average import AVERAGE, SobolAverage
from largeprompt.training.risk.derivatives import (
    Derivatives,
    Differentiated,
    differentiated,
    pulled,
)
from largeprompt.training.risk.scores import RiskError
from largeprompt.training.tasks.task import Task

Form = Literal["full", "block"] | Parametrization


@dataclasses.dataclass(frozen=True, eq=False)
class Objective:
    """Risks of several runs, one for each length, at θ of shape (run, p)."""

    task: Task
    kind: type[Attention]  # SoftmaxAttention or LinearAttention
    lengths: tuple[float, ...]
    parametrization: Parametrization
    average: SobolAverage
    tolerance: float  # of the run: risks along it need no more digits
    device: torch.device  # of the layer that was given; runs themselves are on the CPU

    def with_lengths(self, length: validation.Lengths) -> Objective:
        """The objective at other lengths."""
        chosen, _ = validation.lengths("length", length, allow_infinity=True)
        return dataclasses.replace(self, lengths=tuple(chosen))

    @functools.cached_property
    def _floor(self) -> float:
        """No layer has a risk below this, the noise of the answer, less rounding."""
        dim, out = self.task.token_dim, self.task.target_dim
        U, V = (torch.zeros(1, size, dim, dtype=torch.float64) for size in (dim, out))
        silent = self.task.layer_risks(U, V, self.lengths[:1], self.kind, self.average)
        noise = self.task.answer_noise
        return (1 - 1e-9) * noise / 2 - 1e-12 * float(silent)

    def _layers(self, theta: Tensor) -> Tensor:
        """U and V of each run, flat."""
        return torch.cat([part.flatten(1) for part in self.parametrization.layer(theta)], -1)

    def _layer_risks(self, flat: Tensor) -> Tensor:
        U, V = Full(self.task.token_dim, self.task.target_dim).layer(flat)
        return self.task.run_risks(U, V, self.lengths, self.kind, self.average, self.tolerance)

    def _block_risks(self, theta: Tensor) -> Tensor:
        A, b = theta[:, :-1].unflatten(-1, (self.task.block_dim, -1)), theta[:, -1]
        risks = self.task.block_run_risks
        return risks(A, b, self.lengths, self.kind, self.average, self.tolerance)

    @functools.cached_property
    def _derivatives(self) -> Differentiated:
        """Of the risks in θ; in blocks and in (U, V) at once, else through the map to (U, V)."""
        if isinstance(self.parametrization, Block):
            return differentiated(self._block_risks)
        inner = differentiated(self._layer_risks)
        return inner if isinstance(self.parametrization, Full) else pulled(self._layers, inner)

    def _at(self, theta: Tensor, hessian: bool) -> Derivatives:
        found = self._derivatives(theta, hessian)
        least = float(found.value.min())
        if least < self._floor:
            raise RiskError(
                f"risk: {least:.6g}, below the noise {self._floor:.6g} of the answer: the average "
                "is too rough for scores this large. Use more points, or a smaller tolerance."
            )
        return found

    def risks(self, theta: Tensor) -> Tensor:
        """Risks (run,), to all digits of ``task.risk``."""
        with torch.no_grad():
            U, V = self.parametrization.layer(theta)
            return self.task.layer_risks(U, V, self.lengths, self.kind, self.average)

    def gradient(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Risks (run,) and their gradients (run, p)."""
        found = self._at(theta, False)
        return found.value, found.gradient

    def hessian(self, theta: Tensor) -> Tensor:
        """Hessians of the risks, shape (run, p, p)."""
        second = self._at(theta, True).hessian
        assert second is not None  # asked for
        return second


def make_objective(
    task: Task,
    attention: Attention,
    length: validation.Lengths,
    parametrization: Form,
    average: SobolAverage = AVERAGE,
    *,
    tolerance: float = 1e-9,
) -> tuple[Objective, Tensor, bool]:
    """Objective, starting point (run, p), and whether several lengths were given."""
    validation.instance("task", task, Task, "a Task, such as LinearRegression")
    task.check(attention)
    validation.instance("average", average, SobolAverage, "a SobolAverage")
    if attention.heads:
        raise InvalidArgumentError(
            "attention", validation.text(attention), "one layer, without leading dimensions"
        )
    lengths, several = validation.lengths("length", length, allow_infinity=True)
    chosen = chosen_parametrization(task, parametrization)
    start = chosen.start(attention).detach().cpu().expand(len(lengths), -1).clone()
    objective = Objective(
        task, type(attention), tuple(lengths), chosen, average, tolerance, attention.U.device
    )
    return objective, start, several


def chosen_parametrization(task: Task, wanted: Form) -> Parametrization:
    """A parametrization from its name, or checked against the task."""
    if isinstance(wanted, Factorized) and (
        wanted.K.shape[-1] != task.token_dim or wanted.readout.shape[0] != task.target_dim
    ):
        allowed = f"tokens in R^{task.token_dim}, {task.target_dim} answers"
        raise InvalidArgumentError("parametrization", "K on other tokens", allowed)
    if isinstance(wanted, Parametrization):
        return wanted
    words = ", or a Factorized(K, Q, V, readout)"
    if validation.choice("parametrization", wanted, ("full", "block"), words) == "full":
        return Full(task.token_dim, task.target_dim)
    if task.block_dim is None:
        raise InvalidArgumentError("parametrization", "'block'", "'full' for this task")
    return Block(task.block_dim)
