"""Certificates: never below the truth, sharp where they should be, and clear about why they are not."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.certificates import certificate, jacobian_certificate
from largeprompt.certificates.output import gaussian_collision_bound
from largeprompt.law import finite_prompt, weight_moment

F = torch.float64
LENGTHS = [1, 2, 3, 5, 10, 30, 100, 1000, 10**4, 10**6, 10**9]


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F)


def test_collision_bound_is_never_below_the_truth():
    """E Y <= (x/L)(1 - (1-1/x)^L) on 6,600 (σ, L), with equality at L = 1 and at σ = 0."""
    sigma = torch.cat([torch.zeros(1, dtype=F), torch.logspace(-3, math.log10(12), 599, dtype=F)])
    for length in LENGTHS:
        bound, truth = gaussian_collision_bound(sigma**2, length), weight_moment(length, sigma, [(2, 0)])
        assert bool((bound >= truth * (1 - 1e-13)).all())
        assert float(bound[0]) == pytest.approx(1 / length, rel=1e-15)
    assert_close(gaussian_collision_bound(sigma**2, 1), torch.ones_like(sigma), rtol=1e-14, atol=0)
    assert float(gaussian_collision_bound(torch.tensor(5000.0, dtype=F), 10**9)) == 1.0  # no overflow


def test_gaussian_certificate_on_ten_thousand_laws():
    """10,080 random (law, layer, query, L): dimensions 1 to 6, tiny to huge score variances, singular covariances too."""
    cases = 0
    for seed in range(42):
        d, o, n = 1 + seed % 6, 1 + seed % 3, 20
        rank = d if seed % 4 else max(1, d - 1)
        root = draw(d, rank, seed=seed) * 10 ** float(draw(1, seed=seed + 7) / 3)
        mu = lp.Gaussian(draw(d, seed=seed + 1), root @ root.mT / d)
        attention = lp.SoftmaxAttention(draw(d, d, seed=seed + 2) / d, draw(o, d, seed=seed + 3))
        z = draw(n, d, seed=seed + 4) * torch.logspace(-1.5, 0.7, n, dtype=F)[:, None]
        lengths = [*LENGTHS, 7]
        exact, bound = finite_prompt(attention, mu, z, lengths).mse, certificate(attention, mu, z, lengths).bound
        assert bool((bound >= exact * (1 - 1e-12)).all())
        assert_close(bound[0], exact[0], rtol=1e-9, atol=0)  # equality at L = 1
        cases += bound.numel()
    assert cases >= 10_000


def test_mixture_certificate_on_a_thousand_laws():
    """Random mixtures of one to three components, L from 1 to 10^9, against the exact mixture law."""
    cases = 0
    for seed in range(24):
        d, k = 1 + seed % 2, 1 + seed % 3
        roots = draw(k, d, d, seed=seed) / math.sqrt(d)
        weights = torch.softmax(draw(k, seed=seed + 1), 0)
        mu = lp.GaussianMixture(weights / weights.sum(), draw(k, d, seed=seed + 2), roots @ roots.mT)
        attention = lp.SoftmaxAttention(draw(d, d, seed=seed + 3), draw(2, d, seed=seed + 4))
        z = draw(4, d, seed=seed + 5) * torch.tensor([0.2, 0.6, 1.0, 1.6], dtype=F)[:, None]
        exact, bound = finite_prompt(attention, mu, z, LENGTHS).mse, certificate(attention, mu, z, LENGTHS).bound
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
    """The bound is at least the sampled error minus 6.5 standard errors (false alarm 4e-11 each)."""
    attention = lp.SoftmaxAttention(torch.eye(2, dtype=F), torch.tensor([[1.0, 0.5]], dtype=F))
    z = torch.tensor([size, -0.4 * size], dtype=F)
    n = 600_000 // length + 2000
    prompts = lp.Empirical(mu.sample(n * length, torch.Generator().manual_seed(2)).reshape(n, length, 2))
    squared = (attention(prompts, z) - attention(mu, z)).square().sum(-1)
    found = certificate(attention, mu, z, length)
    assert float(found.bound) >= float(squared.mean() - 6.5 * squared.std() / math.sqrt(n))
    for distance in (0.1, 0.5, 2.0):
        share = float((squared > distance**2).double().mean())
        assert float(found.tail(distance)) >= share - 6.5 * math.sqrt(0.25 / n)


def test_sharpness():
    """Gaussian: 1.05 from L = 100 ρ on for σ² up to 0.8, and from 160 ρ² on whatever σ²; split bound: 1.2 from 1000 ρ on."""
    attention = lp.SoftmaxAttention([[1.0]], [[1.0]])
    mu = lp.Gaussian([0.0], [[1.0]])
    for q in (0.05, 0.2, 0.5, 0.8):
        for factor in (100, 1000):
            length = math.ceil(factor * math.exp(q))
            assert (
                float(certificate(attention, mu, [q**0.5], length).bound / finite_prompt(attention, mu, [q**0.5], length).mse)
                <= 1.05
            )
    for q in (0.05, 0.5, 1.0, 2.0, 4.0, 8.0):
        length = math.ceil(160 * math.exp(2 * q))
        assert (
            float(certificate(attention, mu, [q**0.5], length).bound / finite_prompt(attention, mu, [q**0.5], length).mse) <= 1.05
        )
    mixture = lp.GaussianMixture([0.3, 0.7], [[-1.0], [1.0]], [[[0.5]], [[0.3]]])
    for z in (0.3, 0.7, 1.0, 1.7, 2.5):
        rho = math.exp(float(mixture.cgf([2 * z]) - 2 * mixture.cgf([z])))
        length = math.ceil(1000 * rho)
        ratio = float(certificate(attention, mixture, [z], length).bound / finite_prompt(attention, mixture, [z], length).mse)
        assert 1 <= ratio <= 1.2


def test_reasons_and_pieces():
    attention = lp.SoftmaxAttention([[1.0]], [[1.0]])
    mixture = lp.GaussianMixture([0.3, 0.7], [[-1.0], [1.0]], [[[0.5]], [[0.3]]])
    good, short = certificate(attention, mixture, [1.0], 10_000), certificate(attention, mixture, [3.0], 3)
    assert good.reason.startswith("split bound, second order")
    assert 0 < float(good.theta) < 1
    assert float(good.rho) == pytest.approx(math.exp(float(mixture.cgf([2.0]) - 2 * mixture.cgf([1.0]))))
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
    """Laplace at |u| = 0.8: Λ(2u) is infinite, the moment of order 1.6 is not; the bound tends to 0."""
    attention = lp.SoftmaxAttention([[1.0]], [[1.0]])
    bounds = certificate(attention, lp.Laplace(1), [0.8], [10**3, 10**6, 10**9, 10**12]).bound
    assert bool((bounds[1:] < bounds[:-1] / 3).all())


def test_batches_heads_and_lengths():
    attention = lp.SoftmaxAttention(draw(3, 2, 2) / 2, draw(3, 4, 2, seed=1))
    z = draw(5, 2, seed=2)
    for mu in (lp.Uniform(2), lp.Gaussian([0.0, 1.0], [[1.0, 0.0], [0.0, 1.0]])):
        many = certificate(attention, mu, z, [10, 1000])
        assert many.bound.shape == many.rho.shape == many.theta.shape == many.reason.shape == (2, 3, 5)
        one = certificate(lp.SoftmaxAttention(attention.U[1], attention.V[1]), mu, z[3], 1000)
        assert_close(many.bound[1, 1, 3], one.bound)
        assert many.reason[1, 1, 3] == one.reason
        assert many.tail(0.5).shape == (2, 3, 5)
    # one query outside the domain of 2u does not spoil the others
    mixed = certificate(lp.SoftmaxAttention([[1.0]], [[1.0]]), lp.Laplace(1), [[0.3], [0.9]], 10**5)
    assert_close(mixed.bound[0], certificate(lp.SoftmaxAttention([[1.0]], [[1.0]]), lp.Laplace(1), [0.3], 10**5).bound)


@pytest.mark.parametrize("mu", [lp.Gaussian([0.2, 0.0], [[1.0, 0.3], [0.3, 0.5]]), lp.Rademacher(2), lp.Sphere(2)], ids=repr)
def test_jacobian_certificate_is_never_below_the_truth(mu):
    attention, z = lp.SoftmaxAttention(draw(2, 2) / 2, draw(2, 2, seed=1)), draw(2, seed=2)
    lengths = [1, 2, 5, 20, 100, 1000]
    found = jacobian_certificate(attention, mu, z, lengths)
    for length, bound in zip(lengths, found.bound, strict=True):
        if isinstance(mu, lp.Gaussian):
            assert float(bound) >= float(finite_prompt(attention, mu, z, length).jacobian_u_mse)
        else:
            n = 200_000 // length + 1000
            prompts = lp.Empirical(mu.sample(n * length, torch.Generator().manual_seed(0)).reshape(n, length, 2))
            squared = (attention.jacobian_u(prompts, z) - attention.jacobian_u(mu, z)).flatten(1).square().sum(-1)
            assert float(bound) >= float(squared.mean() - 6.5 * squared.std() / math.sqrt(n))


def test_jacobian_certificate_becomes_sharp():
    attention = lp.SoftmaxAttention(torch.eye(2, dtype=F), torch.eye(2, dtype=F))
    mu, z = lp.Gaussian([0.0, 0.0], [[1.0, 0.0], [0.0, 1.0]]), [0.5, 0.2]
    ratio = jacobian_certificate(attention, mu, z, 10**7).bound / finite_prompt(attention, mu, z, 10**7).jacobian_u_mse
    assert 1 <= float(ratio) <= 1.02
    mixture = lp.GaussianMixture([0.4, 0.6], [[0.0, 0.0]] * 2, torch.eye(2, dtype=F).expand(2, 2, 2))
    assert_close(jacobian_certificate(attention, mixture, z, 10**4).bound, jacobian_certificate(attention, mu, z, 10**4).bound)
    unknown = jacobian_certificate(attention, lp.Laplace(2), z, 10**4)
    assert math.isinf(float(unknown.bound))
    assert unknown.reason.startswith("no bound")


def test_bad_input():
    attention = lp.SoftmaxAttention([[1.0]], [[1.0]])
    mu = lp.Uniform(1)
    for function in (certificate, jacobian_certificate):
        for arguments, words in (
            ((attention, mu, [1.0], 0), "length: got 0"),
            ((attention, mu, [1.0], math.inf), "length"),
            ((attention, mu, [1.0], []), "no lengths"),
            ((attention, mu, [1.0, 2.0], 5), "z: got shape"),
            ((lp.LinearAttention([[1.0]], [[1.0]]), mu, [1.0], 5), "attention"),
            ((attention, lp.Empirical(np.zeros((2, 3, 1))), [1.0], 5), "batch"),
        ):
            with pytest.raises(lp.InvalidArgumentError, match=words):
                function(*arguments)
    with pytest.raises(lp.InvalidArgumentError, match="distance: got 0"):
        certificate(attention, mu, [1.0], 5).tail(0.0)
