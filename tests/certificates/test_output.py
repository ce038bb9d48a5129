"""Certificates of the output (claim C3): never below the truth, sharp where they should be, and
clear about why they are not.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.certificates import certificate, jacobian_certificate
from largeprompt.certificates.output import gaussian_collision_bound
from largeprompt.law import finite_prompt, weight_moment
from largeprompt.measures import scalar

F = torch.float64
LENGTHS = [1, 2, 3, 5, 10, 30, 100, 1000, 10**4, 10**6, 10**9]
ONE = lp.SoftmaxAttention([[1.0]], [[1.0]])
NORMAL = lp.Gaussian([0.0], [[1.0]])
TWO_MODES = lp.GaussianMixture([0.5, 0.5], [[-1.0], [1.0]], [[[0.5]], [[0.5]]])


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F)


def test_collision_bound_is_never_below_the_truth():
    """E Y <= (x/L)(1 - (1-1/x)^L) on 6,600 (σ, L), with equality at L = 1 and at σ = 0."""
    sigma = torch.cat([torch.zeros(1, dtype=F), torch.logspace(-3, math.log10(12), 599, dtype=F)])
    for length in LENGTHS:
        bound, truth = (
            gaussian_collision_bound(sigma**2, length),
            weight_moment(length, sigma, [(2, 0)]),
        )
        assert bool((bound >= truth * (1 - 1e-13)).all())
        assert float(bound[0]) == pytest.approx(1 / length, rel=1e-15)
    assert_close(gaussian_collision_bound(sigma**2, 1), torch.ones_like(sigma), rtol=1e-14, atol=0)
    # no overflow
    assert float(gaussian_collision_bound(torch.tensor(5000.0, dtype=F), 10**9)) == 1.0


def test_gaussian_certificate_on_ten_thousand_laws():
    """10,080 random (law, layer, query, L): dimensions 1 to 6, tiny to huge score variances,
    singular covariances too.
    """
    cases = 0
    for seed in range(42):
        d, o, n = 1 + seed % 6, 1 + seed % 3, 20
        rank = d if seed % 4 else max(1, d - 1)
        root = draw(d, rank, seed=seed) * 10 ** float(draw(1, seed=seed + 7) / 3)
        mu = lp.Gaussian(draw(d, seed=seed + 1), root @ root.mT / d)
        attention = lp.SoftmaxAttention(draw(d, d, seed=seed + 2) / d, draw(o, d, seed=seed + 3))
        z = draw(n, d, seed=seed + 4) * torch.logspace(-1.5, 0.7, n, dtype=F)[:, None]
        lengths = [*LENGTHS, 7]
        exact, bound = (
            finite_prompt(attention, mu, z, lengths).mse,
            certificate(attention, mu, z, lengths).bound,
        )
        assert bool((bound >= exact * (1 - 1e-12)).all())
        assert_close(bound[0], exact[0], rtol=1e-9, atol=0)  # equality at L = 1
        cases += bound.numel()
    assert cases >= 10_000


def test_mixture_certificate_on_a_thousand_laws():
    """Random mixtures of one to three components, L from 1 to 10^9, against the
    exact mixture law.
    """
    cases = 0
    for seed in range(24):
        d, k = 1 + seed % 2, 1 + seed % 3
        roots = draw(k, d, d, seed=seed) / math.sqrt(d)
        weights = torch.softmax(draw(k, seed=seed + 1), 0)
        mu = lp.GaussianMixture(
            weights / weights.sum(), draw(k, d, seed=seed + 2), roots @ roots.mT
        )
        attention = lp.SoftmaxAttention(draw(d, d, seed=seed + 3), draw(2, d, seed=seed + 4))
        z = draw(4, d, seed=seed + 5) * torch.tensor([0.2, 0.6, 1.0, 1.6], dtype=F)[:, None]
        exact, bound = (
            finite_prompt(attention, mu, z, LENGTHS).mse,
            certificate(attention, mu, z, LENGTHS).bound,
        )
        assert bool((bound >= exact * (1 - 1e-10)).all())
        cases += bound.numel()
    assert cases >= 1000


@pytest.mark.parametrize(
    ("mu", "size"),
    [
        (lp.Rademacher(2), 1.0),
        (lp.Rademacher(2), 3.0),
        (lp.Uniform(2), 1.0),
        (lp.Sphere(2), 1.5),
        (lp.Laplace(2), 0.3),
        (lp.Laplace(2), 0.6),
        (lp.Laplace(2), 0.9),
        (lp.Laplace(2), 1.2),
        (lp.Discrete([[0.0, 0.0], [1.0, 0.0], [3.0, 3.0]], [0.5, 0.45, 0.05]), 1.0),
    ],
    ids=repr,
)
@pytest.mark.parametrize("length", [1, 2, 4, 20, 300])
def test_other_laws_by_sampling(mu, size, length):
    """The bound is at least the sampled error minus 6.5 standard errors (false
    alarm 4e-11 each).
    """
    attention = lp.SoftmaxAttention(torch.eye(2, dtype=F), torch.tensor([[1.0, 0.5]], dtype=F))
    z = torch.tensor([size, -0.4 * size], dtype=F)
    n = 600_000 // length + 2000
    prompts = lp.Empirical(
        mu.sample(n * length, torch.Generator().manual_seed(2)).reshape(n, length, 2)
    )
    squared = (attention(prompts, z) - attention(mu, z)).square().sum(-1)
    found = certificate(attention, mu, z, length)
    assert float(found.bound) >= float(squared.mean() - 6.5 * squared.std() / math.sqrt(n))
    for distance in (0.1, 0.5, 2.0):
        share = float((squared > distance**2).double().mean())
        assert float(found.tail(distance)) >= share - 6.5 * math.sqrt(0.25 / n)


def test_sharpness():
    """Gaussian: 1.05 from L = 100 ρ on for σ² up to 0.8, and from 160 ρ² on whatever σ²; split
    bound: 1.2 from 1000 ρ on.
    """
    attention = lp.SoftmaxAttention([[1.0]], [[1.0]])
    mu = lp.Gaussian([0.0], [[1.0]])
    for q in (0.05, 0.2, 0.5, 0.8):
        for factor in (100, 1000):
            length = math.ceil(factor * math.exp(q))
            assert (
                float(
                    certificate(attention, mu, [q**0.5], length).bound
                    / finite_prompt(attention, mu, [q**0.5], length).mse
                )
                <= 1.05
            )
    for q in (0.05, 0.5, 1.0, 2.0, 4.0, 8.0):
        length = math.ceil(160 * math.exp(2 * q))
        assert (
            float(
                certificate(attention, mu, [q**0.5], length).bound
                / finite_prompt(attention, mu, [q**0.5], length).mse
            )
            <= 1.05
        )
    mixture = lp.GaussianMixture([0.3, 0.7], [[-1.0], [1.0]], [[[0.5]], [[0.3]]])
    for z in (0.3, 0.7, 1.0, 1.7, 2.5):
        rho = math.exp(float(mixture.cgf([2 * z]) - 2 * mixture.cgf([z])))
        length = math.ceil(1000 * rho)
        ratio = float(
            certificate(attention, mixture, [z], length).bound
            / finite_prompt(attention, mixture, [z], length).mse
        )
        assert 1 <= ratio <= 1.2


def test_reasons_and_pieces():
    attention = lp.SoftmaxAttention([[1.0]], [[1.0]])
    mixture = lp.GaussianMixture([0.3, 0.7], [[-1.0], [1.0]], [[[0.5]], [[0.3]]])
    good, short = (
        certificate(attention, mixture, [1.0], 10_000),
        certificate(attention, mixture, [3.0], 3),
    )
    assert good.reason.startswith("split bound, second order")
    assert 0 < float(good.theta) < 1
    assert float(good.rho) == pytest.approx(
        math.exp(float(mixture.cgf([2.0]) - 2 * mixture.cgf([1.0])))
    )
    assert 0 <= float(good.remainder) < 0.01 * float(good.leading)
    assert "too few against rho" in short.reason
    edge = certificate(attention, lp.Laplace(1), [1.0], 10**9)
    assert "cgf is infinite at 2u" in edge.reason
    assert math.isinf(float(edge.rho))
    assert math.isfinite(float(edge.bound))
    with pytest.raises(lp.TiltDomainError):
        certificate(attention, lp.Laplace(1), [1.5], 10)
    with pytest.raises(lp.TiltDomainError):
        certificate(attention, lp.StudentT(1, 4.0), [0.1], 10)


def test_slower_bound_still_falls():
    """Laplace at |u| = 0.8: Λ(2u) is infinite, the moment of order 1.6 is not; the bound tends
    to 0.
    """
    attention = lp.SoftmaxAttention([[1.0]], [[1.0]])
    bounds = certificate(attention, lp.Laplace(1), [0.8], [10**3, 10**6, 10**9, 10**12]).bound
    assert bool((bounds[1:] < bounds[:-1] / 3).all())


def test_batches_heads_and_lengths():
    attention = lp.SoftmaxAttention(draw(3, 2, 2) / 2, draw(3, 4, 2, seed=1))
    z = draw(5, 2, seed=2)
    for mu in (lp.Uniform(2), lp.Gaussian([0.0, 1.0], [[1.0, 0.0], [0.0, 1.0]])):
        many = certificate(attention, mu, z, [10, 1000])
        assert (
            many.bound.shape == many.rho.shape == many.theta.shape == many.reason.shape == (2, 3, 5)
        )
        one = certificate(lp.SoftmaxAttention(attention.U[1], attention.V[1]), mu, z[3], 1000)
        assert_close(many.bound[1, 1, 3], one.bound)
        assert many.reason[1, 1, 3] == one.reason
        assert many.tail(0.5).shape == (2, 3, 5)
    # one query outside the domain of 2u does not spoil the others
    mixed = certificate(lp.SoftmaxAttention([[1.0]], [[1.0]]), lp.Laplace(1), [[0.3], [0.9]], 10**5)
    assert_close(
        mixed.bound[0],
        certificate(lp.SoftmaxAttention([[1.0]], [[1.0]]), lp.Laplace(1), [0.3], 10**5).bound,
    )


BAD = (
    ((ONE, lp.Uniform(1), [1.0], 0), "length: got 0"),
    ((ONE, lp.Uniform(1), [1.0], math.inf), "length"),
    ((ONE, lp.Uniform(1), [1.0], []), "no lengths"),
    ((ONE, lp.Uniform(1), [1.0, 2.0], 5), "z: got shape"),
    ((lp.LinearAttention([[1.0]], [[1.0]]), lp.Uniform(1), [1.0], 5), "attention"),
    ((ONE, lp.Empirical(np.zeros((2, 3, 1))), [1.0], 5), "batch"),
    ((ONE, torch.zeros(3), [1.0], 10), "mu: got Tensor"),
)


@pytest.mark.parametrize("bound", [certificate, jacobian_certificate])
def test_bad_input(bound):
    for arguments, words in BAD:
        with pytest.raises(lp.InvalidArgumentError, match=words):
            bound(*arguments)


def test_bad_distances():
    with pytest.raises(lp.InvalidArgumentError, match="distance: got 0"):
        certificate(ONE, lp.Uniform(1), [1.0], 5).tail(0.0)


@pytest.mark.parametrize("seed", range(12))
def test_tails_by_enumeration(seed):
    """Every prompt of three tokens from three atoms: output and derivative, bound and tail, nothing
    left to chance.
    """
    generator = torch.Generator().manual_seed(seed)
    atoms = torch.randn(3, 1, generator=generator, dtype=F)
    weights = torch.softmax(torch.randn(3, generator=generator, dtype=F), 0)
    mu = lp.Discrete(atoms, weights / weights.sum())
    z = torch.randn(1, generator=generator, dtype=F)
    choices = torch.tensor(list(itertools.product(range(3), repeat=3)))
    prompts, chance = lp.Empirical(atoms[choices]), weights[choices].prod(-1)
    for found, error in (
        (lp.certificate(ONE, mu, z, 3), (ONE(prompts, z) - ONE(mu, z)).square().sum(-1)),
        (
            lp.jacobian_certificate(ONE, mu, z, 3),
            (ONE.jacobian_u(prompts, z) - ONE.jacobian_u(mu, z)).flatten(1).square().sum(-1),
        ),
    ):
        assert float(found.bound) >= float((chance * error).sum())
        for distance in (0.05, 0.2, 0.5, 1.0):
            assert float(found.tail(distance)) >= float(chance[error > distance**2].sum()) * (
                1 - 1e-12
            )


@pytest.mark.parametrize("df", [2.1, 3.0, 4.5])
def test_student_tokens_without_a_tilt_are_a_plain_average(df):
    """E‖T_L - T‖² = 1/L: moments come from the law, not from its placeholder cgf."""
    bounds = lp.certificate(ONE, lp.StudentT(1, df), [0.0], [1, 2, 5, 100]).bound
    assert bool((bounds >= torch.tensor([1.0, 0.5, 0.2, 0.01], dtype=F)).all())


def test_a_layer_that_reads_nothing_has_no_error():
    silent = lp.SoftmaxAttention([[1.0]], [[0.0]])
    for mu in (TWO_MODES, lp.Laplace(1), lp.Sphere(1)):
        assert float(lp.certificate(silent, mu, [0.5], 100).bound) == 0.0
        assert lp.prompt_length(silent, mu, [0.5], 0.1, "certified") == 1
    assert float(lp.jacobian_certificate(silent, lp.Sphere(1), [0.5], 100).bound) == 0.0


def test_certificates_carry_no_half_gradient():
    z = torch.tensor([0.7], dtype=F, requires_grad=True)
    assert not lp.certificate(ONE, NORMAL, z, 10).bound.requires_grad
    assert not lp.jacobian_certificate(ONE, NORMAL, z, 10).bound.requires_grad


def test_single_precision_bounds_are_rounded_outward():
    single = lp.SoftmaxAttention(torch.ones(1, 1), torch.ones(1, 1))
    bound = lp.certificate(
        single, lp.Gaussian(torch.zeros(1), torch.ones(1, 1)), torch.ones(1), 1
    ).bound
    assert float(bound) > 2.0  # the truth is 2, an equality


@pytest.mark.parametrize("size", [300.0, 380.0, 400.0, 1e5, 1e150])
def test_tilts_beyond_the_exponential_still_have_a_bound(size):
    """inf times 0 bounds nothing: a sign is within 2 of any limit, and at u = 300 and beyond the
    limit is the sign 1 itself.
    """
    found = lp.certificate(ONE, lp.Rademacher(1), [size], [1, 2, 100, 10**6])
    # that all signs are -1, where T_L - T = -2
    chance = torch.tensor([0.5, 0.25, 0.5**100, 0.0], dtype=F)
    assert bool((found.bound >= 4 * chance).all())
    assert bool((found.bound <= 4.0 * (1 + 1e-12)).all())
    assert not bool(
        torch.isnan(
            torch.stack([found.bound, found.leading, found.remainder, found.theta, found.rho])
        ).any()
    )


@pytest.mark.parametrize("size", [1e2, 1e8, 1e12, 1e17, 1e150])
@pytest.mark.parametrize("z", [[1.0, 0.0], [0.6, 0.8]])
def test_scores_that_swamp_the_cgf_are_not_certified_below_the_truth(size, z):
    """Tokens on a circle and scores so large that attention reads the nearest: E‖T_L - T‖² >= 4
    (π/(L+1))²/10 or so.
    """
    eye = torch.eye(2, dtype=F)
    found = lp.certificate(lp.SoftmaxAttention(size * eye, eye), lp.Sphere(2), z, [2, 100])
    prompts = lp.Empirical(
        lp.Sphere(2).sample(2000 * 100, torch.Generator().manual_seed(0)).reshape(2000, 100, 2)
    )
    layer = lp.SoftmaxAttention(size * eye, eye)
    error = (layer(prompts, z) - layer(lp.Sphere(2), z)).square().sum(-1)
    assert float(found.bound[1]) >= float(error.mean()) * 0.8
    assert bool((found.bound >= 0).all())
    assert "j" not in repr(lp.certificate(layer, lp.Sphere(2), z, 100))
    if size > 1e16:
        assert all("rounding leaves nothing of rho" in reason for reason in found.reason)


def test_a_layer_that_reads_nothing_has_no_error_where_the_cgf_is_one_sided():
    silent = lp.SoftmaxAttention([[1.0]], [[0.0]])
    for mu, z in (
        (scalar.LogNormal(1, 0.5), [-1.0]),
        (lp.Laplace(1), [1.2]),
        (lp.Rademacher(1), [1e5]),
        (NORMAL, [100.0]),
    ):
        found = lp.certificate(silent, mu, z, [1, 10, 10**6])
        assert bool((found.bound == 0).all())
        assert not bool(torch.isnan(found.leading).any())
    assert float(lp.jacobian_certificate(silent, lp.Rademacher(1), [1e5], 10).bound) == 0.0
    assert lp.prompt_length(silent, scalar.LogNormal(1, 0.5), [-1.0], 0.1, "certified") == 1


def test_a_users_cgf_that_is_nan_beyond_its_domain_is_an_infinite_moment():
    """The exponential law has no second moment of the weights at u = 0.7: its certificate is the
    one of Λ(2u) = ∞.
    """

    class Exponential(lp.Measure):
        dim = 1

        def cgf(self, u):
            return -torch.log1p(-u[..., 0])

        def sample(self, n, generator):
            return -torch.log1p(-torch.rand(n, 1, generator=generator, dtype=self.dtype))

    found = lp.certificate(ONE, Exponential(), [0.7], 1000)
    assert math.isinf(float(found.rho))
    assert math.isfinite(float(found.bound))
    assert "infinite at 2u" in found.reason


def test_no_certificate_loses_the_digits_of_a_difference_of_means():
    """tanh 2u - tanh u at u = 18 rounds to 3/4 of itself, and the bound was 4 % below the error."""
    one = lp.SoftmaxAttention([[1.0]], [[1.0]])
    for u in (10.0, 16.0, 18.0, 25.0):
        exact, bound = (
            found(one, lp.Rademacher(1), [u], [10**4, 10**10])
            for found in (lp.finite_prompt, lp.certificate)
        )
        assert bool((bound.bound > exact.mse).all())


def test_leading_term_alone_is_no_bound():
    """Signs at L = 1: T_1 = ±1 and E(T_1 - T)² = 1 + tanh² u."""
    z = torch.tensor([[0.5], [1.0], [2.0]], dtype=torch.float64)
    found = certificate(lp.SoftmaxAttention([[1.0]], [[1.0]]), lp.Rademacher(1), z, 1)
    exact = 1 + z[:, 0].tanh().square()
    assert bool((found.leading < exact).all())
    assert bool((found.bound >= exact * (1 - 1e-12)).all())
