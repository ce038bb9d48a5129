"""Residual stacks, token by token against a softmax written out."""

import math

import pytest
import torch

import largeprompt as lp

F = torch.float64


def weights(layers, d, seed=0, score=0.3, value=0.4):
    generator = torch.Generator().manual_seed(seed)
    U, V = (
        torch.randn(layers, d, d, generator=generator, dtype=F) / math.sqrt(d) for _ in range(2)
    )
    return score * U, value * V


def norm(z):
    return math.sqrt(z.shape[-1]) * z / z.norm(dim=-1, keepdim=True)


@pytest.mark.parametrize("kind", ["none", "pre", "sphere"])
def test_layers_are_what_the_formula_says(kind):
    """Token by token, with a softmax written out."""
    U, V = weights(3, 4)
    z = torch.randn(7, 4, generator=torch.Generator().manual_seed(1), dtype=F)
    found = list(lp.depth.ResidualStack(U, V, kind).states(z))
    assert len(found) == 4
    expected = norm(z) if kind == "sphere" else z
    torch.testing.assert_close(found[0], expected)
    for k in range(3):
        read = norm(expected) if kind == "pre" else expected
        rows = []
        for i in range(7):
            score = torch.tensor([float(read[j] @ U[k] @ read[i]) for j in range(7)], dtype=F)
            share = score.exp() / score.exp().sum()
            rows.append(expected[i] + V[k] @ (share.unsqueeze(-1) * read).sum(0))
        expected = norm(torch.stack(rows)) if kind == "sphere" else torch.stack(rows)
        torch.testing.assert_close(found[k + 1], expected, rtol=1e-12, atol=1e-12)


def test_batches():
    stack = lp.depth.ResidualStack(*weights(2, 3))
    z = torch.randn(2, 5, 6, 3, generator=torch.Generator().manual_seed(2), dtype=F)
    whole = list(stack.states(z))[-1]
    torch.testing.assert_close(whole[1, 3], list(stack.states(z[1, 3]))[-1])
    first = list(stack.states(z[0, 0]))[1]
    torch.testing.assert_close(first, z[0, 0] + stack.layer(0)(lp.Empirical(z[0, 0]), z[0, 0]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda U, V: lp.depth.ResidualStack(U[0], V[0]), "layers, d, d"),
        (lambda U, V: lp.depth.ResidualStack(U, V[:, :2]), "as U"),
        (lambda U, V: lp.depth.ResidualStack(U, V, "layer"), "'none', 'pre' or 'sphere'"),
        (
            lambda U, V: next(lp.depth.ResidualStack(U, V).states(torch.ones(4, 2, dtype=F))),
            "shape",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(lp.InvalidArgumentError, match=message):
        call(*weights(2, 3))
