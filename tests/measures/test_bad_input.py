"""Bad parameters: each refusal names the argument, what was given, and what is allowed."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import largeprompt as lp

EYE = [[1.0, 0.0], [0.0, 1.0]]
NAN = float("nan")

CASES = {
    "mean is a number": (lambda: lp.Gaussian(1.0, [[1.0]]), "mean: got shape"),
    "mean of text": (lambda: lp.Gaussian(["a"], [[1.0]]), "mean: got list"),
    "ragged mean": (lambda: lp.Gaussian([[1.0], [1.0, 2.0]], EYE), "mean: got list"),
    "complex mean": (lambda: lp.Gaussian(np.array([1j, 2]), EYE), "real dtype"),
    "nan mean": (lambda: lp.Gaussian([NAN, 0.0], EYE), "mean: got 1 NaN"),
    "infinite covariance": (lambda: lp.Gaussian([0.0], [[math.inf]]), "covariance: got 1 NaN or infinite"),
    "covariance of another size": (lambda: lp.Gaussian([0.0, 0.0, 0.0], EYE), r"covariance: got shape \(2, 2\)"),
    "covariance not square": (lambda: lp.Gaussian([0.0, 0.0], [[1.0, 0.0]]), "covariance: got shape"),
    "asymmetric": (lambda: lp.Gaussian([0.0, 0.0], [[1.0, 0.5], [0.4, 1.0]]), "asymmetric"),
    "indefinite": (lambda: lp.Gaussian([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]]), "smallest eigenvalue -1"),
    "negative variance": (lambda: lp.Gaussian([0.0], [[-1e-9]]), "indefinite"),
    "dtype mix": (lambda: lp.Gaussian(torch.zeros(2), torch.eye(2, dtype=torch.float64)), "covariance: got dtype"),
    "device mix": (lambda: lp.Gaussian([0.0], torch.ones(1, 1, dtype=torch.float64, device="meta")), "covariance: got device"),
    "batches that do not fit": (lambda: lp.Gaussian(np.zeros((3, 1)), np.ones((2, 1, 1))), "broadcast"),
    "negative weight": (lambda: lp.GaussianMixture([1.5, -0.5], [[0.0], [1.0]], [[[1.0]]] * 2), "weights: got a negative"),
    "weights sum to two": (lambda: lp.GaussianMixture([1.0, 1.0], [[0.0], [1.0]], [[[1.0]]] * 2), "sum to 2"),
    "a weight too few": (lambda: lp.GaussianMixture([1.0], [[0.0], [1.0]], [[[1.0]]] * 2), "weights: got shape"),
    "a covariance too few": (lambda: lp.GaussianMixture([0.5, 0.5], [[0.0], [1.0]], [[[1.0]]]), "covariances: got shape"),
    "indefinite component": (lambda: lp.GaussianMixture([1.0], [[0.0]], [[[-1.0]]]), "covariances: got an indefinite"),
    "no tokens": (lambda: lp.Empirical(np.zeros((0, 3))), "zero tokens"),
    "tokens without a dimension": (lambda: lp.Empirical([1.0, 2.0]), "tokens: got shape"),
    "nan token": (lambda: lp.Empirical([[NAN]]), "tokens: got 1 NaN"),
    "token weights": (lambda: lp.Empirical([[1.0], [2.0]], [0.5, 0.6]), "sum to 1.1"),
    "token weights in float32": (lambda: lp.Empirical([[1.0]], torch.ones(1)), "weights: got dtype"),
    "token weights too many": (lambda: lp.Empirical([[1.0]], [0.5, 0.5]), "weights: got shape"),
    "atoms": (lambda: lp.Discrete([1.0], [1.0]), "atoms: got shape"),
    "atom weights": (lambda: lp.Discrete([[1.0]], [0.9]), "sum to 0.9"),
    "dim zero": (lambda: lp.Rademacher(0), "dim: got 0"),
    "dim fraction": (lambda: lp.Uniform(2.5), "dim: got 2.5"),
    "dim boolean": (lambda: lp.Laplace(True), "dim: got True"),
    "dtype integer": (lambda: lp.Laplace(1, dtype=torch.int64), "dtype: got torch.int64"),
    "terms huge": (lambda: lp.scalar.RademacherSum(1, 10**400), r"allowed: an integer from 1 to 10\^15"),
    "terms text": (lambda: lp.scalar.RademacherSum(1, "x"), "terms: got 'x'"),
    "df zero": (lambda: lp.StudentT(1, 0.0), "df: got 0"),
    "df nan": (lambda: lp.StudentT(1, NAN), "df: got nan"),
    "df text": (lambda: lp.StudentT(1, "many"), "df: got 'many'"),
    "radius negative": (lambda: lp.Sphere(2, -1.0), "radius: got -1"),
    "radius nan": (lambda: lp.Sphere(2, NAN), "radius: got 1 NaN"),
    "radius two": (lambda: lp.Sphere(2, [1.0, 2.0]), "radius"),
    "no laws": (lambda: lp.Product([]), "laws"),
    "not laws": (lambda: lp.Product([lp.Uniform(1)]), "laws"),
    "map of another dimension": (lambda: lp.Uniform(2).map([[1.0]]), "matrix: got shape"),
    "map by a vector": (lambda: lp.Uniform(2).map([1.0, 2.0]), "matrix: got shape"),
    "offset of another dimension": (lambda: lp.Uniform(2).map(EYE, [1.0]), "offset: got shape"),
    "center of another dimension": (lambda: lp.Uniform(2).norm_moment4([1.0]), "center: got shape"),
    "merge with a law": (lambda: lp.Empirical([[1.0]]).merge(lp.Uniform(1)), "others: got"),
    "merge of dimensions": (lambda: lp.Empirical([[1.0]]).merge(lp.Empirical([[1.0, 2.0]])), "others: got"),
    "merge of dtypes": (lambda: lp.Empirical([[1.0]]).merge(lp.Empirical(torch.ones(1, 1))), "others: got dtype"),
    "directions": (lambda: lp.Uniform(2).directional_cumulants([[1.0]]), "directions: got shape"),
    "batch of tilts": (lambda: lp.Empirical(np.zeros((3, 2, 1))).cgf(np.zeros((2, 1))), "broadcast"),
}


@pytest.mark.parametrize("name", CASES)
def test_refused(name):
    build, words = CASES[name]
    with pytest.raises(lp.InvalidArgumentError, match=words) as caught:
        build()
    assert isinstance(caught.value, ValueError)
    assert "allowed: " in str(caught.value)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    st.integers(1, 4),
    st.integers(0, 3),
    st.sampled_from([NAN, math.inf, -math.inf]),
    st.sampled_from(["mean", "covariance", "u", "center", "tokens"]),
)
def test_no_nan_comes_in(d, where, value, argument):
    """Wherever a NaN or an infinity stands, it is refused with the argument's name; nothing turns it into a silent NaN."""
    bad, good = np.zeros(d), np.zeros(d)
    bad[where % d] = value
    calls = {
        "mean": lambda: lp.Gaussian(bad, np.eye(d)),
        "covariance": lambda: lp.Gaussian(good, np.diag(bad)),
        "u": lambda: lp.Gaussian(good, np.eye(d)).cgf(bad),
        "center": lambda: lp.Uniform(d).norm_moment4(bad),
        "tokens": lambda: lp.Empirical(np.stack([good, bad])),
    }
    with pytest.raises(lp.InvalidArgumentError, match=f"{argument}: got 1 NaN or infinite"):
        calls[argument]()


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.floats(math.sqrt(2), 1e6), st.booleans(), st.integers(1, 3), st.data())
def test_laplace_domain_is_guarded_everywhere(size, negative, d, data):
    mu = lp.Laplace(d)
    u = np.zeros(d)
    u[data.draw(st.integers(0, d - 1))] = -size if negative else size
    for function in (mu.cgf, mu.tilt, mu.tilted_mean, mu.tilted_covariance, mu.tilt(np.zeros(d)).cgf, mu.map(np.eye(d)).cgf):
        with pytest.raises(lp.TiltDomainError, match="no infinite-prompt limit"):
            function(u)


