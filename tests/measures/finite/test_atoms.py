"""Laws on finitely many atoms, read as a stream: chunks, batches, gradients and largest scores."""

import math

import pytest
import torch
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.measures.finite import atoms as atomic

F = torch.float64


def naive(tokens, u, weights=None):
    """The twenty-line truth: log-mean-exp, softmax average and weighted covariance, written out."""
    log_weights = (
        torch.full((tokens.shape[-2],), -math.log(tokens.shape[-2]), dtype=F)
        if weights is None
        else weights.log()
    )
    scores = torch.einsum("...d,...ld->...l", u, tokens) + log_weights
    p = torch.softmax(scores, -1)
    mean = torch.einsum("...l,...ld->...d", p, tokens)
    centered = tokens - mean.unsqueeze(-2)
    return (
        torch.logsumexp(scores, -1),
        mean,
        torch.einsum("...l,...li,...lj->...ij", p, centered, centered),
    )


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F)


def results(mu, u):
    return mu.cgf(u), mu.tilted_mean(u), mu.tilted_covariance(u)


@pytest.fixture(params=[2**20, 64, 1])
def chunk(request, monkeypatch):
    """Large chunks, small ones, and one element at a time."""
    monkeypatch.setitem(atomic.CHUNK_ELEMENTS, "cpu", request.param)


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize("weighted", [False, True])
def test_streaming_equals_the_naive_formula(weighted):
    tokens, u = 3 * draw(57, 3), 2 * draw(4, 5, 3, seed=1)
    weights = torch.softmax(draw(57, seed=2), 0) if weighted else None
    for value, expected in zip(
        results(lp.Empirical(tokens, weights), u),
        naive(tokens, u[..., None, :, :].squeeze(-3), weights),
        strict=True,
    ):
        assert_close(value, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.usefixtures("chunk")
@pytest.mark.parametrize(
    ("batch", "queries"),
    [
        ((4,), (4,)),
        ((4,), (7, 4)),
        ((4, 1), (4, 7)),
        ((2, 1, 3), (2, 5, 3)),
        ((4,), ()),
        ((1,), (6,)),
        ((2, 3), (1,)),
    ],
)
def test_batches_of_prompts(batch, queries):
    tokens, u = draw(*batch, 11, 2), draw(*queries, 2, seed=1)
    for value, expected in zip(results(lp.Empirical(tokens), u), naive(tokens, u), strict=True):
        assert_close(value, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.usefixtures("chunk")
def test_gradients_of_the_stream():
    tokens, weights, u = draw(5, 2), torch.softmax(draw(5, seed=3), 0), draw(2, 2, seed=1)

    def through(u, tokens, logits):
        weights = torch.softmax(logits, 0)
        state = lp.Empirical(tokens, weights / weights.sum()).running(u, covariance=True)
        return state.cgf, state.mean, state.covariance

    arguments = tuple(t.clone().requires_grad_() for t in (u, tokens, weights))
    assert torch.autograd.gradcheck(through, arguments)
    value = lp.Empirical(arguments[1]).tilted_mean(arguments[0])
    expected = naive(arguments[1], arguments[0])[1]
    for actual, wanted in zip(
        *(torch.autograd.grad(v.square().sum(), arguments[:2]) for v in (value, expected)),
        strict=True,
    ):
        assert_close(actual, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.usefixtures("chunk")
def test_second_derivatives_of_the_stream():
    tokens, u = draw(9, 2), draw(2, seed=1).requires_grad_()
    mu = lp.Empirical(tokens)
    hessian = torch.autograd.functional.hessian(mu.cgf, u)
    assert_close(hessian, mu.tilted_covariance(u.detach()), rtol=1e-10, atol=1e-12)


def test_scores_of_any_size():
    """Hard attention: the largest score wins, without overflow, with covariance zero."""
    tokens = draw(100, 3)
    u = torch.tensor([1e4, -1e6, 1e150], dtype=F)
    mu = lp.Empirical(tokens)
    assert_close(mu.tilted_mean(u), tokens[(tokens @ u).argmax()])
    assert_close(mu.cgf(u), (tokens @ u).max() - math.log(100))
    assert float(mu.tilted_covariance(u).abs().max()) == 0.0


def test_covariance_keeps_its_digits_when_one_token_dominates():
    """Two nearby tokens far from the origin share the weight; the covariance is theirs, not
    rounding of 1e6².
    """
    tokens = torch.tensor([[1e6], [1e6 + 1e-2], [0.0]], dtype=F)
    covariance = lp.Empirical(tokens).tilted_covariance(torch.tensor([1.0], dtype=F))
    difference = float(tokens[1] - tokens[0])
    p = 1 / (1 + math.exp(-difference))
    assert float(covariance) == pytest.approx(p * (1 - p) * difference**2, rel=1e-7)


def test_peak_memory_is_a_chunk_not_tokens_times_queries():
    """10^6 tokens and 1000 queries: the score matrix would take 8 GB; each part handed to the
    reader stays below a chunk.
    """
    sizes = []

    def read(block, tokens, masses):
        sizes.append(block.shape[-2] * tokens.shape[-2])
        return lp.measures.RunningTilt.of(block[:1], tokens[:1])

    mu = lp.Empirical(torch.zeros(1_000_000, 2, dtype=F))
    mu._stream(draw(1000, 2), read, lambda a, b: a, width=1)
    assert max(sizes) <= atomic.CHUNK_ELEMENTS["cpu"]
    assert sum(sizes) == 1_000_000 * 1000


def test_samples_follow_the_weights():
    mu = lp.Empirical([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.0])
    assert_close(mu.sample(1000, torch.Generator().manual_seed(0)), torch.ones(1000, 1, dtype=F))


@pytest.mark.parametrize("chunk", [2**20, 256, 64, 1])
@pytest.mark.parametrize(
    ("batch", "queries"),
    [((), ()), ((), (3, 2)), ((4,), (4,)), ((4, 1), (4, 3)), ((2, 3), (1,)), ((1,), (5,))],
)
def test_largest_scores(chunk, batch, queries, monkeypatch):
    monkeypatch.setitem(atomic.CHUNK_ELEMENTS, "cpu", chunk)
    tokens, u = draw(*batch, 57, 3), draw(*queries, 3, seed=1)
    scores = torch.einsum("...d,...ld->...l", u, tokens)
    for count in (1, 7, 57):
        found = lp.Empirical(tokens).largest_scores(u, count)
        assert_close(found, scores.topk(count, dim=-1).values, rtol=1e-13, atol=1e-13)


def test_weights_do_not_enter_the_largest_scores():
    tokens, u = draw(20, 2), draw(2, seed=1)
    weights = torch.softmax(draw(20, seed=2), 0)
    assert_close(
        lp.Empirical(tokens, weights).largest_scores(u, 5),
        lp.Empirical(tokens).largest_scores(u, 5),
    )


@pytest.mark.parametrize("count", [0, -1, 1.5, True, 21])
def test_bad_counts(count):
    with pytest.raises(lp.InvalidArgumentError, match="count: got"):
        lp.Empirical(draw(20, 2)).largest_scores(draw(2), count)
