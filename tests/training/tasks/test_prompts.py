"""Gradients over drawn prompts: by tokens, and by two scalars for each token, which has the same
law.
"""

import math

import pytest
import torch
from torch.testing import assert_close
from training_examples import toeplitz

import largeprompt as lp
from largeprompt.training.tasks import prompts
from largeprompt.training.tasks.prompts import prompt_factors, weighted_sums

F = torch.float64
KINDS = [lp.SoftmaxAttention, lp.LinearAttention]


@pytest.mark.parametrize("kind", KINDS)
def test_stochastic_gradients_are_unbiased(kind):
    """Mean of drawn gradients against the exact gradient, 6.5 standard errors (1e-10 each, 24
    entries).
    """
    task = lp.LinearRegression(toeplitz(2), torch.eye(2, dtype=F), 0.2)
    U, V = (
        0.4 * torch.randn(3, 3, generator=torch.Generator().manual_seed(0), dtype=F),
        torch.tensor([[0.3, -0.2, 0.9]], dtype=F),
    )
    arguments = [U.clone().requires_grad_(), V.clone().requires_grad_()]
    exact = torch.autograd.grad(task.risk(kind(*arguments), 7), arguments)
    generator = torch.Generator().manual_seed(1)
    drawn = [task.prompt_gradients(kind(U, V), 7, 500, generator) for _ in range(200)]
    for i, truth in enumerate(exact, start=1):
        samples = torch.stack([one[i] for one in drawn])
        assert bool(
            ((samples.mean(0) - truth).abs() < 6.5 * samples.std(0) / math.sqrt(200) + 1e-12).all()
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", ["general", "parallel", "no scores", "no read-out"])
@pytest.mark.parametrize("length", [1, 2, 9])
def test_two_scalars_have_the_law_of_whole_tokens(kind, case, length, monkeypatch):
    """First and second moments of both sums, against drawn tokens: 6.5 standard errors (1e-10 each,
    44 numbers).
    """
    monkeypatch.setitem(prompts.CHUNK_SCALARS, "cpu", 4 * 40_000)  # nine tokens in three chunks
    generator, n = torch.Generator().manual_seed(3), 40_000
    a, b = torch.tensor([0.9, -0.4, 0.0, 0.3], dtype=F), torch.tensor([0.2, 0.5, 0.7, 0.0], dtype=F)
    a, b = {
        "general": (a, b),
        "parallel": (a, -2 * a),
        "no scores": (0 * a, b),
        "no read-out": (a, 0 * b),
    }[case]
    softmax = kind is lp.SoftmaxAttention
    reduced = weighted_sums(
        a.expand(n, -1), b.expand(n, -1), length, generator, softmax=softmax
    ).reshape(n, -1)
    xi = torch.randn(n, length, 4, generator=generator, dtype=F)
    scores, read = xi @ a, xi @ b
    alpha = torch.softmax(scores, -1) if softmax else scores / length
    beta = alpha * read if softmax else read / length
    whole = torch.cat([(weights.unsqueeze(-2) @ xi).squeeze(-2) for weights in (alpha, beta)], -1)
    for moment in (lambda x: x, lambda x: (x[:, :, None] * x[:, None, :]).flatten(1)):
        one, other = moment(reduced), moment(whole)
        slack = 6.5 * ((one.var(0) + other.var(0)) / n).sqrt() + 1e-12
        assert bool(((one.mean(0) - other.mean(0)).abs() < slack).all())


def test_chunks_change_nothing_but_the_draws(monkeypatch):
    """A score so large that its token takes all: whatever the chunk it is in, the sums are those of
    that token.
    """
    a, b = torch.tensor([[1e3, 0.0]], dtype=F), torch.tensor([[0.5, 0.0]], dtype=F)
    for size in (1, 3, 100):
        monkeypatch.setitem(prompts.CHUNK_SCALARS, "cpu", size)
        first, second = weighted_sums(a, b, 50, torch.Generator().manual_seed(0), softmax=True)[0]
        assert float(first[0]) > 1.0
        assert_close(second, 0.5 * first[0] * first, rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_whole_tokens_are_drawn_for_other_tasks(kind):
    task = lp.training.MeasureRegression(lp.Rademacher(2), torch.eye(2, dtype=F), 0.2)
    U, V = (
        torch.randn(3, 3, generator=torch.Generator().manual_seed(0), dtype=F) / 2,
        torch.tensor([[0.3, -0.2, 0.9]], dtype=F),
    )
    arguments = [U.clone().requires_grad_(), V.clone().requires_grad_()]
    tokens, query, answer = task.sample(50, 7, torch.Generator().manual_seed(2))
    loss = (kind(*arguments)(lp.Empirical(tokens), query) - answer).square().sum(-1).mean() / 2
    by_hand = task.prompt_gradients(kind(U, V), 7, 50, torch.Generator().manual_seed(2))
    assert_close(by_hand[0], loss.detach())
    for actual, wanted in zip(by_hand[1:], torch.autograd.grad(loss, arguments), strict=True):
        assert_close(actual, wanted)


def test_long_prompts_stream():
    task = lp.LinearRegression(torch.eye(2, dtype=F), torch.eye(2, dtype=F) / 2, 0.0)
    attention = lp.SoftmaxAttention(
        torch.diag(torch.tensor([1.0, 1.0, 0.0], dtype=F)), torch.tensor([[0.0, 0.0, 1.0]], dtype=F)
    )
    loss, in_u, in_v = task.prompt_gradients(attention, 10**6, 2, torch.Generator().manual_seed(0))
    assert float(loss) < 1e-2  # the infinite prompt reads w exactly
    assert bool(torch.isfinite(in_u).all() & torch.isfinite(in_v).all())


@pytest.mark.parametrize("kind", [lp.SoftmaxAttention, lp.LinearAttention])
def test_gradients_of_single_prompts_are_those_of_autograd(kind):
    task = lp.LinearRegression(torch.eye(2, dtype=F), torch.eye(2, dtype=F), 0.2)
    generator = torch.Generator().manual_seed(0)
    U, V = (torch.randn(2, *shape, generator=generator, dtype=F) / 3 for shape in ((3, 3), (1, 3)))
    drawn = [task.sample(4, 6, generator) for _ in range(2)]
    tokens, query, answer = (torch.stack(parts) for parts in zip(*drawn, strict=True))
    pull, error, mean = prompt_factors(kind, U, V, tokens, query, answer)
    for run in range(2):
        for i in range(4):
            arguments = [U[run].clone().requires_grad_(), V[run].clone().requires_grad_()]
            loss = (
                kind(*arguments)(lp.Empirical(tokens[run, i]), query[run, i]) - answer[run, i]
            ).square().sum() / 2
            in_u, in_v = torch.autograd.grad(loss, arguments)
            assert_close(pull[run, i, :, None] * query[run, i], in_u)
            assert_close(error[run, i, :, None] * mean[run, i], in_v)
