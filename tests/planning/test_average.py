"""Errors averaged over a random query, against dense sums and draws."""

import math
import time

import numpy as np
import pytest
import torch

import largeprompt as lp
from largeprompt.planning.average import _GaussianAverage

F = torch.float64
LAYER = lp.SoftmaxAttention([[1.0]], [[1.0]])
NORMAL = lp.Gaussian([0.0], [[1.0]])


def dense(dim, reach=8.0, step=0.25):
    """Trapezoid rule for N(0, I), dense enough for the functions here: points (n, d) and weights
    (n,).
    """
    line = torch.arange(-reach, reach + step / 2, step, dtype=F)
    points = torch.cartesian_prod(*[line] * dim).reshape(-1, dim)
    return points, torch.exp(-points.square().sum(-1) / 2) * (step / math.sqrt(2 * math.pi)) ** dim


def random_case(seed, dim, out=2):
    generator = np.random.default_rng(seed)
    a, c = (generator.standard_normal((dim, dim)) / math.sqrt(dim) for _ in range(2))
    layer = lp.SoftmaxAttention(
        0.3 * generator.standard_normal((dim, dim)), generator.standard_normal((out, dim))
    )
    return (
        layer,
        lp.Gaussian(generator.standard_normal(dim), a @ a.T),
        lp.Gaussian(0.5 * generator.standard_normal(dim), c @ c.T),
    )


@pytest.mark.parametrize("square", [0.02, 0.25, 2.0])
def test_one_dimension_against_a_dense_sum(square):
    """All lengths: 10^15 reads queries of 10 standard deviations, which the rule must reach and
    resolve.
    """
    layer, lengths = lp.SoftmaxAttention([[math.sqrt(square)]], [[1.0]]), [1, 2, 1000, 10**15]
    z, weights = dense(1, reach=12.0, step=0.08)
    expected = lp.finite_prompt(layer, NORMAL, z, lengths).mse @ weights
    found = lp.query_average(layer, NORMAL, NORMAL, lengths)
    torch.testing.assert_close(found.mse, expected, rtol=1e-11, atol=0.0)
    assert found.method == "exact"
    assert float(found.standard_error.abs().max()) == 0


@pytest.mark.parametrize("seed", range(2))
def test_two_dimensions_against_a_dense_sum(seed):
    """Mean and covariance of tokens and query arbitrary; singular covariance of the query in every
    second case.
    """
    layer, mu, queries = random_case(seed, 2)
    if seed % 2:
        queries = lp.Gaussian(queries.mean, torch.outer(queries.mean + 1, queries.mean + 1))
    z, weights = dense(2)
    values, vectors = torch.linalg.eigh(queries.covariance)
    places = queries.mean + z @ (vectors * values.clamp_min(0).sqrt()).mT
    expected = lp.finite_prompt(layer, mu, places, [3, 200]).mse @ weights
    torch.testing.assert_close(
        lp.query_average(layer, mu, queries, [3, 200]).mse, expected, rtol=1e-11, atol=0.0
    )


def test_a_mixture_of_queries_is_the_mixture_of_averages():
    layer, mu, queries = random_case(7, 3)
    other = lp.Gaussian(queries.mean + 1, queries.covariance / 2)
    means, covariances = (
        torch.stack([queries.mean, other.mean]),
        torch.stack([queries.covariance, other.covariance]),
    )
    for method in ("exact", "certified"):
        both = lp.query_average(
            layer, mu, lp.GaussianMixture([0.3, 0.7], means, covariances), 50, method=method
        ).mse
        parts = [
            float(lp.query_average(layer, mu, one, 50, method=method).mse)
            for one in (queries, other)
        ]
        assert float(both) == pytest.approx(0.3 * parts[0] + 0.7 * parts[1], rel=1e-12)


