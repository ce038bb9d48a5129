"""An infinite Gaussian prompt through residual self-attention: its mean and covariance."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.depth.normalized import normalized_moments
from largeprompt.depth.stack import ResidualStack, rms_norm
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures import Gaussian
from largeprompt.measures.gaussian import square_root

LARGEST_SCORE_VARIANCE = 1e6  # where the recursion stops: no prompt has e^(2·10⁶) tokens


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class DeepLimit:
    """An infinite prompt through a stack; k = 0 is the entry, n the last layer reached.

    Attributes
    ----------
    stack
        The layers.
    mean, covariance
        m_k and Γ_k of the tokens, shapes (n + 1, d) and (n + 1, d, d).
    read_mean, read_covariance
        Moments of the (normalized) tokens that layer k reads, shapes (n, d) and (n, d, d).
    matrix, offset
        The token map z -> matrix z + offset, shapes (n + 1, d, d) and (n + 1, d); None with a
        normalization (use :meth:`tokens`).
    score_variance
        σ_k², the variance u^TΓu of the scores averaged over queries, shape (n,).
    h_squared
        H_k² = ‖Γ^{1/2} U Γ^{1/2}‖², shape (n,): squared errors fall like 1/L while H² < 1/2.
    exact
        Whether the recursion is the infinite prompt itself (no normalization), not a closure.
    """

    stack: ResidualStack
    mean: Tensor
    covariance: Tensor
    read_mean: Tensor
    read_covariance: Tensor
    matrix: Tensor | None
    offset: Tensor | None
    score_variance: Tensor
    h_squared: Tensor
    exact: bool

    @property
    def layers(self) -> int:
        """Layers reached; fewer than in the stack where the recursion runs off to infinity."""
        return self.score_variance.shape[0]

    @property
    def diverged(self) -> bool:
        """Whether the score variance passed 10⁶, so that later layers are left out."""
        return self.layers < self.stack.layers

    def law(self, layer: int) -> Gaussian:
        """N(m_k, Γ_k), the law of the tokens after ``layer`` layers, or its Gaussian closure."""
        return Gaussian(self.mean[layer], self.covariance[layer])

    def tokens(self, z: Tensor) -> Tensor:
        """Where tokens z (..., d) are on entry and after each layer, shape (n + 1, ..., d)."""
        z = validation.tensor("z", z, like=self.mean)
        validation.last_dimensions("z", z, (self.stack.dim,), ": one token for each row")
        kind = self.stack.normalization
        states = [rms_norm(z) if kind == "sphere" else z]
        for k in range(self.layers):
            read = rms_norm(states[-1]) if kind == "pre" else states[-1]
            gain = self.stack.V[k] @ self.read_covariance[k] @ self.stack.U[k]
            moved = states[-1] + read @ gain.mT + self.stack.V[k] @ self.read_mean[k]
            states.append(rms_norm(moved) if kind == "sphere" else moved)
        return torch.stack(states)

    def __repr__(self) -> str:
        kind = "exact" if self.exact else "Gaussian closure"
        first, last = (float(self.score_variance[k]) for k in (0, -1))
        end = f"score variance {first:.3g} to {last:.3g}"
        return f"DeepLimit({kind}, layers={self.layers} of {self.stack.layers}, {end})"


def deep_limit(stack: ResidualStack, mu: Gaussian) -> DeepLimit:
    """Follow an infinite prompt of Gaussian tokens through the layers of a residual stack.

    Without normalization Gaussian tokens stay Gaussian, exactly: z -> Mz + Vm, M = I + VΓU, formula
    (depth.1) of docs/mathematics/depth.md. With n(z) = √d z/‖z‖ this is a closure: attention reads
    the exact mean and covariance of n(z) as if n(z) were Gaussian, z -> z + V(m̂ + Γ̂U n(z)).
    'pre': the next law is the Gaussian with the moments of this image. 'sphere': tokens are n(g),
    g ~ N(μ, Σ) scaled to E‖g‖² = d, and the next g is Mg + Vm̂.

    Parameters
    ----------
    stack
        The layers.
    mu
        Law of the tokens on entry, one Gaussian.

    Examples
    --------
    >>> eye = torch.eye(1, dtype=torch.float64).expand(4, 1, 1)
    >>> stack = lp.depth.ResidualStack(0.5 * eye, 0.25 * eye)
    >>> limit = lp.depth.deep_limit(stack, lp.Gaussian(dim=1))
    >>> limit
    DeepLimit(exact, layers=4 of 4, score variance 0.25 to 1.56)
    >>> limit.covariance[:, 0, 0]
    tensor([1.0000, 1.2656, 1.6978, 2.4948, 4.2934], dtype=torch.float64)
    >>> limit.tokens([1.0])[:, 0] ** 2  # each token moves by the same factor
    tensor([1.0000, 1.2656, 1.6978, 2.4948, 4.2934], dtype=torch.float64)
    """
    if not isinstance(stack, ResidualStack):
        raise InvalidArgumentError("stack", type(stack).__name__, "a ResidualStack")
    if not isinstance(mu, Gaussian) or mu.batch_shape:
        given = repr(mu) if isinstance(mu, Gaussian) else type(mu).__name__
        raise InvalidArgumentError(
            "mu", given, "one Gaussian", "Other laws do not close; run tokens through stack.states."
        )
    stack.layer(0)._values(mu, mu.mean)  # dimension, dtype and device
    second, U = mu.covariance + torch.outer(mu.mean, mu.mean), stack.U[0]
    validation.in_range("mu", (U.mT @ mu.covariance @ U) * second)
    if stack.normalization != "none" and float(second.trace()) == 0:
        raise InvalidArgumentError("mu", "the point mass at 0", "tokens that can be normalized")
    return _affine(stack, mu) if stack.normalization == "none" else _closed(stack, mu)


def _scores(U: Tensor, mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Query-averaged score variance tr U^TΓU(Γ + mm^T), and H²: formula (depth.2)."""
    root = square_root(covariance)
    average = (U.mT @ covariance @ U * (covariance + torch.outer(mean, mean))).sum()
    return average, torch.linalg.matrix_norm(root.mT @ U @ root, 2).square()


