"""The risk of any softmax layer, exactly: f and h as sums of exponentials of q, whose averages are
Gaussian integrals.

With ω = Σ^{1/2}w and x_q = Rξ, both Gaussian, and ρ = ϱ·ξ every term of the risk is made of

    q = ‖Yξ + ρω‖² + s²ρ²,   a = (ν + βω)·(Yξ + ρω) + s²βρ,   t = ω^TTξ,   V2 = ‖ν + βω‖² + s²β².

Given the one number ρ all of them are quadratic in (ξ, ω): means of e^{-sq} times a², at and V2
have closed forms, and one integral over ρ is left. Formulas (query.9-13) of
docs/mathematics/queries.md.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from largeprompt.training.risk.exponentials import exponential_sums
from largeprompt.training.risk.scores import check_scores

FAR = 9.0  # standard deviations of ρ
STEP = 0.16  # of the nodes, in the variable in which they are equidistant, up to SHARPER and LARGE
SHARPER = 1e5  # tokens from which f turns more sharply
# E q from which the limit and what a finite length adds, much larger than the risk, cancel
LARGE = 64.0
# of |ϱ| at STEP: below it errors of the gradient, divided by |ϱ|, are too large
NEAR_BLOCK = 1e-3
# at once, with what autograd keeps and without: what stays in the cache
GRAPH_NUMBERS, CACHED_NUMBERS = 2**22, 2**16
Excess = tuple[Tensor, float]


@dataclasses.dataclass(frozen=True, eq=False)
class GeneralLayers:
    """Several layers in the coordinates of (ξ, ω), where ω has independent entries.

    Attributes
    ----------
    Y, rho, nu, beta
        Shapes (run, d, d), (run, d), (run, d), (run,).
    variances, T
        Of ω, shape (d,); shape (d, d).
    noise
        s².
    """

    Y: Tensor
    rho: Tensor
    nu: Tensor
    beta: Tensor
    variances: Tensor
    T: Tensor
    noise: float

    def __getitem__(self, runs: Any) -> GeneralLayers:
        return dataclasses.replace(
            self, **{name: getattr(self, name)[runs] for name in ("Y", "rho", "nu", "beta")}
        )

    @property
    def score_variance(self) -> Tensor:
        """E q, shape (run,)."""
        size, crossed = self.rho.square().sum(-1), self.variances.sum()
        return self.Y.square().sum((-2, -1)) + size * (crossed + self.noise)


def general_excess(
    layers: GeneralLayers, lengths: Sequence[float], *, step: float = STEP, accuracy: float = 1e-11
) -> Excess:
    """Twice what a finite length adds to the infinite prompt's risk, shape (run,), twice
    differentiable, and the error of the sums.

    Parameters
    ----------
    layers, lengths
        Each layer at its length.
    step
        Of the nodes in ρ, up to 10^5 tokens and E q = 64; beyond it shrinks like (log L)^{-2/3} and
        (E q)^{-1/10}.
    accuracy
        Error of f and h that will do: fewer exponentials are taken then.
    """
    finite = [i for i, length in enumerate(lengths) if math.isfinite(length)]
    whole = layers.beta.new_zeros(len(lengths))
    if not finite:
        return whole, 0.0
    chosen = layers[finite]
    largest = float(chosen.score_variance.detach().max())
    check_scores(largest)
    sums = exponential_sums([lengths[i] for i in finite], largest, accuracy)
    weights = [torch.stack([each.weights[k] for each in sums]) for k in (0, 1)]  # (run, 2, j)
    # where both rules have gradients of the same error
    close = NEAR_BLOCK * 10 ** ((step - STEP) / 0.14)
    step *= min(1.0, LARGE / max(largest, 1e-300)) ** 0.1
    step *= min(
        1.0, (math.log(SHARPER) / math.log(max(2.0, *(lengths[i] for i in finite)))) ** (2 / 3)
    )
    near = (
        chosen.rho.detach().norm(dim=-1) * chosen.variances.max().sqrt() < close
    ) & torch.is_grad_enabled()
    for rows, rule in (
        (torch.nonzero(near)[:, 0], _near),
        (torch.nonzero(~near)[:, 0], partial(_average, step=step)),
    ):
        for s, c in zip(sums[0].exponents, weights, strict=True):
            if len(rows) and len(s):
                whole = whole.index_add(
                    0, torch.tensor(finite)[rows], rule(chosen[rows], s, c[rows])
                )
    return whole, max(each.error for each in sums)


def _average(layers: GeneralLayers, s: Tensor, weights: Tensor, *, step: float) -> Tensor:
    """Real part of Σ_j c_j E e^{-s_jq}(...), by the trapezoid rule in sinh^{-1}ρ: small ρ matter
    where s is large.
    """
    size = layers.rho.norm(dim=-1, keepdim=True)
    first = torch.eye(layers.rho.shape[-1], dtype=size.dtype)[0]
    along = torch.where(size > 0, layers.rho / size.clamp_min(1e-300), first)
    read, target = (layers.Y @ along.unsqueeze(-1)).squeeze(-1), along @ layers.T.mT
    with torch.no_grad():
        scale = read.square().sum(-1) + size.squeeze(-1).square() * (
            layers.variances.max() + layers.noise
        )
        # a power of two: nodes move in jumps
        narrow = torch.exp2(torch.floor(0.5 - torch.log2(1 + 20 * scale) / 2)).unsqueeze(-1)
        count = math.ceil(float(torch.asinh(FAR / narrow).max()) / step)
        width = torch.asinh(FAR / narrow) / count
        place = (torch.arange(count, dtype=size.dtype) + 0.5) * width
        # (run, node), of N(0, 1), one half: the other half is the same
        g = narrow * torch.sinh(place)
        mass = (
            2
            * width
            * narrow
            * torch.cosh(place)
            * torch.exp(-g.square() / 2)
            / math.sqrt(2 * math.pi)
        )
    rows = max(
        1,
        (GRAPH_NUMBERS if torch.is_grad_enabled() else CACHED_NUMBERS)
        // (layers.Y.numel() * len(s)),
    )
    total = layers.beta.new_zeros(len(layers.beta))
    for begin in range(0, count, rows):
        now = slice(begin, begin + rows)
        arguments = (layers, s, weights, size, read, target, g[:, now], mass[:, now])
        total = total + (
            _given(*arguments)
            if rows >= count or not torch.is_grad_enabled()
            else checkpoint(_given, *arguments, use_reentrant=False)
        )
    return total


def _given(
    layers: GeneralLayers,
    s: Tensor,
    weights: Tensor,
    size: Tensor,
    read: Tensor,
    target: Tensor,
    g: Tensor,
    mass: Tensor,
) -> Tensor:
    """The same at given ρ = |ϱ|g, (run, node): ω is averaged first, then Yξ entry by entry, as a
    Kalman filter takes them in.
    """
    o, noise, spread = layers.variances.reshape(-1, 1, 1, 1), layers.noise, (..., None, None)
    p = (size * g).unsqueeze(-1)  # ρ, (run, node, 1)
    # (d, run, node, j); given ξ, ω has mean -τη and variance oD, η = Yξ
    D = 1 / (1 + 2 * o * (s * p.square()))
    tau, variance = 2 * o * (s * p) * D, o * D
    # means of Yξ, Tξ, (d, run, node, 1)
    eta, theta = ((part.mT.unsqueeze(-1) * g).unsqueeze(-1) for part in (read, target))
    H = (layers.Y @ layers.Y.mT - read.unsqueeze(-1) * read.unsqueeze(-2)).permute(1, 2, 0)[
        spread
    ]  # covariance of Yξ, (d, d, run, ...)
    # of Yξ and Tξ
    X = (layers.Y @ layers.T.mT - read.unsqueeze(-1) * target.unsqueeze(-2)).permute(1, 2, 0)[
        spread
    ]
    exponent, weight = -noise * s * p.square(), mass.unsqueeze(-1) * D.sqrt().prod(0)
    for k in range(len(layers.variances)):
        # Re >= 1 for Re s >= 0: principal roots are the continuous ones
        below = 1 + 2 * s * D[k] * H[k, k]
        gain = 2 * s * D[k] / below
        exponent, weight = exponent - gain * eta[k].square() / 2, weight * below.rsqrt()
        moved, row, seen = gain * H[:, k], X[k], eta[k]
        theta, eta = theta - gain * seen * row, eta - moved * seen
        H, X = H - moved.unsqueeze(1) * H[:, k], X - moved.unsqueeze(1) * row
    weight = torch.exp(exponent) * weight
    beta, nu = layers.beta[spread], layers.nu.mT[spread]
    bent = -beta * tau * D
    linear, tilt = nu * D + 2 * bent * eta, beta * (D - p * tau)
    mixed = p * nu + tilt * eta
    own, cross = H.diagonal().movedim(-1, 0), X.diagonal().movedim(-1, 0)
    a = (nu * D * eta + bent * (eta.square() + own)).sum(0) + beta * p * (variance.sum(0) + noise)
    bowed = bent.unsqueeze(1) * H
    along_h, along_x = (linear.unsqueeze(1) * H).sum(0), (linear.unsqueeze(1) * X).sum(0)
    spread_a = (2 * bent * (bowed * H).sum(0) + along_h * linear).sum(0)
    spread_a = spread_a + (
        variance * (mixed.square() + tilt.square() * own) + 2 * (beta * p * variance).square()
    ).sum(0)
    both = 2 * (bowed * X).sum(0) + along_h * theta + along_x * eta
    together = (variance * (mixed * theta + tilt * cross) - tau * both).sum(0)
    t = -(tau * (eta * theta + cross)).sum(0)
    square = a.square() + spread_a
    V2 = ((nu - beta * tau * eta).square() + beta.square() * (variance + tau.square() * own)).sum(
        0
    ) + noise * beta.square()
    f, h = weight * (V2 - square + 2 * (a * t + together)), -6 * weight * square
    c = weights.unsqueeze(2)  # (run, 2, 1, j)
    return _real_sum(c[:, 0], f) + _real_sum(c[:, 1], h)


def quartic_points(dim: int) -> tuple[Tensor, Tensor]:
    """2d² + 1 points, exact up to degree five: 0, ±√(d+2) e_i and √((d+2)/2)(±e_i ± e_j).

    Weights 2/(d+2), (4-d)/(2(d+2)²) and 1/(d+2)²; some are negative for d > 4, so that the rule is
    for polynomials alone.
    """
    eye = torch.eye(dim, dtype=torch.float64)
    axes = (dim + 2) ** 0.5 * eye
    i, j = torch.triu_indices(dim, dim, 1)
    pairs = [(a * eye[i] + b * eye[j]) * ((dim + 2) / 2) ** 0.5 for a in (1, -1) for b in (1, -1)]
    points = torch.cat([torch.zeros(1, dim, dtype=torch.float64), axes, -axes, *pairs])
    weights = torch.full((len(points),), 1 / (dim + 2) ** 2, dtype=torch.float64)
    weights[0], weights[1 : 2 * dim + 1] = 2 / (dim + 2), (4 - dim) / (2 * (dim + 2) ** 2)
    return points, weights


def _near(layers: GeneralLayers, s: Tensor, weights: Tensor) -> Tensor:
    """The sum near the blocks, smooth in ϱ: ω at points exact up to degree five, as what is of
    degree n in ϱ is of n + 2 in ω. Without it a flow of all entries that starts in blocks has no
    Hessian.

    q = ξ^T(Y^TY + ϱζ^T + ζϱ^T)ξ with ζ = Y^Tω + (‖ω‖² + s²)ϱ/2: two directions more than at ϱ = 0,
    whatever ω is.
    """
    points, mass = quartic_points(len(layers.variances))
    # (point, d)
    omega, noise, spread, d = (
        points * layers.variances.sqrt(),
        layers.noise,
        (..., None),
        len(layers.variances),
    )
    beta, size = layers.beta.unsqueeze(-1), (omega.square().sum(-1) + noise)[:, None, None]
    # K = BMB^T for the rows of B = (Y, Y^Tν, ϱ, T) that are asked for, M = (I + 2sY^TY)^{-1}: the
    # rows of Y are taken in one by one
    # (run, d + 2, d)
    rows = torch.cat([layers.Y, (layers.nu.unsqueeze(-2) @ layers.Y), layers.rho.unsqueeze(-2)], -2)
    # (d + 2, 2d + 2, run, 1)
    K = (rows @ torch.cat([rows, layers.T.expand_as(layers.Y)], -2).mT).permute(1, 2, 0)[spread]
    weight = torch.ones_like(s)
    for k in range(d):
        below = 1 + 2 * s * K[k, k]
        weight, K = weight * below.rsqrt(), K - (2 * s / below) * K[:, k].unsqueeze(1) * K[k]
    # (point, d²)
    pairs = (omega.unsqueeze(-1) * omega.unsqueeze(-2)).reshape(len(omega), -1).to(K.dtype)
    yy, yt = (
        (pairs @ part.reshape(d * d, -1)).reshape(-1, *K.shape[2:])
        for part in (K[:d, :d], K[:d, d + 2 :])
    )
    yn, yr, nt, rt = (
        (omega.to(K.dtype) @ part.reshape(d, -1)).reshape(-1, *K.shape[2:])
        for part in (*K[:d, d : d + 2].unbind(1), *K[d:, d + 2 :])
    )  # (point, run, j)
    (nn, nr), rr = K[d, d : d + 2], K[d + 1, d + 1]
    inner = (omega @ layers.nu.mT)[spread] + beta * size  # of ω and ν + βω, and s²β
    # a = Y^T(ν + βω) + inner ϱ, t = T^Tω, z = ζ
    ya, zeta = yn + beta * yy + inner * yr, size / 2
    ra, rz = nr + beta * yr + inner * rr, yr + zeta * rr
    za, zt, zz = ya + zeta * ra, yt + zeta * rt, yy + zeta * (yr + rz)
    aa, at = nn + beta * yn + inner * nr + beta * ya + inner * ra, nt + beta * yt + inner * rt
    V2 = (
        layers.nu.square().sum(-1)[spread]
        + 2 * beta * (omega @ layers.nu.mT)[spread]
        + beta.square() * size
    )
    first, mixed, last = 2 * s * rr, 1 + 2 * s * rz, 2 * s * zz
    below = mixed.square() - first * last  # Re > 0: principal roots are the continuous ones
    square = aa + 2 * s / below * (last * ra.square() - 2 * mixed * ra * za + first * za.square())
    agreement = at + 2 * s / below * (
        last * ra * rt - mixed * (ra * zt + za * rt) + first * za * zt
    )
    weight = weight * below.rsqrt() * mass[:, None, None]
    f, h = weight * (V2 - square + 2 * agreement), -6 * weight * square
    c = weights.unsqueeze(2)
    return _real_sum(c[:, 0], f.transpose(0, 1)) + _real_sum(c[:, 1], h.transpose(0, 1))


def _real_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Re Σ over nodes and exponents of weights (run, 1, j) times values (run, node, j)."""
    total = values.sum(1)
    return (
        (weights[:, 0] * total).real if values.is_complex() else weights[:, 0].real * total
    ).sum(-1)
