"""The error bar of one prompt: the sandwich formula, what it covers, and when it must not be
believed.
"""

import math

import pytest
import torch
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.attention import ErrorBar
from largeprompt.measures.finite import atoms as atomic

F = torch.float64
EYE = torch.eye(2, dtype=F)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F)


def naive(tokens, u, V):
    """T_L, Σ w² (Vz - T)(Vz - T)^T, 1/Σ w² and (Σ w²)²/Σ w⁴ for one head, query and prompt, token
    by token.
    """
    w = torch.softmax(tokens @ u, 0)
    output = sum(weight * (V @ token) for weight, token in zip(w, tokens, strict=True))
    errors = [V @ token - output for token in tokens]
    covariance = sum(
        weight**2 * torch.outer(error, error) for weight, error in zip(w, errors, strict=True)
    )
    return output, covariance, 1 / (w**2).sum(), (w**2).sum() ** 2 / (w**4).sum()


@pytest.mark.parametrize("chunk", [2**20, 40])
@pytest.mark.parametrize(
    ("u_heads", "v_heads", "queries", "prompts"),
    [
        ((), (), (), ()),
        ((), (), (3, 2), ()),
        ((2,), (2,), (3,), ()),
        ((), (2,), (3,), (2, 1)),
        ((2,), (), (3,), (3,)),
        ((2,), (2,), (3,), (2, 3)),
        ((2,), (2,), (), (4, 2)),
        ((), (), (3,), (4, 3)),
        ((), (), (), (2, 2)),
        ((2, 1), (4,), (3,), (2, 1, 1)),
        ((), (), (3,), (1,)),
    ],
)
def test_sandwich_equals_the_explicit_sum(u_heads, v_heads, queries, prompts, chunk, monkeypatch):
    monkeypatch.setitem(atomic.CHUNK_ELEMENTS, "cpu", chunk)
    U, V = draw(*u_heads, 2, 2, seed=1), draw(*v_heads, 3, 2, seed=2)
    z, tokens = draw(*queries, 2, seed=3), draw(*prompts, 23, 2, seed=4)
    attention = lp.SoftmaxAttention(U, V)
    bar = attention.error_bar(lp.Empirical(tokens), z)
    batch = torch.broadcast_shapes((*attention.heads, *queries), prompts)
    ones = (1,) * len(queries)
    all_u = (
        (U.reshape(*u_heads, *ones, 2, 2) @ z.unsqueeze(-1))
        .squeeze(-1)
        .expand(*batch, 2)
        .reshape(-1, 2)
    )
    all_v = V.reshape(*v_heads, *ones, 3, 2).expand(*batch, 3, 2).reshape(-1, 3, 2)
    all_tokens = tokens.expand(*batch, 23, 2).reshape(-1, 23, 2)
    expected = [
        torch.stack(part) for part in zip(*map(naive, all_tokens, all_u, all_v), strict=True)
    ]
    shapes = ((*batch, 3), (*batch, 3, 3), batch, batch)
    for value, wanted, shape in zip(
        (bar.output, bar.covariance, bar.effective_tokens, bar.carrying_tokens),
        expected,
        shapes,
        strict=True,
    ):
        assert value.shape == torch.Size(shape)
        assert_close(value, wanted.reshape(shape), rtol=1e-10, atol=1e-12)
    assert_close(bar.output, attention(lp.Empirical(tokens), z), rtol=1e-12, atol=1e-12)
    assert_close(
        bar.standard_error**2, torch.stack([bar.covariance[..., i, i] for i in range(3)], -1)
    )
    assert bar.standard_error.shape == bar.output.shape
    assert bar.tail_index.shape == torch.Size(batch)
    assert bool((bar.carrying_tokens <= bar.effective_tokens * (1 + 1e-12)).all())


def test_covariance_is_differentiable():
    tokens, z = draw(30, 2), draw(2, seed=1).requires_grad_()
    attention = lp.SoftmaxAttention(EYE, EYE)
    assert torch.autograd.gradcheck(
        lambda z: attention.error_bar(lp.Empirical(tokens), z).covariance, (z,)
    )


