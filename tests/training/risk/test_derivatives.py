"""Gradient and Hessian of the risk by formula, against autograd."""

import math

import pytest
import torch
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.training.risk.derivatives import layer_derivatives
from largeprompt.training.risk.exact import Contexts, context_risk

F = torch.float64
KINDS = {"softmax": lp.SoftmaxAttention, "linear": lp.LinearAttention}


def random_contexts(n, dim, out, generator):
    root = torch.randn(n, dim, dim, generator=generator, dtype=F)
    return Contexts(
        root @ root.mT / dim,
        torch.randn(n, dim, generator=generator, dtype=F),
        torch.randn(n, out, generator=generator, dtype=F),
        torch.full((n,), 1 / n, dtype=F),
        0.3,
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("out", [1, 3])
def test_formulas_agree_with_autograd(kind, out):
    generator = torch.Generator().manual_seed(5)
    lengths, attention, dim = [1.0, 4.0, 300.0, math.inf], KINDS[kind], 3
    contexts = random_contexts(40, dim, out, generator)
    U = 0.6 * torch.randn(4, dim, dim, generator=generator, dtype=F)
    V = torch.randn(4, out, dim, generator=generator, dtype=F)
    found = layer_derivatives(U, V, True, contexts=contexts, lengths=lengths, kind=attention)

    def risk(flat):
        return context_risk(
            flat[:, : dim**2].reshape(U.shape),
            flat[:, dim**2 :].reshape(V.shape),
            contexts,
            lengths,
            attention,
        )

    flat = torch.cat([U.reshape(4, -1), V.reshape(4, -1)], -1).requires_grad_()
    (slope,) = torch.autograd.grad(risk(flat).sum(), flat, create_graph=True)
    rows = [
        torch.autograd.grad(slope[:, i].sum(), flat, retain_graph=True)[0]
        for i in range(flat.shape[-1])
    ]
    assert_close(found.value, risk(flat).detach())
    assert_close(
        torch.cat([found.in_u.reshape(4, -1), found.in_v.reshape(4, -1)], -1),
        slope.detach(),
        rtol=1e-10,
        atol=1e-12,
    )
    assert_close(found.second, torch.stack(rows, -2), rtol=1e-9, atol=1e-10)
