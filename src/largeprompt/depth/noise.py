"""The noise of L tokens, propagated through residual self-attention to first order in 1/L.

δ' = Mδ + V(F + R[δ]), formulas (depth.4) to (depth.8) of docs/mathematics/depth.md: each Hermite
moment ε_γ of the tokens ξ on entry drives a polynomial displacement δ of degree |γ| - 1 through all
layers, mode by mode.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.depth.hermite import HermiteBasis
from largeprompt.depth.limit import DeepLimit
from largeprompt.errors import InvalidArgumentError
from largeprompt.law import regime
from largeprompt.measures.gaussian import square_root

LARGEST_H_SQUARED = 0.5  # from here on the query-averaged first order in 1/L is infinite
# from here on no prompt is in the linear regime
LARGEST_SCORE_VARIANCE = math.log(validation.LONGEST) / 2
LARGEST_SIZE = 2**27


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class DeepNoise:
    """L times the mean squared errors against a :class:`DeepLimit`, to first order; k = 0: entry.

    Attributes
    ----------
    limit
        The infinite prompt.
    degree
        Highest degree of displacements followed with their feedback on later layers.
    token
        L E‖z_k - (matrix z_0 + offset)‖² for a random token, shape (n + 1,).
    update
        The same for the step that layer k makes, shape (n,).
    mean
        L E‖m_L - m‖² of the empirical mean, shape (n + 1,).
    covariance
        L E‖Γ_L - Γ‖_F² of the empirical covariance, shape (n + 1,).
    without_feedback
        ``token`` if the displacement of tokens did not act on those that read them later.
    independent
        The same if, besides, the noise of each layer were independent of the others.
    tail
        Part of ``token`` in modes above the degree, whose feedback is left out.
    coefficients, covariance_response
        Displacement and empirical covariance by mode, (n + 1, polynomial, d, mode) and (n + 1, d,
        d, mode).
    """

    limit: DeepLimit
    degree: int
    token: Tensor
    update: Tensor
    mean: Tensor
    covariance: Tensor
    without_feedback: Tensor
    independent: Tensor
    tail: Tensor
    coefficients: Tensor
    covariance_response: Tensor

    @property
    def layers(self) -> int:
        """Layers n before the first with H² >= 1/2, or never in the linear regime up to 10^15."""
        return self.update.shape[0]

    def moments(self, tokens: Tensor) -> Tensor:
        """ε_γ = (1/L) Σ_l h_γ(ξ_l) of prompts (..., L, d), shape (..., mode): they drive the noise.

        For tokens from the law on entry they are uncorrelated, of mean 0 and variance 1/L.
        """
        return self._features(tokens).mean(-2)[..., 1:]

    def displacement(self, tokens: Tensor) -> Tensor:
        """First-order displacement of the tokens of prompts (..., L, d), shape (n + 1, ..., L, d).

        Modes above the degree are left out.
        """
        features = self._features(tokens)
        fields = torch.einsum("kpcg,...g->k...pc", self.coefficients, features.mean(-2)[..., 1:])
        polynomials = features[..., : self.coefficients.shape[1]]
        return torch.stack([polynomials @ field for field in fields])

    def _features(self, tokens: Tensor) -> Tensor:
        tokens = validation.tensor("tokens", tokens, like=self.limit.mean)
        validation.last_dimensions(
            "tokens", tokens, ("L", self.limit.stack.dim), ": prompts of L tokens"
        )
        law = self.limit.law(0)
        points = (tokens - law.mean) @ torch.linalg.pinv(square_root(law.covariance)).mT
        return validation.in_range(
            "tokens", HermiteBasis(law.dim, self.degree + 1).evaluate(points)
        )

    def __repr__(self) -> str:
        return f"DeepNoise(layers={self.layers} of {self.limit.stack.layers}, degree={self.degree})"


def deep_noise(limit: DeepLimit, degree: int = 4) -> DeepNoise:
    """Noise of mean, covariance and tokens after each layer, to first order in 1/L.

    Parameters
    ----------
    limit
        The infinite prompt through a stack without normalization.
    degree
        Displacements of higher degree in the token have no feedback on later layers.

    Returns
    -------
    DeepNoise
        L times the squared errors after each layer, up to the first layer with H² >= 1/2, where
        there is no such order.

    Examples
    --------
    >>> eye = torch.eye(2, dtype=torch.float64)
    >>> stack = lp.depth.ResidualStack(0.3 * eye.expand(6, 2, 2), 0.2 * eye.expand(6, 2, 2))
    >>> limit = lp.depth.deep_limit(stack, lp.Gaussian([0.0, 0.0], eye))
    >>> noise = lp.depth.deep_noise(limit)
    >>> noise
    DeepNoise(layers=6 of 6, degree=4)
    >>> # root mean squared displacement at L = 1000
    >>> [f"{math.sqrt(float(noise.token[k]) / 1000):.4f}" for k in (1, 6)]
    ['0.0104', '0.1947']
    """
    _checked(limit)
    if limit.matrix is None:
        remedy = "Run tokens through stack.states."
        raise InvalidArgumentError(
            "limit", validation.text(limit), "a stack without normalization", remedy
        )
    degree = validation.integer("degree", degree)
    beyond = torch.nonzero(
        (limit.h_squared >= LARGEST_H_SQUARED) | (limit.score_variance >= LARGEST_SCORE_VARIANCE)
    )
    layers = int(beyond[0]) if len(beyond) else limit.layers
    basis, modes = HermiteBasis(limit.stack.dim, degree), HermiteBasis(limit.stack.dim, degree + 1)
    if (layers + 1) * basis.size * basis.dim * modes.size > LARGEST_SIZE:
        allowed = "a degree whose coefficients fit in memory"
        raise InvalidArgumentError("degree", str(degree), allowed)
    states = [_Layer.of(limit, k) for k in range(layers)]
    field = limit.mean.new_zeros(basis.size, basis.dim, modes.size - 1)
    fields, plain = [field], [field]
    for state in states:
        smoothed = basis.smoothed(state.tilt_matrix, state.tilt_offset)
        source = state.source(smoothed, basis, modes)
        fields.append(state.step(fields[-1], source + state.feedback(fields[-1], smoothed, basis)))
        plain.append(state.step(plain[-1], source))
    coefficients, unfed = torch.stack(fields), torch.stack(plain)
    total, steps, independent = _without_feedback(states, limit)
    squares = unfed.square().sum((1, 2, 3))
    tail = (total - squares).clamp_min(0.0)
    step_tail = (steps - unfed.diff(dim=0).square().sum((1, 2, 3))).clamp_min(0.0)
    roots = limit.matrix[: layers + 1] @ square_root(limit.covariance[0])
    # δm = Sξ̄ + E δ, the mean of a polynomial being its first coefficient
    mean_response = coefficients[:, 0].clone()
    mean_response[:, :, : basis.dim] += roots
    covariance_response = _covariance_response(coefficients, roots, modes)
    return DeepNoise(
        limit=limit,
        degree=degree,
        token=coefficients.square().sum((1, 2, 3)) + tail,
        update=coefficients.diff(dim=0).square().sum((1, 2, 3)) + step_tail,
        mean=mean_response.square().sum((1, 2)),
        covariance=covariance_response.square().sum((1, 2, 3)),
        without_feedback=total,
        independent=independent,
        tail=tail,
        coefficients=coefficients,
        covariance_response=covariance_response,
    )


def breaking_layer(
    limit: DeepLimit, length: float, reaches: Literal["heavy", "frozen"] = "heavy"
) -> int | None:
    """First layer, from 1, that a prompt of this length reads in the 'heavy' regime; None if none.

    By the score variance of the recursion alone, (depth.9) of docs/mathematics/depth.md: between
    'heavy' and 'frozen' the closure is expected to break. One that runs away counts as frozen.

    Parameters
    ----------
    limit
        The infinite prompt through the stack.
    length
        Tokens of the prompt.
    reaches
        The regime asked for.

    Returns
    -------
    int or None

    Examples
    --------
    >>> eye = torch.eye(1, dtype=torch.float64).expand(8, 1, 1)
    >>> stack = lp.depth.ResidualStack(0.5 * eye, 0.5 * eye)
    >>> limit = lp.depth.deep_limit(stack, lp.Gaussian(dim=1))
    >>> [lp.depth.breaking_layer(limit, length) for length in (10, 1000, 10**6)]
    [3, 4, 4]
    """
    validation.choice("reaches", reaches, ("heavy", "frozen"))
    _checked(limit)
    for k, variance in enumerate(limit.score_variance.tolist()):
        if regime(variance, length) in ("frozen", reaches):
            return k + 1
    return limit.layers + 1 if limit.diverged else None


def _checked(limit: DeepLimit) -> None:
    if not isinstance(limit, DeepLimit):
        raise InvalidArgumentError(
            "limit", type(limit).__name__, "a DeepLimit", "Use deep_limit(stack, mu)."
        )


@dataclasses.dataclass(frozen=True)
class _Layer:
    """One layer: tokens m + Sξ and tilts tilt_offset + tilt_matrix ξ, ξ those on entry."""

    V: Tensor
    jacobian: Tensor
    root: Tensor  # S
    query_matrix: Tensor  # US
    query_offset: Tensor  # Um
    tilt_matrix: Tensor  # S^T U S
    tilt_offset: Tensor  # S^T U m

    @classmethod
    def of(cls, limit: DeepLimit, k: int) -> _Layer:
        assert limit.matrix is not None  # checked at the door
        U, V, mean = limit.stack.U[k], limit.stack.V[k], limit.mean[k]
        root = limit.matrix[k] @ square_root(limit.covariance[0])
        jacobian = torch.eye(len(U)).to(U) + V @ limit.covariance[k] @ U
        return cls(V, jacobian, root, U @ root, U @ mean, root.mT @ U @ root, root.mT @ U @ mean)

    def step(self, field: Tensor, noise: Tensor) -> Tensor:
        """Mδ + V·noise."""
        return torch.einsum("ij,pjg->pig", self.jacobian, field) + torch.einsum(
            "ij,pjg->pig", self.V, noise
        )

    def source(self, smoothed: Tensor, basis: HermiteBasis, modes: HermiteBasis) -> Tensor:
        """F by mode: S ∇_a a^γ/√γ!, formula (depth.5)."""
        _, down, _, lowered = modes._neighbors
        found = smoothed.new_zeros(basis.size, basis.dim, modes.size - 1)
        padded = torch.cat(
            [smoothed, smoothed.new_zeros(basis.size, modes.size + 1 - basis.size)], 1
        )
        for i in range(basis.dim):
            gradient = lowered[i, 1:].to(padded) * padded[:, down[i, 1:]]  # of a^γ/√γ! in a_i
            found += gradient.unsqueeze(1) * self.root[:, i].unsqueeze(-1)
        return found

    def feedback(self, field: Tensor, smoothed: Tensor, basis: HermiteBasis) -> Tensor:
        """R[δ] = δ̃(a) + S ∇_a(u·δ̃)(a), formula (depth.6)."""
        found = torch.einsum("pq,qcg->pcg", smoothed, field)
        # (p, i, c, g)
        gradients = torch.stack([basis.derivative(i, field) for i in range(basis.dim)], 1)
        moved = torch.einsum(
            "pq,qicg->picg", smoothed, torch.einsum("ki,picg->pkcg", self.root, gradients)
        )
        found += torch.einsum("picg,c->pig", moved, self.query_offset)
        for j in range(basis.dim):
            found += basis.times(j, torch.einsum("picg,c->pig", moved, self.query_matrix[:, j]))
        return found


def _without_feedback(states: list[_Layer], limit: DeepLimit) -> tuple[Tensor, Tensor, Tensor]:
    """L E‖δ‖² without feedback, all degrees: tokens, steps, and tokens with independent layers."""
    eye = torch.eye(limit.stack.dim).to(limit.mean)
    zero = limit.mean.new_zeros(())
    if not states:
        return zero.unsqueeze(0), limit.mean.new_zeros(0), zero.unsqueeze(0)
    B, b = (
        torch.stack([getattr(each, name) for each in states])
        for name in ("tilt_matrix", "tilt_offset")
    )
    product = torch.einsum("ika,jkc->ijac", B, B)
    precision = eye - product - product.mT
    linear = torch.einsum("ika,jk->ija", B, b) + torch.einsum("jka,ik->ija", B, b)
    spread = torch.linalg.inv(precision)
    center = torch.einsum("ijac,ijc->ija", spread, linear)
    mass = torch.exp(
        b @ b.mT + (linear * center).sum(-1) / 2 - torch.linalg.slogdet(precision).logabsdet / 2
    )
    # mean of a_i in the pair (i, j)
    tilts = b.unsqueeze(1) + torch.einsum("iac,ijc->ija", B, center)
    outer = torch.einsum("ija,jic->ijca", tilts, tilts) + torch.einsum(
        "jca,ijab,idb->ijcd", B, spread, B
    )
    pairs = mass[..., None, None] * (eye + outer)

    def size(maps: Tensor, pairs: Tensor) -> Tensor:
        return torch.einsum("iab,ijbc,jac->", maps, pairs, maps)

    alone = pairs * torch.eye(len(states)).to(pairs)[..., None, None]
    maps = pairs.new_zeros(len(states), *eye.shape)
    total, steps, independent = [zero], [], [zero]
    for k, state in enumerate(states):
        moved = state.jacobian @ maps
        moved[k] += state.V @ state.root
        total.append(size(moved, pairs))
        steps.append(size(moved - maps, pairs))
        independent.append(size(moved, alone))
        maps = moved
    return torch.stack(total), torch.stack(steps), torch.stack(independent)


def _covariance_response(coefficients: Tensor, roots: Tensor, modes: HermiteBasis) -> Tensor:
    """δΓ = S(⟨ξξ^T⟩ - I)S^T + E[δ ξ^T]S^T + (·)^T."""
    d = roots.shape[-1]
    moved = torch.einsum("kicg,kei->kceg", coefficients[:, 1 : d + 1], roots)
    response = moved + moved.transpose(1, 2)
    for mode, alpha in enumerate(modes.indices[1:].tolist()):
        if sum(alpha) == 2:
            i, j = [place for place, count in enumerate(alpha) for _ in range(count)]
            pair = roots[:, :, None, i] * roots[:, None, :, j]
            response[..., mode] += 2**0.5 * pair if i == j else pair + pair.mT
    return response
