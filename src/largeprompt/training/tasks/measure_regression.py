"""In-context linear regression with inputs from any law: the infinite prompt is a tilt, not a
linear map.

Given the task vector w a token (x, y), y = w·x + noise, has Λ_w(u_x, u_y) = Λ(u_x + u_y w) +
s²u_y²/2 with Λ of the inputs, hence

    tilted mean of x: ∇Λ(u_x + u_y w),   of y: w·∇Λ(u_x + u_y w) + s²u_y.

With block parameters U = [[A, 0], [0, 0]], v = (0, b), a family that the flow keeps
(docs/mathematics/regression.md, "Blocks"), the answer is b w·∇Λ(A x_q), and w, the noise and
(through the law of :mod:`largeprompt.law.nodes`) the prompt can be averaged out.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention, SoftmaxAttention
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures import Discrete, Gaussian, Measure
from largeprompt.measures.base import LibraryMeasure
from largeprompt.measures.gaussian import square_root
from largeprompt.measures.numerics.rules import gauss_rule
from largeprompt.training.risk.average import AVERAGE, SobolAverage
from largeprompt.training.risk.exact import is_softmax
from largeprompt.training.risk.features import mean_squares
from largeprompt.training.tasks.regression import LinearRegression
from largeprompt.training.tasks.task import RiskEstimate, Task, normal
from largeprompt.validation import Randomness

F = torch.float64
NODES = {1: 48, 2: 20}  # by dimension
FEWEST = 10  # in each of more dimensions, and of the tasks w


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RegressionTokens(LibraryMeasure):
    """Law of (x, w·x + noise) given task vectors w, shape (..., d); made by
    :meth:`MeasureRegression.token_law`.
    """

    inputs: Measure
    w: Tensor
    noise_variance: float

    def __post_init__(self) -> None:
        validation.instance("inputs", self.inputs, Measure, "a Measure, the law of x")
        w = validation.shaped(
            "w", self.w, (self.inputs.dim,), ", as the inputs", like=self.inputs._like
        )
        validation.store(
            self,
            w=w,
            noise_variance=validation.number("noise_variance", self.noise_variance, minimum=0),
        )

    @property
    def dim(self) -> int:
        return self.inputs.dim + 1

    @property
    def batch_shape(self) -> torch.Size:
        return self.w.shape[:-1]

    @property
    def dtype(self) -> torch.dtype:
        return self.inputs.dtype

    @property
    def device(self) -> torch.device:
        return self.inputs.device

    def _cgf(self, u: Tensor) -> Tensor:
        x, y = u[..., :-1], u[..., -1]
        return self.inputs._cgf(x + y.unsqueeze(-1) * self.w) + self.noise_variance * y.square() / 2

    def _check_domain(self, u: Tensor) -> None:
        self.inputs._check_domain(u[..., :-1] + u[..., -1:] * self.w)

    def _tilted_mean(self, u: Tensor) -> Tensor:
        x, y = u[..., :-1], u[..., -1:]
        mean = self.inputs._tilted_mean(x + y * self.w)
        return torch.cat(
            [mean, (mean * self.w).sum(-1, keepdim=True) + self.noise_variance * y], -1
        )

    def _complex_cumulants(self, w: Tensor, order: int = 2) -> tuple[Tensor, ...]:
        """Those of the inputs' image under x -> (x, w·x), and of the noise in
        the last coordinate.
        """
        image = torch.cat(
            [torch.eye(self.inputs.dim, dtype=self.dtype, device=self.device), self.w.unsqueeze(0)]
        )
        value, *others = self.inputs.map(image)._complex_cumulants(w, min(order, 2))
        value = value + self.noise_variance * w[:, -1] ** 2 / 2
        if not others:
            return (value,)
        last = w.new_zeros(self.dim)
        last[-1] = self.noise_variance
        return value, others[0] + last * w, others[1] + torch.diag(last)

    def _sample(self, n: int, generator: torch.Generator) -> Tensor:
        x = self.inputs._sample(n * self.batch_shape.numel(), generator).reshape(
            *self.batch_shape, n, -1
        )
        return self._with_answers(x, x.new_zeros(()), generator)

    def _sample_tilted(self, u: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """x from the tilt of the inputs by u_x + u_y w, and noise around s²u_y in place of 0."""
        x = self.inputs._sample_tilted(u[..., :-1] + u[..., -1:] * self.w, n, generator)
        return self._with_answers(x, self.noise_variance * u[..., -1:], generator)

    def _with_answers(self, x: Tensor, offset: Tensor, generator: torch.Generator) -> Tensor:
        noise = torch.randn(x.shape[:-1], generator=generator, dtype=self.dtype, device=self.device)
        y = (x @ self.w.unsqueeze(-1)).squeeze(-1) + offset + math.sqrt(self.noise_variance) * noise
        return torch.cat([x, y.unsqueeze(-1)], -1)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class MeasureRegression(Task):
    """Tokens (x, y), y = w·x + noise, with x from ``inputs``, a new w ~ N(0, W) in every prompt,
    and queries from the same law.

    Finite prompts have a risk at block parameters only (:meth:`block_risk`), a family that every
    flow keeps. It is exact for Gaussian inputs and laws with finitely many values, else as good as
    the rule: :meth:`risk_estimate` says how good.

    Parameters
    ----------
    inputs
        Law of x and of x_q on R^d, d small.
    prior_covariance
        W, shape (d, d).
    noise_variance
        s² >= 0.
    rule
        The law of the inputs as atoms, for averages over queries and prompts; a Gauss rule with 48
        nodes in one dimension, 20 in each of two and 10 in each of more when left out.

    Examples
    --------
    On signs the infinite prompt is read as b tanh(a x) w: at b tanh a = 1 it is right, where the
    Gaussian theory has b a = 1.

    >>> task = lp.training.MeasureRegression(lp.Rademacher(2), torch.eye(2, dtype=torch.float64), 0.0)
    >>> A, b = torch.eye(2, dtype=torch.float64), torch.tensor(1 / math.tanh(1.0), dtype=torch.float64)
    >>> print(f"{float(task.block_risk(A, b)):.6f} {float(task.block_risk(A, 0 * b + 1)):.6f}")
    0.000000 0.056837
    >>> print(f"{float(task.block_risk(A, b, 1000)):.6f}")
    0.000485
    """

    inputs: Measure
    prior_covariance: Tensor
    noise_variance: float
    rule: Discrete | None = None

    def __post_init__(self) -> None:
        if (
            not isinstance(self.inputs, Measure)
            or self.inputs.batch_shape
            or self.inputs.dtype != F
        ):
            remedy = (
                "Use inputs.to(torch.float64)." if getattr(self.inputs, "dtype", F) != F else ""
            )
            raise InvalidArgumentError(
                "inputs", validation.text(self.inputs), "one Measure in float64", remedy
            )
        prior = validation.tensor("prior_covariance", self.prior_covariance).to(F)
        validation.last_dimensions(
            "prior_covariance", prior, (self.dim, self.dim), ", as the inputs"
        )
        noise = validation.number("noise_variance", self.noise_variance, minimum=0)
        object.__setattr__(
            self, "prior_covariance", validation.covariance("prior_covariance", prior)
        )
        object.__setattr__(self, "noise_variance", noise)
        object.__setattr__(self, "_given", self.rule)
        self._to_cpu()
        rule = self.rule
        if rule is None:
            try:
                rule = gauss_rule(self.inputs, NODES.get(self.dim, FEWEST))
            except InvalidArgumentError as error:
                remedy = (
                    "Give rule=Discrete(...) in their place; where tails are too heavy for a "
                    "rule, most tilts have no limit."
                )
                raise InvalidArgumentError(
                    "inputs", error.given, f"{error.allowed}, which have a Gauss rule", remedy
                ) from None
        if not isinstance(rule, Discrete) or rule.batch_shape or rule.dim != self.dim:
            raise InvalidArgumentError(
                "rule", validation.text(rule), f"one Discrete law on R^{self.dim}, as the inputs"
            )
        object.__setattr__(self, "rule", rule)

    @property
    def dim(self) -> int:
        """Dimension d of the inputs."""
        return self.inputs.dim

    target_dim = 1

    @property
    def token_dim(self) -> int:
        return self.dim + 1

    @property
    def answer_noise(self) -> float:
        return self.noise_variance

    def layer_risks(
        self,
        U: Tensor,
        V: Tensor,
        lengths: Sequence[float],
        kind: type[Attention],
        average: SobolAverage,
    ) -> Tensor:
        d = self.dim
        if not is_softmax(kind):
            raise InvalidArgumentError(
                "attention",
                kind.__name__,
                "SoftmaxAttention",
                "Use LinearRegression, which has the same risk.",
            )
        if bool(U[:, d, :d].any()) or bool(V[:, 0, :d].any()):
            if all(math.isinf(length) for length in lengths):
                return torch.stack(
                    [self.limit_risk(SoftmaxAttention(*layer)) for layer in zip(U, V, strict=True)]
                )
            raise InvalidArgumentError(
                "attention",
                "a layer outside the blocks",
                "U = [[A, 0], [0, 0]], V = (0, b) at a finite length",
            )
        parts = zip(U[:, :d, :d], V[:, 0, d], lengths, strict=True)
        return torch.stack([self.block_risk(A, b, length) for A, b, length in parts])

    def draw_contexts(
        self, batch: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        w = normal(generator, batch, self.dim) @ self._root.to(generator.device).mT
        x = self.inputs.to(device=generator.device).sample(batch, generator)
        answer = (w * x).sum(-1, keepdim=True) + math.sqrt(self.noise_variance) * normal(
            generator, batch, 1
        )
        return w, torch.nn.functional.pad(x, (0, 1)), answer

    def draw_tokens(self, contexts: Tensor, length: int, generator: torch.Generator) -> Tensor:
        return self.token_law(contexts).sample(length, generator)

    @functools.cached_property
    def _gaussian(self) -> LinearRegression | None:
        """The same task where the inputs are centred Gaussian and no rule was given."""
        inputs = self.inputs
        if self._given is not None or not isinstance(inputs, Gaussian) or bool(inputs.mean.any()):  # type: ignore[attr-defined]
            return None
        return LinearRegression(inputs.covariance, self.prior_covariance, self.noise_variance)

    @property
    def _atoms(self) -> Discrete:
        assert isinstance(self.rule, Discrete)  # made one by __post_init__
        return self.rule

    @functools.cached_property
    def _queries(self) -> Discrete:
        """The rule for x_q: half of it where the law is symmetric, since x_q and -x_q are answered
        equally well.
        """
        atoms, weights = self._atoms.atoms, self._atoms.weights
        if not (
            torch.allclose(atoms.flip(0), -atoms, rtol=0, atol=1e-13)
            and torch.allclose(weights.flip(0), weights, rtol=1e-12)
        ):
            return self._atoms
        half = len(atoms) // 2
        kept = torch.cat([2 * weights[:half], weights[half : len(atoms) - half]])
        return Discrete(atoms[: len(kept)], kept / kept.sum())

    @functools.cached_property
    def _root(self) -> Tensor:
        return square_root(self.prior_covariance)

    def token_law(self, w: Tensor) -> RegressionTokens:
        """Law of the tokens given w, shape (d,)."""
        w = validation.last_dimensions("w", validation.tensor("w", w), (self.dim,))
        return RegressionTokens(self.inputs.to(device=w.device), w.to(F), self.noise_variance)

    def limit_risk(self, attention: SoftmaxAttention) -> Tensor:
        """Infinite-prompt risk ½ E(answer - y_q)² of any U and v, differentiable: w by a
        Gauss-Hermite rule, x_q by its own.
        """
        if (
            not isinstance(attention, SoftmaxAttention)
            or attention.heads
            or attention.V.shape != (1, self.dim + 1)
        ):
            raise InvalidArgumentError(
                "attention",
                validation.text(attention),
                f"one SoftmaxAttention on R^{self.dim + 1} with one output",
            )
        tasks = gauss_rule(Gaussian(torch.zeros(self.dim, dtype=F), self.prior_covariance), FEWEST)
        x = torch.nn.functional.pad(self._atoms.atoms, (0, 1))
        u = attention.tilts(x).unsqueeze(-2)  # (q, 1, d + 1)
        law = RegressionTokens(self.inputs, tasks.atoms, self.noise_variance)
        answer = law.tilted_mean(u.expand(-1, tasks.count, -1)) @ attention.V[0]  # (q, w)
        error = answer - self._atoms.atoms @ tasks.atoms.mT
        return (self._atoms.weights @ error.square() @ tasks.weights + self.noise_variance) / 2

    def block_risk(
        self, A: Tensor, b: Tensor, length: float = math.inf, *, queries: Discrete | None = None
    ) -> Tensor:
        """Population risk at U = [[A, 0], [0, 0]], v = (0, b), shape (...); A (..., d, d), b (...);
        differentiable.

        Infinite prompt: ½ E‖W^{1/2}(b∇Λ(Ax) - x)‖² + s²/2. Length L: bS - x in its place, S = Σ w_l
        x_l, and ½ b² s² E Σ w_l² more, both by the exact law of the inputs' rule. ``queries``
        replaces the rule in the average over x_q: where A = aI and the law has symmetries, fewer
        do.
        """
        length = validation.length("length", length, allow_infinity=True)
        A, b = self._block(A, b)
        if queries is None and self._gaussian is not None:
            flat = self._gaussian.block_risks(
                A.reshape(-1, self.dim, self.dim), b.reshape(-1), [length] * b.numel()
            )
            return flat.reshape(b.shape)
        asked = self._queries if queries is None else queries
        if not isinstance(asked, Discrete) or asked.batch_shape or asked.dim != self.dim:
            raise InvalidArgumentError(
                "queries",
                validation.text(asked),
                f"one Discrete law on R^{self.dim}, as the inputs",
            )
        x, share = asked.atoms, asked.weights
        u = x @ A.mT  # (..., q, d)
        if math.isinf(length):
            error = (b[..., None, None] * self.inputs.tilted_mean(u) - x) @ self._root
            square = error.square().sum(-1)
        else:
            tokens, mass = self._atoms.atoms, self._atoms.weights
            # (..., q, j, d)
            features = b[..., None, None, None] * (tokens @ self._root) - (
                x @ self._root
            ).unsqueeze(-2)
            extra = (b.square() * self.noise_variance)[..., None, None].expand(
                *u.shape[:-1], len(tokens)
            )
            scores, read, noise = (
                part.reshape(-1, *part.shape[b.dim() + 1 :])
                for part in (u @ tokens.mT, features, extra)
            )
            square = mean_squares(scores, mass, read, noise, length).reshape(u.shape[:-1])
        return ((square * share).sum(-1) + self.noise_variance) / 2

    def risk_estimate(
        self, attention: Attention, length: float = math.inf, *, average: SobolAverage = AVERAGE
    ) -> RiskEstimate:
        """Risk of one layer, and how far a rule with two thirds of the nodes is from it: no points
        are drawn.

        Zero for Gaussian inputs, and where a rule was given, which then counts as the law itself.
        """
        self._check_one(attention)
        with torch.no_grad():
            value = float(self.risk(attention, length))
            if self._gaussian is not None or self._given is not None:  # type: ignore[attr-defined]
                return RiskEstimate(value, 0.0)
            fewer = dataclasses.replace(
                self, rule=gauss_rule(self.inputs, 2 * NODES.get(self.dim, FEWEST) // 3)
            )
            return RiskEstimate(value, abs(value - float(fewer.risk(attention, length))))

    def _block(self, A: Any, b: Any) -> tuple[Tensor, Tensor]:
        """A (..., d, d) and b (...), checked and of one batch shape."""
        d, like = self.dim, self.prior_covariance
        A = validation.last_dimensions(
            "A", validation.tensor("A", A, like=like), (d, d), ", as the inputs"
        )
        b = validation.tensor("b", b, like=like)
        batch = validation.broadcast("A and b", A.shape[:-2], b.shape)
        return A.expand(*batch, d, d), b.expand(batch)

    def prompt_risk(
        self, A: Tensor, b: Tensor, tokens: Tensor, queries: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """Mean risk over drawn prompts, w and the noise averaged out, shape (...).

        Parameters
        ----------
        A, b
            Shapes (..., d, d) and (...).
        tokens
            Inputs x_l of the prompts, shape (..., prompt, L, d).
        queries
            x_q of the prompts, shape (..., prompt, d).
        weights
            Shares of the prompts, shape (prompt,); equal when left out.
        """
        A, b = self._block(A, b)
        u = queries @ A.mT
        scores = (tokens @ u.unsqueeze(-1)).squeeze(-1)
        softmax = torch.softmax(scores, -1)
        read = (softmax.unsqueeze(-2) @ tokens).squeeze(-2)
        error = (b[..., None, None] * read - queries) @ self._root
        square = error.square().sum(-1) + (b.square() * self.noise_variance).unsqueeze(
            -1
        ) * softmax.square().sum(-1)
        mean = square.mean(-1) if weights is None else square @ weights
        return (mean + self.noise_variance) / 2

    def draw(self, prompts: int, length: int, generator: Randomness) -> tuple[Tensor, Tensor]:
        """Inputs (prompt, L, d) and queries (prompt, d) of independent prompts."""
        prompts, length = (
            validation.integer("prompts", prompts),
            validation.integer("length", length),
        )
        x = self.inputs.sample(prompts * (length + 1), generator).reshape(
            prompts, length + 1, self.dim
        )
        return x[:, 1:], x[:, 0]

    def __repr__(self) -> str:
        return f"MeasureRegression({self.inputs!r}, noise_variance={self.noise_variance:g})"
