"""The certificates of the derivatives in U and V: never below the truth, sharp for long prompts,
homogeneous in V.
"""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.certificates import certificate, jacobian_certificate
from largeprompt.law import finite_prompt
from largeprompt.measures import Measure, scalar
from largeprompt.testing.strategies import covariances, probabilities, vectors

F = torch.float64
ONE = lp.SoftmaxAttention([[1.0]], [[1.0]])
NORMAL = lp.Gaussian([0.0], [[1.0]])
TWO_MODES = lp.GaussianMixture([0.5, 0.5], [[-1.0], [1.0]], [[[0.5]], [[0.5]]])


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F)


def test_tail_of_the_derivative_counts_the_whole_error():
    """Signs without a tilt, L = 10: P(|C_L - 1| > 1/2) is a binomial probability, 0.0215."""
    layer = lp.SoftmaxAttention([[0.0]], [[1.0]])
    counts = [math.comb(10, k) / 2**10 for k in range(11)]
    truth = sum(p for k, p in enumerate(counts) if ((2 * k - 10) / 10) ** 2 > 0.5)
    assert truth == pytest.approx(0.0215, abs=1e-4)
    assert float(lp.jacobian_certificate(layer, lp.Rademacher(1), [1.0], 10).tail(0.5)) >= truth


def test_very_long_prompts_have_a_jacobian_certificate():
    for mu in (NORMAL, TWO_MODES):
        for length in (10**12, 10**15):
            assert math.isfinite(float(lp.jacobian_certificate(ONE, mu, [1.0], length).bound))
    exact = lp.finite_prompt(ONE, NORMAL, [1.0], 10**12).jacobian_u_mse
    assert 1 <= float(lp.jacobian_certificate(ONE, NORMAL, [1.0], 10**12).bound / exact) < 1.01


@pytest.mark.parametrize(
    "mu",
    [lp.Gaussian([0.2, 0.0], [[1.0, 0.3], [0.3, 0.5]]), lp.Rademacher(2), lp.Sphere(2)],
    ids=repr,
)
def test_jacobian_certificate_is_never_below_the_truth(mu):
    attention, z = lp.SoftmaxAttention(draw(2, 2) / 2, draw(2, 2, seed=1)), draw(2, seed=2)
    lengths = [1, 2, 5, 20, 100, 1000]
    found = jacobian_certificate(attention, mu, z, lengths)
    for length, bound in zip(lengths, found.bound, strict=True):
        if isinstance(mu, lp.Gaussian):
            assert float(bound) >= float(finite_prompt(attention, mu, z, length).jacobian_u_mse)
        else:
            n = 200_000 // length + 1000
            prompts = lp.Empirical(
                mu.sample(n * length, torch.Generator().manual_seed(0)).reshape(n, length, 2)
            )
            squared = (
                (attention.jacobian_u(prompts, z) - attention.jacobian_u(mu, z))
                .flatten(1)
                .square()
                .sum(-1)
            )
            assert float(bound) >= float(squared.mean() - 6.5 * squared.std() / math.sqrt(n))


def test_jacobian_certificate_becomes_sharp():
    attention = lp.SoftmaxAttention(torch.eye(2, dtype=F), torch.eye(2, dtype=F))
    mu, z = lp.Gaussian([0.0, 0.0], [[1.0, 0.0], [0.0, 1.0]]), [0.5, 0.2]
    ratio = (
        jacobian_certificate(attention, mu, z, 10**7).bound
        / finite_prompt(attention, mu, z, 10**7).jacobian_u_mse
    )
    assert 1 <= float(ratio) <= 1.02
    mixture = lp.GaussianMixture(
        [0.4, 0.6], [[0.0, 0.0]] * 2, torch.eye(2, dtype=F).expand(2, 2, 2)
    )
    assert_close(
        jacobian_certificate(attention, mixture, z, 10**4).bound,
        jacobian_certificate(attention, mu, z, 10**4).bound,
    )


@pytest.mark.parametrize(
    ("mu", "z"),
    [
        (lp.Laplace(2), [0.2, 0.1]),
        (lp.Laplace(2), [0.5, 0.2]),  # the cgf is infinite at 4u, not at 2u
        (scalar.SkewNormal(2, 0.8), [0.5, 0.2]),
        (scalar.GeneralizedNormal(2, 1.5), [0.5, 0.2]),
        (scalar.LogNormal(2, 0.5), [-0.5, -0.2]),
    ],
    ids=repr,
)
def test_every_law_with_a_cgf_at_2u_has_a_bound_that_falls_like_one_over_length(mu, z):
    """And at L = 20 it is above the sampled error minus 6.5 standard errors (false alarm 4e-11
    each).
    """
    attention = lp.SoftmaxAttention(torch.eye(2, dtype=F), draw(2, 2, seed=1))
    bound = jacobian_certificate(attention, mu, z, [20, 10**9, 10**12]).bound
    assert float(bound[1] / bound[2]) == pytest.approx(1000, rel=0.01)
    prompts = lp.Empirical(
        mu.sample(400_000, torch.Generator().manual_seed(0)).reshape(20_000, 20, 2)
    )
    squared = (
        (attention.jacobian_u(prompts, z) - attention.jacobian_u(mu, z)).flatten(1).square().sum(-1)
    )
    assert float(bound[0]) >= float(squared.mean() - 6.5 * squared.std() / math.sqrt(20_000))