def _stacked(pairs: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    first, second = (torch.stack(each) for each in zip(*pairs, strict=True))
    return first, second


def _affine(stack: ResidualStack, mu: Gaussian) -> DeepLimit:
    eye = torch.eye(stack.dim).to(mu.mean)
    maps = [(eye, torch.zeros_like(mu.mean))]
    states = [(mu.mean, mu.covariance)]
    scores: list[tuple[Tensor, Tensor]] = []
    for U, V in zip(stack.U, stack.V, strict=True):
        mean, covariance = states[-1]
        found = _scores(U, mean, covariance)
        if not float(found[0]) <= LARGEST_SCORE_VARIANCE and scores:
            break
        scores.append(found)
        step, shift = eye + V @ covariance @ U, V @ mean
        matrix, offset = maps[-1]
        maps.append((step @ matrix, step @ offset + shift))
        image = step @ covariance @ step.mT
        states.append((step @ mean + shift, (image + image.mT) / 2))
    means, covariances = _stacked(states)
    read, found = (means[:-1], covariances[:-1]), _stacked(scores)
    return DeepLimit(stack, means, covariances, *read, *_stacked(maps), *found, exact=True)


def _closed(stack: ResidualStack, mu: Gaussian) -> DeepLimit:
    eye, sphere = torch.eye(stack.dim).to(mu.mean), stack.normalization == "sphere"
    law, states, reads, scores = mu, [], [], []
    for U, V in zip(stack.U, stack.V, strict=True):
        if sphere:
            law = _rescaled(law)
        seen = normalized_moments(law)
        states.append((seen.mean, seen.covariance) if sphere else (law.mean, law.covariance))
        reads.append((seen.mean, seen.covariance))
        scores.append(_scores(U, seen.mean, seen.covariance))
        gain = V @ seen.covariance @ U
        if sphere:
            mean = law.mean + gain @ law.mean + V @ seen.mean
            covariance = (eye + gain) @ law.covariance @ (eye + gain).mT
        else:
            mean = law.mean + V @ seen.mean + gain @ seen.mean
            mixed = seen.cross @ gain.mT
            covariance = law.covariance + mixed + mixed.mT + gain @ seen.covariance @ gain.mT
        law = Gaussian(mean, (covariance + covariance.mT) / 2)
    last = normalized_moments(_rescaled(law)) if sphere else law
    states.append((last.mean, last.covariance))
    return DeepLimit(
        stack, *_stacked(states), *_stacked(reads), None, None, *_stacked(scores), exact=False
    )


def _rescaled(law: Gaussian) -> Gaussian:
    """The same law at E‖g‖² = d."""
    size = (law.covariance.diagonal().sum() + law.mean @ law.mean) / law.dim
    return Gaussian(law.mean / size.sqrt(), law.covariance / size)
