"""The function that a dynamics descends: the exact risk of every run as a function of its parameters, with gradient and Hessian."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention, SoftmaxAttention
from largeprompt.errors import InvalidArgumentError
from largeprompt.training.dynamics.parameters import Block, Factorised, Full, Parametrisation
from largeprompt.training.risk.calibration import calibrated_weights
from largeprompt.training.risk.derivatives import closed_derivatives, layer_derivatives, rows
from largeprompt.training.risk.exact import LayerDerivatives, RiskError
from largeprompt.training.tasks.regression import LinearRegression
from largeprompt.training.tasks.task import GaussianTask, Task

Kind = Literal["full", "block"]
Layer = Callable[[Tensor], tuple[Tensor, Tensor]]
Derivatives = Callable[[Tensor, Tensor, bool], LayerDerivatives]  # of the risk in U and V; with the Hessian or not


@dataclasses.dataclass(frozen=True, eq=False)
class Objective:
    """Risks of several runs, one for each length, at θ of shape (run, p)."""

    lengths: tuple[float, ...]
    softmax: bool
    parametrisation: Parametrisation
    layer: Layer
    derivatives: Derivatives
    floor: float  # no layer has a risk below this, the noise of the answer, less rounding
    transpose: Tensor | None  # of the Jacobian of (U, V) in θ, sparse (p, m), where the map is linear
    calibrated: bool  # whether the average is exact for the infinite prompt

    def _evaluate(self, U: Tensor, V: Tensor, hessian: bool) -> LayerDerivatives:
        found = self.derivatives(U.detach(), V.detach(), hessian)
        least = float(found.value.min())
        if least < self.floor:
            raise RiskError(
                f"risk: {least:.6g}, below the noise {self.floor:.6g} of the answer: too few points for scores this large. "
                "Use more points."
            )
        return found

    def risks(self, theta: Tensor) -> Tensor:
        """Risks (run,), without derivatives."""
        return self._evaluate(*self.layer(theta.detach()), False).value

    def gradient(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Risks (run,) and their gradients (run, p)."""
        with torch.enable_grad():
            point = theta.detach().requires_grad_()
            U, V = self.layer(point)
            found = self._evaluate(U, V, False)
            (gradient,) = torch.autograd.grad(_flat(U, V), point, _flat(found.in_u, found.in_v))
        return found.value, gradient

    def hessian(self, theta: Tensor) -> Tensor:
        """Hessians of the risks, shape (run, p, p): J^T H J with J the Jacobian of (U, V), and the curvature of the map itself."""
        with torch.enable_grad():
            point = theta.detach().requires_grad_()
            U, V = self.layer(point)
            found = self._evaluate(U, V, True)
            assert found.second is not None  # asked for
            if self.transpose is not None:
                return torch.stack([self.transpose @ (self.transpose @ second).mT for second in found.second])
            flat, slopes = _flat(U, V), _flat(found.in_u, found.in_v)
            jacobian = rows(flat, point)
            (pulled,) = torch.autograd.grad(flat, point, slopes, create_graph=True)
            bent = jacobian.mT @ found.second @ jacobian
            return (bent + rows(pulled, point) if pulled.requires_grad else bent).detach()


def _flat(U: Tensor, V: Tensor) -> Tensor:
    return torch.cat([U.reshape(len(U), -1), V.reshape(len(V), -1)], -1)


def _linear_transpose(layer: Layer, start: Tensor) -> Tensor | None:
    """Transpose of the Jacobian of a map that is linear in θ, sparse, else None."""
    eye = torch.eye(start.shape[-1], dtype=start.dtype)
    columns = _flat(*layer(eye))
    elsewhere = torch.randn(start.shape, generator=torch.Generator().manual_seed(0), dtype=start.dtype)
    linear = torch.allclose(_flat(*layer(elsewhere)), elsewhere @ columns, rtol=1e-12, atol=1e-14)
    return columns.to_sparse() if linear else None


