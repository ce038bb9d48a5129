"""Identities that hold for every parameter, tried by hypothesis."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.testing.strategies import covariances, probabilities, vectors

F = torch.float64
EVEN = settings(deadline=None, max_examples=60, derandomize=True)
dims = st.integers(1, 4)


@st.composite
def laws(draw, dim=None):
    """Any law of the library with random parameters, and its dimension."""
    d = draw(dims) if dim is None else dim
    kind = draw(st.sampled_from(["gaussian", "mixture", "empirical", "weighted", "discrete", "product", "sphere", "image"]))
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
    first, second = data.draw(vectors(d, size=0.7, shape=(d,))), data.draw(vectors(d, size=0.7, shape=(d,)))
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
@given(st.data(), st.integers(1, 4), st.integers(2, 12))
def test_prompts_do_not_care_about_order_or_shards(data, d, length):
    tokens = data.draw(vectors(d, shape=(length,), size=5.0))
    u = data.draw(vectors(d, shape=(3,), size=5.0))
    cut = data.draw(st.integers(1, length - 1))
    order = torch.tensor(data.draw(st.permutations(range(length))))
    whole, shuffled = lp.Empirical(tokens), lp.Empirical(tokens[order])
    left, right = lp.Empirical(tokens[:cut]), lp.Empirical(tokens[cut:])
    state = left.running(u, covariance=True).merge(right.running(u, covariance=True))
    backwards = right.running(u, covariance=True).merge(left.running(u, covariance=True))
    for other in (shuffled, left.merge(right), right.merge(left)):
        close(other.cgf(u), whole.cgf(u))
        close(other.tilted_mean(u), whole.tilted_mean(u))
        close(other.tilted_covariance(u), whole.tilted_covariance(u))
    for merged in (state, backwards):
        close(merged.cgf, whole.cgf(u))
        close(merged.mean, whole.tilted_mean(u))
        close(merged.covariance, whole.tilted_covariance(u))


@EVEN
@given(st.data(), st.integers(1, 3), st.integers(1, 6))
def test_weights_are_repetitions(data, d, count):
    """A token of weight n/N is the same token n times among N."""
    tokens = data.draw(vectors(d, shape=(count,)))
    repeats = torch.tensor(data.draw(st.lists(st.integers(0, 4), min_size=count, max_size=count).filter(any)))
    u = data.draw(vectors(d))
    weighted = lp.Empirical(tokens, repeats.to(F) / repeats.sum())
    repeated = lp.Empirical(tokens.repeat_interleave(repeats, 0))
    discrete = lp.Discrete(tokens, repeats.to(F) / repeats.sum())
    for other in (weighted, discrete):
        close(other.cgf(u), repeated.cgf(u))
        close(other.tilted_mean(u), repeated.tilted_mean(u))
        close(other.tilted_covariance(u), repeated.tilted_covariance(u))
        close(other.norm_moment4(u), repeated.norm_moment4(u))


@EVEN
@given(st.data(), dims)
def test_one_component_is_a_gaussian(data, d):
    mean, covariance, u = data.draw(vectors(d)), data.draw(covariances(d)), data.draw(vectors(d))
    gaussian, mixture = lp.Gaussian(mean, covariance), lp.GaussianMixture([1.0], mean[None], covariance[None])
    close(mixture.cgf(u), gaussian.cgf(u))
    close(mixture.tilted_mean(u), gaussian.tilted_mean(u))
    close(mixture.tilted_covariance(u), gaussian.tilted_covariance(u))
    close(mixture.norm_moment4(u), gaussian.norm_moment4(u))


@EVEN
@given(st.data(), dims, st.integers(1, 3))
def test_singular_covariance_stays_on_its_subspace(data, d, rank):
    """A token law that lives on a subspace is tilted inside it."""
    root = data.draw(vectors(min(rank, d), shape=(d,)))
    mean, u = data.draw(vectors(d)), data.draw(vectors(d))
    moved = lp.Gaussian(mean, root @ root.mT).tilted_mean(u) - mean
    close(moved, root @ (root.mT @ u))


@EVEN
@given(law_and_tilts(2))
def test_float32_against_float64(case):
    mu, (u, v) = case
    single = mu.to(dtype=torch.float32)
    for name in ("cgf", "tilted_mean", "tilted_covariance"):
        assert_close(getattr(single, name)(u.float()).double(), getattr(mu, name)(u), rtol=1e-3, atol=1e-3)
    assert_close(single.norm_moment4(v.float()).double(), mu.norm_moment4(v), rtol=1e-3, atol=1e-3)


def test_a_pair_of_points_is_a_sign():
    """Sphere(1) at tilts where 1 - tanh² is lost in rounding: the variance is sech²."""
    u = torch.tensor([[0.0], [1e-3], [1.0], [5.0], [18.0], [30.0], [300.0], [380.0], [1e4]], dtype=F)
    assert_close(lp.Sphere(1).tilted_covariance(u), lp.Rademacher(1).tilted_covariance(u), rtol=1e-13, atol=0)


def test_variance_along_the_tilt_of_a_sphere_far_out():
    """Langevin's function in R³: 1/k² - 1/sinh² k with k = r‖u‖, times r²; in other dimensions (d - 1)/(2k²) to first order."""
    sizes = torch.tensor([0.5, 3.0, 50.0, 1e3, 1e5, 1e8, 1e13, 1e150], dtype=F)
    along = lp.Sphere(3, 1.0).tilted_covariance(torch.stack([sizes, 0 * sizes, 0 * sizes], -1))[:, 0, 0]
    assert_close(along, 1 / sizes**2 - torch.where(sizes < 300, 1 / torch.sinh(sizes.clamp_max(300)) ** 2, 0.0), rtol=1e-9, atol=0)
    for dim in (2, 5, 50):
        size = 1e12
        u = torch.zeros(dim, dtype=F)
        u[0] = size
        assert_close(float(lp.Sphere(dim, 1.0).tilted_covariance(u)[0, 0]) * size**2, (dim - 1) / 2, rtol=1e-6, atol=0)