def test_law_of_large_numbers_gives_the_first_order_covariance():
    """Gaussian tokens: L·Cov -> e^{σ²}(Γ + Γu u^TΓ). Within 3 %, a relative error that 10^6 tokens
    leave at about 0.5 %.
    """
    covariance = torch.tensor([[1.0, 0.3], [0.3, 0.5]], dtype=F)
    tokens = lp.Gaussian([0.2, -0.1], covariance).sample(
        1_000_000, torch.Generator().manual_seed(0)
    )
    u = torch.tensor([0.4, 0.3], dtype=F)
    bar = lp.SoftmaxAttention(EYE, EYE).error_bar(lp.Empirical(tokens), u)
    image = covariance @ u
    expected = math.exp(float(u @ image)) * (covariance + torch.outer(image, image))
    assert_close(1e6 * bar.covariance, expected, rtol=0, atol=0.03 * float(expected.max()))
    assert bar.warning == ""


def replicas(count, length, u, sample, *, block):
    """Error bars of independent prompts, in blocks: outputs, standard errors, bars."""
    generator = torch.Generator().manual_seed(0)
    attention = lp.SoftmaxAttention(EYE, EYE)
    bars = [
        attention.error_bar(lp.Empirical(sample((block, length, 2), generator)), u)
        for _ in range(count // block)
    ]
    return (
        torch.cat([bar.output for bar in bars]),
        torch.cat([bar.standard_error for bar in bars]),
        bars,
    )


def coverage(output, standard_error, target):
    return ((output - target).abs() <= 1.959964 * standard_error).to(F).mean(0)


def normal(shape, generator):
    return torch.randn(shape, generator=generator, dtype=F)


def student(shape, generator):
    """Two degrees of freedom: a normal over the root of an exponential."""
    return normal(shape, generator) / torch.sqrt(
        -torch.log1p(-torch.rand(shape, generator=generator, dtype=F))
    )


def light_share(bars):
    """Share of prompts whose weights show a variance, and enough tokens to carry it."""
    return float(
        torch.cat([(bar.tail_index < 0.5) & (bar.carrying_tokens >= 20) for bar in bars])
        .to(F)
        .mean()
    )


def test_coverage_in_the_linear_regime():
    """σ² = 1/2, L = 2000: 95 % intervals for each coordinate of the infinite-prompt limit Γu.

    In truth 0.9456 along u (the error is skewed) and 0.9506 across, by 50 000 prompts: a binomial
    share of 5600 leaves [0.93, 0.97] with probability 5e-7.
    """
    u = torch.tensor([math.sqrt(0.5), 0.0], dtype=F)
    output, standard_error, bars = replicas(5600, 2000, u, normal, block=400)
    covered = coverage(output, standard_error, u)
    assert bool(((covered > 0.93) & (covered < 0.97)).all()), covered
    assert light_share(bars) > 0.995


def test_outside_the_linear_regime_the_warning_appears():
    """σ² = 16, L = 200: frozen, L < e^{σ²/2}. Intervals along u almost never reach the limit, and
    hardly any looks light.
    """
    u = torch.tensor([4.0, 0.0], dtype=F)
    output, standard_error, bars = replicas(2000, 200, u, normal, block=500)
    covered = coverage(output, standard_error, u)
    assert float(covered[0]) < 0.02
    assert float(covered[1]) < 0.7
    assert light_share(bars) < 0.002
    assert all(
        "tail index" in bar.warning and "no reliable error bar" in bar.warning for bar in bars
    )


def test_tokens_without_exponential_moments():
    """Student-t, two degrees of freedom: there is no limit; the interval does not even cover the
    median of T_L over prompts.
    """
    u = torch.tensor([1.0, 0.0], dtype=F)
    output, standard_error, bars = replicas(2000, 200, u, student, block=500)
    covered = coverage(output, standard_error, output.median(0).values)
    assert float(covered[0]) < 0.5
    assert light_share(bars) < 0.002


def test_prompts_that_look_better_cover_worse():
    """Why no number is called trust: σ² = 2, L = 200, coverage along u falls with the tail index of
    the prompt itself.

    In truth 0.392 below k = 0.3 (15 % of the prompts), 0.796 over all and 0.945 from 0.5 to 0.7 (35
    %), by 40 000 prompts: 4000 know them to 0.020, 0.0064 and 0.006, so that all levels are more
    than six standard errors away (false alarms below 1e-8).
    """
    u = torch.tensor([math.sqrt(2), 0.0], dtype=F)
    output, standard_error, bars = replicas(4000, 200, u, normal, block=500)
    covered = ((output - u).abs() <= 1.959964 * standard_error)[:, 0].to(F)
    tail_index = torch.cat([bar.tail_index for bar in bars])
    best, middle = tail_index < 0.3, (tail_index >= 0.5) & (tail_index < 0.7)
    assert (
        float(covered[best].mean())
        < 0.6
        < 0.74
        < float(covered.mean())
        < 0.84
        < 0.9
        < float(covered[middle].mean())
    )


def test_a_kind_of_token_that_did_not_occur_cannot_be_seen():
    """0.9995 N(0, I) + 0.0005 N((6, 0), I/10), L = 1000: 61 % of the prompts hold none of the rare
    kind, and none of these covers.

    The share is binomial over 1500 prompts, within 0.08 with probability 1 - 2e-10. The others are
    Gaussian prompts, number for number, whose limit along u is 1; that of the mixture is 1.58, some
    ten standard errors away.
    """
    mixture = lp.GaussianMixture(
        [0.9995, 0.0005], [[0.0, 0.0], [6.0, 0.0]], torch.stack([EYE, EYE / 10])
    )
    tokens = mixture.sample(1_500_000, torch.Generator().manual_seed(0)).reshape(1500, 1000, 2)
    without = tokens[..., 0].amax(-1) < 4.5  # 4.5 standard deviations on either side of the divide
    bar = lp.SoftmaxAttention(EYE, EYE).error_bar(lp.Empirical(tokens[without]), EYE[0])
    assert abs(float(without.to(F).mean()) - 0.9995**1000) < 0.08
    assert float(coverage(bar.output, bar.standard_error, mixture.tilted_mean(EYE[0]))[0]) < 0.01
    # of what a Gaussian prompt would be read as
    assert float(coverage(bar.output, bar.standard_error, EYE[0])[0]) > 0.8
    assert light_share([bar]) > 0.5


def test_each_reason_has_its_sentence():
    attention = lp.SoftmaxAttention(EYE, EYE)
    short = attention.error_bar(lp.Empirical(draw(20, 2)), [[0.1, 0.0], [0.2, 0.0]])
    assert short.tail_index.tolist() == [math.inf, math.inf]
    assert short.warning.startswith(
        "2 of 2 queries: there are too few tokens to judge the tail of the weights (20 tokens, "
    )
    heavy = attention.error_bar(lp.Empirical(draw(500, 2)), [[0.1, 0.0], [6.0, 0.0]])
    assert heavy.warning.startswith("1 of 2 queries: the largest weights have tail index ")
    bounded = torch.stack([torch.linspace(0, 1, 40, dtype=F), torch.zeros(40, dtype=F)], -1)
    narrow = attention.error_bar(lp.Empirical(bounded), [3.0, 0.0])
    assert float(narrow.tail_index) < 0.5
    assert narrow.warning.startswith(
        "1 of 1 queries: the covariance rests on fewer than 20 tokens (40 tokens, "
    )
    ties = torch.cat([torch.ones(6, 2, dtype=F), torch.zeros(19, 2, dtype=F)])
    few = attention.error_bar(lp.Empirical(ties), [50.0, 0.0])
    assert float(few.tail_index) == -math.inf
    assert few.warning.startswith(
        "1 of 1 queries: the covariance rests on fewer than 20 tokens (25 tokens, 6 of which"
    )
    assert repr(heavy).startswith("ErrorBar(output=(2, 2), length=500, tail_index <= ")
    assert repr(few).endswith(", largest weights all equal, carrying_tokens >= 6)")
    for bar in (short, heavy, narrow):
        assert bar.warning.endswith("so prompts like this one have no reliable error bar")
        assert "\n" not in bar.warning + repr(bar)


def test_equal_weights_are_the_error_of_a_mean():
    tokens = draw(100, 2)
    bar = lp.SoftmaxAttention(EYE, EYE).error_bar(lp.Empirical(tokens), [0.0, 0.0])
    assert_close(bar.covariance, tokens.T.cov(correction=0) / 100)
    assert float(bar.tail_index) == -math.inf
    assert bar.warning == ""


def test_scores_of_any_size():
    """Hard attention: one token, no spread, a warning; nothing overflows."""
    tokens = draw(100, 2)
    bar = lp.SoftmaxAttention(EYE, EYE).error_bar(lp.Empirical(tokens), [[1e4, 0.0], [0.0, 1e150]])
    for value in (
        bar.output,
        bar.covariance,
        bar.effective_tokens,
        bar.carrying_tokens,
        bar.tail_index,
    ):
        assert bool(torch.isfinite(value).all())
    assert_close(bar.effective_tokens, torch.ones(2, dtype=F), rtol=1e-6, atol=0)
    assert bar.warning.startswith("2 of 2")


def test_no_queries():
    bar = lp.SoftmaxAttention(EYE, EYE).error_bar(lp.Empirical(draw(30, 2)), draw(0, 2))
    assert bar.covariance.shape == (0, 2, 2)
    assert bar.warning == ""
    assert repr(bar) == "ErrorBar(output=(0, 2), length=30)"


def test_one_token_and_single_precision():
    attention = lp.SoftmaxAttention(EYE.float(), EYE.float())
    bar = attention.error_bar(lp.Empirical(torch.ones(1, 2)), torch.ones(2))
    assert bar.covariance.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert "too few tokens" in bar.warning
    tokens, z = draw(1000, 2), draw(4, 2, seed=1) / 2
    double = lp.SoftmaxAttention(EYE, EYE).error_bar(lp.Empirical(tokens), z)
    single = attention.error_bar(lp.Empirical(tokens.float()), z.float())
    assert isinstance(single, ErrorBar)
    assert single.covariance.dtype == torch.float32
    assert_close(single.covariance.double(), double.covariance, rtol=1e-4, atol=1e-7)
    assert_close(single.tail_index, double.tail_index, rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (
            lp.Gaussian([0.0, 0.0], [[1.0, 0.0], [0.0, 1.0]]),
            "prompt: got Gaussian; allowed: an Empirical. A law has no sampling error",
        ),
        (
            lp.Discrete([[0.0, 0.0], [1.0, 1.0]], [0.5, 0.5]),
            "prompt: got Discrete; allowed: an Empirical. A law has no sampling error",
        ),
        (draw(5, 2), "prompt: got Tensor; allowed: an Empirical. Wrap a prompt"),
        (
            lp.Empirical(draw(2, 2), torch.tensor([0.5, 0.5], dtype=F)),
            "prompt: got tokens with weights",
        ),
        (lp.Empirical(draw(5, 3)), "prompt: got tokens in R^3; allowed: tokens in R^2"),
        (lp.Empirical(draw(4, 5, 2)), "heads, z and mu: got batch shapes (1,) and (3,) and (4,)"),
    ],
    ids=str,
)
def test_bad_prompts(prompt, message):
    with pytest.raises(lp.InvalidArgumentError) as caught:
        lp.SoftmaxAttention(EYE, EYE).error_bar(prompt, draw(3, 2))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("z", [draw(3), draw(4, 3), [math.nan, 0.0], "query"], ids=str)
def test_bad_queries(z):
    with pytest.raises(lp.InvalidArgumentError, match="z: got"):
        lp.SoftmaxAttention(EYE, EYE).error_bar(lp.Empirical(draw(5, 2)), z)


def test_linear_attention_has_no_error_bar():
    assert not hasattr(lp.LinearAttention(EYE, EYE), "error_bar")


def test_half_precision_has_a_tail_index():
    eye, tokens = torch.eye(3), torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    half, single = (
        lp.SoftmaxAttention(eye.to(dtype), eye.to(dtype)).error_bar(
            lp.Empirical(tokens.to(dtype)), torch.ones(3, dtype=dtype)
        )
        for dtype in (torch.bfloat16, torch.float32)
    )
    torch.testing.assert_close(
        half.tail_index.double(), single.tail_index.double(), rtol=0.2, atol=0.2
    )
