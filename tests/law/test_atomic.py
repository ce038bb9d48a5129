"""The exact law of tokens with finitely many values, against enumeration of every prompt and against the Gaussian laws."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import largeprompt as lp
from largeprompt.law.atomic import discrete_error_moments, feature_moments

F = torch.float64


def law_of(seed, atoms, dim):
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(atoms, generator=generator, dtype=F) + 0.05
    return lp.Discrete(torch.randn(atoms, dim, generator=generator, dtype=F), weights / weights.sum())


def prompt_errors(mu, u, lengths):
    """Bias, mean squared error and E Σ w² of T_L for V = I, by the one door."""
    eye = torch.eye(mu.dim, dtype=F)
    law = lp.finite_prompt(lp.SoftmaxAttention(eye, eye), mu, u, lengths)
    return law.bias, law.mse, 1 / law.effective_tokens


def enumerated(mu, u, length):
    """Every prompt of that length: probability, weights of its tokens, and output less the limit."""
    for index in itertools.product(range(mu.count), repeat=length):
        tokens = mu.atoms[list(index)]
        weights = torch.softmax(tokens @ u, -1)
        yield mu.weights[list(index)].prod(), weights, weights @ tokens - mu.tilted_mean(u)


@given(st.integers(0, 10**6), st.integers(1, 5), st.floats(0.0, 3.0))
@settings(max_examples=10, deadline=None)
def test_errors_are_those_of_all_prompts(seed, length, size):
    mu = law_of(seed, 3, 2)
    u = size * torch.tensor([0.6, -0.8], dtype=F)
    bias, mse, collision = (value[0] for value in prompt_errors(mu, u, [length]))
    prompts = list(enumerated(mu, u, length))
    torch.testing.assert_close(bias, sum(p * d for p, _, d in prompts), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(mse, sum(p * d.square().sum() for p, _, d in prompts), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(collision, sum(p * w.square().sum() for p, w, _ in prompts), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("length", [1, 2, 4])
def test_four_moments_are_those_of_all_prompts(length):
    mu, tilts = law_of(1, 3, 1), torch.tensor([[0.7], [-2.0]], dtype=F)
    found = discrete_error_moments(mu, tilts, [length])[0]
    for row, u in zip(found, tilts, strict=True):
        expected = sum(p * d ** torch.arange(1, 5) for p, _, d in enumerated(mu, u, length))
        torch.testing.assert_close(row, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("length", [1, 7, 1000, 10**9])
def test_gauss_hermite_atoms_have_the_gaussian_law(length):
    tilts = torch.tensor([[0.3], [1.0], [2.0]], dtype=F)
    bias, mse, collision = (x[0] for x in prompt_errors(lp.measures.gauss_rule(lp.Gaussian([0.5], [[1.3]])), tilts, [length]))
    exact = lp.finite_prompt(lp.SoftmaxAttention([[1.0]], [[1.0]]), lp.Gaussian([0.5], [[1.3]]), tilts, length)
    torch.testing.assert_close(mse, exact.mse, rtol=1e-7, atol=0)
    torch.testing.assert_close(bias, exact.bias, rtol=1e-7, atol=0)
    torch.testing.assert_close(1 / collision, exact.effective_tokens, rtol=1e-7, atol=0)


def test_mixture_atoms_have_the_mixture_law():
    mu = lp.GaussianMixture([0.3, 0.7], [[-1.0], [0.8]], [[[0.4]], [[0.9]]])
    u = torch.tensor([1.2], dtype=F)
    _, mse, _ = prompt_errors(lp.measures.gauss_rule(mu), u, [3, 500])
    exact = lp.finite_prompt(lp.SoftmaxAttention([[1.0]], [[1.0]]), mu, u, [3, 500]).mse
    torch.testing.assert_close(mse, exact, rtol=1e-8, atol=0)


def test_long_prompts_follow_the_first_order():
    mu, u = law_of(3, 4, 2), torch.tensor([0.9, 0.4], dtype=F)
    eye = torch.eye(2, dtype=F)
    first = lp.finite_prompt(lp.SoftmaxAttention(eye, eye), mu, u, [10**7, 10**12], expansion=True)
    bias, mse, _ = prompt_errors(mu, u, [10**7, 10**12])
    torch.testing.assert_close(mse, first.mse, rtol=1e-5, atol=0)
    torch.testing.assert_close(bias, first.bias, rtol=1e-3, atol=0)


def test_drawn_prompts_of_uneven_length_and_extra_features():
    """E‖Σ w c‖² + E Σ w² e against sampling, at features that are not the tokens."""
    mu, u = law_of(5, 5, 1), torch.tensor([0.8], dtype=F)
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(5, 3, generator=generator, dtype=F)
    extra = torch.rand(5, generator=generator, dtype=F)
    mean, square = feature_moments(mu.atoms @ u, mu.weights, features, 12, extra=extra)
    index = torch.multinomial(mu.weights.expand(20_000, -1), 12, replacement=True, generator=generator)
    weights = torch.softmax((mu.atoms @ u)[index], -1)
    read = (weights.unsqueeze(-1) * features[index]).sum(1)
    drawn = read.square().sum(-1) + (weights.square() * extra[index]).sum(-1)
    assert abs(float(drawn.mean() - square)) < 6 * float(drawn.std()) / math.sqrt(len(drawn))
    assert bool(((read.mean(0) - mean).abs() < 6 * read.std(0) / math.sqrt(len(read))).all())


def test_gradient_is_that_of_the_number():
    mu = law_of(7, 4, 1)

    def square(theta):
        return feature_moments(
            theta[0] * mu.atoms[:, 0], mu.weights, theta[1] * mu.atoms - 1, 9, extra=theta[1] ** 2 + 0 * mu.atoms[:, 0]
        )[1]

    assert torch.autograd.gradcheck(square, torch.tensor([0.7, 1.3], dtype=F, requires_grad=True), atol=1e-6)


@pytest.mark.parametrize("length", [10**10, 10**12, 10**15])
def test_moments_of_very_long_prompts(length):
    """The second is that of the other integral; the error is Gaussian in the limit: the fourth is three times its square."""
    mu, u = law_of(3, 4, 1), torch.tensor([0.7], dtype=F)
    first, second, _, fourth = discrete_error_moments(mu, u, [length])[0]
    bias, mse, _ = (part[0] for part in prompt_errors(mu, u, [length]))
    torch.testing.assert_close(second, mse, rtol=1e-10, atol=0)
    torch.testing.assert_close(first, bias[0], rtol=1e-6, atol=0)
    assert float(fourth / second**2) == pytest.approx(3.0, rel=1e-6)


MU, U = law_of(0, 3, 1), torch.tensor([0.5], dtype=F)
HALVES, ROWS = torch.tensor([0.5, 0.5], dtype=F), torch.tensor([[1.0], [-1.0]], dtype=F)
READ = {"scores": HALVES, "probabilities": HALVES, "features": ROWS, "length": 5}


def read(**changed):
    given = READ | changed
    extra = given.pop("extra", None)
    return feature_moments(*given.values(), extra=extra)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: discrete_error_moments(law_of(0, 3, 2), torch.zeros(2, dtype=F), [2]), "on the line"),
        (lambda: discrete_error_moments(MU, U, [2.5]), "lengths: got 2.5"),
        (lambda: discrete_error_moments(MU, U, 10), "lengths: got 10"),
        (lambda: discrete_error_moments(MU, U, [10**16]), "lengths: got 10000"),
        *(
            (lambda bad=bad: discrete_error_moments(MU, U, bad), "lengths: got")
            for bad in ([0], "x", ["x"], [], [math.nan], [math.inf])
        ),
        *((lambda bad=bad: read(length=bad), "length: got") for bad in (0, math.inf, math.nan, "x", None)),
        (lambda: read(probabilities=torch.tensor([0.9, 0.9], dtype=F)), "probabilities: got entries that sum to 1.8"),
        (lambda: read(probabilities=torch.ones(1, dtype=F)), r"probabilities: got shape \(1,\)"),
        (lambda: read(scores=torch.zeros(3, dtype=F)), r"probabilities: got shape \(2,\)"),
        (lambda: read(scores="x"), "scores: got str"),
        (lambda: read(scores=math.nan * HALVES), "scores: got 2 NaN"),
        (lambda: read(features=HALVES), r"features: got shape \(2,\)"),
        (lambda: read(features=torch.zeros(3, 2, 1, dtype=F), scores=torch.zeros(4, 2, dtype=F)), "scores, features and extra"),
        (lambda: read(extra=torch.zeros(3, dtype=F)), r"extra: got shape \(3,\)"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(lp.InvalidArgumentError, match=words):
        call()


@pytest.mark.parametrize("length", [10**3, 10**6, 10**9, 10**12])
def test_a_rare_token_with_a_large_score_counts(length):
    """With probability about 1e-19 L the prompt holds the token at 80, which takes all the weight: E Σ w² = 1/L + 1e-19 L."""
    rare = 1e-19
    mu = lp.Discrete([[80.0], [0.0]], [rare, 1 - rare])
    bias, _, collision = prompt_errors(mu, torch.ones(1, dtype=F), [length])
    none = math.exp(-length * rare)
    assert float(collision) == pytest.approx(none / length + length * rare * none, rel=1e-12 + length * rare)
    assert float(bias) == pytest.approx(-80 * none, rel=1e-10)
