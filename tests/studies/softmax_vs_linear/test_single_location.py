"""Single-location regression: the exact risk, its optimum, the posterior, the threshold, and
training on it.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm
from torch.testing import assert_close
from training_examples import draw

import largeprompt as lp
from largeprompt.studies.softmax_vs_linear.planted import planted_moments
from largeprompt.studies.softmax_vs_linear.single_location import SingleLocationRegression

F = torch.float64


@pytest.mark.parametrize("length", [1, 2, 6, 50])
def test_general_layers_against_drawn_prompts(length):
    """u and v in any direction, 3 layers, both attentions: 24 comparisons within 6.5 standard
    errors (false alarms 2e-9 in all).
    """
    task = SingleLocationRegression(3, 5.0, 0.4)
    n = max(8000, 80_000 // length)
    tokens, query, answer = task.sample(n, length, torch.Generator().manual_seed(length))
    for seed in range(3):
        U, V = draw(3, 3, seed=seed), draw(1, 3, seed=seed + 10)
        for kind in (lp.SoftmaxAttention, lp.LinearAttention):
            loss = (kind(U, V)(lp.Empirical(tokens), query) - answer).square().sum(-1) / 2
            assert abs(float(loss.mean() - task.risk(kind(U, V), length))) < 6.5 * float(
                loss.std()
            ) / math.sqrt(n)


def test_one_token_is_read_whole():
    """L = 1: ½ E(v·x - v*·x - noise)² = ½(s² + ‖v - v*‖² + ν (v·k*)²)."""
    task, V = SingleLocationRegression(3, 2.0, 0.4), draw(1, 3, seed=1)
    v = V[0] - torch.tensor([0.0, 1.0, 0.0], dtype=F)
    expected = (0.4 + float(v @ v) + 2.0 * float(V[0, 0]) ** 2) / 2
    assert float(task.risk(lp.SoftmaxAttention(draw(3, 3), V), 1)) == pytest.approx(
        expected, rel=1e-14
    )


def test_two_tokens_by_quadrature():
    """L = 2, u along k*: the posterior of the location is a logistic function of one Gaussian."""
    nu = 3.0
    step = 0.02
    xi = step * torch.arange(-600, 601, dtype=F)
    density = torch.exp(-(xi**2) / 2) * step / math.sqrt(2 * math.pi)
    posterior = torch.sigmoid(nu + math.sqrt(2 * nu) * xi)  # log-odds √ν(√ν + ξ_1 - ξ_2)
    found = SingleLocationRegression(2, nu, 0.1).bayes_risk(2)
    assert found == pytest.approx((0.1 + float(((1 - posterior) * density).sum())) / 2, rel=1e-12)
    # the posterior mean's own error: Σ w² + (1 - w_ε)² - w_ε² = 2(1 - w_ε)²
    assert found == pytest.approx(
        (0.1 + float((2 * (1 - posterior) ** 2 * density).sum())) / 2, rel=1e-12
    )


@settings(max_examples=6, deadline=None)
@given(st.sampled_from([2, 10, 1000, 10**7]), st.floats(0.05, 40))
def test_softmax_is_best_at_the_posterior_and_best_of_all(length, nu):
    task = SingleLocationRegression(2, nu, 0.2)
    best = task.best(lp.SoftmaxAttention, length)
    assert best.risk == task.bayes_risk(length)
    assert float(
        task.risk(task.layer(lp.SoftmaxAttention, best.tilt, best.read_out), length)
    ) == pytest.approx(best.risk, rel=1e-12)
    assert best.risk <= task.best(lp.LinearAttention, length).risk + 1e-15
    assert best.risk <= task.mean_pooling(length).risk + 1e-15
    found = task.search(length)
    assert found.risk == pytest.approx(best.risk, rel=1e-11)
    gain = 1 + task.noise_variance - 2 * best.risk
    if gain > 1e-4 and nu < 20:  # elsewhere the parabola is too flat for a search by values
        assert found.tilt == pytest.approx(best.tilt, abs=2e-4 / math.sqrt(gain))
        assert found.read_out == pytest.approx(1.0, abs=1e-3)


def test_no_layer_is_better_than_the_optima():
    """The gradient in every entry of U and V vanishes there, and 40 random layers around it are
    worse.
    """
    task = SingleLocationRegression(3, 6.0, 0.1)
    for kind, best in ((k, task.best(k, 30)) for k in (lp.SoftmaxAttention, lp.LinearAttention)):
        layer = task.layer(kind, best.tilt, best.read_out)
        U, V = layer.U.clone().requires_grad_(), layer.V.clone().requires_grad_()
        slopes = torch.autograd.grad(task.risk(type(layer)(U, V), 30), (U, V))
        assert max(float(slope.abs().max()) for slope in slopes) < 1e-11
        nearby = type(layer)(
            layer.U + 0.3 * draw(40, 3, 3, seed=3), layer.V + 0.3 * draw(40, 1, 3, seed=4)
        )
        assert bool((task.risk(nearby, 30) > best.risk).all())


def test_linear_attention_and_mean_pooling_in_closed_form():
    for nu, length in ((0.3, 4), (5.0, 100), (30.0, 10)):
        task = SingleLocationRegression(2, nu, 0.25)
        linear, mean = task.best(lp.LinearAttention, length), task.mean_pooling(length)
        assert 2 * linear.risk == pytest.approx(1.25 - nu / (nu + length), rel=1e-14)
        assert 2 * mean.risk == pytest.approx(1.25 - 1 / length, rel=1e-14)
        assert float(
            task.risk(task.layer(lp.LinearAttention, linear.tilt, 1.0), length)
        ) == pytest.approx(linear.risk, rel=1e-13)
        assert float(task.risk(task.layer(lp.SoftmaxAttention, 0.0, 1.0), length)) == pytest.approx(
            mean.risk, rel=1e-12
        )
        assert (linear.risk > mean.risk) == (nu < length / (length - 1))


def test_without_spike_nothing_is_found():
    task = SingleLocationRegression(2, 0.0)
    for length in (1, 2, 1000):
        assert task.bayes_risk(length) == pytest.approx((1 - 1 / length) / 2, abs=1e-15)
        assert float(task.found_weight(length)) == pytest.approx(1 / length, rel=1e-12)
    assert task.best(lp.LinearAttention, 7).risk == 0.5
    assert SingleLocationRegression(2, 3.0, 0.1).bayes_risk(math.inf) == 0.55


@settings(max_examples=12, deadline=None)
@given(st.sampled_from([1, 2, 3, 20, 10**4, 10**9, 10**15]), st.floats(0, 150))
def test_proved_bounds_hold(length, nu):
    task = SingleLocationRegression(2, nu)
    lower, upper = task.found_bounds(length)
    found = float(task.found_weight(length))
    assert lower * (1 - 1e-11) <= found <= upper * (1 + 1e-11)
    assert task.annealed_weight(length) <= lower


def test_the_threshold_is_that_of_the_random_energy_model():
    """E w_ε ~ e^ν/L below, and order one around ν = 2 ln L, where it tends to Φ((ν/2
    - ln L)/√ν).
    """
    for length in (10**6, 10**15):
        assert float(
            SingleLocationRegression(2, 2.0).found_weight(length)
        ) * length == pytest.approx(math.exp(2), rel=1e-3)
    for length, ratio in ((10**3, 0.9198), (10**15, 0.9823)):
        half = brentq(lambda nu, n=length: float(planted_moments(n, nu, nu).found) - 0.5, 1, 120)
        assert half / (2 * math.log(length)) == pytest.approx(ratio, abs=1e-4)
    errors = []
    for length in (10**5, 10**10, 10**15):
        nu = torch.linspace(1.0, 4.0, 31, dtype=F) * math.log(length)
        predicted = norm.cdf((nu.numpy() / 2 - math.log(length)) / nu.numpy() ** 0.5)
        errors.append(
            float((planted_moments(length, nu, nu).found - torch.from_numpy(predicted)).abs().max())
        )
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.1


def test_training_finds_the_posterior():
    """The flow on the exact risk, from a small start, nears the Bayes risk along k*; drawn prompts
    lead there too.
    """
    task = SingleLocationRegression(2, 6.0)
    start = task.layer(lp.SoftmaxAttention, 0.3, 0.3)
    flow = lp.gradient_flow(task, start, 20, 60.0, times=[0.0, 60.0], tolerance=1e-3)
    bayes = task.bayes_risk(20)
    assert float(flow.risk[-1]) == pytest.approx(bayes, rel=1e-2)
    assert_close(
        flow.at(60.0).U[:, 0], torch.tensor([math.sqrt(6), 0.0], dtype=F), rtol=0.15, atol=1e-6
    )
    path = lp.stochastic_gradient_descent(
        task, start, 20, 0.1, 60, 64, torch.Generator().manual_seed(0), record=2
    )
    assert bayes < float(path.risk[-1]) < float(path.risk[0]) - 0.05


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: SingleLocationRegression(1, 1.0), "dim: got 1"),
        (lambda: SingleLocationRegression(2, -1.0), "spike: got -1"),
        (lambda: SingleLocationRegression(2, math.nan), "spike"),
        (lambda: SingleLocationRegression(2, 1.0, -0.1), "noise_variance: got -0.1"),
        (lambda: SingleLocationRegression(2, 1.0).best("hard", 5), "kind: got 'hard'"),
        (lambda: SingleLocationRegression(2, 1.0).layer("mean", 1.0, 1.0), "kind: got 'mean'"),
        (lambda: SingleLocationRegression(3, [1.0, 2.0]), r"spike: got shape \(2,\)"),
        (
            lambda: SingleLocationRegression(3, 1.0).layer(lp.SoftmaxAttention, "x", 1.0),
            "tilt: got 'x'",
        ),
        (
            lambda: SingleLocationRegression(3, 1.0).layer(lp.SoftmaxAttention, 1.0, math.nan),
            "read_out: got nan",
        ),
        (lambda: SingleLocationRegression(2, 1.0).bayes_risk(0), "length: got 0"),
        (lambda: SingleLocationRegression(2, 1.0).found_bounds(math.inf), "length"),
        (lambda: SingleLocationRegression(2, 1.0).annealed_weight(2.5), "length: got 2.5"),
        (lambda: SingleLocationRegression(2, 1.0).search(0), "length: got 0"),
        (lambda: SingleLocationRegression(2, 1.0).found_weight(5, "far"), "tilt"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(lp.InvalidArgumentError, match=words):
        call()
