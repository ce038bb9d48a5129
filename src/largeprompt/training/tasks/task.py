"""What every in-context learning task has: how its prompts are drawn, and the exact risk of a layer
at any length.
"""

import abc
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Self

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention, LinearAttention, SoftmaxAttention
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures import Measure
from largeprompt.training.risk.average import AVERAGE, SobolAverage
from largeprompt.training.risk.blocks import block_layer
from largeprompt.training.risk.contexts import Contexts, context_risk
from largeprompt.training.risk.scores import RiskError
from largeprompt.training.tasks.prompts import Gradients, drawn_gradients

SCRAMBLES = 8  # of Sobol points, whose scatter is the standard error


class RiskEstimate(float):
    """A risk, a number like any other, with its standard error, or a bound where nothing is drawn.

    Examples
    --------
    >>> risk = lp.training.RiskEstimate(0.25, 1e-4)
    >>> risk, 2 * risk
    (RiskEstimate(0.25 ± 0.0001), 0.5)
    """

    standard_error: float

    def __new__(cls, value: float, standard_error: float) -> Self:
        estimate = super().__new__(cls, value)
        estimate.standard_error = standard_error
        return estimate

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Mean and standard error of independent estimates; 0 where they are equal."""
        found = torch.tensor(values, dtype=torch.float64)
        same = bool((found == found[0]).all())
        error = 0.0 if same else float(found.std()) / math.sqrt(len(found))
        return cls(float(found[0] if same else found.mean()), error)

    def __getnewargs__(self) -> tuple[float, float]:  # type: ignore[override]
        return float(self), self.standard_error

    def __repr__(self) -> str:
        return f"RiskEstimate({float(self):.8g} ± {self.standard_error:.2g})"


class Task(abc.ABC):
    """A task that a layer learns from prompts: what the prompts are, and the exact risk of a layer
    at any length.

    A subclass says how prompts are drawn (:meth:`draw_contexts`, :meth:`draw_tokens`) and what the
    risk is (:meth:`layer_risks`); every dynamics then trains on it. Parameters are kept on the CPU,
    where risks are computed; layers and prompts may be on any device.
    """

    def _to_cpu(self) -> None:
        """Bring parameters that were given on another device to the CPU."""
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, Tensor | Measure):
                validation.store(self, **{field.name: value.to(device="cpu")})

    @property
    @abc.abstractmethod
    def token_dim(self) -> int:
        """Dimension D of the tokens."""

    @property
    @abc.abstractmethod
    def target_dim(self) -> int:
        """Dimension o of the answer: rows of V."""

    @property
    @abc.abstractmethod
    def answer_noise(self) -> float:
        """Variance of the answer given context and query: half of it is below every risk."""

    @property
    def block_dim(self) -> int | None:
        """Size of A where every flow keeps the layers U = [[A, 0], [0, 0]], V = (0, b): there is a
        'block' parametrization then.
        """
        return None

    @abc.abstractmethod
    def layer_risks(
        self,
        U: Tensor,
        V: Tensor,
        length: Sequence[float],
        kind: type[Attention],
        average: SobolAverage,
    ) -> Tensor:
        """Risk of each run at its own length, shape (run,), twice differentiable; U (run, D, D), V
        (run, o, D).
        """

    @abc.abstractmethod
    def draw_contexts(
        self, batch: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Draw contexts (batch, ...), queries (batch, D) and answers (batch, o) of prompts."""

    @abc.abstractmethod
    def draw_tokens(self, contexts: Tensor, length: int, generator: torch.Generator) -> Tensor:
        """Draw the tokens of prompts of given contexts, shape (batch, length, D)."""

    def draw_parts(
        self, contexts: Tensor, length: int, chunk: int, generator: torch.Generator
    ) -> Iterator[Tensor]:
        """Draw long prompts in parts of at most ``chunk`` tokens; this default is for tokens that
        are independent given the context.
        """
        for done in range(0, length, chunk):
            yield self.draw_tokens(contexts, min(chunk, length - done), generator)

    def bayes_risk(self, length: float) -> RiskEstimate:
        """Least risk of any predictor, where the task knows it."""
        raise InvalidArgumentError(
            "task", validation.text(self), "a task that defines bayes_risk(length)"
        )

    def run_risks(
        self,
        U: Tensor,
        V: Tensor,
        length: Sequence[float],
        kind: type[Attention],
        average: SobolAverage,
        tolerance: float,
    ) -> Tensor:
        """Risks that a run descends: :meth:`layer_risks`, or faster ones within the tolerance."""
        return self.layer_risks(U, V, length, kind, average)

    def block_run_risks(
        self,
        A: Tensor,
        b: Tensor,
        length: Sequence[float],
        kind: type[Attention],
        average: SobolAverage,
        tolerance: float,
    ) -> Tensor:
        """Risks of a run over block layers; A (run, d, d), b (run,)."""
        return self.run_risks(*block_layer(A, b), length, kind, average, tolerance)

    def prompt_gradients(
        self, attention: Attention, length: int, batch: int, generator: torch.Generator
    ) -> Gradients:
        """Mean loss over freshly drawn prompts, and its gradients in U and V."""
        return drawn_gradients(
            attention,
            *self.draw_contexts(batch, generator),
            length,
            lambda contexts, chunk: self.draw_parts(contexts, length, chunk, generator),
        )

    def sample(
        self, batch: int, length: int, generator: validation.Randomness
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Draw prompts: tokens (batch, length, D), queries (batch, D), answers (batch, o), on the
        device of the generator.
        """
        batch, length = validation.integer("batch", batch), validation.integer("length", length)
        if not isinstance(generator, torch.Generator):
            generator = validation.generator(generator, torch.device("cpu"))
        validation.affordable(
            "batch and length", (batch, length), needed=8.0 * batch * length * self.token_dim
        )
        contexts, query, answer = self.draw_contexts(batch, generator)
        return self.draw_tokens(contexts, length, generator), query, answer

    def check(self, attention: Attention) -> None:
        """Refuse a layer of the wrong kind or shape."""
        if not isinstance(attention, SoftmaxAttention | LinearAttention):
            raise InvalidArgumentError(
                "attention", type(attention).__name__, "SoftmaxAttention or LinearAttention"
            )
        if (
            attention.dim != self.token_dim
            or attention.V.shape[-2] != self.target_dim
            or len(attention.heads) > 1
        ):
            allowed = (
                f"U acting on R^{self.token_dim}, V with {self.target_dim} rows, at most one "
                "leading dimension of runs"
            )
            raise InvalidArgumentError("attention", f"{attention!r}", allowed)

    def risk(
        self, attention: Attention, length: float = math.inf, *, average: SobolAverage = AVERAGE
    ) -> Tensor:
        """Population risk ½ E‖read-out - answer‖² at a prompt length, the noise of the answer
        included.

        Parameters
        ----------
        attention
            SoftmaxAttention or LinearAttention; differentiable in U and V. A leading dimension of
            runs leads the result.
        length
            From 1 to 10^15, or ``math.inf``.
        average
            Sobol points over the contexts, for tasks that need them; :meth:`risk_estimate` says how
            large the error is.

        Returns
        -------
        Tensor
            Shape () or (run,).
        """
        self.check(attention)
        length = validation.length("length", length, allow_infinity=True)
        validation.instance("average", average, SobolAverage, "a SobolAverage")
        runs = attention.heads[0] if attention.heads else 1
        U, V = (
            m.to("cpu", torch.float64).expand(runs, *m.shape[-2:])
            for m in (attention.U, attention.V)
        )
        result = self.layer_risks(U, V, [length] * runs, type(attention), average)
        if not bool(torch.isfinite(result).all()):
            given = " and ".join(
                f"entries up to {float(m.detach().abs().max()):.3g} in {name}"
                for name, m in (("U", U), ("V", V))
            )
            raise RiskError(f"risk: {given} give no finite number. Use a smaller U or V.")
        return (result if attention.heads else result[0]).to(attention.U.device)

    def risk_estimate(
        self, attention: Attention, length: float = math.inf, *, average: SobolAverage = AVERAGE
    ) -> RiskEstimate:
        """Risk of one layer with a standard error, from eight scramblings of the Sobol points; 0
        for a risk that takes none.
        """
        self._check_one(attention)
        validation.instance("average", average, SobolAverage, "a SobolAverage")
        with torch.no_grad():
            values = [
                float(
                    self.risk(
                        attention, length, average=SobolAverage(average.points, average.seed + i)
                    )
                )
                for i in range(SCRAMBLES)
            ]
        return RiskEstimate.of(values)

    def _check_one(self, attention: Attention) -> None:
        self.check(attention)
        if attention.heads:
            raise InvalidArgumentError(
                "attention", f"{attention!r}", "one layer", "Ask for the layers one by one."
            )


class GaussianTask(Task):
    """A task whose prompt tokens are independent N(0, Γ_c) given the context c.

    A subclass says what the contexts are (:meth:`contexts`) and how prompts are drawn
    (:meth:`draw_contexts`, :meth:`draw_tokens`); exact risks at every length, for softmax and
    linear attention, and all that trains on them, follow.
    """

    @abc.abstractmethod
    def contexts(self, average: SobolAverage) -> Contexts:
        """Quasi-random contexts."""

    @property
    def answer_noise(self) -> float:
        return self.contexts(SobolAverage(1)).noise

    def layer_risks(
        self,
        U: Tensor,
        V: Tensor,
        length: Sequence[float],
        kind: type[Attention],
        average: SobolAverage,
    ) -> Tensor:
        return context_risk(U, V, self.contexts(average), length, kind)
