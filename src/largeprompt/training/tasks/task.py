"""In-context learning tasks: what every task has, and what follows where tokens are Gaussian given
the context.
"""

import abc
import dataclasses
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention, LinearAttention, SoftmaxAttention
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures import Measure
from largeprompt.training.risk.average import AVERAGE, SobolAverage
from largeprompt.training.risk.exact import Contexts, RiskError, context_risk

SCRAMBLES = 8
MOST_POINTS = 2**17


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Standard normal numbers in float64, on the device of the generator."""
    return torch.randn(shape, generator=generator, dtype=torch.float64, device=generator.device)


def chi_rule(dim: int, below: float, above: float, step: float) -> tuple[Tensor, Tensor]:
    """r² and density, not normalised, of a chi-distributed r with ``dim`` degrees of freedom,
    equidistant in log r.

    From e^{-below/dim} to √dim + above: in log r the integrand is smooth and dies out on both
    sides.
    """
    log_r = torch.arange(-below / dim, math.log(above + math.sqrt(dim)), step, dtype=torch.float64)
    square = torch.exp(2 * log_r)
    return square, torch.exp(dim * log_r - square / 2)


@dataclasses.dataclass(frozen=True)
class RiskEstimate:
    """A risk with its error: the standard error over independent scramblings of Sobol points, or a
    bound where none are drawn.
    """

    value: float
    standard_error: float

    def __repr__(self) -> str:
        return f"RiskEstimate({self.value:.8g} ± {self.standard_error:.2g})"


class Task(abc.ABC):
    """A task that a layer learns from prompts: what the prompts are, and the exact risk of a layer
    at any length.

    A subclass says how prompts are drawn (:meth:`draw_contexts`, :meth:`draw_tokens`) and what the
    risk is (:meth:`layer_risks`); :func:`gradient_flow`, :func:`gradient_descent` and
    :func:`stochastic_gradient_descent` train on it. Its parameters are kept on the CPU, where risks
    are computed; layers and prompts may be on any device.
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
        """Variance of the answer given the prompt's context and the query: half of it is below
        every risk.
        """

    @abc.abstractmethod
    def layer_risks(
        self,
        U: Tensor,
        V: Tensor,
        lengths: Sequence[float],
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
        """Draw what a prompt is about: contexts (batch, ...), queries (batch, D), answers (batch,
        o).
        """

    @abc.abstractmethod
    def draw_tokens(self, contexts: Tensor, length: int, generator: torch.Generator) -> Tensor:
        """Draw the tokens of prompts of given contexts, shape (batch, length, D)."""

    def draw_parts(
        self, contexts: Tensor, length: int, chunk: int, generator: torch.Generator
    ) -> Iterator[Tensor]:
        """Draw long prompts in parts of at most ``chunk`` tokens; tokens that are independent given
        the context need no more.
        """
        for done in range(0, length, chunk):
            yield self.draw_tokens(contexts, min(chunk, length - done), generator)

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
            given = f"{attention!r}"
            allowed = (
                f"U acting on R^{self.token_dim}, V with {self.target_dim} rows, at most one "
                "leading dimension of runs"
            )
            raise InvalidArgumentError("attention", given, allowed)

    def _runs(self, attention: Attention, length: float) -> tuple[Tensor, Tensor, list[float]]:
        """U (run, D, D) and V (run, o, D) in double precision on the CPU, and the length of each,
        checked.
        """
        self.check(attention)
        length = validation.length("length", length, allow_infinity=True)
        runs = attention.heads[0] if attention.heads else 1
        U, V = (
            m.to("cpu", torch.float64).expand(runs, *m.shape[-2:])
            for m in (attention.U, attention.V)
        )
        return U, V, [length] * runs

    def risk(
        self,
        attention: Attention,
        length: float = math.inf,
        *,
        average: SobolAverage = AVERAGE,
        tolerance: float | None = None,
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
        tolerance
            Error allowed, relative to the risk of every layer: points are doubled until
            :meth:`risk_estimate` is below it. Raises :class:`RiskError` where that does not happen.

        Returns
        -------
        Tensor
            Shape () or (run,).
        """
        U, V, lengths = self._runs(attention, length)
        validation.instance("average", average, SobolAverage, "a SobolAverage")
        if tolerance is not None:
            if isinstance(tolerance, bool):
                raise InvalidArgumentError(
                    "tolerance", str(tolerance), "a positive number", "Use 1e-7."
                )
            tolerance = validation.positive("tolerance", tolerance)
            for one in (
                type(attention)(*layer) for layer in zip(U.detach(), V.detach(), strict=True)
            ):
                average = self._enough(one, length, average, tolerance)
        result = self.layer_risks(U, V, lengths, type(attention), average)
        if not bool(torch.isfinite(result).all()):
            given = (
                f"entries up to {float(U.detach().abs().max()):.3g} in U and "
                f"{float(V.detach().abs().max()):.3g} in V"
            )
            raise RiskError(
                f"risk: {given} give a risk that is no finite number. Use a smaller U or V."
            )
        return (result if attention.heads else result[0]).to(attention.U.device)

    def _check_one(self, attention: Attention) -> None:
        self.check(attention)
        if attention.heads:
            raise InvalidArgumentError(
                "attention", f"{attention!r}", "one layer", "Ask for the layers one by one."
            )

    def _enough(
        self, attention: Attention, length: float, average: SobolAverage, tolerance: float
    ) -> SobolAverage:
        """Points with which the error is within the tolerance."""
        before = None
        while True:
            found = self.risk_estimate(attention, length, average=average)
            if found.standard_error <= tolerance * found.value:
                return average
            # the same: this risk takes no points
            if found == before or average.points >= MOST_POINTS:
                points = "" if found == before else f" with {average.points} points"
                raise RiskError(
                    f"risk: {found!r} at best{points}; a tolerance of {tolerance:g} is out of "
                    "reach."
                )
            before, average = found, dataclasses.replace(average, points=2 * average.points)

    def risk_estimate(
        self, attention: Attention, length: float = math.inf, *, average: SobolAverage = AVERAGE
    ) -> RiskEstimate:
        """Risk of one layer with a standard error, from eight independent scramblings of the Sobol
        points; 0 if it takes none.
        """
        self._check_one(attention)
        validation.instance("average", average, SobolAverage, "a SobolAverage")
        with torch.no_grad():
            scrambled = (
                self.risk(attention, length, average=SobolAverage(average.points, average.seed + i))
                for i in range(SCRAMBLES)
            )
            first, second = next(scrambled), next(scrambled)
            if bool(first == second):
                return RiskEstimate(float(first), 0.0)
            values = torch.stack([first, second, *scrambled])
        return RiskEstimate(float(values.mean()), float(values.std() / math.sqrt(SCRAMBLES)))


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
        lengths: Sequence[float],
        kind: type[Attention],
        average: SobolAverage,
    ) -> Tensor:
        return context_risk(U, V, self.contexts(average), lengths, kind)
