"""Numbers that others published, against ours: docs/checked.md."""

import math
import re
from pathlib import Path

import pytest
import torch

import largeprompt as lp

PAGE = Path(__file__).parents[2] / "docs" / "checked.md"
DRAWS = 50_000  # of He et al., for each of their numbers
FEW = {"dtype": torch.float64}


def layer(kind, matrix, read_out):
    """The block layer U = diag(A, 0), v = (0, b)."""
    matrix = torch.as_tensor(matrix, **FEW)
    dim = len(matrix)
    U, V = torch.zeros(dim + 1, dim + 1, **FEW), torch.zeros(1, dim + 1, **FEW)
    U[:dim, :dim], V[0, dim] = matrix, read_out
    return kind(U, V)


def squared_errors(attention, length, count=4000):
    """Squared errors of drawn prompts of He et al.: in-context regression written out."""
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(count, 5, 1, generator=generator, **FEW) / 5**0.5
    x = torch.randn(count, length + 1, 5, generator=generator, **FEW)
    y = x @ w + 0.1**0.5 * torch.randn(count, length + 1, 1, generator=generator, **FEW)
    tokens, query = torch.cat([x, y], -1)[:, :-1], torch.cat([x, 0 * y], -1)[:, -1]
    scores = (tokens @ (query @ attention.U.T).unsqueeze(-1)).squeeze(-1)
    weights = scores.softmax(-1) if isinstance(attention, lp.SoftmaxAttention) else scores / length
    output = torch.einsum("nl,nld,od->no", weights, tokens, attention.V)
    return (output - y[:, -1]).square().squeeze(-1)


EYE = torch.eye(5, **FEW)
TASK = lp.LinearRegression(EYE, EYE / 5, 0.1)
SOFTMAX = layer(lp.SoftmaxAttention, EYE / 5**0.5, 5**0.5 / (1 + 1.1 * 5 * math.e / 40))
ONE_STEP = layer(lp.LinearAttention, EYE, 2 * 0.13 * 3.45)


def on_the_page(number):
    """Whether the page shows it."""
    return re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("attention", "length", "theirs", "shown"),
    [
        (SOFTMAX, 40, 0.4048, "0.4081"),
        (SOFTMAX, 100, 0.2844, "0.2825"),
        (ONE_STEP, 40, 0.2407, "0.2414"),
        (ONE_STEP, 100, 0.1622, "0.1629"),
    ],
)
def test_losses_of_multi_head_softmax_in_context(attention, length, theirs, shown):
    """He et al.: one softmax head, and one step of gradient descent."""
    ours = 2 * float(TASK.risk(attention, length))
    drawn = squared_errors(attention, length)
    assert abs(float(drawn.mean()) - ours) < 5 * float(drawn.std()) / len(drawn) ** 0.5
    assert abs(theirs - ours) < 3 * float(drawn.std()) / DRAWS**0.5
    assert f"{ours:.4f}" == shown
    assert on_the_page(shown)
    assert on_the_page(str(theirs))


@pytest.mark.parametrize(
    ("length", "theirs", "error", "shown"),
    [
        (10, 0.91165, 0.0018, "0.9111"),
        (99, 0.11195, 0.00024, "0.1122"),
        (200, 0.019904, 0.00004, "0.0199"),
    ],
)
def test_bayes_risk_of_the_asymptotics_of_in_context_learning(length, theirs, error, shown):
    """Lu et al., 100 dimensions."""
    eye = torch.eye(100, **FEW)
    ours = 2 * float(lp.LinearRegression(eye / 100, eye, 0.01).bayes_risk(length))
    assert abs(theirs - ours) < 3 * error
    assert f"{ours:.4f}" == shown
    assert on_the_page(shown)
    assert on_the_page(str(theirs))


def test_saddles_of_linear_attention():
    """Zhang et al.: losses where the largest k directions are learned, and stationary there."""
    spectrum = torch.tensor([0.4, 0.3, 0.2, 0.1], **FEW)
    task, length = lp.LinearRegression(torch.diag(spectrum), torch.eye(4, **FEW), 0.0), 31
    gains = spectrum / (spectrum * (1 + 1 / length) + spectrum.sum() / length)
    for k, theirs in enumerate((0.64058, 0.37737, 0.20980, 0.13600), 1):
        learned = torch.where(torch.arange(4) < k, gains / spectrum, 0.0)
        A = torch.diag(learned).requires_grad_()
        attention = layer(lp.LinearAttention, torch.zeros(4, 4), 1.0)
        U = torch.nn.functional.pad(A, (0, 1, 0, 1))
        risk = task.risk(lp.LinearAttention(U, attention.V), length)
        assert 2 * float(risk.detach()) == pytest.approx(theirs, abs=5e-6)
        (gradient,) = torch.autograd.grad(risk, A)
        assert float(gradient.diagonal()[:k].abs().max()) < 1e-12
        assert on_the_page(f"{theirs:.5f}")


def test_flow_of_the_public_audit():
    """x' = s²x(1 - s x²) is the balanced flow of one dimension: s = 1/4, x(0) = 4."""
    task = lp.LinearRegression([[0.25]], [[1.0]], 0.0)
    start = layer(lp.SoftmaxAttention, [[4.0]], 4.0)
    flow = lp.gradient_flow(task, start, math.inf, 50.0, times=[0.0, 1.0, 10.0, 50.0])
    theirs = torch.tensor([3.439457, 2.257156, 2.001449], **FEW)
    torch.testing.assert_close(flow.parameters[1:, 0], theirs, atol=2e-6, rtol=0.0)
    assert all(on_the_page(number) for number in ("3.439457", "2.257156", "2.001449"))
