"""Single-location regression: the answer stands in one token among L, and attention has
to find it.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import Attention
from largeprompt.studies.softmax_vs_linear.planted import planted_moments
from largeprompt.training.risk.average import SobolAverage
from largeprompt.training.risk.exact import is_softmax
from largeprompt.training.tasks.task import Task, normal


@dataclasses.dataclass(frozen=True)
class LocationOptimum:
    """Least risk of one kind of attention, and where it is: tilt u = βk*, read-out b v*."""

    risk: float
    tilt: float
    read_out: float


@dataclasses.dataclass(frozen=True)
class SingleLocationRegression(Task):
    """Tokens x_l ~ N(0, I) in R^D, but x_ε ~ N(√ν k*, I) at one hidden, uniform ε; the answer is
    v*·x_ε + noise.

    k* = e_1, v* = e_2, and the query is e_1 in every prompt, so that u = Uz is the first column of
    U: any vector. (Duranthon, Marion, Boyer, Loureiro, Zdeborová, arXiv 2509.21936; formulas
    (sel.1) to (sel.4) of docs/mathematics/selection.md.) With w the softmax of the scores u·x_l,
    Y = Σ w², W_3 = Σ w³, q = ‖u‖², δ = √ν u·k*, α = v·u, B = √ν v·k*, γ = v*·u, twice the risk of
    the read-out Σ w_l v·x_l is, by Stein's identity,

        s² + 1 - 2 v·v* E w_ε + ‖v‖² E Y + α² E[1 - Y - 6W_3 + 6Y²] + B² E w_ε²
            + 2αB E[w_ε + w_ε² - 2Y w_ε] - 4αγ E[Y w_ε - w_ε²] - 2Bγ E[w_ε - w_ε²],

    with moments of (q, δ) alone (:func:`~largeprompt.studies.softmax_vs_linear.planted.planted_moments`). At
    u = √ν k*, v = v* it is the Bayes risk.

    Parameters
    ----------
    dim
        D >= 2.
    spike
        ν >= 0, the squared signal-to-noise ratio of the location.
    noise_variance
        s² >= 0.

    Examples
    --------
    >>> from largeprompt.studies.softmax_vs_linear.single_location import SingleLocationRegression
    >>> task = SingleLocationRegression(dim=3, spike=9.0)
    >>> for found in (task.best(lp.SoftmaxAttention, 1000), task.best(lp.LinearAttention, 1000), task.mean_pooling(1000)):
    ...     print(f"{found.risk:.5f} at tilt {found.tilt:.3f}")
    0.36636 at tilt 3.000
    0.49554 at tilt 2.973
    0.49950 at tilt 0.000
    >>> print(f"{task.bayes_risk(1000):.5f} {float(task.risk(task.layer(lp.SoftmaxAttention, 3.0, 1.0), 1000)):.5f}")
    0.36636 0.36636
    """

    dim: int
    spike: float
    noise_variance: float = 0.0
    target_dim = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", validation.integer("dim", self.dim, minimum=2))
        for name in ("spike", "noise_variance"):
            object.__setattr__(self, name, validation.number(name, getattr(self, name), minimum=0))

    @property
    def token_dim(self) -> int:
        return self.dim

    @property
    def answer_noise(self) -> float:
        return self.noise_variance

    def layer(self, kind: type[Attention], tilt: float, read_out: float) -> Attention:
        """The layer with u = βk* and v = b v*, ``tilt`` β and ``read_out`` b."""
        is_softmax(kind)  # refuses anything but softmax and linear attention
        U, V = (
            torch.zeros(self.dim, self.dim, dtype=torch.float64),
            torch.zeros(1, self.dim, dtype=torch.float64),
        )
        U[0, 0], V[0, 1] = validation.number("tilt", tilt), validation.number("read_out", read_out)
        return kind(U, V)

    def draw_contexts(
        self, batch: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Contexts are the informative tokens themselves."""
        token = normal(generator, batch, self.dim)
        token[:, 0] += math.sqrt(self.spike)
        answer = token[:, 1:2] + math.sqrt(self.noise_variance) * normal(generator, batch, 1)
        return (
            token,
            torch.eye(self.dim, dtype=torch.float64, device=generator.device)[0].expand(batch, -1),
            answer,
        )

    def draw_tokens(self, contexts: Tensor, length: int, generator: torch.Generator) -> Tensor:
        tokens = normal(generator, len(contexts), length, self.dim)
        place = torch.randint(
            length, (len(contexts),), generator=generator, device=generator.device
        )
        tokens[torch.arange(len(contexts), device=generator.device), place] = contexts
        return tokens

    def draw_parts(
        self, contexts: Tensor, length: int, chunk: int, generator: torch.Generator
    ) -> Iterator[Tensor]:
        place = torch.randint(
            length, (len(contexts),), generator=generator, device=generator.device
        )
        for done in range(0, length, chunk):
            tokens = normal(generator, len(contexts), min(chunk, length - done), self.dim)
            here = ((place >= done) & (place < done + tokens.shape[1])).nonzero().squeeze(-1)
            tokens[here, place[here] - done] = contexts[here]
            yield tokens

    def layer_risks(
        self,
        U: Tensor,
        V: Tensor,
        lengths: Sequence[float],
        kind: type[Attention],
        average: SobolAverage,
    ) -> Tensor:
        """Exact: the average is not needed."""
        u, v, root = U[..., :, 0], V[..., 0, :], math.sqrt(self.spike)
        q, alpha, size = (u * u).sum(-1), (u * v).sum(-1), (v * v).sum(-1)
        # δ, B, γ, v·v*
        delta, along, gamma, match = root * u[..., 0], root * v[..., 0], u[..., 1], v[..., 1]
        if not is_softmax(kind):
            # (1/L) Σ (u·x_l)(v·x_l): Gaussian moments up to the fourth, L - 1 plain tokens and the
            # planted one
            inverse = q.new_tensor([1 / length for length in lengths])
            # of E s²r² where planted
            more = along**2 * q + delta**2 * size + 4 * delta * along * alpha + delta**2 * along**2
            # E(Σ sr)² = L(q‖v‖² + 2α²) + more + L(L-1)α² + 2(L-1)αδB
            pair = alpha * (alpha + 2 * inverse * delta * along)
            square = inverse * (q * size + 2 * alpha**2 + inverse * more) + (1 - inverse) * pair
            return (
                self.noise_variance + 1 - 2 * inverse * (along * gamma + delta * match) + square
            ) / 2
        runs = {
            length: [i for i, one in enumerate(lengths) if one == length]
            for length in sorted(set(lengths))
        }
        moments = [
            planted_moments(length, q[place], delta[place]) for length, place in runs.items()
        ]
        back = torch.argsort(torch.tensor([i for place in runs.values() for i in place]))
        w, _, w2, y, yw, h = (torch.cat(column)[back] for column in zip(*moments, strict=True))
        aligned = 1 - 2 * match * w + size * y
        crossed = (
            2 * alpha * along * (w + w2 - 2 * yw)
            - 4 * alpha * gamma * (yw - w2)
            - 2 * along * gamma * (w - w2)
        )
        return (
            self.noise_variance + aligned + alpha**2 * (1 - y - 6 * h) + along**2 * w2 + crossed
        ) / 2

    def found_weight(self, length: float, tilt: Any = None) -> Tensor:
        """E w_ε, the mean softmax weight of the informative token at u = βk*; β = √ν when left out,
        a number or a tensor.
        """
        beta = validation.tensor("tilt", math.sqrt(self.spike) if tilt is None else tilt)
        return planted_moments(length, beta**2, math.sqrt(self.spike) * beta).found

    def found_bounds(self, length: float) -> tuple[float, float]:
        """Proved bounds of E w_ε at β = √ν: formula (sel.4) of docs/mathematics/selection.md, and
        what its proof adds above.
        """
        length = validation.length("length", length)
        log_x, others = self.spike, length - 1
        if others == 0:
            return 1.0, 1.0
        inverse = math.exp(-log_x)
        lower = 1 / (math.exp(min(log_x, 700.0)) + others * inverse)
        upper = (2 - inverse) / (2 + (length - 2) * inverse)
        remaining = (
            length * inverse + math.expm1(length * math.log1p(-inverse))
            if inverse < 1
            else length - 1
        )
        if remaining > 0:
            upper = min(upper, 1 / remaining)
        return max(lower, self.annealed_weight(length)), upper

    def annealed_weight(self, length: float) -> float:
        """E sigmoid(ν/2 + √νξ - ln(L - 1)), the plain tokens' sum replaced by its mean: a lower
        bound of E w_ε at β = √ν.

        Long prompts: E w_ε -> Φ((ν/2 - ln L)/√ν): a transition of order one around ν = 2 ln L, of
        width √(2 ln L).
        """
        length = validation.length("length", length)
        if length == 1:
            return 1.0
        sigma = math.sqrt(self.spike)
        step = min(0.5, 0.3 / max(sigma, 1e-9))
        xi = step * torch.arange(
            -math.ceil(9 / step), math.ceil((9 + sigma) / step) + 1, dtype=torch.float64
        )
        density = torch.exp(-(xi**2) / 2) * (step / math.sqrt(2 * math.pi))
        return float(
            (torch.sigmoid(self.spike / 2 + sigma * xi - math.log(length - 1)) * density).sum()
        )

    def bayes_risk(self, length: float) -> float:
        """Least risk of any predictor that knows k*, v* and ν: formula (sel.2)."""
        length = validation.length("length", length, allow_infinity=True)
        missed = planted_moments(length, self.spike, self.spike).missed
        return (self.noise_variance + float(missed)) / 2

    def best(self, kind: type[Attention], length: float) -> LocationOptimum:
        """Least risk over u and v. Softmax: Bayes, at u = √ν k*, v = v*. Linear: formula (sel.3),
        at βb = √ν L/(ν + L).

        Linear attention: by the reflections of k* and v* nothing but the entry (k*, v*) of the
        symmetric part of uv^T is of use, so u = βk*, v = b v* is no restriction; b = 1 is chosen.
        """
        length = validation.length("length", length, allow_infinity=True)
        root, nu = math.sqrt(self.spike), self.spike
        if is_softmax(kind):
            return LocationOptimum(self.bayes_risk(length), root, 1.0)
        tilt = root if math.isinf(length) else root * length / (nu + length)
        return LocationOptimum((self.noise_variance + 1 - nu / (nu + length)) / 2, tilt, 1.0)

    def mean_pooling(self, length: float) -> LocationOptimum:
        """Risk of the plain mean of the tokens, u = 0 and v = v*: ½(s² + 1 - 1/L)."""
        length = validation.length("length", length, allow_infinity=True)
        return LocationOptimum((self.noise_variance + 1 - 1 / length) / 2, 0.0, 1.0)

    def search(self, length: float) -> LocationOptimum:
        """Least risk of softmax over β and b by search, b = E w_ε/E Y at each β: is :meth:`best`
        where theory has it?
        """
        from scipy.optimize import minimize_scalar

        length, root = validation.length("length", length), math.sqrt(self.spike)

        def negative_gain(beta: float) -> float:
            found = planted_moments(length, beta**2, root * beta)
            return -float(found.found**2 / found.collision)

        found = minimize_scalar(
            negative_gain, bounds=(0.0, 2 * root + 1), method="bounded", options={"xatol": 1e-9}
        )
        moments = planted_moments(length, found.x**2, root * found.x)
        read_out = float(moments.found / moments.collision)
        return LocationOptimum(
            (self.noise_variance + 1 + float(found.fun)) / 2, float(found.x), read_out
        )

    def __repr__(self) -> str:
        return (
            f"SingleLocationRegression(dim={self.dim}, spike={self.spike:g}, "
            f"noise_variance={self.noise_variance:g})"
        )
