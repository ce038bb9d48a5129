"""Laws that are sums over real nodes: atoms, mixtures of Gaussians, the sphere."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.law.tokens import Common

F = torch.float64
NAMES = (
    "mean",
    "bias",
    "covariance",
    "mse",
    "jacobian_v_mse",
    "jacobian_u_mse",
    "effective_tokens",
    "limit",
)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F)


MIXTURE = lp.GaussianMixture(
    [0.2, 0.5, 0.3],
    [[1.0, 0.0], [-1.0, 1.0], [0.0, 2.0]],
    [[[1.0, 0.3], [0.3, 0.5]], [[0.3, 0.0], [0.0, 0.3]], [[0.0, 0.0], [0.0, 0.0]]],
)


@pytest.mark.parametrize("length", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [0.0, 1e-6, 1.0, 4.0, 30.0])
def test_atoms_against_all_prompts_listed(listed, length, size):
    atoms, masses = draw(4, 2), [0.4, 0.3, 0.2, 0.1]
    V, u = draw(3, 2, seed=1), size * torch.tensor([0.8, -0.6], dtype=F)
    z = torch.tensor([1.0, 2.0], dtype=F)
    attention = lp.SoftmaxAttention(torch.outer(u, z) / 5, V)
    law, expected = (
        lp.finite_prompt(attention, lp.Discrete(atoms, masses), z, length),
        listed(atoms, masses, u, V, length, z),
    )
    for name in NAMES:
        value = torch.as_tensor(getattr(expected, name), dtype=F)
        slack = 1e-11 * float(value.abs().max()) + 1e-15
        assert_close(
            getattr(law, name),
            value,
            rtol=1e-9,
            atol=slack,
            msg=lambda text, name=name: f"{name}: {text}",
        )


def test_an_atom_of_no_mass_and_one_token_alone():
    with_ghost = lp.Discrete([[0.0], [1.0], [50.0]], [0.5, 0.5, 0.0])
    without = lp.Discrete([[0.0], [1.0]], [0.5, 0.5])
    one = lp.SoftmaxAttention([[1.0]], [[1.0]])
    for name in NAMES:
        ghost, plain = (
            getattr(lp.finite_prompt(one, mu, [2.0], [2, 10**9]), name)
            for mu in (with_ghost, without)
        )
        assert_close(ghost, plain, rtol=1e-13, atol=0)
    single = lp.finite_prompt(one, lp.Empirical([[0.3]]), [2.0], [2, 10**9])
    assert_close(single.mean, torch.full((2, 1), 0.3, dtype=F))
    assert float(single.mse.max()) < 1e-30


@pytest.mark.parametrize(("size", "jacobian"), [(0.1, True), (1.0, True), (3.0, False)])
def test_mixture_of_equal_components_is_the_gaussian(size, jacobian):
    """The law of a Gaussian comes from other integrals entirely."""
    root = draw(3, 3) / math.sqrt(3)
    mu = lp.Gaussian(draw(3, seed=1), root @ root.mT)
    attention = lp.SoftmaxAttention(size * draw(3, 3, seed=10) / math.sqrt(3), draw(2, 3, seed=11))
    z, lengths = draw(3, seed=5), [1, 2, 5, 100, 10**5, 10**9, 10**13]
    twin = lp.GaussianMixture([0.25, 0.75], mu.mean.expand(2, 3), mu.covariance.expand(2, 3, 3))
    one, other = (
        lp.finite_prompt(attention, mu, z, lengths),
        lp.finite_prompt(attention, twin, z, lengths),
    )
    for name in (
        "score_variance",
        *(name for name in NAMES if jacobian or name != "jacobian_u_mse"),
    ):
        expected = getattr(one, name)
        for row in range(len(lengths)) if name != "limit" else [...]:
            slack = 1e-11 * float(expected[row].abs().max()) + (
                1e-7 * float(one.rmse[row]) if name == "bias" else 0.0
            )
            assert_close(
                getattr(other, name)[row],
                expected[row],
                rtol=1e-10,
                atol=slack,
                msg=lambda text, name=name: f"{name}: {text}",
            )


@pytest.mark.parametrize("size", [0.3, 2.0, 6.0])
def test_two_tokens_of_a_mixture_are_one_integral(size):
    """Of N(0, 1) tokens T_2 = (x + y)/2 + tanh(u(x-y)/2)(x-y)/2; pairs of components are Gaussian
    pairs.
    """
    weights, means, deviations = (0.3, 0.7), (-1.0, 0.8), (0.6, 1.1)
    mu = lp.GaussianMixture(weights, [[m] for m in means], [[[s**2]] for s in deviations])
    law = lp.finite_prompt(lp.SoftmaxAttention([[1.0]], [[1.0]]), mu, [size], 2)
    mean = collision = 0.0
    for i in range(2):
        for j in range(2):
            gap, spread = means[i] - means[j], math.hypot(deviations[i], deviations[j])

            def expect(f, gap=gap, spread=spread):
                def integrand(x):
                    return f(x) * stats.norm.pdf(x, gap, spread)

                return integrate.quad(
                    integrand,
                    gap - 10 * spread,
                    gap + 10 * spread,
                    epsabs=1e-14,
                    epsrel=1e-13,
                    limit=500,
                    points=[0.0],
                )[0]

            mass = weights[i] * weights[j]
            mean += mass * (
                (means[i] + means[j]) / 2 + expect(lambda x: math.tanh(size * x / 2) * x / 2)
            )
            collision += mass * expect(lambda x: (1 + math.tanh(size * x / 2) ** 2) / 2)
    assert float(law.mean[0]) == pytest.approx(mean, rel=1e-11)
    assert 1 / float(law.effective_tokens) == pytest.approx(collision, rel=1e-11)


def test_two_tokens_on_a_sphere_are_two_integrals():
    """Cosines of a uniform direction in R^3 are uniform on [-1, 1]: a Gauss-Legendre rule in two of
    them.
    """
    u = 1.3
    x, w = np.polynomial.legendre.leggauss(60)
    a, b = np.meshgrid(math.sqrt(3) * x, math.sqrt(3) * x)
    mass = np.outer(w, w) / 4
    first = 1 / (1 + np.exp(-u * (a - b)))
    mean = (mass * (first * a + (1 - first) * b)).sum()
    across = (
        2 * (mass * (first**2 * (1 - a**2 / 3) + (1 - first) ** 2 * (1 - b**2 / 3))).sum() * 3 / 2
    )
    law = lp.finite_prompt(
        lp.SoftmaxAttention(torch.eye(3, dtype=F), torch.eye(3, dtype=F)),
        lp.Sphere(3),
        [0.0, u, 0.0],
        2,
    )
    assert_close(law.mean, torch.tensor([0.0, mean, 0.0], dtype=F), rtol=1e-12, atol=1e-13)
    assert float(law.covariance[0, 0] + law.covariance[2, 2]) == pytest.approx(across, rel=1e-12)
    assert 1 / float(law.effective_tokens) == pytest.approx(
        (mass * (first**2 + (1 - first) ** 2)).sum(), rel=1e-12
    )


@pytest.mark.parametrize(
    ("dim", "size"),
    [(1, 2.0), (2, 1.0), (2, 9.0), (7, 0.5), (40, 1.0), (300, 0.2), (30, 11.0), (200, 4.2)],
)
def test_a_circle_or_a_sphere_is_its_nodes(dim, size):
    """Masses sum to one, and the nodes give the tilted moments that Bessel functions give, far out
    at 2u too.
    """
    mu, u = lp.Sphere(dim), torch.zeros(dim, dtype=F)
    u[0] = size
    cgf = float(mu.cgf(u))
    (nodes,) = mu._score_nodes(u, 0.0)
    log_mass, scores = nodes.log_mass, nodes.scores - cgf
    moments = Common(
        nodes.mean - mu.tilted_mean(u).numpy(), nodes.spread, nodes.scale, nodes.sphere
    )
    tilted = np.exp(log_mass + scores)
    assert np.exp(log_mass).sum() == pytest.approx(1.0, abs=1e-12)
    assert tilted.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.exp(log_mass + 2 * scores - float(mu.cgf(2 * u)) + 2 * cgf).sum() == pytest.approx(
        1.0, abs=1e-11
    )
    np.testing.assert_allclose(tilted @ moments.mean, np.zeros(dim), atol=1e-11)
    np.testing.assert_allclose(
        moments.total_second(tilted[None])[0],
        mu.tilted_covariance(u).numpy(),
        rtol=1e-9,
        atol=1e-12,
    )


def test_wide_mixtures_keep_their_digits():
    """Two far modes: for L = 2 the output is the upper of two modes almost surely."""
    mu = lp.GaussianMixture([0.5, 0.5], [[-40.0], [40.0]], [[[0.01]], [[0.01]]])
    law = lp.finite_prompt(lp.SoftmaxAttention([[1.0]], [[1.0]]), mu, [3.0], [2, 3])
    pairs = [
        integrate.quad(
            lambda x: math.tanh(1.5 * x) * x / 2 * stats.norm.pdf(x, 0.0, math.sqrt(0.02)), -2, 2
        )[0]
    ]
    assert float(law.mean[0, 0]) == pytest.approx(20.0 + pairs[0] / 2, rel=1e-11)
    assert float(law.mean[1, 0]) > 29.9


def test_empirical_is_the_bootstrap(drawn_law):
    prompt = lp.Empirical(draw(30, 2, seed=4))
    attention, z = lp.SoftmaxAttention(draw(2, 2, seed=5), draw(2, 2, seed=6)), draw(2, seed=7)
    drawn_law(lp.finite_prompt(attention, prompt, z, 30), attention, prompt, z, 30, count=10_000)


def law_of(seed, atoms, dim):
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(atoms, generator=generator, dtype=F) + 0.05
    return lp.Discrete(
        torch.randn(atoms, dim, generator=generator, dtype=F), weights / weights.sum()
    )


def prompt_errors(mu, u, lengths):
    """Bias, mean squared error and E Σ w² of T_L for V = I, by the one door."""
    eye = torch.eye(mu.dim, dtype=F)
    law = lp.finite_prompt(lp.SoftmaxAttention(eye, eye), mu, u, lengths)
    return law.bias, law.mse, 1 / law.effective_tokens


def enumerated(mu, u, length):
    """Every prompt of that length: probability, weights of its tokens, and output
    less the limit.
    """
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
    torch.testing.assert_close(
        mse, sum(p * d.square().sum() for p, _, d in prompts), rtol=1e-9, atol=1e-11
    )
    torch.testing.assert_close(
        collision, sum(p * w.square().sum() for p, w, _ in prompts), rtol=1e-9, atol=1e-11
    )


@pytest.mark.parametrize("length", [1, 7, 1000, 10**9])
def test_gauss_hermite_atoms_have_the_gaussian_law(length):
    tilts = torch.tensor([[0.3], [1.0], [2.0]], dtype=F)
    bias, mse, collision = (
        x[0]
        for x in prompt_errors(
            lp.measures.gauss_rule(lp.Gaussian([0.5], [[1.3]]), 160), tilts, [length]
        )
    )
    exact = lp.finite_prompt(
        lp.SoftmaxAttention([[1.0]], [[1.0]]), lp.Gaussian([0.5], [[1.3]]), tilts, length
    )
    torch.testing.assert_close(mse, exact.mse, rtol=1e-7, atol=0)
    torch.testing.assert_close(bias, exact.bias, rtol=1e-7, atol=1e-7 * float(exact.rmse.min()))
    torch.testing.assert_close(1 / collision, exact.effective_tokens, rtol=1e-7, atol=0)


def test_mixture_atoms_have_the_mixture_law():
    mu = lp.GaussianMixture([0.3, 0.7], [[-1.0], [0.8]], [[[0.4]], [[0.9]]])
    u = torch.tensor([1.2], dtype=F)
    _, mse, _ = prompt_errors(lp.measures.gauss_rule(mu, 160), u, [3, 500])
    exact = lp.finite_prompt(lp.SoftmaxAttention([[1.0]], [[1.0]]), mu, u, [3, 500]).mse
    torch.testing.assert_close(mse, exact, rtol=1e-8, atol=0)


def test_long_prompts_follow_the_first_order():
    mu, u = law_of(3, 4, 2), torch.tensor([0.9, 0.4], dtype=F)
    eye = torch.eye(2, dtype=F)
    first = lp.finite_prompt(lp.SoftmaxAttention(eye, eye), mu, u, [10**7, 10**12], expansion=True)
    bias, mse, _ = prompt_errors(mu, u, [10**7, 10**12])
    torch.testing.assert_close(mse, first.mse, rtol=1e-5, atol=0)
    torch.testing.assert_close(bias, first.bias, rtol=1e-3, atol=0)


@pytest.mark.parametrize("length", [10**3, 10**6, 10**9, 10**12])
def test_a_rare_token_with_a_large_score_counts(length):
    """With probability about 1e-19 L the prompt holds the token at 80, which takes all the weight:
    E Σ w² = 1/L + 1e-19 L.
    """
    rare = 1e-19
    mu = lp.Discrete([[80.0], [0.0]], [rare, 1 - rare])
    bias, _, collision = prompt_errors(mu, torch.ones(1, dtype=F), [length])
    none = math.exp(-length * rare)
    assert float(collision) == pytest.approx(
        none / length + length * rare * none, rel=1e-12 + length * rare
    )
    assert float(bias) == pytest.approx(-80 * none, rel=1e-10)
