"""Averages over a Gaussian query that enters through quadratic forms alone: exact, with gradient
and Hessian.

With ξ ~ N(0, I) and q = ξ^TSξ every risk at block parameters is made of

    F = c E f(q) + E[f(q) ξ^TBξ] + E[h(q) ξ^TCξ],

f and h of :mod:`largeprompt.law.table`, and the rule of
:mod:`largeprompt.measures.numerics.quadratic_form` averages each term in the basis where S is
diagonal. Derivatives: formulas (query.7-8) of docs/mathematics/queries.md. Along a run f and h are
sums of exponentials: E e^{-sq} and its moments are products, and no rule is needed. The authors'
grid from a start in blocks takes 7 times as long with the rule.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from largeprompt.law.table import Orders, WeightTables
from largeprompt.measures.numerics.quadratic_form import QuadraticFormRule, quadratic_form_rule
from largeprompt.training.risk.exponentials import exponential_sums
from largeprompt.training.risk.scores import check_scores

# of the rule, and share of the queries with small scores that it leaves out; of those with large
# ones, where f is 1, L times less
RULE_ACCURACY = 1e-12
# of F, in the forms and in the scale, and the Hessian in all of them
Parts = tuple[Tensor, Tensor, Tensor, Tensor | None]


def form_average(
    forms: Tensor, scale: Tensor, lengths: Sequence[float], accuracy: float = 0.0
) -> Tensor:
    """F of each run at its length, shape (run,), twice differentiable; 0 for an infinite prompt.

    Parameters
    ----------
    forms
        S, B and C, shape (run, 3, d, d).
    scale
        c, shape (run, 1).
    accuracy
        Error of f and h that will do, 0 for the rule.
    """
    finite = [i for i, length in enumerate(lengths) if math.isfinite(length)]
    whole = forms.new_zeros(len(lengths))
    if not finite:
        return whole
    chosen = tuple(lengths[i] for i in finite)
    value: Tensor = _Value.apply(forms[finite], scale[finite], chosen, accuracy)  # type: ignore[no-untyped-call]
    return whole.index_copy(0, torch.tensor(finite), value)


@dataclasses.dataclass(frozen=True, eq=False)
class _Products:
    """Averages of sums of exponentials: what :class:`QuadraticFormRule` gives for values at nodes,
    here for coefficients.
    """

    # 1/(1 + 2sλ_i), (run, j, d); Re >= 0 for Re s >= 0: principal roots are the continuous ones
    variance: NDArray[np.complex128]

    @functools.cached_property
    def _mean(self) -> NDArray[np.complex128]:
        """E e^{-sq}, shape (run, j)."""
        return np.asarray(np.sqrt(self.variance).prod(-1))

    def factors(self, coefficients: NDArray[np.complex128], count: int) -> NDArray[np.float64]:
        found = (coefficients * self._mean)[..., None]
        if not count:
            return np.asarray(found.sum((1, 2)).real)
        for _ in range(count - 1):
            found = (found[..., None] * self.variance[..., None, :]).reshape(*found.shape[:2], -1)
        runs, _, d = self.variance.shape
        return (found.swapaxes(1, 2) @ self.variance).real.reshape(runs, *[d] * count)


def _sums(
    lam: Tensor, lengths: Sequence[float], accuracy: float
) -> tuple[_Products, tuple[Orders, Orders]]:
    """The averages, and coefficients of f and h with two derivatives."""
    found = exponential_sums(lengths, float(lam.sum(-1).max()), accuracy)
    s = torch.cat(found[0].exponents) if len(found[0].exponents[1]) else found[0].exponents[0]
    weights = torch.stack(
        [torch.cat(each.weights, -1) if s.is_complex() else each.weights[0] for each in found]
    )
    f, h = (tuple((-s) ** k * weights[:, i] for k in range(3)) for i in (0, 1))
    return _Products(1 / (1 + 2 * s.numpy()[:, None] * lam.numpy()[:, None, :])), (f, h)


def _rule(
    lam: Tensor, lengths: Sequence[float], order: int
) -> tuple[QuadraticFormRule, tuple[Orders, Orders]]:
    """The rule, and f and h with derivatives at its nodes."""
    rule = quadratic_form_rule(
        lam.numpy(), tail=RULE_ACCURACY / max(lengths), below=RULE_ACCURACY, accuracy=RULE_ACCURACY
    )
    q = torch.from_numpy(rule.nodes)
    return rule, WeightTables.reaching(lengths, float(q.max())).derivatives(q, order)


def _derivatives(
    forms: Tensor, scale: Tensor, lengths: Sequence[float], accuracy: float, hessian: bool
) -> Parts:
    """F with its derivatives."""
    if not bool(torch.isfinite(forms).all()):
        check_scores(math.nan)
    lam, basis = torch.linalg.eigh((forms[:, 0] + forms[:, 0].mT) / 2)
    check_scores(float(lam.max()))
    lam = lam.clamp_min(0.0)
    rule, orders = (
        _sums(lam, lengths, accuracy) if accuracy else _rule(lam, lengths, 2 if hessian else 1)
    )
    c, (B, C) = scale[:, 0], (basis.mT @ forms[:, i] @ basis for i in (1, 2))
    (f, f1, *f2), (h, h1, *h2) = orders
    along_f, along_h = (_factors(rule, g, 1) for g in (f, h))
    mean_f = _factors(rule, f, 0)
    diagonal = [M.diagonal(dim1=-2, dim2=-1) for M in (B, C)]
    value = c * mean_f + (diagonal[0] * along_f + diagonal[1] * along_h).sum(-1)
    pairs_f, pairs_h, first = _factors(rule, f1, 2), _factors(rule, h1, 2), _factors(rule, f1, 1)
    trace = c[:, None] * first + (
        pairs_f @ diagonal[0].unsqueeze(-1) + pairs_h @ diagonal[1].unsqueeze(-1)
    ).squeeze(-1)
    in_s = torch.diag_embed(trace) + 2 * B * pairs_f + 2 * C * pairs_h
    in_forms = (
        basis.unsqueeze(1)
        @ torch.stack([in_s, torch.diag_embed(along_f), torch.diag_embed(along_h)], 1)
        @ basis.mT.unsqueeze(1)
    )
    if not hessian:
        return value, in_forms, mean_f.unsqueeze(-1), None
    quartic = _quartic(c[:, None, None] * _factors(rule, f2[0], 2)) + _sextic(
        B, _factors(rule, f2[0], 3)
    )
    quartic = quartic + _sextic(C, _factors(rule, h2[0], 3))
    second = _second(basis, quartic, _quartic(pairs_f), _quartic(pairs_h), first)
    return value, in_forms, mean_f.unsqueeze(-1), second


def _second(basis: Tensor, in_s: Tensor, in_b: Tensor, in_c: Tensor, in_scale: Tensor) -> Tensor:
    """Hessian in (S, B, C, c) from its parts, each in the basis of S: those in S and S, B, C, c."""
    runs, d = basis.shape[:2]
    turn = torch.einsum("rai,rbj->rabij", basis, basis).reshape(runs, d * d, d * d)
    second = basis.new_zeros(runs, 3 * d * d + 1, 3 * d * d + 1)
    for i, part in enumerate((in_s, in_b, in_c)):
        block = turn @ part.reshape(runs, d * d, d * d) @ turn.mT
        second[:, : d * d, i * d * d : (i + 1) * d * d] = block
        second[:, i * d * d : (i + 1) * d * d, : d * d] = block.mT
    second[:, : d * d, -1] = second[:, -1, : d * d] = (
        basis @ torch.diag_embed(in_scale) @ basis.mT
    ).reshape(runs, -1)
    return second


def _factors(rule: QuadraticFormRule | _Products, values: Tensor, count: int) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(rule.factors(values.numpy(), count)))


def _quartic(pairs: Tensor) -> Tensor:
    """E[g ξ_aξ_bξ_cξ_d] from the factors of two, shape (run, d, d, d, d): Wick's three pairings."""
    eye = torch.eye(pairs.shape[-1], dtype=pairs.dtype)
    return (
        torch.einsum("ab,cd,rac->rabcd", eye, eye, pairs)
        + torch.einsum("ac,bd,rab->rabcd", eye, eye, pairs)
        + torch.einsum("ad,bc,rab->rabcd", eye, eye, pairs)
    )


