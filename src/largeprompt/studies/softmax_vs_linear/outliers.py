"""In-context linear regression with marked outliers: softmax can silence them, linear attention
cannot.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from largeprompt import validation
from largeprompt.attention import Attention, SoftmaxAttention
from largeprompt.errors import InvalidArgumentError
from largeprompt.studies.softmax_vs_linear.calibration import (
    POINTS_PER_FUNCTION,
    calibrated_weights,
    calibration,
    quadratic_points,
    quartic_points,
)
from largeprompt.studies.softmax_vs_linear.outlier_optima import IsotropicOutliers, OutlierOptimum
from largeprompt.studies.softmax_vs_linear.token_kinds import (
    ReadOutKinds,
    linear_error,
    softmax_error,
)
from largeprompt.training.risk.average import AVERAGE, SobolAverage
from largeprompt.training.risk.exact import is_softmax
from largeprompt.training.tasks.regression import LinearRegression
from largeprompt.training.tasks.task import Task, normal

CONTEXTS_AT_ONCE = 512


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class MarkedOutliers(Task):
    """In-context regression in which a token is an outlier with probability p, and carries a mark c
    that says so.

    Tokens (x_l, y_l, c_l) in R^{d+2}: y = w·x + noise and c = 0 with probability 1 - p, else y ~
    N(0, τ²), independent of x and w, and c = 1. The query is (x_q, 0, 1), so that U = diag(A, 0,
    -γ) gives the score x_l·Ax_q - γc_l: softmax multiplies the weight of an outlier by e^{-γ};
    linear attention only adds -γ to its weight, which the best one does not use.

    Given (w, x_q) tokens are of two Gaussian kinds, whose risk is exact at every length
    (:mod:`~largeprompt.studies.softmax_vs_linear.token_kinds`). It is averaged over Sobol points of (w, x_q)
    for softmax, and in closed form (a cubature of degree five) for linear attention. Least risks
    (``isotropic_...``) are formulas (sel.5) to (sel.8) of docs/mathematics/selection.md, for
    covariances that are multiples of the identity.

    Parameters
    ----------
    regression
        The task without outliers: Σ, W, s² and Σ_q.
    probability
        p, from 0 to 1, 1 excluded.
    variance
        τ² >= 0.

    Examples
    --------
    >>> from largeprompt.studies.softmax_vs_linear.outliers import MarkedOutliers
    >>> eye = torch.eye(5, dtype=torch.float64)
    >>> task = MarkedOutliers(lp.LinearRegression(eye, eye / 5, 0.0), probability=0.2, variance=25.0)
    >>> best = [task.isotropic_optimum(100, kind).risk for kind in (lp.SoftmaxAttention, lp.LinearAttention)]
    >>> print(f"{2 * best[0]:.4f} {2 * best[1]:.4f}, equal at an outlier variance of {task.crossing_variance(100):.2f}")
    0.1762 0.3189, equal at an outlier variance of 8.73
    """

    regression: LinearRegression
    probability: float
    variance: float
    target_dim = 1

    def __post_init__(self) -> None:
        if not isinstance(self.regression, LinearRegression):
            raise InvalidArgumentError(
                "regression", type(self.regression).__name__, "a LinearRegression"
            )
        for name, most in (("probability", 1.0), ("variance", math.inf)):
            value = validation.number(name, getattr(self, name), minimum=0)
            if not value < most:
                raise InvalidArgumentError(name, str(value), "a number from 0 to 1, 1 excluded")
            object.__setattr__(self, name, value)

    @property
    def dim(self) -> int:
        """Dimension d of the inputs x."""
        return self.regression.dim

    @property
    def token_dim(self) -> int:
        return self.dim + 2

    @property
    def answer_noise(self) -> float:
        return self.regression.noise_variance

    def layer(self, kind: type[Attention], A: Any, mark: float, read_out: float) -> Attention:
        """The layer with U = diag(A, 0, -γ) and v = (0, b, 0); A a number (times the identity) or a
        matrix, ``mark`` γ.
        """
        is_softmax(kind)  # refuses anything but softmax and linear attention
        d = self.dim
        U, V = (
            torch.zeros(d + 2, d + 2, dtype=torch.float64),
            torch.zeros(1, d + 2, dtype=torch.float64),
        )
        matrix = validation.tensor("A", A)
        if matrix.dim() and matrix.shape != (d, d):
            raise InvalidArgumentError(
                "A",
                f"shape {validation.shape_text(matrix.shape)}",
                f"a number, or shape ({d}, {d})",
            )
        U[:d, :d] = matrix if matrix.dim() else matrix * torch.eye(d, dtype=torch.float64)
        U[d + 1, d + 1], V[0, d] = (
            -validation.number("mark", mark),
            validation.number("read_out", read_out),
        )
        return kind(U, V)

    def draw_contexts(
        self, batch: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        w, query, answer = self.regression.draw_contexts(batch, generator)
        return w, torch.cat([query, query.new_ones(batch, 1)], -1), answer

    def draw_tokens(self, contexts: Tensor, length: int, generator: torch.Generator) -> Tensor:
        tokens = self.regression.draw_tokens(contexts, length, generator)
        mark = (
            torch.rand(
                len(contexts),
                length,
                1,
                generator=generator,
                dtype=torch.float64,
                device=generator.device,
            )
            < self.probability
        )
        other = math.sqrt(self.variance) * normal(generator, len(contexts), length, 1)
        y = torch.where(mark, other, tokens[..., -1:])
        return torch.cat([tokens[..., :-1], y, mark.to(torch.float64)], -1)

    def kinds(self, U: Tensor, V: Tensor, w: Tensor, x: Tensor) -> ReadOutKinds:
        """Scores and read-outs of good tokens and outliers for contexts (w, x), each (n, d), and
        one layer.
        """
        d, tau2, sigma = self.dim, self.variance, self.regression.covariance
        u = x @ U[:, :d].mT + U[:, d + 1]  # U(x, 0, 1), shape (n, d + 2)
        v = V[0].expand(len(x), -1)
        target = (w * x).sum(-1)
        noise = self.regression.noise_variance

        def covariances(f: Tensor, g: Tensor) -> Tensor:
            """Covariance of f·z and g·z for good tokens and for outliers, shape (n, 2)."""
            inner = (f[:, :d] @ sigma * g[:, :d]).sum(-1)
            left, right = ((h[:, :d] + h[:, d, None] * w) for h in (f, g))
            good = (left @ sigma * right).sum(-1) + noise * f[:, d] * g[:, d]
            return torch.stack([good, inner + tau2 * f[:, d] * g[:, d]], -1)

        none = torch.zeros_like(target)
        level = torch.stack([none, u[:, d + 1]], -1)
        offset = torch.stack([none, v[:, d + 1]], -1) - target.unsqueeze(-1)
        pi = torch.tensor([1 - self.probability, self.probability], dtype=torch.float64)
        return ReadOutKinds(
            pi,
            level,
            covariances(u, u),
            offset.unsqueeze(-1),
            covariances(u, v).unsqueeze(-1),
            covariances(v, v),
        )

    def layer_risks(
        self,
        U: Tensor,
        V: Tensor,
        lengths: Sequence[float],
        kind: type[Attention],
        average: SobolAverage,
    ) -> Tensor:
        roots, softmax = self.regression._roots, is_softmax(kind)
        if not softmax:
            w, weight_w = quartic_points(self.dim)
            x, weight_x = quadratic_points(self.dim)
            w, x = w.repeat_interleave(len(x), 0) @ roots[1].mT, x.repeat(len(w), 1) @ roots[2].mT
            weight = (weight_w.unsqueeze(-1) * weight_x).reshape(-1)
        else:
            w, x = self.regression._tasks_and_queries(average.normal(2 * self.dim))
            weight = self._calibrated(w, x, average)
        found = []
        for one_u, one_v, length in zip(U, V, lengths, strict=True):
            parts = []
            for w_part, x_part, weight_part in zip(
                *(t.split(CONTEXTS_AT_ONCE) for t in (w, x, weight)), strict=True
            ):
                conditional = functools.partial(self._conditional, w_part, x_part, length, softmax)
                keep = (
                    softmax
                    and torch.is_grad_enabled()
                    and (one_u.requires_grad or one_v.requires_grad)
                )
                value = (
                    checkpoint(conditional, one_u, one_v, use_reentrant=False)
                    if keep
                    else conditional(one_u, one_v)
                )
                parts.append((value * weight_part).sum())
            found.append(torch.stack(parts).sum())
        return (torch.stack(found) + self.answer_noise) / 2

    def _calibrated(self, w: Tensor, x: Tensor, average: SobolAverage) -> Tensor:
        """Weights of the points under which all that regression's infinite prompt is made of has
        its exact mean.
        """
        functions = calibration(self.regression, self.regression._contexts(w, x, average.weights))
        found = calibrated_weights(functions, average.weights)
        if found is None:
            least = 1 << (POINTS_PER_FUNCTION * functions.shape[1] - 1).bit_length()
            allowed = (
                f"{least} in dimension {self.dim}, for weights exact for the "
                f"{functions.shape[1]} means of an infinite prompt"
            )
            remedy = (
                f"Use average=SobolAverage({max(least, 2 * average.points)}): weights that "
                "are all equal would err by percents."
            )
            raise InvalidArgumentError("average", f"{average.points} points", allowed, remedy)
        return found

    def _conditional(
        self, w: Tensor, x: Tensor, length: float, softmax: bool, U: Tensor, V: Tensor
    ) -> Tensor:
        """Twice the risk, less the noise, in each context, shape (n,)."""
        kinds = self.kinds(U, V, w, x)
        return (
            softmax_error(length, kinds)
            if softmax
            else linear_error(length, kinds, (w * x).sum(-1, keepdim=True))
        )

    def bayes_risk(self, length: float, *, average: SobolAverage = AVERAGE) -> float:
        """Least risk of any predictor: marks show the outliers, and regression on K ~ Binomial(L,
        1 - p) tokens is left.

        The mean over K is a sum for short prompts, and over 64 of its quantiles for long ones; the
        rest as in :meth:`LinearRegression.bayes_risk`, the same draws for every K.
        """
        length = validation.length("length", length, allow_infinity=True)
        validation.instance("average", average, SobolAverage, "a SobolAverage")
        if math.isinf(length):
            return self.answer_noise / 2
        counts, weights = good_tokens(length, self.probability)
        # E(w·x_q)²
        signal = float((self.regression._roots[2].mT @ self.regression._roots[1]).square().sum())
        silent = (self.answer_noise + signal) / 2
        risks = [
            self.regression.bayes_risk(int(k), average=average) if k > 0 else silent for k in counts
        ]
        return float(np.dot(weights, risks))

    def _isotropic(self, mark: float | None = None) -> IsotropicOutliers:
        if mark is not None and (math.isnan(mark) or mark == -math.inf):
            raise InvalidArgumentError("mark", str(mark), "a finite number, or math.inf")
        scales, noise = self.regression.isotropic_scales(), self.regression.noise_variance
        if min(scales) <= 0:
            raise InvalidArgumentError(
                "task",
                validation.text(self),
                "covariances that are positive multiples of the identity",
            )
        return IsotropicOutliers(self.dim, *scales, noise, self.probability, self.variance)

    def isotropic_risk(
        self, a: Any, mark: float, read_out: Any, length: float = math.inf
    ) -> Tensor:
        """Exact softmax risk at U = diag(aI, 0, -γ), v = (0, b, 0), covariances multiples of the
        identity: one integral.

        ``a`` and ``read_out`` are numbers or tensors that broadcast, differentiable; ``mark`` is
        one number, ``math.inf`` to silence the outliers altogether.
        """
        length = validation.length("length", length, allow_infinity=True)
        return self._isotropic(mark).risk(
            validation.tensor("a", a), mark, validation.tensor("read_out", read_out), length
        )

    def isotropic_optimum(
        self,
        length: float,
        kind: type[Attention] = SoftmaxAttention,
        *,
        mark: float | None = math.inf,
    ) -> OutlierOptimum:
        """Least exact risk over U = diag(aI, 0, -γ), v = (0, b, 0) for covariances that are
        multiples of the identity.

        Linear attention is best at γ = 0: the mark does not help it. For softmax the search over a
        ends at a²σσ_q d = 4, or 16 where there are fewer than 30 good tokens. That end is reached
        with two or three good tokens only; taking the best token alone (a = ∞) is at most 1 %
        better there (d = 1, two tokens, no outliers or noise), and worse from three on.

        Parameters
        ----------
        length
            From 1 to 10^15, finite.
        kind
            SoftmaxAttention or LinearAttention.
        mark
            γ of softmax: ``math.inf`` silences the outliers, 0 ignores the mark, None searches for
            the best (seconds).
        """
        isotropic, length = self._isotropic(mark), validation.length("length", length)
        return (
            isotropic.softmax_optimum(length, mark)
            if is_softmax(kind)
            else isotropic.linear_optimum(length)
        )

    def linear_constant(self) -> float:
        """L times c, where the best linear attention has excess c/(1 + c) of E(w·x_q)²: exact at
        every length.
        """
        return self._isotropic().linear_constant()

    def softmax_constant(self, *, mark: float = math.inf) -> float:
        """Limit of L times the relative excess of the best softmax at a given γ, as L grows.
        Silence is best.
        """
        return self._isotropic(mark).softmax_constant(mark)

    def crossing_variance(self, length: float = math.inf) -> float:
        """Outlier variance τ² at which the best linear and the best softmax attention have equal
        risk; softmax wins beyond it.

        Infinite length: the first-order constants are equal. Finite length: the root between the
        exact least risks, outliers silenced. 0 where softmax wins at every τ², infinity where it
        never does (p = 0). The own ``variance`` is not used.
        """
        return self._isotropic().crossing_variance(
            validation.length("length", length, allow_infinity=True)
        )

    def __repr__(self) -> str:
        return (
            f"MarkedOutliers({self.regression!r}, probability={self.probability:g}, "
            f"variance={self.variance:g})"
        )


def good_tokens(length: float, probability: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Numbers of good tokens and their weights: the Binomial law itself up to 64 tokens, 64
    quantiles of it beyond.
    """
    from scipy.stats import binom

    law = binom(int(length), 1 - probability)
    if length <= 64:
        counts = np.arange(int(length) + 1)
        return counts, law.pmf(counts)
    counts, repeats = np.unique(
        law.ppf((np.arange(64) + 0.5) / 64).astype(np.int64), return_counts=True
    )
    return counts, repeats / 64
