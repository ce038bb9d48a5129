"""How long is long enough, and averages over random queries."""

import math
import time

import numpy as np
import pytest
import torch
from scipy import integrate, stats

import largeprompt as lp
from largeprompt import validation
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
    assert answer.regime == lp.law.regime(float(lp.finite_prompt(LAYER, mu, z, 1).score_variance), length)
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
        (lambda: lp.prompt_length(LAYER, lp.Uniform(1), [1.0], 0.1), "method='certified'"),
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


def hump():
    """The limit reads a rare token: 39 to 58 tokens err by up to 0.6325, more than one token (0.49) and than 32 or 64 do."""
    p = 0.0020482679
    return lp.GaussianMixture([1 - p, p], [[0.0], [3.0183153]], torch.full((2, 1, 1), 0.0991766**2, dtype=F)), [1.4744082]


def test_a_hump_between_powers_of_two_is_not_missed():
    assert lp.prompt_length(LAYER, *hump(), 0.6298565) == 59


@pytest.mark.parametrize("tolerance", [0.48, 0.55, 0.6, 0.62, 0.63, 0.632, 0.6325, 0.63251, 0.632517, 0.6326, 0.7])
def test_the_answer_is_the_last_length_outside_and_one(tolerance):
    mu, z = hump()
    errors = lp.finite_prompt(LAYER, mu, z, list(range(1, 3000))).mse.sqrt()
    outside = torch.nonzero(errors > tolerance).flatten()
    assert lp.prompt_length(LAYER, mu, z, tolerance) == (int(outside[-1]) + 2 if len(outside) else 1)


@pytest.mark.parametrize("seed", range(8))
def test_random_mixtures_against_every_length(seed):
    """The guarantee of the search, at tolerances next to the error of a random length; 1e-5 is its stated slack."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.softmax(3 * torch.randn(3, generator=generator, dtype=F), 0)
    means = 2 * torch.randn(3, 1, generator=generator, dtype=F)
    spreads = 0.3 * torch.rand(3, 1, 1, generator=generator, dtype=F)
    mu, z = lp.GaussianMixture(weights / weights.sum(), means, spreads), [float(torch.randn(1, generator=generator))]
    errors = lp.finite_prompt(LAYER, mu, z, list(range(1, 1500))).mse.sqrt()
    for index in (3, 10, 40, 160, 640):
        tolerance = float(errors[index]) * (1 + 1e-4)
        answer = int(lp.prompt_length(LAYER, mu, z, tolerance))
        assert bool((errors[answer - 1 :] <= tolerance * (1 + 1e-5)).all())
        assert answer == 1 or answer > 1499 or float(errors[answer - 2]) > tolerance


def test_error_over_pairs_falls_and_is_log_convex():
    """What the search rests on: E‖T_L - A‖²/(L(L-1)) is completely monotone, for any law and any A."""
    for mu, z in ((NORMAL, [2.0]), (MIXTURE, [0.8]), hump()):
        law = lp.finite_prompt(LAYER, mu, z, list(range(2, 200)))
        for gap in (0.0, 0.7):
            error = law.mse + 2 * law.bias[..., 0] * gap + gap**2
            lengths = torch.arange(2.0, 200.0, dtype=F)
            logs = torch.log(error / (lengths * (lengths - 1)))
            assert bool((logs.diff() < 0).all())
            assert bool((logs.diff(n=2) > -1e-9).all())


def test_a_search_that_meets_nan_raises():
    from largeprompt.planning import _search

    for lengths in ({1}, {2**20}, {validation.LONGEST}):
        with pytest.raises(lp.InvalidArgumentError, match="NaN"):
            _search(lambda asked, bad=lengths: [math.nan if one in bad else 1 / one for one in asked], 0.1)


def test_deep_in_the_frozen_regime_the_answer_is_never_and_at_once():
    """σ² = 1e5: the exact law takes 22 s for each length there; E S <= √(2 ln L) says that 10^15 tokens are too few."""
    start = time.perf_counter()
    answer = lp.prompt_length(LAYER, NORMAL, [math.sqrt(1e5)], 0.01)
    assert time.perf_counter() - start < 1
    assert math.isinf(answer.length)
    assert 307 < answer.rmse <= 308.2199  # the exact error
    assert "frozen" in answer.reason
    assert "at least" in answer.reason


def test_the_lower_bound_of_the_frozen_regime_is_below_the_exact_error():
    from largeprompt.planning import _frozen_error

    for size in (17.0, 20.0, 31.6):
        exact = float(lp.finite_prompt(LAYER, NORMAL, [size], validation.LONGEST).mse.sqrt())
        assert 0.5 * exact < _frozen_error(LAYER, NORMAL, torch.tensor([size], dtype=F)) <= exact