def _sextic(B: Tensor, triples: Tensor) -> Tensor:
    """E[g ξ^TBξ ξ_aξ_bξ_cξ_d] from the factors of three: Wick's fifteen pairings, three with B
    closed and six pairs twice.
    """
    eye = torch.eye(B.shape[-1], dtype=B.dtype)
    closed = _quartic(torch.einsum("rii,riac->rac", B, triples))
    for ends, others in (
        ("ab", "cd"),
        ("ac", "bd"),
        ("ad", "bc"),
        ("bc", "ad"),
        ("bd", "ac"),
        ("cd", "ab"),
    ):
        closed = closed + 2 * torch.einsum(
            f"r{ends},{others},r{ends}{others[0]}->rabcd", B, eye, triples
        )
    return closed


class _Value(torch.autograd.Function):
    """F; its gradient is known with its value."""

    @staticmethod
    def forward(
        ctx: Any, forms: Tensor, scale: Tensor, lengths: tuple[float, ...], accuracy: float
    ) -> Tensor:
        value, *slopes, _ = _derivatives(forms, scale, lengths, accuracy, False)
        ctx.save_for_backward(forms, scale, *slopes)
        ctx.rule = lengths, accuracy
        return value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (out,), (forms, scale, in_forms, in_scale) = gradients, ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient will be differentiated
            in_forms, in_scale = _Slope.apply(forms, scale, in_forms, in_scale, *ctx.rule)  # type: ignore[no-untyped-call]
        return out[:, None, None, None] * in_forms, out[:, None] * in_scale, None, None


class _Slope(torch.autograd.Function):
    """The gradient of F as a function that has a derivative; the Hessian is computed once."""

    @staticmethod
    def forward(
        ctx: Any,
        forms: Tensor,
        scale: Tensor,
        in_forms: Tensor,
        in_scale: Tensor,
        lengths: tuple[float, ...],
        accuracy: float,
    ) -> tuple[Tensor, Tensor]:
        ctx.second = functools.cache(
            lambda: _derivatives(forms.detach(), scale.detach(), lengths, accuracy, True)[3]
        )
        return in_forms.clone(), in_scale.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        in_forms, in_scale = gradients
        flat = torch.cat([in_forms.reshape(len(in_forms), -1), in_scale], -1).unsqueeze(-1)
        moved = (ctx.second() @ flat).squeeze(-1)
        return moved[:, :-1].reshape(in_forms.shape), moved[:, -1:], None, None, None, None