def test_no_queries():
    for mu in LAWS:
        found = jacobian_certificate(
            lp.SoftmaxAttention(draw(2, 2), draw(3, 2)), mu, draw(0, 2), [10, 20]
        )
        assert found.bound.shape == found.jacobian_v_bound.shape == found.reason.shape == (2, 0)


def test_where_nothing_falls_the_reason_is_named():
    beyond = jacobian_certificate(ONE, lp.Laplace(1), [0.9], [1, 2, 10**9])
    assert bool(torch.isfinite(beyond.bound).all())
    assert beyond.reason[0] == "derivative in U, one token: none"
    assert "averages of tokens, no more: the cgf is infinite at 2u" in beyond.reason[2]
    assert "3 tokens are too few" in jacobian_certificate(ONE, NORMAL, [2.0], 3).reason
    heavy = jacobian_certificate(ONE, lp.StudentT(1, 3.0), [0.0], 10)
    assert float(heavy.bound) == 0.0  # z = 0: there is no derivative in U
    assert "no fourth moment" in heavy.reason
    assert math.isfinite(float(heavy.jacobian_v_bound))


LAWS = (
    lp.Gaussian([0.3, -0.2], [[1.0, 0.3], [0.3, 0.5]]),
    lp.GaussianMixture(
        [0.3, 0.7], [[-1.0, 0.0], [1.0, 0.5]], [[[0.5, 0.0], [0.0, 1.0]], [[0.3, 0.1], [0.1, 0.2]]]
    ),
    lp.Rademacher(2),
    lp.Laplace(2),
    lp.Discrete([[0.0, 0.0], [1.0, 0.0], [3.0, 3.0]], [0.5, 0.45, 0.05]),
    lp.Uniform(2).map([[1.0, 0.3], [0.0, 0.001]]),
)


@pytest.mark.parametrize("mu", LAWS, ids=repr)
def test_bounds_are_homogeneous_in_the_values(mu):
    """V times 2^k: the bound times 4^k, digit for digit; V times 1e-8 or 1e-150: up to rounding."""
    lengths, z, V = [1, 2, 30, 10**7], [0.3, 0.1], draw(3, 2, seed=4)
    for prove in (certificate, jacobian_certificate):
        found = prove(lp.SoftmaxAttention(draw(2, 2) / 2, V), mu, z, lengths).bound
        for factor, rtol in ((2.0**450, 0.0), (1e-8, 1e-13), (1e-150, 1e-13)):
            scaled = prove(lp.SoftmaxAttention(draw(2, 2) / 2, factor * V), mu, z, lengths).bound
            assert_close(scaled / factor / factor, found, rtol=rtol, atol=0)
        # never rounded down to nothing
        assert float(prove(lp.SoftmaxAttention(draw(2, 2) / 2, 1e-200 * V), mu, z, 10).bound) > 0


@pytest.mark.parametrize("size", [1e-120, 1e-40, 1e120])
def test_bounds_are_homogeneous_in_the_tokens(size):
    for mu in (LAWS[0], LAWS[1], LAWS[3]):
        for prove in (certificate, jacobian_certificate):  # u is kept: z grows as the tokens shrink
            one = prove(
                lp.SoftmaxAttention(torch.eye(2, dtype=F), draw(2, 2)), mu, [0.2, 0.1], [2, 10**4]
            ).bound
            small = mu.map(size * torch.eye(2, dtype=F))
            layer = lp.SoftmaxAttention(torch.eye(2, dtype=F), draw(2, 2))
            other = prove(layer, small, [0.2 / size, 0.1 / size], [2, 10**4]).bound
            assert_close(other / size / size, one, rtol=1e-9, atol=0)


@pytest.mark.parametrize("mu", LAWS, ids=repr)
def test_single_precision_is_the_double_bound_rounded_up(mu):
    for factor in (1e-3, 1e-12):
        U, V, z = (
            draw(2, 2).float() / 2,
            factor * draw(3, 2, seed=4).float(),
            draw(2, seed=5).float() / 3,
        )
        for prove in (certificate, jacobian_certificate):
            single = prove(
                lp.SoftmaxAttention(U, V), mu.to(torch.float32), z, [2, 100, 10**6]
            ).bound
            double = prove(
                lp.SoftmaxAttention(U.double(), V.double()),
                mu.to(torch.float32).to(F),
                z.double(),
                [2, 100, 10**6],
            ).bound
            assert single.dtype == torch.float32
            assert bool((single.double() >= double).all())
            assert_close(single.double(), double, rtol=3e-4, atol=0)


