"""Value, gradient and Hessian of the exact risk in (U, V) by formula: what a flow evaluates
thousands of times.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from largeprompt.attention import Attention
from largeprompt.training.risk.exact import (
    Contexts,
    LayerDerivatives,
    covered_tables,
    is_softmax,
    move,
)

CHUNK_NUMBERS = 2**23  # of the largest intermediate of a Hessian
Orders = tuple[Tensor, ...]  # a function of q and its derivatives, each (run, n)


def coefficients(
    q: Tensor, lengths: Sequence[float], kind: type[Attention], *, order: int
) -> tuple[Orders, Orders, Orders]:
    """α, β, γ of α‖a‖² + β a·t + γ V2, twice the conditional risk less that of reading nothing,
    with derivatives in q.

    Softmax: α = 1 - f - 6h, β = -2 + 2f, γ = f. Linear attention: α = 1 + 1/L, β = -2, γ = q/L.
    """
    zero = torch.zeros_like(q)
    if not is_softmax(kind):
        inverse = q.new_tensor([1 / length for length in lengths]).unsqueeze(-1).expand_as(q)
        alpha: Orders = (inverse, zero, zero)
        beta: Orders = (zero, zero, zero)
        gamma: Orders = (inverse * q, inverse, zero)
    else:
        finite = [i for i, length in enumerate(lengths) if math.isfinite(length)]
        f: Orders = (zero,) * (order + 1)
        h = f
        if finite:
            part = q if len(finite) == len(lengths) else q[finite]
            f, h = covered_tables([lengths[i] for i in finite], part).derivatives(part, order)
            if part is not q:
                rows = torch.tensor(finite)
                f, h = (tuple(zero.index_copy(0, rows, one) for one in value) for value in (f, h))
        alpha, beta, gamma = (
            tuple(-a - 6 * b for a, b in zip(f, h, strict=True)),
            tuple(2 * a for a in f),
            f,
        )
    return (1 + alpha[0], *alpha[1:]), (beta[0] - 2, *beta[1:]), gamma


def layer_derivatives(
    U: Tensor,
    V: Tensor,
    hessian: bool,
    *,
    contexts: Contexts,
    lengths: Sequence[float],
    kind: type[Attention],
) -> LayerDerivatives:
    """Average of ½(α‖a‖² + β a·t + γ V2 + ‖t‖² + noise) over contexts, u = Uz, a = VΓu, V2 = tr
    VΓV^T, and its derivatives.

    The gradient is formula (risk.4) of docs/mathematics/regression.md; with its g, P, m and κ, p =
    P^T(2α'a + β't) and κ' as κ with second derivatives, the second derivatives in u and V are 2κΓ +
    4κ' gg^T + 2(gp^T + pg^T) + 2α P^TP (u, u), (2(2α'a + β't) g^T + 2αP)_kc g_e + m_k Γ_ce + 4γ'
    g_c P_ke (V_ke, u_c), 2α g_e g_f + 2γ Γ_ef (V_ke, V_kf).
    """
    runs, dim, out = U.shape[0], U.shape[-1], V.shape[-2]
    gamma, z, t, weight = contexts.covariance, contexts.query, contexts.target, contexts.weight / 2
    # (run, n, D), one product for all runs
    u = (z @ U.reshape(-1, dim).mT).reshape(len(z), runs, dim).transpose(0, 1)
    g = move(gamma, u)
    a = g @ V.mT  # (run, n, o)
    q = (u * g).sum(-1).clamp_min(0.0)
    size, agreement = a.square().sum(-1), (a * t).sum(-1)
    spread = (gamma.reshape(len(gamma), -1) @ (V.mT @ V).reshape(runs, -1).mT).mT.expand_as(q)
    (alpha, alpha1, *alpha2), (beta, beta1, *beta2), (gain, gain1, *gain2) = coefficients(
        q, lengths, kind, order=2 if hessian else 1
    )
    value = (
        alpha * size + beta * agreement + gain * spread + t.square().sum(-1) + contexts.noise
    ) @ weight
    m = (2 * alpha).unsqueeze(-1) * a + beta.unsqueeze(-1) * t
    kappa = alpha1 * size + beta1 * agreement + gain1 * spread
    in_u = move(gamma, (2 * kappa).unsqueeze(-1) * u + m @ V)
    weighted = weight.unsqueeze(-1)
    grad_u = (in_u * weighted).mT @ z
    mean_gamma = _mean_covariance(gain * weight, gamma)  # Σ_i w_i γ_i Γ_i, (run, D, D)
    grad_v = (m * weighted).mT @ g + 2 * V @ mean_gamma
    if not hessian:
        return LayerDerivatives(value, grad_u, grad_v, None)
    kappa1 = alpha2[0] * size + beta2[0] * agreement + gain2[0] * spread
    bent = (2 * alpha1).unsqueeze(-1) * a + beta1.unsqueeze(-1) * t  # 2α'a + β't
    columns = dim * dim
    second = U.new_zeros(runs, columns + out * dim, columns + out * dim)
    pairs = (z.unsqueeze(-1) * z.unsqueeze(-2)).reshape(len(z), -1)  # z_b z_d
    step = max(1, CHUNK_NUMBERS // (runs * dim * dim * max(dim, out)))
    for begin in range(0, len(z), step):
        now = slice(begin, begin + step)
        near = gamma if len(gamma) == 1 else gamma[now]
        P = V.unsqueeze(1) @ near  # (run, n or 1, o, D)
        gn, wn, zn = g[:, now], weight[now], z[now]
        p = (bent[:, now].unsqueeze(-2) @ P).squeeze(-2)
        cross = gn.unsqueeze(-1) * p.unsqueeze(-2)
        local = (
            _scaled(2 * kappa[:, now] * wn, near)
            + _scaled(4 * kappa1[:, now] * wn, gn.unsqueeze(-1) * gn.unsqueeze(-2))
            + _scaled(2 * wn.expand_as(q[:, now]), cross + cross.mT)
            + _scaled(2 * alpha[:, now] * wn, P.mT @ P)
        )  # (run, n, D, D), in u
        both = local.reshape(runs, -1, columns).mT @ pairs[now]  # (run, ac, bd)
        second[:, :columns, :columns] += (
            both.reshape(runs, dim, dim, dim, dim)
            .permute(0, 1, 3, 2, 4)
            .reshape(runs, columns, columns)
        )
        outer = (
            2 * bent[:, now].unsqueeze(-1) * gn.unsqueeze(-2)
            + (2 * alpha[:, now]).unsqueeze(-1).unsqueeze(-1) * P
        )  # (run, n, k, c)
        turned = zn * wn.unsqueeze(-1)  # w z_b
        mixed = torch.einsum("rnkc,rne,nb->rcbke", outer, gn, turned)
        mixed += torch.einsum(
            "rnk,nce,nb->rcbke", m[:, now], near.expand(len(zn), dim, dim), turned
        )
        mixed += torch.einsum(
            "rnc,rnke,nb->rcbke",
            (4 * gain1[:, now]).unsqueeze(-1) * gn,
            P.expand(runs, len(zn), out, dim),
            turned,
        )
        second[:, :columns, columns:] += mixed.reshape(runs, columns, out * dim)
    second[:, columns:, :columns] = second[:, :columns, columns:].mT
    last = 2 * ((alpha * weight).unsqueeze(-1) * g).mT @ g + 2 * mean_gamma
    second[:, columns:, columns:] = torch.einsum(
        "kl,ref->rkelf", torch.eye(out, dtype=U.dtype), last
    ).reshape(runs, out * dim, out * dim)
    return LayerDerivatives(value, grad_u, grad_v, second)


def closed_derivatives(
    risk: Callable[[Tensor, Tensor], Tensor],
    U: Tensor,
    V: Tensor,
    hessian: bool,
    *,
    cheap: bool = False,
) -> LayerDerivatives:
    """The same of a risk that is differentiable in U (run, D, D) and V (run, o, D), by autograd;
    rows at once if cheap.
    """
    runs, sizes = U.shape[0], [U[0].numel(), V[0].numel()]
    with torch.enable_grad():
        flat = torch.cat([U.reshape(runs, -1), V.reshape(runs, -1)], -1).detach().requires_grad_()
        in_u, in_v = flat.split(sizes, -1)
        value = risk(in_u.reshape(U.shape), in_v.reshape(V.shape))
        (gradient,) = torch.autograd.grad(value.sum(), flat, create_graph=hessian)
        second = (rows_at_once if cheap else rows)(gradient, flat).detach() if hessian else None
    in_u, in_v = gradient.detach().split(sizes, -1)
    return LayerDerivatives(value.detach(), in_u.reshape(U.shape), in_v.reshape(V.shape), second)


def rows(values: Tensor, point: Tensor) -> Tensor:
    """Jacobians of values (run, m) in point (run, p), shape (run, m, p): runs do not interact. Row
    by row, in little memory.
    """
    each = [torch.autograd.grad(value.sum(), point, retain_graph=True)[0] for value in values.mT]
    return torch.stack(each, 1)


def rows_at_once(values: Tensor, point: Tensor) -> Tensor:
    """The same of a map that costs little: all rows in one pass, tens of times as fast."""
    eye = torch.eye(values.shape[-1], dtype=values.dtype).unsqueeze(1).expand(-1, len(values), -1)
    (found,) = torch.autograd.grad(values, point, eye, retain_graph=True, is_grads_batched=True)
    return found.transpose(0, 1)


def _scaled(scale: Tensor, matrices: Tensor) -> Tensor:
    return scale.unsqueeze(-1).unsqueeze(-1) * matrices


def _mean_covariance(weights: Tensor, gamma: Tensor) -> Tensor:
    """Σ_i w_i Γ_i for weights (run, n), shape (run, D, D)."""
    if len(gamma) == 1:
        return weights.sum(-1)[:, None, None] * gamma
    return (weights @ gamma.reshape(len(gamma), -1)).reshape(-1, *gamma.shape[-2:])
