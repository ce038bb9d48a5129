"""Laws of other libraries, against their own densities, moments and samples."""

import math
import types

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import distributions as td
from torch.testing import assert_close

import largeprompt as lp

F = torch.float64


def tensor(values):
    return torch.tensor(values, dtype=F)


def log_mass(log_density, tilt, low, high):
    """log ∫ e^{ux} p(x) dx by SciPy."""
    value = integrate.quad(
        lambda x: math.exp(tilt * x + log_density(x)), low, high, points=[0.0, 1.0], limit=300
    )
    return math.log(value[0])


LINE = {
    "Normal": (td.Normal(tensor(0.3), tensor(1.7)), 0.8, (-20, 20)),
    "Laplace": (td.Laplace(tensor(0.5), tensor(0.4)), 1.1, (-20, 30)),
    "Uniform": (td.Uniform(tensor(-1.0), tensor(2.5)), -2.0, (-1, 2.5)),
    "mixture": (
        td.MixtureSameFamily(
            td.Categorical(tensor([0.3, 0.7])), td.Normal(tensor([-1.0, 2.0]), tensor([0.5, 1.0]))
        ),
        0.7,
        (-20, 20),
    ),
    "norm": (stats.norm(0.3, 1.7), 0.8, (-20, 20)),
    "laplace": (stats.laplace(0.5, 0.4), 1.1, (-20, 30)),
    "uniform": (stats.uniform(-1.0, 3.5), -2.0, (-1, 2.5)),
    "gennorm": (stats.gennorm(3.0, loc=0.4, scale=2.0), 0.6, (-15, 15)),
    "skewnorm": (stats.skewnorm(4.0, loc=-0.3, scale=1.5), 0.5, (-20, 20)),
    "lognorm": (stats.lognorm(0.4, loc=-1.0, scale=2.0), -0.7, (-1, 60)),
}


@pytest.mark.parametrize("name", LINE)
def test_cumulant_generating_functions_of_laws_on_the_line(name):
    law, tilt, ends = LINE[name]
    log_density = law.logpdf if hasattr(law, "logpdf") else lambda x: float(law.log_prob(tensor(x)))
    mu = lp.as_measure(law)
    assert mu.dim == 1
    assert float(mu.cgf([tilt])) == pytest.approx(log_mass(log_density, tilt, *ends), rel=1e-8)
    mean = law.mean() if callable(law.mean) else law.mean
    variance = law.var() if hasattr(law, "var") else law.variance
    assert float(mu.mean) == pytest.approx(float(mean), rel=1e-12)
    assert float(mu.covariance) == pytest.approx(float(variance), rel=1e-12)


@pytest.mark.parametrize(
    "law",
    [td.StudentT(tensor(5.0), tensor(0.5), tensor(2.0)), stats.t(5.0, 0.5, 2.0)],
    ids=["torch", "scipy"],
)
def test_student(law):
    mu = lp.as_measure(law)
    assert_close(mu.mean, tensor([0.5]))
    assert_close(mu.covariance, tensor([[4 * 5 / 3]]))
    drawn = mu.sample(4000, 0)[:, 0].numpy()
    assert stats.kstest(drawn, stats.t(5.0, 0.5, 2.0).cdf).pvalue > 1e-6
    with pytest.raises(lp.TiltDomainError):
        mu.cgf([0.1])
    assert_close(
        lp.as_measure(stats.t(1.5, 0.0, 3.0)).sample(2, 0) / 3, lp.StudentT(1, 1.5).sample(2, 0)
    )


SCALES = tensor([0.5, 2.0, 1.0])
PLACES = tensor([1.0, 0.0, -1.0])
INDEPENDENT = {
    "Normal": td.Normal(PLACES, SCALES),
    "Laplace": td.Laplace(PLACES, SCALES),
    "Uniform": td.Uniform(PLACES, PLACES + SCALES),
    "StudentT": td.StudentT(tensor([5.0, 7.0, 5.0]), PLACES, SCALES),
}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_independent_coordinates(name):
    base = INDEPENDENT[name]
    mu = lp.as_measure(td.Independent(base, 1))
    assert mu.dim == 3
    assert_close(mu.mean, base.mean)
    assert_close(mu.covariance, torch.diag(base.variance))
    drawn = mu.sample(4000, 1)
    for i in range(3):
        torch.manual_seed(i)
        theirs = base.sample((4000,))[:, i]
        assert stats.ks_2samp(drawn[:, i].numpy(), theirs.numpy()).pvalue > 1e-6
    if name != "Normal":
        with pytest.raises(lp.InvalidArgumentError, match=r"Independent\(law, 1\)"):
            lp.as_measure(base)