@pytest.mark.parametrize("mu", LAWS, ids=repr)
def test_fourth_moments_by_closed_form_and_by_cumulants(mu):
    u, center = draw(4, 2) / 5, draw(4, 2, seed=1)
    for V in (
        None,
        draw(1, 2, seed=2),
        draw(3, 2, seed=3),
        torch.tensor([[1.0, 0.0], [1e-9, 0.0]], dtype=F),
    ):
        assert_close(
            mu.tilted_norm_moment4(u, center, V),
            Measure.tilted_norm_moment4(mu, u, center, V),
            rtol=1e-12,
            atol=0,
        )
    atoms, weights = draw(5, 2), torch.softmax(draw(5, seed=1), 0)
    offset, read = atoms - center[0], (atoms - center[0]) @ draw(3, 2, seed=3).mT
    truth = (weights * offset.square().sum(-1) * read.square().sum(-1)).sum()
    found = lp.Discrete(atoms, weights / weights.sum()).tilted_norm_moment4(
        [0.0, 0.0], center[0], draw(3, 2, seed=3)
    )
    assert_close(found, truth, rtol=1e-13, atol=0)


EXAMPLES = settings(max_examples=40, deadline=None, derandomize=True)
SIZES = st.sampled_from([0.0, 1e-3, 0.3, 1.0, 4.0, 40.0])  # of the scores
DIMS, ROWS, SCALES = st.integers(1, 3), st.integers(1, 3), st.integers(-400, 400)


def above(bound, truth, noise):
    """The bound is a number, and not below the truth, up to the rounding of the truth."""
    assert not bool(torch.isnan(bound).any())
    assert bool((bound >= truth * (1 - 1e-9) - noise).all()), (bound, truth)


@EXAMPLES
@given(st.data(), DIMS, ROWS, SIZES, SCALES)
def test_no_certificate_is_below_the_enumeration_of_every_prompt(data, d, o, size, scale):
    """Discrete laws and signs, L = 1, 2, 3: output, derivative in U and derivative in V, for V of
    any size.
    """
    if data.draw(st.booleans()):
        atoms, weights = (
            torch.tensor(list(itertools.product([1.0, -1.0], repeat=d)), dtype=F),
            torch.full((2**d,), 0.5**d, dtype=F),
        )
        mu = lp.Rademacher(d)
    else:
        count = data.draw(st.integers(1, 4))
        atoms, weights = data.draw(vectors(d, shape=(count,))), data.draw(probabilities(count))
        mu = lp.Discrete(atoms, weights)
    U, V, z = (
        size * data.draw(vectors(d, shape=(d,))),
        data.draw(vectors(d, shape=(o,))),
        data.draw(vectors(d)),
    )
    plain, layer = lp.SoftmaxAttention(U, V), lp.SoftmaxAttention(U, V * 2.0**scale)
    length = data.draw(st.integers(1, 3))
    choices = torch.tensor(list(itertools.product(range(len(atoms)), repeat=length)))
    prompts, chance = lp.Empirical(atoms[choices]), weights[choices].prod(-1)
    found = jacobian_certificate(layer, mu, z, length)
    for bound, call, factor in (
        (certificate(layer, mu, z, length).bound, "__call__", 0.25**scale),
        (found.bound, "jacobian_u", 0.25**scale),
        (found.jacobian_v_bound, "jacobian_v", 1.0),
    ):
        limit = getattr(plain, call)(mu, z)
        error = (getattr(plain, call)(prompts, z) - limit).flatten(1).square().sum(-1)
        above(bound * factor, (chance * error).sum(), 1e-24)


@EXAMPLES
@given(st.data(), DIMS, ROWS, SIZES, SCALES)
def test_no_certificate_is_below_the_exact_law(data, d, o, size, scale):
    """Gaussian laws and mixtures, singular covariances too, any L; scores beyond 10 are left to the
    tests of the law itself.
    """
    U, V = (
        min(size, 1.0) * data.draw(vectors(d, shape=(d,), size=1.0)),
        data.draw(vectors(d, shape=(o,))),
    )
    z, lengths = data.draw(vectors(d, size=1.0)), [1, 2, 3, 10, 1000, 10**6]
    plain, layer = lp.SoftmaxAttention(U, V), lp.SoftmaxAttention(U, V * 2.0**scale)
    gaussian = data.draw(st.booleans())
    parts = [
        (data.draw(vectors(d)), data.draw(covariances(d))) for _ in range(1 if gaussian else 2)
    ]
    means, spread = (torch.stack(part) for part in zip(*parts, strict=True))
    mu = (
        lp.Gaussian(means[0], spread[0])
        if gaussian
        else lp.GaussianMixture(data.draw(probabilities(2)), means, spread)
    )
    law, found = finite_prompt(plain, mu, z, lengths), jacobian_certificate(layer, mu, z, lengths)
    above(certificate(layer, mu, z, lengths).bound * 0.25**scale, law.mse, 1e-24)
    above(found.jacobian_v_bound, law.jacobian_v_mse, 1e-24)
    if gaussian:
        above(found.bound * 0.25**scale, law.jacobian_u_mse, 1e-24)