def test_integers_and_booleans_become_numbers():
    assert lp.Gaussian([1, 2], [[1, 0], [0, 1]]).dtype == torch.float64
    assert lp.Empirical(torch.tensor([[1], [2]])).dtype == torch.float64
    assert lp.Empirical(np.ones((2, 1), np.float32)).dtype == torch.float32


def test_measures_are_frozen():
    with pytest.raises(AttributeError):
        lp.Gaussian([0.0], [[1.0]]).mean = 3


def test_missing_dimension_is_named():
    class Nothing(lp.Measure):
        def cgf(self, u):
            return u

        def sample(self, n, generator):
            return n

    with pytest.raises(NotImplementedError, match="Nothing must say its dimension"):
        _ = Nothing().dim


class Gamma(lp.scalar.ScalarLaw):
    """A centred gamma law of shape 4 whose author forgot that its cgf ends at 1."""

    def cgf(self, u):
        return -4 * torch.log1p(-u) - 4 * u

    def sample(self, u, generator):
        return torch._standard_gamma(torch.full_like(u, 4.0), generator=generator) / (1 - u) - 4


class GammaWithDomain(Gamma):
    domain = (-math.inf, 1.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda mu, u: mu.cgf(u),
        lambda mu, u: mu.tilted_mean(u),
        lambda mu, u: mu.tilted_covariance(u),
        lambda mu, u: mu.tilt(u),
        lambda mu, u: mu.map([[1.0]]).tilted_mean(u),
        lambda mu, u: mu.tilted_norm_moment4(u, [0.0]),
        lambda mu, u: mu.directional_cumulants([[1.0]], u),
        lambda mu, u: lp.SoftmaxAttention([[1.0]], [[1.0]])(mu, u),
    ],
)
@pytest.mark.parametrize("law", [Gamma, GammaWithDomain])
def test_a_law_beyond_its_domain_raises_and_names_the_tilt(law, call):
    """Autograd through NaN gives a finite number: -6.0 for the mean of this law at u = 3."""
    mu = lp.Product([law()])
    with pytest.raises(lp.TiltDomainError, match="u: got the entry 3 on"):
        call(mu, [3.0])
    call(mu, [0.5])


def test_the_tilt_of_a_users_measure_beyond_its_domain_raises():
    class Exponential(lp.Measure):
        dim = 1

        def cgf(self, u):
            return -torch.log1p(-torch.as_tensor(u)[..., 0])

        def sample(self, n, generator):
            return -torch.log1p(-torch.rand(n, 1, generator=generator, dtype=self.dtype))

    for call in (
        lambda mu: mu.tilt([1.5]),
        lambda mu: mu.tilted_norm_moment4([1.5], [0.0]),
        lambda mu: mu.directional_cumulants([[1.0]], [1.5]),
    ):
        with pytest.raises(lp.TiltDomainError, match="u: got"):
            call(Exponential())