def make_objective(
    task: Task,
    attention: Attention,
    length: Any,
    parametrisation: Kind | Parametrisation,
    points: int,
    seed: int,
) -> tuple[Objective, Tensor, bool]:
    """Objective, starting point (run, p), and whether several lengths were given."""
    if not isinstance(task, Task):
        raise InvalidArgumentError("task", type(task).__name__, "a Task, such as LinearRegression")
    task.check(attention)
    if attention.heads:
        raise InvalidArgumentError("attention", repr(attention), "one layer, without leading dimensions")
    lengths, several = validation.lengths("length", length, allow_infinity=True)
    softmax = isinstance(attention, SoftmaxAttention)
    chosen = _parametrisation(task, parametrisation)
    start = chosen.start(attention).detach().expand(len(lengths), -1).clone()
    quadratic = not softmax or all(math.isinf(one) for one in lengths)
    if isinstance(chosen, Block) and isinstance(task, LinearRegression):
        contexts = task.block_contexts(task.quadratic_queries() if quadratic else task.block_queries(points, seed))

        def block_layer(theta: Tensor) -> tuple[Tensor, Tensor]:
            return task.block_layer(*chosen.split(theta))

        def averaged(U: Tensor, V: Tensor, hessian: bool) -> LayerDerivatives:
            return layer_derivatives(U, V, contexts, lengths, softmax, limit=True, hessian=hessian)

        layer: Layer = block_layer
        derivatives: Derivatives = averaged
        noise, calibrated = contexts.noise, True
    else:
        layer = chosen.layer
        derivatives, noise, calibrated = _derivatives(task, *layer(start), lengths, softmax, points, seed)
    U, V = layer(start)
    silent = derivatives(0 * U, 0 * V, False).value  # the risk of reading nothing, ½(E‖t‖² + noise)
    floor = noise / 2 - 1e-9 * noise - 1e-12 * float(silent.max())
    transpose = _linear_transpose(layer, start)
    return Objective(tuple(lengths), softmax, chosen, layer, derivatives, floor, transpose, calibrated), start, several


def _derivatives(
    task: Task, U: Tensor, V: Tensor, lengths: Sequence[float], softmax: bool, points: int, seed: int
) -> tuple[Derivatives, float, bool]:
    """Derivatives of the risk in (U, V), from closed forms where the task has them; the noise of the answer; whether calibrated."""
    if not isinstance(task, GaussianTask):

        def layer_risks(U: Tensor, V: Tensor) -> Tensor:
            return task.layer_risks(U, V, lengths, softmax, points=points, seed=seed)

        return lambda U, V, hessian: closed_derivatives(layer_risks, U, V, hessian=hessian), task.answer_noise, False
    if not softmax and task.linear_risk(U, V, lengths) is not None:

        def linear_risk(U: Tensor, V: Tensor) -> Tensor:
            risk = task.linear_risk(U, V, lengths)
            assert risk is not None  # a task has its closed form at every U and V
            return risk

        noise = task.contexts(1, seed).noise
        return lambda U, V, hessian: closed_derivatives(linear_risk, U, V, hessian=hessian), noise, True
    closed = task.limit_risk(U, V) is not None
    contexts = task.contexts(points, seed)
    weights = calibrated_weights(task.calibration(contexts), contexts.weight)
    if weights is not None:
        contexts = dataclasses.replace(contexts, weight=weights)

    def limit_risk(U: Tensor, V: Tensor) -> Tensor:
        risk = task.limit_risk(U, V)
        assert risk is not None  # as above
        return risk

    def derivatives(U: Tensor, V: Tensor, hessian: bool) -> LayerDerivatives:
        found = layer_derivatives(U, V, contexts, lengths, softmax, limit=not closed, hessian=hessian)
        return found + closed_derivatives(limit_risk, U, V, hessian=hessian) if closed else found

    return derivatives, contexts.noise, weights is not None


def _parametrisation(task: Task, wanted: Kind | Parametrisation) -> Parametrisation:
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