def test_gaussians_and_their_mixtures():
    root = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(0), dtype=F)
    covariances = root @ root.mT + torch.eye(3, dtype=F)
    means = tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 0.0]])
    parts = td.MultivariateNormal(means, covariances)
    batch = lp.as_measure(parts)
    assert isinstance(batch, lp.Gaussian)
    assert batch.batch_shape == (2,)
    assert_close(batch.covariance, covariances)
    mixture = lp.as_measure(td.MixtureSameFamily(td.Categorical(tensor([0.25, 0.75])), parts))
    assert isinstance(mixture, lp.GaussianMixture)
    assert_close(mixture.weights, tensor([0.25, 0.75]))
    assert_close(mixture.means, means)
    diagonal = td.Independent(td.Normal(means, means + 1), 1)
    mixture = lp.as_measure(td.MixtureSameFamily(td.Categorical(tensor([0.25, 0.75])), diagonal))
    assert_close(mixture.covariances, torch.diag_embed((means + 1) ** 2))
    frozen = stats.multivariate_normal(means[0].numpy(), covariances[0].numpy())
    assert_close(lp.as_measure(frozen).covariance, covariances[0])
    assert lp.as_measure(td.Normal(0.0, 1.0)).dtype == torch.float32
    mu = lp.Laplace(2)
    assert lp.as_measure(mu) is mu


def test_gradients_reach_the_parameters():
    mean = tensor([0.5, 1.0]).requires_grad_()
    mu = lp.as_measure(td.MultivariateNormal(mean, torch.eye(2, dtype=F)))
    (slope,) = torch.autograd.grad(mu.cgf([1.0, 2.0]), mean)
    assert_close(slope, tensor([1.0, 2.0]))


def test_discrete_laws_of_scipy():
    mu = lp.as_measure(stats.binom(5, 0.3, loc=2))
    assert isinstance(mu, lp.Discrete)
    assert float(mu.mean) == pytest.approx(3.5)
    assert float(mu.cgf([0.7])) == pytest.approx(1.4 + 5 * math.log(0.7 + 0.3 * math.exp(0.7)))
    with pytest.raises(lp.InvalidArgumentError, match="bounded support"):
        lp.as_measure(stats.poisson(2.0))


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_fitted_mixtures_of_scikit_learn(kind):
    sklearn = pytest.importorskip("sklearn.mixture")
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(-3, 1, (100, 2)), rng.normal(3, [0.5, 2.0], (50, 2))])
    fitted = sklearn.GaussianMixture(2, covariance_type=kind, random_state=0).fit(rows)
    mu = lp.as_measure(fitted)
    # the density of the mixture, at the rows
    parts = td.MultivariateNormal(mu.means, mu.covariances)
    law = td.MixtureSameFamily(td.Categorical(mu.weights), parts)
    np.testing.assert_allclose(law.log_prob(torch.as_tensor(rows)), fitted.score_samples(rows))


@pytest.mark.parametrize(
    ("obj", "words"),
    [
        ("normal", "torch.distributions"),
        (stats.norm, "scipy.stats"),
        (stats.gamma(2.0), "gennorm"),
        (td.Gamma(1.0, 1.0), "subclass of lp.Measure"),
        (td.Independent(td.Laplace(torch.zeros(2, 2), 1.0), 2), "Independent"),
        (
            td.MixtureSameFamily(
                td.Categorical(torch.ones(2)), td.Laplace(torch.zeros(2), torch.ones(2))
            ),
            "mixtures of these",
        ),
        (np.zeros((3, 2)), r"lp.Empirical\(tokens\)"),
        (types.SimpleNamespace(weights_=[1.0]), "scikit-learn"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_it_says_what_it_can_take(obj, words):
    with pytest.raises(lp.InvalidArgumentError, match=words):
        lp.as_measure(obj)
