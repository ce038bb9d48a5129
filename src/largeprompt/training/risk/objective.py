"""The function that a dynamics descends: the exact risk of every run as a function of its
parameters, with gradient and Hessian.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention, SoftmaxAttention
from largeprompt.errors import InvalidArgumentError
from largeprompt.training.dynamics.parameters import Block, Factorised, Full, Parametrisation
from largeprompt.training.risk.average import AVERAGE, SobolAverage
from largeprompt.training.risk.derivatives import (
    closed_derivatives,
    layer_derivatives,
    rows_at_once,
)
from largeprompt.training.risk.exact import LayerDerivatives, RiskError, is_softmax
from largeprompt.training.risk.forms import form_derivatives
from largeprompt.training.tasks.measure_regression import MeasureRegression
from largeprompt.training.tasks.regression import LinearRegression
from largeprompt.training.tasks.task import GaussianTask, Task

Form = Literal["full", "block"] | Parametrisation
Layer = Callable[[Tensor], tuple[Tensor, Tensor]]
GENERAL_ACCURACY = 2e-7  # smallest error of f and h along a run
BLOCK_ACCURACY = 1e-11  # the same for layers in blocks
LONG = 1e6  # tokens up to which that is far below f itself, 1/L
DIFFERENCE = 1e-5  # of a parameter, for Hessians that need a tenth
# for what a finite length adds to the Hessian that a solver asks for
STIFFNESS = SobolAverage(1024)
# of the risk in U and V; with the Hessian or not
Derivatives = Callable[[Tensor, Tensor, bool], LayerDerivatives]


@dataclasses.dataclass(frozen=True, eq=False)
class Objective:
    """Risks of several runs, one for each length, at θ of shape (run, p)."""

    lengths: tuple[float, ...]
    kind: type[Attention]  # SoftmaxAttention or LinearAttention
    parametrisation: Parametrisation
    layer: Layer
    derivatives: Derivatives
    rough: Derivatives  # the same with a Hessian to a tenth where that is quicker
    # risks at (U, V) to all digits, where ``derivatives`` takes fewer
    exact: Callable[[Tensor, Tensor], Tensor] | None
    floor: float  # no layer has a risk below this, the noise of the answer, less rounding
    # of the Jacobian of (U, V) in θ, sparse (p, m), where the map is linear
    transpose: Tensor | None
    _remake: Callable[[validation.Lengths], Objective]
    device: torch.device  # of the layer that was given; runs themselves are on the CPU

    def with_lengths(self, lengths: validation.Lengths) -> Objective:
        """The same at other lengths."""
        return self._remake(lengths)

    def _evaluate(self, U: Tensor, V: Tensor, hessian: bool) -> LayerDerivatives:
        found = self.derivatives(U.detach(), V.detach(), hessian)
        least = float(found.value.min())
        if least < self.floor:
            raise RiskError(
                f"risk: {least:.6g}, below the noise {self.floor:.6g} of the answer: the average "
                "is too rough for scores this large. Use more points, or a smaller tolerance."
            )
        return found

    def risks(self, theta: Tensor) -> Tensor:
        """Risks (run,), without derivatives."""
        return self._evaluate(*self.layer(theta.detach()), False).value

    def reported(self, theta: Tensor) -> Tensor:
        """Risks (run,), to the digits of ``task.risk``."""
        if self.exact is None:
            return self.risks(theta)
        with torch.no_grad():
            return self.exact(*self.layer(theta.detach()))

    def gradient(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Risks (run,) and their gradients (run, p)."""
        if self.transpose is not None:
            found = self._evaluate(*self.layer(theta.detach()), False)
            return found.value, (self.transpose @ _flat(found.in_u, found.in_v).mT).mT
        value, gradient, _ = _pulled(self.layer, self._evaluate, theta, False)
        return value, gradient

    def hessian(self, theta: Tensor) -> Tensor:
        """Hessians of the risks, shape (run, p, p)."""
        if self.transpose is not None:
            second = self._evaluate(*self.layer(theta.detach()), True).second
            assert second is not None  # asked for
            return torch.stack([self.transpose @ (self.transpose @ one).mT for one in second])
        second = _pulled(self.layer, self._evaluate, theta, True)[2]
        assert second is not None  # asked for
        return second

    def stiffness(self, theta: Tensor) -> Tensor:
        """Hessians good to a tenth: what an implicit solver needs."""
        return dataclasses.replace(self, derivatives=self.rough, floor=-math.inf).hessian(theta)


