"""Every law of the library: bad parameters, batches, and identities that hold
for every parameter.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.measures.scalar.skew_normal import LARGEST_SKEW
from largeprompt.testing.strategies import covariances, probabilities, vectors

F = torch.float64
EVEN = settings(deadline=None, max_examples=60, derandomize=True)
dims = st.integers(1, 4)


@st.composite
def laws(draw, dim=None):
    """Any law of the library with random parameters, and its dimension."""
    d = draw(dims) if dim is None else dim
    kind = draw(
        st.sampled_from(
            [
                "gaussian",
                "mixture",
                "empirical",
                "weighted",
                "discrete",
                "product",
                "sphere",
                "image",
            ]
        )
    )
    if kind == "gaussian":
        return lp.Gaussian(draw(vectors(d)), draw(covariances(d)))
    if kind == "mixture":
        k = draw(st.integers(1, 3))
        parts = torch.stack([draw(covariances(d)) for _ in range(k)])
        return lp.GaussianMixture(draw(probabilities(k)), draw(vectors(d, shape=(k,))), parts)
    if kind == "empirical":
        return lp.Empirical(draw(vectors(d, shape=(draw(st.integers(1, 6)),))))
    if kind in ("weighted", "discrete"):
        k = draw(st.integers(1, 5))
        make = lp.Empirical if kind == "weighted" else lp.Discrete
        return make(draw(vectors(d, shape=(k,))), draw(probabilities(k)))
    if kind == "product":
        laws = [lp.scalar.RademacherLaw(), lp.scalar.UniformLaw(), lp.scalar.LaplaceLaw()]
        return lp.Product([draw(st.sampled_from(laws)) for _ in range(d)])
    if kind == "sphere":
        return lp.Sphere(d, draw(st.floats(0.1, 5.0)))
    return lp.Uniform(d).map(draw(vectors(d, shape=(d,))), draw(vectors(d)))


@st.composite
def law_and_tilts(draw, count):
    mu = draw(laws())
    return mu, [draw(vectors(mu.dim, size=0.4)) for _ in range(count)]


def close(a, b):
    assert_close(a, b, rtol=1e-9, atol=1e-9)


EYE = [[1.0, 0.0], [0.0, 1.0]]
NAN = float("nan")
CASES = {
    "mean is a number": (lambda: lp.Gaussian(1.0, [[1.0]]), "mean: got shape"),
    "mean of text": (lambda: lp.Gaussian(["a"], [[1.0]]), "mean: got list"),
    "ragged mean": (lambda: lp.Gaussian([[1.0], [1.0, 2.0]], EYE), "mean: got list"),
    "complex mean": (lambda: lp.Gaussian(np.array([1j, 2]), EYE), "real dtype"),
    "nan mean": (lambda: lp.Gaussian([NAN, 0.0], EYE), "mean: got 1 NaN"),
    "infinite covariance": (
        lambda: lp.Gaussian([0.0], [[math.inf]]),
        "covariance: got 1 NaN or infinite",
    ),
    "covariance of another size": (
        lambda: lp.Gaussian([0.0, 0.0, 0.0], EYE),
        r"covariance: got shape \(2, 2\)",
    ),
    "covariance not square": (
        lambda: lp.Gaussian([0.0, 0.0], [[1.0, 0.0]]),
        "covariance: got shape",
    ),
    "asymmetric": (lambda: lp.Gaussian([0.0, 0.0], [[1.0, 0.5], [0.4, 1.0]]), "asymmetric"),
    "indefinite": (
        lambda: lp.Gaussian([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]]),
        "smallest eigenvalue -1",
    ),
    "negative variance": (lambda: lp.Gaussian([0.0], [[-1e-9]]), "indefinite"),
    "device mix": (
        lambda: lp.Gaussian([0.0], torch.ones(1, 1, dtype=torch.float64, device="meta")),
        "covariance: got a tensor without entries",
    ),
    "batches that do not fit": (
        lambda: lp.Gaussian(np.zeros((3, 1)), np.ones((2, 1, 1))),
        "broadcast",
    ),
    "negative weight": (
        lambda: lp.GaussianMixture([1.5, -0.5], [[0.0], [1.0]], [[[1.0]]] * 2),
        "weights: got a negative",
    ),
    "weights sum to two": (
        lambda: lp.GaussianMixture([1.0, 1.0], [[0.0], [1.0]], [[[1.0]]] * 2),
        "sum to 2",
    ),
    "a weight too few": (
        lambda: lp.GaussianMixture([1.0], [[0.0], [1.0]], [[[1.0]]] * 2),
        "weights: got shape",
    ),
    "a covariance too few": (
        lambda: lp.GaussianMixture([0.5, 0.5], [[0.0], [1.0]], [[[1.0]]]),
        "covariances: got shape",
    ),
    "indefinite component": (
        lambda: lp.GaussianMixture([1.0], [[0.0]], [[[-1.0]]]),
        "covariances: got an indefinite",
    ),
    "no tokens": (lambda: lp.Empirical(np.zeros((0, 3))), "zero tokens"),
    "tokens without a dimension": (lambda: lp.Empirical([1.0, 2.0]), "tokens: got shape"),
    "nan token": (lambda: lp.Empirical([[NAN]]), "tokens: got 1 NaN"),
    "token weights": (lambda: lp.Empirical([[1.0], [2.0]], [0.5, 0.6]), "sum to 1.1"),
    "token weights too many": (lambda: lp.Empirical([[1.0]], [0.5, 0.5]), "weights: got shape"),
    "atoms": (lambda: lp.Discrete([1.0], [1.0]), "atoms: got shape"),
    "atom weights": (lambda: lp.Discrete([[1.0]], [0.9]), "sum to 0.9"),
    "dim zero": (lambda: lp.Rademacher(0), "dim: got 0"),
    "dim fraction": (lambda: lp.Uniform(2.5), "dim: got 2.5"),
    "dim boolean": (lambda: lp.Laplace(True), "dim: got True"),
    "dtype integer": (lambda: lp.Laplace(1, dtype=torch.int64), "dtype: got torch.int64"),
    "terms huge": (
        lambda: lp.scalar.RademacherSum(1, 10**400),
        r"allowed: an integer from 1 to 10\^15",
    ),
    "terms text": (lambda: lp.scalar.RademacherSum(1, "x"), "terms: got 'x'"),
    "df zero": (lambda: lp.StudentT(1, 0.0), "df: got 0"),
    "df nan": (lambda: lp.StudentT(1, NAN), "df: got nan"),
    "df text": (lambda: lp.StudentT(1, "many"), "df: got 'many'"),
    "no terms": (lambda: lp.scalar.RademacherSum(1, 0), "terms: got 0"),
    "half a term": (lambda: lp.scalar.RademacherSumLaw(1.5), "terms: got 1.5"),
    "shape zero": (lambda: lp.scalar.GeneralizedNormal(1, 0.0), "shape: got 0"),
    "shape nan": (lambda: lp.scalar.GeneralizedNormal(1, math.nan), "shape: got nan"),
    "shape infinite": (lambda: lp.scalar.GeneralizedNormal(1, math.inf), "shape: got inf"),
    "shape beyond": (lambda: lp.scalar.GeneralizedNormal(1, 1e5), "UniformLaw"),
    "shape one as a law": (lambda: lp.scalar.GeneralizedNormalLaw(1.0), "LaplaceLaw"),
    "skew of text": (lambda: lp.scalar.SkewNormal(1, "left"), "skew: got 'left'"),
    "skew too large": (lambda: lp.scalar.SkewNormal(1, LARGEST_SKEW), "a number between"),
    "skew nan": (lambda: lp.scalar.SkewNormal(1, math.nan), "skew: got nan"),
    "scale negative": (lambda: lp.scalar.LogNormal(1, -1.0), "scale: got -1"),
    "scale too large": (lambda: lp.scalar.LogNormal(1, 4.0), "scale: got 4"),
    "dim": (lambda: lp.scalar.LogNormal(0, 1.0), "dim: got 0"),
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
    "merge of dimensions": (
        lambda: lp.Empirical([[1.0]]).merge(lp.Empirical([[1.0, 2.0]])),
        "others: got",
    ),
    "batch of tilts": (
        lambda: lp.Empirical(np.zeros((3, 2, 1))).cgf(np.zeros((2, 1))),
        "broadcast",
    ),
}


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F)


ROOTS = draw(4, 2, 2, seed=1)
COVARIANCES = ROOTS @ ROOTS.mT
BATCHES = {
    "gaussian": (
        lp.Gaussian(draw(4, 2), COVARIANCES),
        lambda i: lp.Gaussian(draw(4, 2)[i], COVARIANCES[i]),
    ),
    "gaussian, one covariance": (
        lp.Gaussian(draw(4, 2), COVARIANCES[0]),
        lambda i: lp.Gaussian(draw(4, 2)[i], COVARIANCES[0]),
    ),
    "mixture": (
        lp.GaussianMixture([[0.3, 0.7]] * 4, draw(4, 2, 2, seed=2), COVARIANCES[:2]),
        lambda i: lp.GaussianMixture([0.3, 0.7], draw(4, 2, 2, seed=2)[i], COVARIANCES[:2]),
    ),
    "discrete": (
        lp.Discrete(draw(3, 2), torch.softmax(draw(4, 3, seed=3), -1)),
        lambda i: lp.Discrete(draw(3, 2), torch.softmax(draw(4, 3, seed=3), -1)[i]),
    ),
}


@EVEN
@given(law_and_tilts(3))
def test_tilts_compose(case):
    mu, (a, b, v) = case
    twice, once = mu.tilt(a).tilt(b), mu.tilt(a + b)
    close(twice.cgf(v), once.cgf(v))
    close(twice.mean, once.mean)
    close(twice.tilted_covariance(v), once.tilted_covariance(v))


@EVEN
@given(law_and_tilts(2), st.floats(0, 1))
def test_cgf_is_convex_and_above_its_tangent(case, s):
    mu, (a, b) = case
    between = mu.cgf(s * a + (1 - s) * b)
    assert between <= s * mu.cgf(a) + (1 - s) * mu.cgf(b) + 1e-9
    assert mu.cgf(b) >= mu.cgf(a) + (b - a) @ mu.tilted_mean(a) - 1e-9


@EVEN
@given(law_and_tilts(1), st.data())
def test_affine_maps(case, data):
    """Λ_{Ax+b}(v) = Λ(A^T v) + b·v, and maps compose."""
    mu, (v,) = case
    d = mu.dim
    first, second = (
        data.draw(vectors(d, size=0.7, shape=(d,))),
        data.draw(vectors(d, size=0.7, shape=(d,))),
    )
    offset = data.draw(vectors(d))
    image = mu.map(first, offset)
    pulled = v @ first
    if float(pulled.abs().max()) < 1.2:  # inside every domain
        close(image.cgf(v), mu.cgf(pulled) + offset @ v)
        close(image.tilted_mean(v), first @ mu.tilted_mean(pulled) + offset)
    twice, once = image.map(second), mu.map(second @ first, second @ offset)
    close(twice.mean, once.mean)
    close(twice.covariance, once.covariance)


@EVEN
@given(law_and_tilts(2))
def test_float32_against_float64(case):
    mu, (u, v) = case
    single = mu.to(dtype=torch.float32)
    for name in ("cgf", "tilted_mean", "tilted_covariance"):
        assert_close(
            getattr(single, name)(u.float()).double(), getattr(mu, name)(u), rtol=1e-3, atol=1e-3
        )
    assert_close(single.norm_moment4(v.float()).double(), mu.norm_moment4(v), rtol=1e-3, atol=1e-3)


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
    """Wherever a NaN or an infinity stands, it is refused with the argument's name; nothing turns
    it into a silent NaN.
    """
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


def test_the_tilt_of_a_users_measure_beyond_its_domain_raises():
    class Exponential(lp.Measure):
        dim = 1

        def cgf(self, u):
            return -torch.log1p(-torch.as_tensor(u)[..., 0])

        def sample(self, n, generator):
            return -torch.log1p(-torch.rand(n, 1, generator=generator, dtype=self.dtype))

    for call in (lambda mu: mu.tilt([1.5]), lambda mu: mu.tilted_norm_moment4([1.5], [0.0])):
        with pytest.raises(lp.TiltDomainError, match="u: got"):
            call(Exponential())


def test_gradients_reach_the_parameters_of_laws():
    """The cgf and the tilted moments of every parametric law are differentiable
    in its parameters.
    """
    u = torch.tensor([0.3, -0.2], dtype=F)
    mean = draw(2).requires_grad_()
    root = draw(2, 2, seed=1).requires_grad_()
    logits = draw(3, seed=2).requires_grad_()
    means = draw(3, 2, seed=3).requires_grad_()
    radius = torch.tensor(1.5, dtype=F, requires_grad=True)

    def everything(mu):
        return (
            mu.cgf(u) + mu.tilted_mean(u).sum() + mu.tilted_covariance(u).sum() + mu.norm_moment4(u)
        )

    cases = [
        (lambda m, r: everything(lp.Gaussian(m, r @ r.mT)), (mean, root)),
        (
            lambda w, m, r: everything(
                lp.GaussianMixture(torch.softmax(w, 0), m, (r @ r.mT).expand(3, 2, 2))
            ),
            (logits, means, root),
        ),
        (lambda w, m: everything(lp.Discrete(m, torch.softmax(w, 0))), (logits, means)),
        (lambda m: everything(lp.Empirical(m)), (means,)),
        (lambda r: everything(lp.Sphere(2, r)), (radius,)),
        (lambda r, m: everything(lp.Uniform(2).map(r, m)), (root, mean)),
    ]
    for function, arguments in cases:
        assert torch.autograd.gradcheck(function, arguments)


@pytest.mark.parametrize("name", BATCHES)
def test_members(name):
    many, one = BATCHES[name]
    assert many.batch_shape == (4,)
    u = draw(4, 2, seed=4)
    for i in range(4):
        assert_close(many.cgf(u)[i], one(i).cgf(u[i]))
        assert_close(many.tilted_mean(u)[i], one(i).tilted_mean(u[i]))
        assert_close(many.tilted_covariance(u)[i], one(i).tilted_covariance(u[i]))
        assert_close(many.norm_moment4(u)[i], one(i).norm_moment4(u[i]))
        assert_close(many.tilt(u).mean[i], one(i).tilt(u[i]).mean)
        assert_close(many.map(ROOTS[0]).covariance[i], one(i).map(ROOTS[0]).covariance)
        assert_close(lp.Measure.tilted_mean(many, u)[i], one(i).tilted_mean(u[i]))
    assert many.sample(5, torch.Generator()).shape == (4, 5, 2)
    assert many.sample_tilted(u, 5, torch.Generator()).shape == (4, 5, 2)


def test_sampling_without_a_generator_follows_the_seed_of_pytorch():
    mu = lp.Rademacher(40)
    with torch.random.fork_rng():
        first, again = (torch.manual_seed(3) and mu.sample(2) for _ in range(2))
        other = mu.sample(2)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)  # equal by chance once in 2^80
    assert torch.equal(mu.sample(2, 5), mu.sample(2, torch.Generator().manual_seed(5)))
