"""How long is long enough."""

import math
import time

import pytest
import torch

import largeprompt as lp
from largeprompt import validation
from largeprompt.planning.length import _frozen_error

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
    assert answer.regime == lp.law.regime(
        float(lp.finite_prompt(LAYER, mu, z, 1).score_variance), length
    )
    assert answer.effective_tokens == pytest.approx(
        float(lp.finite_prompt(LAYER, mu, z, length).effective_tokens)
    )


def test_says_what_was_found_in_a_line():
    """Four digits of the exact law at the length that was found; the answer is still a number."""
    answer = lp.prompt_length(LAYER, NORMAL, [1.0], 0.3)
    law = lp.finite_prompt(LAYER, NORMAL, [1.0], int(answer))
    numbers = (
        f"rmse={float(law.rmse):.4g}, tolerance=0.3, exact, "
        f"effective_tokens={float(law.effective_tokens):.4g}, regime='linear'"
    )
    assert repr(answer).startswith(f"PromptLength({int(answer)}, {numbers}; error")
    assert f"{answer:,.0f}" == str(int(answer))
    never = lp.prompt_length(LAYER, NORMAL, [8.0], 0.3)
    assert repr(never).startswith("PromptLength(inf, rmse=")


def test_certified_length_is_enough_and_not_absurd():
    for mu, z in ((NORMAL, [1.0]), (MIXTURE, [0.8])):
        exact, proved = (
            lp.prompt_length(LAYER, mu, z, 0.01, method) for method in ("exact", "certified")
        )
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
    assert lp.prompt_length(LAYER, NORMAL, [1.0], 0.1, target="affine") == lp.prompt_length(
        LAYER, NORMAL, [1.0], 0.1
    )
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
    outputs = lp.sample_prompts(
        LAYER, MIXTURE, [0.8], [length], 200_000, torch.Generator().manual_seed(0), reduced=True
    ).outputs
    squared = (outputs[0, :, 0] - aim).square()
    assert abs(float(squared.mean()) - answer.rmse**2) < 6.5 * float(squared.std()) / math.sqrt(
        200_000
    )


def test_answers_compare_like_numbers():
    a, b = lp.prompt_length(LAYER, NORMAL, [1.0], 0.1), lp.prompt_length(LAYER, NORMAL, [1.0], 0.2)
    assert b < a
    assert a == int(a)
    assert len({a, int(a)}) == 1
    assert a != "long"


def test_deep_in_the_frozen_regime_the_answer_is_never_and_at_once():
    """σ² = 1e5: the exact law takes 22 s for each length there; E S <= √(2 ln L) says that 10^15
    tokens are too few.
    """
    start = time.process_time()
    answer = lp.prompt_length(LAYER, NORMAL, [math.sqrt(1e5)], 0.01)
    assert time.process_time() - start < 1
    assert math.isinf(answer.length)
    assert 307 < answer.rmse <= 308.2199  # the exact error
    assert "frozen" in answer.reason
    assert "at least" in answer.reason


def test_the_lower_bound_of_the_frozen_regime_is_below_the_exact_error():
    for size in (17.0, 20.0, 31.6):
        exact = float(lp.finite_prompt(LAYER, NORMAL, [size], validation.LONGEST).mse.sqrt())
        assert (
            0.5 * exact
            < _frozen_error(LAYER, NORMAL, torch.tensor([[size]], dtype=F), torch.ones(1, dtype=F))
            <= exact
        )


def test_prompt_length_where_the_error_rises_before_it_falls():
    """A rare token that the limit reads is missing from most short prompts."""
    b, u, p = math.exp(-3) / 2, 3.0, 1e-4
    other = p * math.exp(3) / (b * math.exp(-3 * b))
    mu = lp.GaussianMixture(
        [1 - p - other, p, other], [[0.0], [1.0], [-b]], torch.zeros(3, 1, 1, dtype=F)
    )
    answer = lp.prompt_length(LAYER, mu, [u], 0.0186)
    assert answer > 20
    later = lp.finite_prompt(
        LAYER, mu, [u], [int(answer) * k for k in (1, 2, 3, 10, 100)]
    ).mse.sqrt()
    assert bool((later <= 0.0186).all())