def test_a_query_that_is_certain():
    layer, mu, queries = random_case(3, 3)
    certain = lp.Gaussian(queries.mean, torch.zeros(3, 3, dtype=F))
    expected = lp.finite_prompt(layer, mu, queries.mean, [2, 1000]).mse
    torch.testing.assert_close(
        lp.query_average(layer, mu, certain, [2, 1000]).mse, expected, rtol=1e-11, atol=0.0
    )
    alone = lp.query_average(layer, mu, lp.Empirical(queries.mean[None]), [2, 1000]).mse
    torch.testing.assert_close(alone, expected, rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("size", [1e-150, 1e-8, 1e8, 1e150])
def test_averages_are_homogeneous_in_the_values(size):
    layer, mu, queries = random_case(4, 3)
    scaled = lp.SoftmaxAttention(layer.U, size * layer.V)
    for method in ("exact", "certified"):
        plain, other = (
            lp.query_average(one, mu, queries, 100, method=method).mse for one in (layer, scaled)
        )
        assert float(other) == pytest.approx(float(plain) * size**2, rel=1e-11)


def test_single_precision_is_double_inside():
    layer, mu, queries = random_case(5, 3)
    narrow = (
        lp.SoftmaxAttention(layer.U.float(), layer.V.float()),
        mu.to(torch.float32),
        queries.to(torch.float32),
    )
    found = lp.query_average(*narrow, 100).mse
    assert found.dtype == torch.float32
    assert float(found) == pytest.approx(
        float(lp.query_average(layer, mu, queries, 100).mse), rel=1e-5
    )


def test_sixteen_dimensions_take_no_time():
    """At most 50 ms of one core; the best of ten."""
    eye = torch.eye(16, dtype=F)
    layer, mu = lp.SoftmaxAttention(eye / 3, eye), lp.Gaussian(0 * eye[0], eye)
    times = []
    for _ in range(10):
        start = time.process_time()
        lp.query_average(layer, mu, mu, 1000)
        times.append(time.process_time() - start)
    assert min(times) < 0.05


def test_small_nodes_are_gathered_without_loss():
    """Hundreds of nodes near q = 0 are moved to twelve: the mean of e^q/L for long prompts, and of
    q, stay.
    """
    average = _GaussianAverage(lp.SoftmaxAttention([[0.5]], [[1.0]]), NORMAL, NORMAL)
    assert len(average.nodes) < 100
    across, along = 4**average.exponent * average.across, 4**average.exponent * average.along
    assert float(across.sum()) == pytest.approx(1, rel=1e-13)
    assert float(along.sum()) == pytest.approx(0.25, rel=1e-13)
    assert float(across @ torch.exp(-average.nodes)) == pytest.approx(1 / math.sqrt(1.5), rel=1e-13)


@pytest.mark.parametrize(
    "queries",
    [lp.Gaussian([0.0], [[0.4]]), lp.Uniform(1), lp.Discrete([[0.2], [0.9]], [0.5, 0.5])],
    ids=repr,
)
@pytest.mark.parametrize("mu", [NORMAL, lp.Rademacher(1)], ids=repr)
def test_an_estimate_has_an_error_bar(mu, queries):
    """Against a sum over the law of the query: eight groups, Student's t with 7 degrees of freedom,
    21 errors for 1e-7.
    """
    generator = torch.Generator().manual_seed(1)
    found = lp.query_average(
        LAYER, mu, queries, [20, 200], method="estimate", points=512, generator=generator
    )
    if isinstance(queries, lp.Uniform):
        nodes, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(60))
        z, weights = math.sqrt(3) * nodes[:, None], weights / 2
    elif isinstance(queries, lp.Gaussian):
        z, weights = dense(1)
        z = z * math.sqrt(0.4)
    else:
        z, weights = queries.points, queries.weights
    expected = lp.finite_prompt(LAYER, mu, z, [20, 200]).mse @ weights
    assert found.method == "estimate"
    assert "standard_error" in repr(found)
    assert "±" in repr(
        lp.query_average(LAYER, mu, queries, 20, method="estimate", points=64, generator=generator)
    )
    assert bool(((found.mse - expected).abs() < 21 * found.standard_error).all())
    assert bool((found.standard_error < 0.1 * expected).all())


def test_what_an_estimate_may_miss():
    """H² = 2, L = 10^12: the average comes from queries of four standard deviations and more, which
    few points hold.
    """
    layer = lp.SoftmaxAttention([[math.sqrt(2.0)]], [[1.0]])
    exact = lp.query_average(layer, NORMAL, NORMAL, 10**12).mse
    generator = torch.Generator().manual_seed(0)
    drawn = lp.query_average(
        layer, NORMAL, NORMAL, 10**12, method="estimate", points=256, generator=generator
    ).mse
    assert float(drawn) < 0.5 * float(exact)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: lp.query_average(LAYER, NORMAL, NORMAL, 10, method="x"), "method: got 'x'"),
        (lambda: lp.query_average(LAYER, lp.Uniform(1), NORMAL, 10), "method='estimate'"),
        (lambda: lp.query_average(LAYER, NORMAL, lp.Uniform(1), 10), "method='estimate'"),
        (
            lambda: lp.query_average(LAYER, NORMAL, lp.Uniform(1), 10, method="certified"),
            "which is no bound",
        ),
        (
            lambda: lp.query_average(LAYER, NORMAL, NORMAL, 10, method="estimate"),
            "generator: got NoneType",
        ),
        (
            lambda: lp.query_average(
                LAYER,
                NORMAL,
                NORMAL,
                10,
                method="estimate",
                points=100,
                generator=torch.Generator(),
            ),
            "points: got 100",
        ),
        (
            lambda: lp.query_average(
                LAYER, NORMAL, NORMAL, 10, method="estimate", points=32, generator=torch.Generator()
            ),
            "points: got 32",
        ),
        (
            lambda: lp.query_average(
                lp.SoftmaxAttention(np.ones((2, 1, 1)), np.ones((2, 1, 1))), NORMAL, NORMAL, 10
            ),
            "one head",
        ),
        (lambda: lp.query_average(3, NORMAL, NORMAL, 10), "attention"),
        (lambda: lp.query_average(LAYER, NORMAL, [1.0], 10), "queries"),
        (
            lambda: lp.query_average(LAYER, NORMAL, lp.Gaussian([0.0, 0.0], np.eye(2)), 10),
            "z: got shape",
        ),
        (
            lambda: lp.query_average(LAYER, lp.Gaussian([[0.0], [1.0]], [[1.0]]), NORMAL, 10),
            "mu: got",
        ),
        (
            lambda: lp.query_average(LAYER, NORMAL, lp.Gaussian([[0.0], [1.0]], [[1.0]]), 10),
            "queries: got",
        ),
        (lambda: lp.query_average(LAYER, NORMAL, NORMAL, 0), "length: got 0"),
        (
            lambda: lp.query_average(
                lp.SoftmaxAttention([[1e152]], [[1.0]]), lp.Gaussian([0.0], [[1e9]]), NORMAL, 10
            ),
            "beyond floating-point numbers",
        ),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(lp.InvalidArgumentError, match=words):
        call()
