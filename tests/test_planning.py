"""How long is long enough, and averages over random queries."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

import largeprompt as lp
from largeprompt.measures import sobol_points

F = torch.float64
LAYER = lp.SoftmaxAttention([[1.0]], [[1.0]])
NORMAL = lp.Gaussian([0.0], [[1.0]])
MIXTURE = lp.GaussianMixture([0.3, 0.7], [[-1.0], [1.0]], [[[0.5]], [[0.3]]])


@pytest.mark.parametrize(("mu", "z"), [(NORMAL, [1.0]), (NORMAL, [2.5]), (MIXTURE, [0.8])])
@pytest.mark.parametrize("tolerance", [0.3, 0.02])
def test_exact_length_is_the_smallest(mu, z, tolerance):
    answer = lp.prompt_length(LAYER, mu, z, tolerance)
    length = int(answer)
    at, before = lp.finite_prompt(LAYER, mu, z, [length, length - 1]).mse.sqrt()
    assert float(at) <= tolerance < float(before)
    assert answer.rmse == pytest.approx(float(at))
    assert answer.regime == lp.regime(float(lp.finite_prompt(LAYER, mu, z, 1).score_variance), length)
    assert answer.effective_tokens == pytest.approx(float(lp.finite_prompt(LAYER, mu, z, length).effective_tokens))


def test_certified_length_is_enough_and_not_absurd():
    for mu, z in ((NORMAL, [1.0]), (MIXTURE, [0.8])):
        exact, proved = (lp.prompt_length(LAYER, mu, z, 0.01, method) for method in ("exact", "certified"))
        assert exact <= proved <= 1.1 * float(exact)
        assert float(lp.certificate(LAYER, mu, z, int(proved)).bound) <= 0.01**2


def test_relative_tolerance():
    relative = lp.prompt_length(LAYER, NORMAL, [2.0], 0.05, relative=True)
    assert relative == lp.prompt_length(LAYER, NORMAL, [2.0], 0.1)
    assert relative.tolerance == pytest.approx(0.1)


def test_one_token_may_be_enough():
    assert lp.prompt_length(LAYER, NORMAL, [1.0], 10.0) == 1


def test_never_and_why():
    far = lp.prompt_length(LAYER, lp.Rademacher(1), [1.0], 0.1, "certified", target="affine")
    assert math.isinf(far.length)
    assert f"{1 - math.tanh(1):.4g}" in far.reason
    assert "not Gaussian" in far.reason
    near = lp.prompt_length(LAYER, lp.Rademacher(1), [1.0], 0.3, "certified", target="affine")
    assert math.isfinite(near.length)
    assert lp.prompt_length(LAYER, NORMAL, [1.0], 0.1, target="affine") == lp.prompt_length(LAYER, NORMAL, [1.0], 0.1)
    too_far = lp.prompt_length(LAYER, NORMAL, [7.0], 1e-3)
    assert math.isinf(too_far.length)
    assert "10^15" in too_far.reason
    with pytest.raises(lp.TiltDomainError, match="no infinite-prompt limit"):
        lp.prompt_length(LAYER, lp.StudentT(1, 3.0), [1.0], 0.1, "certified")


def test_distance_to_the_affine_read_out_counts_the_bias():
    """Exact: E‖T_L - A‖² = mse + 2 bias·(T - A) + ‖T - A‖², against sampling."""
    answer = lp.prompt_length(LAYER, MIXTURE, [0.8], 0.5, target="affine")
    length = int(answer)
    matrix, offset = lp.affine_limit(LAYER, MIXTURE)
    aim = 0.8 * matrix[0, 0] + offset[0]
    outputs = lp.sample_prompts(LAYER, MIXTURE, [0.8], [length], 200_000, torch.Generator().manual_seed(0), reduced=True).outputs
    squared = (outputs[0, :, 0] - aim).square()
    assert abs(float(squared.mean()) - answer.rmse**2) < 6.5 * float(squared.std()) / math.sqrt(200_000)


def test_a_law_of_queries():
    queries = lp.Gaussian([0.0], [[0.3]])
    answer = lp.prompt_length(LAYER, NORMAL, queries, 0.05)
    points = sobol_points(queries, 256, 0)
    mse = lp.finite_prompt(LAYER, NORMAL, points, [int(answer), int(answer) - 1]).mse.mean(-1).sqrt()
    assert float(mse[0]) <= 0.05 < float(mse[1])


def test_query_average_against_quadrature():
    """d = 1: the average over z ~ N(0, 0.4) is one integral of the exact error."""

    def integrand(z):
        return float(lp.finite_prompt(LAYER, NORMAL, [z], 200).mse) * stats.norm.pdf(z, scale=math.sqrt(0.4))

    expected = 2 * integrate.fixed_quad(np.vectorize(integrand), 0, 5.5, n=60)[0]
    average = lp.query_average(LAYER, NORMAL, lp.Gaussian([0.0], [[0.4]]), 200, points=4096)
    assert float(average.mse) == pytest.approx(expected, rel=1e-2)
    assert abs(float(average.mse) - expected) < 10 * float(average.standard_error)
    bound = lp.query_average(LAYER, NORMAL, lp.Gaussian([0.0], [[0.4]]), [200, 2000], method="certified", points=1024)
    assert bound.mse.shape == (2,)
    assert float(bound.mse[0]) > float(average.mse)


def test_sobol_points_have_the_moments():
    for mu in (
        lp.Gaussian([1.0, -1.0], [[1.0, 0.6], [0.6, 1.0]]),
        lp.GaussianMixture([0.3, 0.7], [[-1.0], [1.0]], [[[0.5]], [[0.3]]]),
    ):
        points = sobol_points(mu, 4096, 3)
        assert points.shape == (4096, mu.dim)
        assert float((points.mean(0) - mu.mean).abs().max()) < 3e-3
        assert float((points.mT.cov() - mu.covariance).abs().max()) < 1e-2
    assert not torch.equal(sobol_points(mu, 64, 0), sobol_points(mu, 64, 1))


def test_answers_compare_like_numbers():
    a, b = lp.prompt_length(LAYER, NORMAL, [1.0], 0.1), lp.prompt_length(LAYER, NORMAL, [1.0], 0.2)
    assert b < a
    assert a == int(a)
    assert len({a, int(a)}) == 1
    assert a != "long"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: lp.prompt_length(LAYER, NORMAL, [1.0], 0.0), "tolerance: got 0"),
        (lambda: lp.prompt_length(LAYER, NORMAL, [1.0], 0.1, "guess"), "method: got 'guess'"),
        (lambda: lp.prompt_length(LAYER, NORMAL, [1.0], 0.1, target="moon"), "target: got 'moon'"),
        (lambda: lp.prompt_length(LAYER, NORMAL, [[1.0], [2.0]], 0.1), "one query"),
        (lambda: lp.prompt_length(LAYER, lp.Uniform(1), [1.0], 0.1), "expansion=True"),
        (lambda: lp.prompt_length(LAYER, NORMAL, lp.Uniform(1), 0.1), "queries: got Uniform"),
        (lambda: lp.prompt_length(LAYER, NORMAL, NORMAL, 0.1, points=100), "points: got 100"),
        (lambda: lp.query_average(LAYER, NORMAL, NORMAL, 10, points=32), "points: got 32"),
        (lambda: lp.query_average(LAYER, NORMAL, NORMAL, 10, method="x"), "method: got 'x'"),
        (lambda: lp.query_average(lp.SoftmaxAttention(np.ones((2, 1, 1)), np.ones((2, 1, 1))), NORMAL, NORMAL, 10), "one head"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(lp.InvalidArgumentError, match=words):
        call()
