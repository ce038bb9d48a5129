"""Mean and covariance where rare tokens make up the limit, against exact sums over how many of them a prompt has."""

import math

import pytest
import torch
from mpmath import mp, mpf

import largeprompt as lp
from largeprompt.law.rare import own_covariance, plain_moments

F = torch.float64


def head(dim=1):
    eye = torch.eye(dim, dtype=F)
    return lp.SoftmaxAttention(eye, eye)


def by_counts(share, far, tilt, length):
    """Mean and variance of Σ wx for atoms 0 and ``far``, 50 digits, over the number of tokens that are the second."""
    with mp.workdps(50):
        rest, share, odds = mpf(1 - share), mpf(share), mp.exp(mpf(tilt) * far)
        whole = rest + share
        counts = range(min(length, 60) + 1)
        chances = [mp.binomial(length, k) * (share / whole) ** k * (rest / whole) ** (length - k) for k in counts]
        outputs = [far * k * odds / (k * odds + length - k) for k in counts]
        mean = mp.fdot(chances, outputs)
        return float(mean), float(mp.fsum(p * (x - mean) ** 2 for p, x in zip(chances, outputs, strict=True)))


@pytest.mark.parametrize("share", [1e-6, 1e-9, 1e-12])
def test_rare_atoms(share):
    """p = 10^-12, L = 4: limit plus bias gave 1.199894e-10 for 1.2e-10."""
    mu, lengths = lp.Discrete([[0.0], [30.0]], [1 - share, share]), [1, 2, 4, 1000, 10**6]
    law = lp.finite_prompt(head(), mu, [0.9], lengths)
    for row, length in enumerate(lengths):
        mean, variance = by_counts(share, 30, 0.9, length)
        assert float(law.mean[row]) == pytest.approx(mean, rel=1e-11)
        assert float(law.covariance[row]) == pytest.approx(variance, rel=1e-11)


def test_plain_and_centred_moments_agree_where_both_are_right():
    """In two dimensions, for atoms, a mixture and a product: another grid, another sum."""
    generator = torch.Generator().manual_seed(1)
    atoms = lp.Empirical(torch.randn(7, 2, generator=generator, dtype=F))
    mixture = lp.GaussianMixture([0.4, 0.6], [[0.0, 1.0], [2.0, -1.0]], torch.eye(2, dtype=F).expand(2, 2, 2))
    product = lp.scalar.GeneralisedNormal(2, 1.5)
    for mu, u in ((atoms, [0.8, -0.4]), (mixture, [0.5, 0.7]), (product, [0.9, 0.0])):
        law = lp.finite_prompt(head(2), mu, u, [2, 50])
        means, spreads = plain_moments(mu, torch.tensor(u, dtype=F), [2.0, 50.0])
        torch.testing.assert_close(law.mean, torch.from_numpy(means), rtol=1e-11, atol=1e-13)
        torch.testing.assert_close(law.covariance, torch.from_numpy(spreads), rtol=1e-11, atol=1e-13)


def test_a_mixture_with_a_rare_component():
    """The mean over two tokens by a double integral, whose rare part is 2 p E x/(1 + e^{s' - s})."""
    share, nodes = 1e-11, torch.linspace(-9, 9, 1801, dtype=F)
    p = torch.exp(-nodes.square() / 2) * 0.01 / math.sqrt(2 * math.pi)
    mu = lp.GaussianMixture([1 - share, share], [[0.0], [40.0]], [[[1e-4]], [[1e-4]]])
    x, y = 40 + 0.01 * nodes[:, None], 0.01 * nodes
    weight = torch.sigmoid(0.9 * (x - y))
    expected = 2 * share * (1 - share) * (p @ (weight * x + (1 - weight) * y) @ p) + share**2 * 40.0
    within = (1 - share) ** 2 * 0.9 * 1e-4 / 2  # of two ordinary tokens, to the order of the cube of their deviation
    law = lp.finite_prompt(head(), mu, [0.9], 2)
    assert float(law.mean) == pytest.approx(float(expected) + within, rel=1e-4)


def test_own_covariance_around_the_mean():
    mu = lp.Discrete([[0.0], [30.0]], [1 - 1e-12, 1e-12])
    assert own_covariance(mu)[0, 0] == pytest.approx(900e-12 * (1 - 1e-12), rel=1e-14)
    assert own_covariance(lp.Laplace(1))[0, 0] == 1.0


def test_a_path_that_seldom_has_the_windows_of_its_limit_is_refused():
    chain = lp.measures.MarkovChain([[1 - 1e-11, 1e-11], [0.5, 0.5]])
    eye = torch.eye(4, dtype=F)
    attention = lp.SoftmaxAttention(eye, eye[3:])
    with pytest.raises(lp.InvalidArgumentError, match="seldom has the windows of its limit"):
        lp.finite_prompt(attention, chain, [0.0, 0.0, 0.0, 32.0], 3)
