"""The function that a dynamics descends: the exact risk of every run as a function of its parameters, with gradient and Hessian."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention
from largeprompt.errors import InvalidArgumentError
from largeprompt.training.dynamics.parameters import Block, Factorised, Full, Parametrisation
from largeprompt.training.risk.average import AVERAGE, SobolAverage
from largeprompt.training.risk.derivatives import closed_derivatives, layer_derivatives, rows
from largeprompt.training.risk.exact import LayerDerivatives, RiskError, is_softmax
from largeprompt.training.risk.forms import form_derivatives
from largeprompt.training.tasks.measure_regression import MeasureRegression
from largeprompt.training.tasks.regression import LinearRegression
from largeprompt.training.tasks.task import GaussianTask, Task, calibrated_contexts

Form = Literal["full", "block"] | Parametrisation
Layer = Callable[[Tensor], tuple[Tensor, Tensor]]
Derivatives = Callable[[Tensor, Tensor, bool], LayerDerivatives]  # of the risk in U and V; with the Hessian or not


@dataclasses.dataclass(frozen=True, eq=False)
class Objective:
    """Risks of several runs, one for each length, at θ of shape (run, p)."""

    lengths: tuple[float, ...]
    kind: type[Attention]  # SoftmaxAttention or LinearAttention
    parametrisation: Parametrisation
    layer: Layer
    derivatives: Derivatives
    floor: float  # no layer has a risk below this, the noise of the answer, less rounding
    transpose: Tensor | None  # of the Jacobian of (U, V) in θ, sparse (p, m), where the map is linear
    calibrated: bool  # whether the average is exact for the infinite prompt
    _remake: Callable[[validation.Lengths], Objective]

    def with_lengths(self, lengths: validation.Lengths) -> Objective:
        """The same at other lengths."""
        return self._remake(lengths)

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
    task: Task, attention: Attention, length: validation.Lengths, parametrisation: Form, average: SobolAverage = AVERAGE
) -> tuple[Objective, Tensor, bool]:
    """Objective, starting point (run, p), and whether several lengths were given."""
    if not isinstance(task, Task):
        raise InvalidArgumentError("task", type(task).__name__, "a Task, such as LinearRegression")
    task.check(attention)
    if attention.heads:
        raise InvalidArgumentError("attention", repr(attention), "one layer, without leading dimensions")
    lengths, several = validation.lengths("length", length, allow_infinity=True)
    kind, chosen = type(attention), chosen_parametrisation(task, parametrisation)
    start = chosen.start(attention).detach().expand(len(lengths), -1).clone()
    if isinstance(chosen, Block) and isinstance(task, LinearRegression):
        layer, derivatives = _block_layer(task, chosen, is_softmax(kind)), _block_derivatives(task, lengths, is_softmax(kind))
        calibrated = True
    else:
        layer = chosen.layer
        derivatives, calibrated = _derivatives(task, *layer(start), lengths, kind, average)
    U, V = layer(start)
    silent = derivatives(0 * U, 0 * V, False).value  # the risk of reading nothing, ½(E‖t‖² + noise)
    floor = task.answer_noise / 2 - 1e-9 * task.answer_noise - 1e-12 * float(silent.max())
    transpose = _linear_transpose(layer, start)

    def remake(lengths: validation.Lengths) -> Objective:
        return make_objective(task, attention, lengths, parametrisation, average)[0]

    objective = Objective(tuple(lengths), kind, chosen, layer, derivatives, floor, transpose, calibrated, remake)
    return objective, start, several


def _block_layer(task: LinearRegression, block: Block, softmax: bool) -> Layer:
    """θ = (A, b) to what the risk is a function of: forms of the query for softmax, (U, V) for linear attention."""
    return (lambda theta: task.block_forms(*block.split(theta))) if softmax else block.layer


def _block_derivatives(task: LinearRegression, lengths: Sequence[float], softmax: bool) -> Derivatives:
    """Derivatives of the risk in what :func:`_block_layer` gives: exact in the query, no point is drawn."""
    if not softmax:
        return partial(closed_derivatives, partial(task.linear_risk, lengths=lengths))

    def derivatives(forms: Tensor, scale: Tensor, hessian: bool) -> LayerDerivatives:
        found = form_derivatives(forms, scale, hessian, lengths=lengths)
        slope = torch.zeros_like(forms)
        slope[:, 1] = torch.eye(task.dim, dtype=forms.dtype)
        second = None if found.second is None else found.second / 2
        return LayerDerivatives(task.block_limit(forms) + found.value / 2, (found.in_u - slope) / 2, found.in_v / 2, second)

    return derivatives


def _derivatives(
    task: Task, U: Tensor, V: Tensor, lengths: Sequence[float], kind: type[Attention], average: SobolAverage
) -> tuple[Derivatives, bool]:
    """Derivatives of the risk in (U, V), from closed forms where the task has them, and whether the average is calibrated."""
    if not isinstance(task, GaussianTask):
        return partial(closed_derivatives, partial(task.layer_risks, lengths=lengths, kind=kind, average=average)), False
    if not is_softmax(kind) and task.linear_risk(U, V, lengths) is not None:
        return partial(closed_derivatives, partial(task.linear_risk, lengths=lengths)), True
    contexts, calibrated = calibrated_contexts(task, average)
    closed = calibrated and task.limit_risk(U, V) is not None
    excess = partial(layer_derivatives, contexts=contexts, lengths=lengths, kind=kind, limit=not closed)

    def derivatives(U: Tensor, V: Tensor, hessian: bool) -> LayerDerivatives:
        return excess(U, V, hessian) + closed_derivatives(task.limit_risk, U, V, hessian)

    general = derivatives if closed else excess
    return (partial(_in_blocks, task, general, lengths) if isinstance(task, LinearRegression) else general), calibrated


def _in_blocks(
    task: LinearRegression, general: Derivatives, lengths: Sequence[float], U: Tensor, V: Tensor, hessian: bool
) -> LayerDerivatives:
    """Value and gradient without points while all layers are blocks; of the Hessian, what couples blocks with the rest vanishes."""
    if not task.is_block(U, V):
        return general(U, V, hessian)

    def risk(U: Tensor, V: Tensor) -> Tensor:
        return task.block_risks(U[:, : task.dim, : task.dim], V[:, 0, task.dim], lengths)

    exact = closed_derivatives(risk, U, V, False)
    if not hessian:
        return exact
    second = general(U, V, True).second
    assert second is not None  # asked for
    inside = torch.zeros(U.shape[-1] + 1, U.shape[-1], dtype=torch.bool)  # U over V
    inside[: task.dim, : task.dim] = inside[-1, -1] = True
    inside = inside.reshape(-1)
    second = second * (inside[:, None] == inside)
    return dataclasses.replace(exact, second=second)


def chosen_parametrisation(task: Task, wanted: Form) -> Parametrisation:
    """A parametrisation from its name, or checked against the task."""
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
        if not isinstance(task, LinearRegression | MeasureRegression):
            raise InvalidArgumentError("parametrisation", "'block'", "'full' for this task")
        return Block(task.dim)
    raise InvalidArgumentError("parametrisation", repr(wanted), "'full', 'block', or a Factorised(K, Q, V, readout)")
