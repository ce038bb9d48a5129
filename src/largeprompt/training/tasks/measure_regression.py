"""In-context linear regression with inputs from any law: the infinite prompt is a tilt, not a
linear map.

Given the task vector w a token (x, y), y = w·x + noise, has Λ_w(u_x, u_y) = Λ(u_x + u_y w) +
s²u_y²/2 with Λ of the inputs, hence

    tilted mean of x: ∇Λ(u_x + u_y w),   of y: w·∇Λ(u_x + u_y w) + s²u_y.

With block parameters U = [[A, 0], [0, 0]], v = (0, b), a family that the flow keeps
(docs/mathematics/regression.md, "Blocks"), the answer is b w·∇Λ(A x_q), and w, the noise and
(through the law of :mod:`largeprompt.law.nodes`) the prompt can be averaged out. Other layers are
averaged over nodes of w, of the noise and of fewer inputs.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures import Discrete, Gaussian, Measure
from largeprompt.measures.gaussian import square_root
from largeprompt.measures.numerics.rules import gauss_rule
from largeprompt.training.risk.average import AVERAGE, SobolAverage
from largeprompt.training.risk.blocks import across_blocks, in_blocks
from largeprompt.training.risk.features import mean_squares
from largeprompt.training.risk.scores import is_softmax
from largeprompt.training.tasks.bayes import drawn_ridge_risk
from largeprompt.training.tasks.prompts import normal
from largeprompt.training.tasks.regression import LinearRegression
from largeprompt.training.tasks.task import RiskEstimate, Task

F = torch.float64
# by dimension, in each coordinate: nodes of the inputs, of the inputs for layers that are not in
# blocks, and of w and the noise there
NODES = {1: (48, 24, 12), 2: (20, 6, 4)}
FEWEST = (10, 4, 3)  # in more dimensions; the first also of w for infinite prompts


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class MeasureRegression(Task):
    """Tokens (x, y), y = w·x + noise, with x from ``inputs``, a new w ~ N(0, W) in every prompt,
    and queries from the same law.

    The risk is exact for centered Gaussian inputs, and in blocks for laws with finitely many
    values; else it is as good as the rule: :meth:`risk_estimate` says how good.

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
        nodes in one dimension, 20 in each of two and 10 in each of more when left out (24, 6 and 4
        for layers that are not in blocks).

    Examples
    --------
    On signs the infinite prompt is read as b tanh(a x) w: at b tanh a = 1 it is right, where the
    Gaussian theory has b a = 1.

    >>> A = torch.eye(2, dtype=torch.float64)
    >>> task = lp.training.MeasureRegression(lp.Rademacher(2), A, 0.0)
    >>> b = torch.tensor(1 / math.tanh(1.0), dtype=torch.float64)
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
                rule = gauss_rule(self.inputs, NODES.get(self.dim, FEWEST)[0])
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

    @property
    def block_dim(self) -> int:
        """Dimension of A in blocks."""
        return self.dim

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
        length: Sequence[float],
        kind: type[Attention],
        average: SobolAverage,
    ) -> Tensor:
        return self.run_risks(U, V, length, kind, average, 0.0)

    def run_risks(
        self,
        U: Tensor,
        V: Tensor,
        length: Sequence[float],
        kind: type[Attention],
        average: SobolAverage,
        tolerance: float,
    ) -> Tensor:
        if self._gaussian is not None:
            return self._gaussian.run_risks(U, V, length, kind, average, tolerance)
        if not is_softmax(kind):
            return self._linear_risks(U, V, length)
        general = partial(self._softmax_risks, lengths=length)
        if not in_blocks(U, V):
            return general(U, V)
        d = self.dim
        parts = zip(U[:, :d, :d], V[:, 0, d], length, strict=True)
        return across_blocks(torch.stack([self.block_risk(*each) for each in parts]), U, V, general)

    def bayes_risk(self, length: float) -> RiskEstimate:
        """Least risk of any predictor: exact for Gaussian inputs where :class:`LinearRegression`
        is, else a mean over drawn prompts.

        Prompts are drawn until the standard error is 1e-4 of the risk, or for seconds.
        """
        if self._gaussian is not None:
            return self._gaussian.bayes_risk(length)
        length = validation.length("length", length, allow_infinity=True)
        if math.isinf(length):
            return RiskEstimate(self.noise_variance / 2, 0.0)
        tokens, generator = int(length), torch.Generator().manual_seed(0)
        validation.affordable("length", tokens, needed=64.0 * tokens * self.dim)

        def draw(count: int) -> Tensor:
            x = self.inputs.sample(count * tokens, generator)
            return x.reshape(count, tokens, self.dim) @ self._root

        x, share = self._atoms.atoms, self._atoms.weights
        left = self._root.mT @ (x.mT * share) @ x @ self._root
        return drawn_ridge_risk(draw, left, self.noise_variance, tokens * self.dim)

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
        x = self.inputs.to(device=generator.device).sample(len(contexts) * length, generator)
        x = x.reshape(len(contexts), length, self.dim)
        noise = math.sqrt(self.noise_variance) * normal(generator, len(contexts), length, 1)
        return torch.cat([x, x @ contexts.unsqueeze(-1) + noise], -1)

    @functools.cached_property
    def _gaussian(self) -> LinearRegression | None:
        """The task with exact risks, for centered Gaussian inputs without a rule."""
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

    @functools.cached_property
    def _coarse(self) -> tuple[Tensor, Tensor]:
        """Inputs and weights for layers that are not in blocks."""
        given = self._given is not None  # type: ignore[attr-defined]
        count = NODES.get(self.dim, FEWEST)[1]
        rule = self._atoms if given else gauss_rule(self.inputs, count)
        return rule.atoms, rule.weights

    def _tasks(self, count: int) -> tuple[Tensor, Tensor]:
        """Nodes w of N(0, W) and weights."""
        rule = gauss_rule(Gaussian(torch.zeros(self.dim, dtype=F), self.prior_covariance), count)
        return rule.atoms, rule.weights

    def _softmax_risks(self, U: Tensor, V: Tensor, lengths: Sequence[float]) -> Tensor:
        """Risks of any layers, each at its length, over nodes of w, x_q, inputs and noise."""
        (x, mass), count = self._coarse, NODES.get(self.dim, FEWEST)[2]
        w, share = self._tasks(count)
        variance = torch.full((1, 1), self.noise_variance, dtype=F)
        rule = gauss_rule(Gaussian(torch.zeros(1, dtype=F), variance), count)
        noise, probability = rule.atoms[:, 0], torch.outer(mass, rule.weights).reshape(-1)
        target, found = x @ w.mT, []  # (q, w)
        for i, length in enumerate(lengths):
            if math.isinf(length):
                found.append(self._limit_risks(U[i : i + 1], V[i : i + 1])[0])
                continue
            s, r, u_y, v_y = _inner(U[i], V[i, 0], x, w)
            scores = s.unsqueeze(-1) + u_y[:, None, None, None] * noise  # (q, w, j, noise)
            read = (r.unsqueeze(-1) + v_y * noise) - target[..., None, None]
            flat = scores.flatten(0, 1).flatten(1)
            features, none = read.reshape(*flat.shape, 1), torch.zeros_like(flat)
            square = mean_squares(flat, probability, features, none, length).reshape(target.shape)
            found.append((mass @ square @ share + self.noise_variance) / 2)
        return torch.stack(found)

    def _limit_risks(self, U: Tensor, V: Tensor) -> Tensor:
        """Risks of infinite prompts, shape (run,): w by a Gauss-Hermite rule, x_q by its own."""
        d, (w, share), x = self.dim, self._tasks(FEWEST[0]), self._atoms.atoms
        u = (x @ U[..., :d].mT).unsqueeze(-2)  # (run, q, 1, d + 1)
        mean = self.inputs.tilted_mean(u[..., :d] + u[..., d:] * w)  # (run, q, w, d)
        y = (mean * w).sum(-1) + self.noise_variance * u[..., d]
        answer = (mean * V[:, None, None, 0, :d]).sum(-1) + V[:, None, None, 0, d] * y
        square = (answer - x @ w.mT).square()
        return ((square @ share) @ self._atoms.weights + self.noise_variance) / 2

    def _linear_risks(self, U: Tensor, V: Tensor, lengths: Sequence[float]) -> Tensor:
        """Risks of linear attention: polynomials of degree 4 in w and in the inputs, for which few
        nodes are exact.
        """
        (x, mass), (w, share), s2 = self._coarse, self._tasks(3), self.noise_variance
        target, found = x @ w.mT, []
        for one_u, one_v, length in zip(U, V, lengths, strict=True):
            s, r, u_y, v_y = _inner(one_u, one_v[0], x, w)
            u_y = u_y[:, None, None]
            product = s * r
            mean = (product + s2 * u_y * v_y) @ mass
            fourth = product**2 + s2 * ((s * v_y) ** 2 + (r * u_y) ** 2 + 4 * product * u_y * v_y)
            second = (fourth + 3 * (s2 * u_y * v_y) ** 2) @ mass
            square = (mean - target).square() + (second - mean.square()) / length
            found.append((mass @ square @ share + s2) / 2)
        return torch.stack(found)

    def block_risk(
        self, A: Tensor, b: Tensor, length: float = math.inf, *, queries: Discrete | None = None
    ) -> Tensor:
        """Population risk at U = [[A, 0], [0, 0]], v = (0, b), shape (...), differentiable; A (...,
        d, d), b (...).

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
        """Risk of one layer, and how far a rule with two thirds of the nodes is from it; 0 for a
        rule that was given.
        """
        if self._gaussian is not None:
            return self._gaussian.risk_estimate(attention, length)
        self._check_one(attention)
        with torch.no_grad():
            value = float(self.risk(attention, length))
            if self._given is not None:  # type: ignore[attr-defined]
                return RiskEstimate(value, 0.0)
            block = in_blocks(*(m.unsqueeze(0) for m in (attention.U, attention.V)))
            count = NODES.get(self.dim, FEWEST)[0 if block or math.isinf(length) else 1]
            fewer = dataclasses.replace(self, rule=gauss_rule(self.inputs, 2 * count // 3))
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

    def __repr__(self) -> str:
        return f"MeasureRegression({self.inputs!r}, noise_variance={self.noise_variance:g})"


def _inner(U: Tensor, v: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scores (q, w, j) and read-outs (w, j) of tokens (x_j, w·x_j), and what the noise adds: u_y
    (q,) and v_y ().
    """
    d = x.shape[-1]
    u = x @ U[:, :d].mT  # (q, d + 1)
    tilt = u[:, None, :d] + u[:, None, d:] * w
    return tilt @ x.mT, (v[:d] + v[d] * w) @ x.mT, u[:, d], v[d]