def _pulled(
    layer: Layer, derivatives: Derivatives, theta: Tensor, hessian: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Value, gradient and Hessian in θ: J^T H J with J the Jacobian of (U, V), and the curvature of
    the map itself.
    """
    with torch.enable_grad():
        point = theta.detach().requires_grad_()
        U, V = layer(point)
        found = derivatives(U.detach(), V.detach(), hessian)
        flat = _flat(U, V)
        (gradient,) = torch.autograd.grad(
            flat, point, _flat(found.in_u, found.in_v), create_graph=hessian
        )
        if found.second is None:
            return found.value, gradient, None
        size = theta.shape[-1]
        second = (
            rows_at_once(gradient, point)
            if gradient.requires_grad
            else theta.new_zeros(len(theta), size, size)
        )
        if bool(found.second.any()):  # of infinite prompts in blocks the map alone is curved
            jacobian = rows_at_once(flat, point)
            second = second + jacobian.mT @ found.second @ jacobian
    return found.value, gradient.detach(), second.detach()


def _flat(U: Tensor, V: Tensor) -> Tensor:
    return torch.cat([U.reshape(len(U), -1), V.reshape(len(V), -1)], -1)


def _linear_transpose(layer: Layer, start: Tensor) -> Tensor | None:
    """Transpose of the Jacobian of a map that is linear in θ, sparse, else None."""
    eye = torch.eye(start.shape[-1], dtype=start.dtype)
    columns = _flat(*layer(eye))
    elsewhere = torch.randn(
        start.shape, generator=torch.Generator().manual_seed(0), dtype=start.dtype
    )
    linear = torch.allclose(_flat(*layer(elsewhere)), elsewhere @ columns, rtol=1e-12, atol=1e-14)
    return columns.to_sparse() if linear else None


def make_objective(
    task: Task,
    attention: Attention,
    length: validation.Lengths,
    parametrisation: Form,
    average: SobolAverage = AVERAGE,
    *,
    tolerance: float = 1e-9,
) -> tuple[Objective, Tensor, bool]:
    """Objective, starting point (run, p), and whether several lengths were given.

    Gradients are as good as the tolerance asks, those of general layers 2e-7 at best.
    """
    if not isinstance(task, Task):
        raise InvalidArgumentError("task", type(task).__name__, "a Task, such as LinearRegression")
    task.check(attention)
    validation.instance("average", average, SobolAverage, "a SobolAverage")
    if attention.heads:
        raise InvalidArgumentError(
            "attention", validation.text(attention), "one layer, without leading dimensions"
        )
    lengths, several = validation.lengths("length", length, allow_infinity=True)
    kind, chosen = type(attention), chosen_parametrisation(task, parametrisation)
    start = chosen.start(attention).detach().cpu().expand(len(lengths), -1).clone()
    exact: Callable[[Tensor, Tensor], Tensor] | None = None
    layer: Layer
    derivatives: Derivatives
    rough: Derivatives
    loose = tolerance if tolerance > GENERAL_ACCURACY else 0.0
    if isinstance(chosen, Block) and isinstance(task, LinearRegression):
        if not is_softmax(kind) or all(map(math.isinf, lengths)):
            layer, derivatives = _apart(chosen), partial(_affine_derivatives, task, lengths)
        else:
            layer, derivatives = (
                _block_layer(task, chosen),
                _block_derivatives(task, lengths, loose),
            )
            exact = partial(task.form_risks, lengths=lengths) if loose else None
        rough = derivatives
    else:
        layer = chosen.layer
        if isinstance(task, LinearRegression) and is_softmax(kind):
            exact = partial(task.layer_risks, lengths=lengths, kind=kind, average=average)
            accuracy = {
                "accuracy": loose or GENERAL_ACCURACY,
                "step": min(max(1.5 / -math.log10(min(tolerance, 0.1)), 0.2), 0.3),
            }
            derivatives, rough = (
                partial(each, task, lengths, accuracy)
                for each in (_regression_derivatives, _rough_derivatives)
            )
        else:
            derivatives = rough = _derivatives(task, lengths, kind, average)
            if isinstance(task, MeasureRegression) and not all(map(math.isinf, lengths)):
                rough = partial(_differenced, task.dim, derivatives)
    U, V = layer(start)
    silent = derivatives(0 * U, 0 * V, False).value  # the risk of reading nothing, ½(E‖t‖² + noise)
    floor = task.answer_noise / 2 - 1e-9 * task.answer_noise - 1e-12 * float(silent.max())
    transpose = _linear_transpose(layer, start)

    def remake(lengths: validation.Lengths) -> Objective:
        return make_objective(
            task, attention, lengths, parametrisation, average, tolerance=tolerance
        )[0]

    objective = Objective(
        tuple(lengths),
        kind,
        chosen,
        layer,
        derivatives,
        rough,
        exact,
        floor,
        transpose,
        remake,
        attention.U.device,
    )
    return objective, start, several


def _apart(block: Block) -> Layer:
    """θ to A (run, d, d) and b (run, 1, 1)."""

    def layer(theta: Tensor) -> tuple[Tensor, Tensor]:
        A, b = block.split(theta)
        return A, b[:, None, None]

    return layer


def _affine_derivatives(
    task: LinearRegression, lengths: Sequence[float], A: Tensor, b: Tensor, hessian: bool
) -> LayerDerivatives:
    """Of linear attention in blocks, and of either attention on infinite prompts.

    Twice the risk is s² + tr E^TWEΣ_q + b² tr A^TNAΣ_q, E = bΣA - I and N = ((tr WΣ + s²)Σ +
    ΣWΣ)/L: (risk.5) with its 1/L.
    """
    sigma, prior, query = task.covariance, task.prior_covariance, task.query_covariance
    assert isinstance(query, Tensor)  # made one by the task
    inverse = A.new_tensor([1 / length for length in lengths])[:, None, None]
    error, bowl = b * sigma @ A - torch.eye(task.dim, dtype=A.dtype), sigma @ prior @ sigma
    noise = inverse * ((torch.trace(prior @ sigma) + task.noise_variance) * sigma + bowl)
    pulled, spread = sigma @ prior @ error @ query, noise @ A @ query
    value = (
        (error * (prior @ error @ query)).sum((-2, -1))
        + (b.square() * A * spread).sum((-2, -1))
        + task.noise_variance
    )
    in_b, second = (A * (pulled + b * spread)).sum((-2, -1), keepdim=True), None
    if hessian:
        moved, size = bowl @ A @ query, A[0].numel()
        second = A.new_empty(len(A), size + 1, size + 1)
        second[:, :-1, :-1] = torch.einsum(
            "rac,bd->rabcd", b.square() * (bowl + noise), query
        ).reshape(-1, size, size)
        second[:, :-1, -1] = second[:, -1, :-1] = (pulled + b * (moved + 2 * spread)).reshape(
            -1, size
        )
        second[:, -1, -1] = (A * (moved + spread)).sum((-2, -1))
    return LayerDerivatives(value / 2, b * (pulled + b * spread), in_b, second)


def _block_layer(task: LinearRegression, block: Block) -> Layer:
    """θ = (A, b) to what the risk of softmax is a function of: forms of the query."""
    return lambda theta: task.block_forms(*block.split(theta))


def _block_derivatives(
    task: LinearRegression, lengths: Sequence[float], accuracy: float = 0.0
) -> Derivatives:
    """Derivatives of the risk in what :func:`_block_layer` gives: no point is drawn; to ten digits
    unless an accuracy is given.
    """
    if max((length for length in lengths if math.isfinite(length)), default=1.0) <= LONG:
        accuracy = max(accuracy, BLOCK_ACCURACY)

    def derivatives(forms: Tensor, scale: Tensor, hessian: bool) -> LayerDerivatives:
        found = form_derivatives(forms, scale, hessian, lengths=lengths, accuracy=accuracy)
        slope = torch.zeros_like(forms)
        slope[:, 1] = torch.eye(task.dim, dtype=forms.dtype)
        second = None if found.second is None else found.second / 2
        return LayerDerivatives(
            task.block_limit(forms) + found.value / 2,
            (found.in_u - slope) / 2,
            found.in_v / 2,
            second,
        )

    return derivatives


def _derivatives(
    task: Task, lengths: Sequence[float], kind: type[Attention], average: SobolAverage
) -> Derivatives:
    """Derivatives of the risk in (U, V), except of softmax on in-context regression."""
    if isinstance(task, LinearRegression):
        return partial(closed_derivatives, partial(task.linear_risk, lengths=lengths), cheap=True)
    if isinstance(task, GaussianTask):
        return partial(
            layer_derivatives, contexts=task.contexts(average), lengths=lengths, kind=kind
        )
    return partial(
        closed_derivatives, partial(task.layer_risks, lengths=lengths, kind=kind, average=average)
    )


def _regression_derivatives(
    task: LinearRegression,
    lengths: Sequence[float],
    accuracy: dict[str, Any],
    U: Tensor,
    V: Tensor,
    hessian: bool,
) -> LayerDerivatives:
    """Of a softmax layer: in (A, b) alone while all layers are blocks, and what couples blocks with
    the rest is zero.
    """
    if not task.is_block(U, V):
        return closed_derivatives(
            partial(task.general_risks, lengths=lengths, **accuracy), U, V, hessian
        )
    d, block = task.dim, Block(task.dim)
    theta = torch.cat([U[:, :d, :d].reshape(len(U), -1), V[:, 0, d:]], -1)
    inner = _block_derivatives(
        task, lengths, accuracy["accuracy"] if accuracy["accuracy"] > GENERAL_ACCURACY else 0.0
    )
    value, gradient, inside = _pulled(_block_layer(task, block), inner, theta, hessian)
    in_u, in_v = block.layer(gradient)
    if inside is None:
        return LayerDerivatives(value, in_u, in_v, None)
    places = torch.arange((d + 2) * (d + 1)).reshape(d + 2, d + 1)  # U over V
    second = U.new_zeros(len(U), places.numel(), places.numel())
    within, across = (
        torch.cat(pair)
        for pair in ((places[:d, :d].reshape(-1), places[-1, -1:]), (places[d, :d], places[-1, :d]))
    )
    second[:, within.unsqueeze(-1), within] = inside
    second[:, across.unsqueeze(-1), across] = task.curvature_across(U, V, lengths, **accuracy)
    return LayerDerivatives(value, in_u, in_v, second)


def _differenced(
    dim: int, derivatives: Derivatives, U: Tensor, V: Tensor, hessian: bool
) -> LayerDerivatives:
    """With a Hessian from differences of gradients in (A, b), all that moves: a graph through every
    query would be large.
    """
    found = derivatives(U, V, False)
    if not hessian:
        return found
    flat, start, sizes = _flat(U, V), _flat(found.in_u, found.in_v), [U[0].numel(), V[0].numel()]
    second = flat.new_zeros(*flat.shape, flat.shape[-1])
    for place in torch.cat(
        [
            torch.arange(sizes[0]).reshape(U.shape[1:])[:dim, :dim].reshape(-1),
            torch.tensor([sum(sizes) - 1]),
        ]
    ):
        moved = flat.clone()
        moved[:, place] += DIFFERENCE
        moved_u, moved_v = moved.split(sizes, -1)
        there = derivatives(moved_u.reshape(U.shape), moved_v.reshape(V.shape), False)
        second[:, place] = (_flat(there.in_u, there.in_v) - start) / DIFFERENCE
    return dataclasses.replace(found, second=(second + second.mT) / 2)


def _rough_derivatives(
    task: LinearRegression,
    lengths: Sequence[float],
    accuracy: dict[str, Any],
    U: Tensor,
    V: Tensor,
    hessian: bool,
) -> LayerDerivatives:
    """The limit's, exact, and what the length adds to it at a few points: 2 to 7 % off, smooth near
    the blocks, and quick.
    """
    if task.is_block(U, V):  # which a flow must not leave, as it would by the chances of points
        return _regression_derivatives(task, lengths, accuracy, U, V, hessian)
    contexts = task.contexts(STIFFNESS)
    finite, infinite = (
        layer_derivatives(U, V, hessian, contexts=contexts, lengths=some, kind=SoftmaxAttention)
        for some in (lengths, [math.inf] * len(lengths))
    )
    return closed_derivatives(task.limit_risk, U, V, hessian, cheap=True) + finite - infinite


def chosen_parametrisation(task: Task, wanted: Form) -> Parametrisation:
    """A parametrisation from its name, or checked against the task."""
    if isinstance(wanted, Factorised):
        if wanted.K.shape[-1] != task.token_dim or wanted.readout.shape[0] != task.target_dim:
            raise InvalidArgumentError(
                "parametrisation",
                "K on other tokens",
                f"tokens in R^{task.token_dim}, {task.target_dim} answers",
            )
        return wanted
    if isinstance(wanted, Full | Block):
        fits = (
            {"dim": task.token_dim, "out": task.target_dim}
            if isinstance(wanted, Full)
            else {"dim": getattr(task, "dim", 0)}
        )
        if dataclasses.asdict(wanted) != fits:
            allowed = f"{type(wanted).__name__}({', '.join(f'{name}={size}' for name, size in fits.items())}) for this task"
            raise InvalidArgumentError("parametrisation", validation.text(wanted), allowed)
    if isinstance(wanted, Parametrisation):
        return wanted
    if (
        validation.choice(
            "parametrisation", wanted, ("full", "block"), ", or a Factorised(K, Q, V, readout)"
        )
        == "full"
    ):
        return Full(task.token_dim, task.target_dim)
    if not isinstance(task, LinearRegression | MeasureRegression):
        raise InvalidArgumentError("parametrisation", "'block'", "'full' for this task")
    return Block(task.dim)