def test_certified_length_far_out_is_near_that_of_smaller_tilts():
    """Two signs: 380 and 400 are the same prompt as 300, up to e^-600; one of the bounds overflows
    there.
    """
    near, far, further = (
        lp.prompt_length(LAYER, lp.Rademacher(1), [size], 0.1, "certified")
        for size in (300.0, 380.0, 400.0)
    )
    assert near == 45
    assert far == further == 50


@pytest.mark.parametrize(
    ("square", "truth"), [(0.25, 234_540), (0.75, 1.4908e7), (1.0, 2.0929e8), (2.0, 6.2100e12)]
)
def test_a_random_query_against_a_dense_sum(square, truth):
    """Root mean square 0.003, d = 1: rare large queries carry the average. The truth is a sum over
    z with steps of 0.08.
    """
    layer = lp.SoftmaxAttention([[math.sqrt(square)]], [[1.0]])
    exact, proved = (
        lp.prompt_length(layer, NORMAL, NORMAL, 0.003, method) for method in ("exact", "certified")
    )
    assert float(exact) == pytest.approx(truth, rel=1e-4)
    assert proved >= exact
    z = torch.arange(0, 12, 0.08, dtype=F)
    weights = 0.16 * torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi)
    weights[0] /= 2
    at, before = (
        float(lp.finite_prompt(layer, NORMAL, z[:, None], int(exact) - k).mse @ weights)
        for k in (0, 1)
    )
    slack = 1e-12 * at  # rounding: neighboring lengths of 10^12 differ by less
    assert at <= 0.003**2 + slack
    assert before >= 0.003**2 - slack


@pytest.mark.parametrize("target", ["limit", "affine"])
def test_a_relative_tolerance_for_a_random_query(target):
    """E‖VΓUz + Vm‖² in closed form, against independent draws: 6.5 standard errors."""
    layer = lp.SoftmaxAttention([[0.4, 0.1], [0.0, 0.3]], [[1.0, 0.5], [0.2, 1.0]])
    mu = lp.Gaussian([0.5, -1.0], [[1.0, 0.3], [0.3, 0.7]])
    queries = lp.Gaussian([0.2, 0.1], [[0.5, 0.1], [0.1, 0.2]])
    found = lp.prompt_length(layer, mu, queries, 0.05, relative=True, target=target)
    sizes = layer(mu, queries.sample(10**5, torch.Generator().manual_seed(0))).square().sum(-1)
    assert abs((found.tolerance / 0.05) ** 2 - float(sizes.mean())) < 6.5 * float(
        sizes.std()
    ) / math.sqrt(10**5)
    assert found == lp.prompt_length(layer, mu, queries, found.tolerance)
    assert found <= lp.prompt_length(
        layer, mu, queries, 0.05, "certified", relative=True, target=target
    )


@pytest.mark.parametrize(
    "mu",
    [
        lp.Rademacher(2),
        lp.Uniform(2),
        lp.Laplace(2),
        lp.Sphere(2),
        lp.Discrete([[1.0, 0.0], [-1.0, 0.5]], [0.4, 0.6]),
    ],
    ids=repr,
)
def test_every_law_of_tokens_has_an_exact_length(mu):
    eye = torch.eye(2, dtype=F)
    layer, z = lp.SoftmaxAttention(eye, eye), [0.6, 0.3]
    exact, proved = (
        lp.prompt_length(layer, mu, z, 0.05, method) for method in ("exact", "certified")
    )
    at, before = lp.finite_prompt(layer, mu, z, [int(exact), int(exact) - 1]).mse.sqrt()
    assert float(at) <= 0.05 < float(before)
    assert exact.method == "exact"
    assert exact <= proved <= 2 * float(exact)


