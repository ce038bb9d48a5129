"""Linear regression: closed risks, the three forms of the risk, the Bayes risk."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2
from torch.testing import assert_close
from training_examples import (
    KINDS,
    conditional_risk,
    contexts_of,
    draw,
    grid_contexts,
    random_task,
    spd,
)

import largeprompt as lp
from largeprompt.law.table import WeightTables
from largeprompt.law.weights import weight_moments
from largeprompt.training import SobolAverage
from largeprompt.training.risk.contexts import context_risk

F = torch.float64


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.floats(0, 1), st.integers(0, 2**31))
def test_linear_attention_has_a_closed_risk(d, noise, seed):
    """Against Gauss-Hermite points for d = 1 and 2 and Sobol points with a stated error for
    d = 3.
    """
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(d, d, generator=generator, dtype=F)
    chosen = lp.LinearRegression(
        torch.eye(d, dtype=F) + root @ root.mT,
        0.5 * torch.eye(d, dtype=F),
        noise,
        torch.eye(d, dtype=F) * 1.3,
    )
    U, V = (
        0.5 * torch.randn(1, d + 1, d + 1, generator=generator, dtype=F),
        torch.randn(1, 1, d + 1, generator=generator, dtype=F),
    )
    for length in (1.0, 12.0, math.inf):
        closed = chosen.linear_risk(U, V, [length])
        if d < 3:
            assert_close(
                closed,
                context_risk(U, V, grid_contexts(chosen, 7), [length], lp.LinearAttention),
                rtol=1e-9,
                atol=1e-12,
            )
        else:
            sobol = torch.stack(
                [
                    context_risk(U, V, contexts, [length], lp.LinearAttention)
                    for contexts in (
                        contexts_of(chosen, average.normal(2 * d), average.weights)
                        for average in (SobolAverage(2**13, s) for s in range(6))
                    )
                ]
            )
            assert abs(float(closed - sobol.mean())) < 12 * float(sobol.std()) / math.sqrt(6) + 1e-9


def block_reference(task, A, b, length, nodes=80):
    """(risk.6) for one A (2, 2) and b on a grid of Gauss-Hermite points over the query, weight
    moments by the exact law.
    """
    points, mass = np.polynomial.hermite_e.hermegauss(nodes)
    grid = torch.cartesian_prod(*[torch.from_numpy(points)] * 2)
    weight = torch.cartesian_prod(*[torch.from_numpy(mass / mass.sum())] * 2).prod(-1)
    sigma, prior, s2 = task.covariance, task.prior_covariance, task.noise_variance
    x = grid @ torch.linalg.cholesky(task.query_covariance).mT
    read = x @ A.mT @ sigma
    q = (x @ A.mT * read).sum(-1)
    f, w3, y2 = weight_moments(length, q.sqrt(), [[(2, 0)], [(3, 0)], [(2, 0), (2, 0)]])
    spread = torch.trace(prior @ sigma) + s2
    twice = b**2 * spread * f + b**2 * (1 - f - 6 * (w3 - y2)) * (read @ prior * read).sum(-1)
    twice = twice - 2 * b * (1 - f) * (x @ prior * read).sum(-1)
    return float(s2 + torch.trace(prior @ task.query_covariance) + weight @ twice) / 2


@pytest.mark.parametrize("length", [1, 5, 100, 10**6, 10**15])
def test_block_risks_are_those_of_a_dense_grid(length):
    """Two dimensions, no covariance commuting with another; a singular prior."""
    task = lp.LinearRegression(
        [[1.0, 0.3], [0.3, 0.7]], [[0.5, 0.0], [0.0, 0.0]], 0.2, [[0.9, 0.1], [0.1, 0.4]]
    )
    A, b = torch.tensor([[0.4, 0.2], [-0.1, 0.5]], dtype=F), 1.3
    found = float(task.block_risks(A[None], torch.tensor([b], dtype=F), [length]))
    assert found == pytest.approx(block_reference(task, A, b, length), rel=1e-10)
    U, V = torch.nn.functional.pad(A, (0, 1, 0, 1)), torch.tensor([[0.0, 0.0, b]], dtype=F)
    assert float(task.risk(lp.SoftmaxAttention(U, V), length)) == found  # recognized


def test_block_limit_and_linear_attention_are_closed_forms():
    task = random_task(3, 5)
    A, b = draw(2, 3, 3) / 2, torch.tensor([0.4, 1.3], dtype=F)
    U, V = (
        torch.nn.functional.pad(A, (0, 1, 0, 1)),
        torch.nn.functional.pad(b[:, None, None], (3, 0)),
    )
    assert_close(task.block_risks(A, b, [math.inf] * 2), task.limit_risk(U, V), rtol=1e-13, atol=0)
    assert_close(
        task.block_risks(A, b, [9.0, 30.0], lp.LinearAttention), task.linear_risk(U, V, [9.0, 30.0])
    )


def test_block_risks_have_the_right_derivatives():
    task = random_task(3, 7)
    A, b = (
        (draw(2, 3, 3) / 2).requires_grad_(),
        torch.tensor([0.4, 1.3], dtype=F, requires_grad=True),
    )
    assert torch.autograd.gradcheck(
        lambda *at: task.block_risks(*at, [4.0, 1e5]), (A, b), rtol=1e-7, atol=1e-9
    )
    assert torch.autograd.gradgradcheck(
        lambda *at: task.block_risks(*at, [4.0, 1e5]), (A, b), rtol=1e-6, atol=1e-8
    )


@pytest.mark.parametrize(("d", "condition"), [(5, 1e6), (40, 1e3), (200, 1e6)])
def test_block_risks_in_many_dimensions(d, condition):
    """Against 64 scramblings of 2^8 Sobol points, seven standard errors of their mean: 2e-9 false
    alarms.
    """
    sigma = torch.diag(torch.logspace(0, -math.log10(condition), d, dtype=F))
    task = lp.LinearRegression(sigma, torch.eye(d, dtype=F) / d, 0.1)
    A, b = 0.6 * torch.eye(d, dtype=F)[None], torch.tensor([1.1], dtype=F)
    exact = float(task.block_risks(A, b, [50]))
    spread = float(torch.trace(task.prior_covariance @ sigma)) + 0.1
    means = []
    for seed in range(64):
        x = SobolAverage(2**8, seed).normal(d) @ sigma.sqrt()
        q = 0.36 * (x @ sigma * x).sum(-1)
        f, h = WeightTables.reaching([50.0], float(q.max()))(q[None])
        read = 0.6 * x @ sigma
        excess = (
            1.21 * spread * f[0]
            - 1.21 * (f + 6 * h)[0] * read.square().sum(-1) / d
            + 2.2 * f[0] * (x * read).sum(-1) / d
        )
        means.append(float(task.block_risks(A, b, [math.inf])) + float(excess.mean()) / 2)
    assert exact == pytest.approx(np.mean(means), abs=7 * np.std(means, ddof=1) / 8 + 1e-12)


def test_three_forms_agree():
    """General and isotropic forms at the same parameters, by quadrature where there is one."""
    a, b = 0.6, 0.9
    task = lp.LinearRegression([[1.3]], [[0.5]], 0.2)
    U, V = torch.tensor([[a, 0.0], [0.0, 0.0]], dtype=F), torch.tensor([[0.0, b]], dtype=F)
    fine = grid_contexts(task, 120)
    for kind in KINDS:
        for length in (1.0, 5.0, 100.0, 1e6, math.inf):
            general = float(context_risk(U[None], V[None], fine, [length], kind))
            isotropic = float(
                task.isotropic_risk(
                    torch.tensor([a], dtype=F), torch.tensor([b], dtype=F), length, kind
                )
            )
            # f is smooth at q = 0, but not analytic: Hermite points feel it
            assert general == pytest.approx(isotropic, rel=1e-8)


def test_no_descent_ends_below_the_noise():
    """Adam, d = 2, L = 10, from a start that is no block; 256 plain points let it reach 0.036."""
    task = lp.LinearRegression(torch.eye(2, dtype=F), torch.eye(2, dtype=F) / 2, 0.1)
    U, V = (0.5 * draw(3, 3, seed=1)).requires_grad_(), (0.5 * draw(1, 3, seed=2)).requires_grad_()
    optimiser, risks = torch.optim.Adam([U, V], lr=0.1), []
    for _ in range(40):
        optimiser.zero_grad()
        risk = task.risk(lp.SoftmaxAttention(U, V), 10)
        risk.backward()
        risks.append(float(risk.detach()))
        optimiser.step()
    assert 0.05 < min(risks) < 0.7 * risks[0]


def general_layer(d, seed, size=1.0):
    return size * draw(d + 1, d + 1, seed=seed) / math.sqrt(d + 1), draw(1, d + 1, seed=seed + 1)


def test_risks_of_any_layer_are_exact_within_the_error_that_they_state():
    """d = 5 against 2^18 drawn contexts, six standard errors (2e-9); the error stated is below
    1e-8.
    """
    task = random_task(5, 1)
    U, V = general_layer(5, 3, 0.7)
    layer, generator = lp.SoftmaxAttention(U, V), torch.Generator().manual_seed(0)
    for length in (7, 1000):
        found = task.risk_estimate(layer, length)
        values = []
        for _ in range(4):
            standard = torch.randn(2**16, 10, generator=generator, dtype=F)
            contexts = contexts_of(task, standard, torch.ones(1, dtype=F))
            values.append(sum(conditional_risk(U, V, contexts, float(length))))
        drawn = torch.cat(values, -1)
        assert abs(float(drawn.mean()) - found) < 6 * float(drawn.std()) / 512
        assert 0 < found.standard_error < 1e-8 * found
        assert float(task.risk(layer, length)) == found


def grid_risk(task, U, V, length):
    """d = 1 by 401 x 401 points equidistant in the inverse sinh of w and x, straight from the
    conditional risk.
    """
    place = torch.linspace(-math.asinh(180), math.asinh(180), 401, dtype=F)
    standard = 0.05 * place.sinh()
    mass = place.cosh() * torch.exp(-standard.square() / 2)
    both, weight = torch.cartesian_prod(standard, standard), torch.outer(mass, mass).reshape(-1)
    contexts = contexts_of(task, both.reshape(-1, 2), weight)
    _, excess = conditional_risk(U, V, contexts, float(length))
    return float(task.limit_risk(U[None], V[None])) + float((excess * weight).sum() / weight.sum())


PLAIN, NARROW = (
    lp.LinearRegression([[1.0]], [[1.0]], 0.0),
    lp.LinearRegression([[1.0]], [[1e-6]], 0.1),
)


@pytest.mark.parametrize(
    ("task", "U", "V", "length"),
    [
        (PLAIN, [[2.0, 0.0], [0.02, 0.0]], [[0.1, 0.5]], length)
        for length in (10, 10**6, 10**8, 10**12, 10**15)
    ]
    + [(PLAIN, [[2.0, 0.0], [0.0, 0.0]], [[0.1, 0.5]], length) for length in (10**8, 10**12)]
    + [(NARROW, [[5.0, 3.5], [5.0, 15.0]], [[0.4, 0.8]], 10**12)]
    + [(PLAIN, [[30.0, 0.0], [0.3, 0.0]], [[0.3, 0.7]], length) for length in (3, 10**12)],
)
def test_risks_of_large_scores_are_exact_at_every_length(task, U, V, length):
    """A fixed step in ρ was 1e-6 off at 10^15 tokens; at a score variance of 900 nodes to 7.5
    deviations were 2e-9 off.
    """
    U, V = torch.tensor(U, dtype=F), torch.tensor(V, dtype=F)
    found = task.risk_estimate(lp.SoftmaxAttention(U, V), length)
    exact = grid_risk(task, U, V, length)
    assert found == pytest.approx(exact, rel=3e-10)
    assert abs(found - exact) < found.standard_error < 2e-7 * found


def test_gradients_of_long_prompts_are_those_of_the_exact_risk():
    U, V = (
        torch.tensor([[2.0, 0.0], [0.02, 0.0]], dtype=F, requires_grad=True),
        torch.tensor([[0.1, 0.5]], dtype=F),
    )
    (slope,) = torch.autograd.grad(PLAIN.risk(lp.SoftmaxAttention(U, V), 10**12), U)
    step = torch.tensor([[1e-4, 0.0], [0.0, 0.0]], dtype=F)
    exact = (
        grid_risk(PLAIN, U.detach() + step, V, 1e12) - grid_risk(PLAIN, U.detach() - step, V, 1e12)
    ) / 2e-4
    assert float(slope[0, 0]) == pytest.approx(exact, rel=1e-7)
    assert exact == pytest.approx(0.02095224, rel=1e-6)


def test_estimates_are_of_one_layer():
    task = random_task(2, 1)
    U, V = draw(3, 3, 3) / 3, draw(3, 1, 3, seed=1)
    many = lp.SoftmaxAttention(U, V)
    with pytest.raises(
        lp.InvalidArgumentError,
        match=r"attention: got .*; allowed: one layer\. Ask for the layers one by one",
    ):
        task.risk_estimate(many, 17)


@pytest.mark.parametrize("length", [17, math.inf])
def test_risks_that_overflow_are_refused(length):
    U, V = general_layer(2, 3)
    with pytest.raises(
        lp.training.RiskError, match=r"entries up to .* in V give no finite number. Use a smaller"
    ):
        lp.LinearRegression(1e4 * np.eye(2), np.eye(2), 0.1).risk(
            lp.SoftmaxAttention(1e-4 * U, 4e151 * V), length
        )


@pytest.mark.parametrize("d", [1, 3])
def test_nothing_jumps_where_a_layer_leaves_the_blocks(d):
    """Value and second derivative across the blocks, at a block layer and beside it."""
    task = random_task(d, 2)
    U, V = general_layer(d, 4)
    U[d], V[0, :d] = 0, 0
    away = torch.zeros(d + 1, d + 1, dtype=F), torch.zeros(1, d + 1, dtype=F)
    away[0][d, :d], away[1][0, :d] = draw(d, seed=5), draw(d, seed=6)

    def risk(e):
        return task.risk(lp.SoftmaxAttention(U + e * away[0], V + e * away[1]), 12)

    def bend(e):
        e = torch.tensor(e, dtype=F, requires_grad=True)
        (slope,) = torch.autograd.grad(risk(e), e, create_graph=True)
        return float(torch.autograd.grad(slope, e)[0])

    at, step = bend(0.0), 3e-3
    start = float(risk(0.0))
    assert float(risk(1e-7)) == pytest.approx(start, rel=1e-11)
    differences = [2 * (float(risk(e)) - start) / e**2 for e in (step, 2 * step)]
    assert at == pytest.approx((4 * differences[0] - differences[1]) / 3, rel=1e-5)
    for e in (1e-4, 5e-3):  # smooth in ϱ, and in its direction
        assert bend(e) == pytest.approx(at, rel=2e-3)


def test_general_risks_have_the_right_derivatives():
    task = random_task(2, 3)
    U, V = general_layer(2, 8)
    for row in (U[2], torch.zeros(3, dtype=F)):  # U_yx = 0 with v_x ≠ 0 is no block
        start = torch.cat([U[:2], row[None]]).requires_grad_(), V.clone().requires_grad_()

        def risk(U, V):
            return task.general_risks(U[None], V[None], [9.0])

        assert torch.autograd.gradcheck(risk, start, rtol=1e-5, atol=1e-8, fast_mode=True)
        assert torch.autograd.gradgradcheck(risk, start, rtol=1e-4, atol=1e-7, fast_mode=True)


def test_best_linear_attention_is_the_closed_form():
    """Isotropic, W = I/d: best excess over s² is c/(1+c), c = ((1+s²)d + 1)/L (risks carry the
    1/2).
    """
    d, length, noise = 4, 40, 0.3
    task = lp.LinearRegression(torch.eye(d, dtype=F), torch.eye(d, dtype=F) / d, noise)
    gain = torch.linspace(0.2, 1.2, 2001, dtype=F)
    risks = task.isotropic_risk(gain, torch.ones_like(gain), length, lp.LinearAttention)
    c = ((1 + noise) * d + 1) / length
    assert float(2 * risks.min() - noise) == pytest.approx(c / (1 + c), rel=1e-5)


@pytest.mark.parametrize(("length", "noise"), [(1, 0.3), (3, 0.3), (20, 0.3), (3, 0.0)])
def test_bayes_risk_is_that_of_the_posterior_mean(length, noise):
    """Against simulation of ridge regression with the true prior, 6 standard errors of both."""
    d = 3
    task = lp.LinearRegression(spd(d, 1), spd(d, 2), noise, spd(d, 3))
    n = 40_000
    tokens, query, answer = task.sample(n, length, torch.Generator().manual_seed(0))
    x, y = tokens[..., :d], tokens[..., d:]
    gain = (
        task.prior_covariance
        @ x.mT
        @ torch.linalg.pinv(x @ task.prior_covariance @ x.mT + noise * torch.eye(length, dtype=F))
    )
    loss = ((gain @ y).squeeze(-1) * query[:, :d]).sum(-1, keepdim=True).sub(answer).square().sum(
        -1
    ) / 2
    assert abs(float(loss.mean()) - task.bayes_risk(length)) < 6 * 2 * float(
        loss.std()
    ) / math.sqrt(n)


def test_bayes_risk_tends_to_the_noise():
    task = random_task(3, 2)
    assert task.bayes_risk(10**9) == pytest.approx(task.noise_variance / 2, rel=1e-6)
    assert task.bayes_risk(math.inf) == task.noise_variance / 2
    assert task.bayes_risk(5) > task.bayes_risk(50) > task.noise_variance / 2


@pytest.mark.parametrize("noise", [1e-3, 0.3, 40.0])
def test_bayes_risk_in_one_dimension_is_exact(noise):
    """Against an adaptive integral over the chi-square law of Σ x², and its first orders in 1/L."""
    task = lp.LinearRegression([[1.3]], [[0.6]], noise, [[0.8]])
    c = 1.3 * 0.6 / noise
    for length in (1, 2, 7, 60):
        kept = chi2(length).expect(lambda s: 1 / (1 + c * s), epsabs=1e-13, epsrel=1e-11)
        found = task.bayes_risk(length)
        assert found == pytest.approx((noise + 0.8 * 0.6 * kept) / 2, rel=1e-8)
        assert found.standard_error == 0
    long = 10**12
    excess = 0.8 * 0.6 / (c * long)  # to first order
    assert 2 * task.bayes_risk(long) - noise == pytest.approx(excess, rel=1e-3, abs=1e-14 * noise)


def test_bayes_risk_states_an_error_below_a_ten_thousandth():
    """Two dimensions, against 400,000 drawn prompts: six standard errors (2e-9)."""
    eye = torch.eye(2, dtype=F)
    task = lp.LinearRegression(eye, eye / 2, 0.1)
    found = task.bayes_risk(6)
    assert 0 < found.standard_error < 1e-4 * found
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400_000, 6, 2, generator=generator, dtype=F)
    posterior = torch.linalg.inv(2 * eye + x.mT @ x / 0.1)
    losses = (0.1 + posterior.diagonal(dim1=-2, dim2=-1).sum(-1)) / 2
    error = math.hypot(float(losses.std()) / math.sqrt(len(losses)), found.standard_error)
    assert abs(float(losses.mean()) - found) < 6 * error


def test_token_law_is_that_of_the_samples():
    task, w = random_task(2, 4), torch.tensor([0.5, -1.0], dtype=F)
    law = task.token_law(w)
    tokens = task.draw_tokens(w.expand(1, 2), 200_000, torch.Generator().manual_seed(0))[0]
    assert float((tokens.mT.cov() - law.covariance).abs().max()) < 6.5 * math.sqrt(
        2 / 200_000
    ) * float(law.covariance.max())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: lp.LinearRegression([[1.0, 0.0], [0.0, 0.0]], np.eye(2), 0.1), "singular"),
        (
            lambda: lp.LinearRegression(np.eye(2), -np.eye(2), 0.1),
            "prior_covariance: got an indefinite",
        ),
        (lambda: lp.LinearRegression(np.eye(2), np.eye(3), 0.1), "prior_covariance: got shape"),
        (lambda: lp.LinearRegression(np.eye(2), np.eye(2), -0.1), "noise_variance: got -0.1"),
        (lambda: lp.LinearRegression(torch.eye(2), torch.eye(2), 0.1), "float64"),
        (lambda: random_task(2, 0).risk(lp.SoftmaxAttention([[1.0]], [[1.0]])), "attention"),
        (
            lambda: random_task(1, 0).risk(lp.SoftmaxAttention(np.eye(2), np.ones((1, 2))), 0),
            "length: got 0",
        ),
        (
            lambda: random_task(1, 0).risk(
                lp.SoftmaxAttention(np.eye(2), np.ones((1, 2))), average=SobolAverage(100)
            ),
            "power of two",
        ),
        (
            lambda: random_task(1, 0).isotropic_risk(torch.ones(1), torch.ones(1), 10, True),
            "kind: got True",
        ),
        (
            lambda: random_task(1, 0).isotropic_risk(torch.ones(1), torch.ones(1), 10, "linear"),
            "kind: got 'linear'",
        ),
        (lambda: random_task(1, 0).sample(0, 3, torch.Generator()), "batch: got 0"),
        (lambda: random_task(1, 0).sample(2, 3, None), "generator"),
        (
            lambda: random_task(2, 0).isotropic_risk(torch.ones(1), torch.ones(1)),
            "multiples of the identity",
        ),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(lp.InvalidArgumentError, match=words):
        call()