def test_few_queries_are_averaged_exactly():
    """Two queries: the answer is that of their mean squared error; one query is
    the query itself.
    """
    queries = lp.Discrete([[0.3], [1.0]], [0.25, 0.75])
    for mu in (NORMAL, lp.Rademacher(1)):
        found = int(lp.prompt_length(LAYER, mu, queries, 0.05))
        mse = lp.finite_prompt(LAYER, mu, [[0.3], [1.0]], [found, found - 1]).mse @ torch.tensor(
            [0.25, 0.75], dtype=F
        )
        assert float(mse[0].sqrt()) <= 0.05 < float(mse[1].sqrt())
        assert found <= lp.prompt_length(LAYER, mu, queries, 0.05, "certified")
        alone = lp.Empirical([[1.0]])
        assert lp.prompt_length(LAYER, mu, alone, 0.05) == lp.prompt_length(LAYER, mu, [1.0], 0.05)


def test_an_estimate_is_called_one():
    generator = torch.Generator().manual_seed(0)
    exact = lp.prompt_length(LAYER, NORMAL, lp.Gaussian([0.0], [[0.3]]), 0.05)
    found = lp.prompt_length(
        LAYER,
        NORMAL,
        lp.Gaussian([0.0], [[0.3]]),
        0.05,
        "estimate",
        points=512,
        generator=generator,
    )
    assert found.method == "estimate"
    assert "an estimate, with a standard error of" in found.reason
    assert float(found) == pytest.approx(float(exact), rel=0.05)
    other = lp.prompt_length(
        LAYER, lp.Rademacher(1), lp.Uniform(1), 0.05, "estimate", points=64, generator=generator
    )
    assert 100 < other < 1000
    affine = lp.prompt_length(
        LAYER,
        lp.Rademacher(1),
        NORMAL,
        0.1,
        "estimate",
        target="affine",
        points=64,
        generator=generator,
    )
    assert math.isinf(affine.length)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: lp.prompt_length(LAYER, NORMAL, [1.0], 0.0), "tolerance: got 0"),
        (lambda: lp.prompt_length(LAYER, NORMAL, [1.0], 0.1, "guess"), "method: got 'guess'"),
        (lambda: lp.prompt_length(LAYER, NORMAL, NORMAL, 0.1, "guess"), "method: got 'guess'"),
        (lambda: lp.prompt_length(LAYER, NORMAL, [1.0], 0.1, "estimate"), "for one query"),
        (lambda: lp.prompt_length(LAYER, NORMAL, [1.0], 0.1, target="moon"), "target: got 'moon'"),
        (lambda: lp.prompt_length(LAYER, NORMAL, [[1.0], [2.0]], 0.1), "one query"),
        (lambda: lp.prompt_length(LAYER, NORMAL, lp.Uniform(1), 0.1), "method='estimate'"),
        (
            lambda: lp.prompt_length(LAYER, lp.Uniform(1), NORMAL, 0.1, "certified"),
            "z: got a random query",
        ),
        (
            lambda: lp.prompt_length(LAYER, NORMAL, NORMAL, 0.1, "estimate"),
            "generator: got NoneType",
        ),
        (
            lambda: lp.prompt_length(LAYER, lp.Gaussian([[0.0], [1.0]], [[1.0]]), [1.0], 0.1),
            "batch",
        ),
        (
            lambda: lp.prompt_length(LAYER, NORMAL, lp.Gaussian([[0.0], [1.0]], [[1.0]]), 0.1),
            "queries: got",
        ),
        (lambda: lp.prompt_length(LAYER, NORMAL, [0.0], 0.1, relative=True), "norm 0"),
        (
            lambda: lp.prompt_length(
                LAYER, NORMAL, lp.Gaussian([0.0], [[0.0]]), 0.1, relative=True
            ),
            "norm 0",
        ),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(lp.InvalidArgumentError, match=words):
        call()
