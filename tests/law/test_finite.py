"""The exact law of a finite prompt: three routes to the same numbers, and sampling
as the fourth.
"""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.law import finite_prompt, regime
from largeprompt.law.gaussian import collision_moments, jacobian_statistics

F = torch.float64


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F)


def gaussian(d, seed=0, rank=None):
    root = draw(d, rank or d, seed=seed) / math.sqrt(d)
    return lp.Gaussian(draw(d, seed=seed + 1), root @ root.mT)


def layer(d, o=2, seed=0, size=1.0):
    return lp.SoftmaxAttention(
        size * draw(d, d, seed=seed + 10) / math.sqrt(d), draw(o, d, seed=seed + 11)
    )


ONE = lp.SoftmaxAttention([[1.0]], [[1.0]])
NORMAL = lp.Gaussian([0.0], [[1.0]])
TWO_MODES = lp.GaussianMixture([0.5, 0.5], [[-1.0], [1.0]], [[[0.5]], [[0.5]]])


MIXTURE = lp.GaussianMixture(
    [0.2, 0.5, 0.3],
    [[1.0, 0.0], [-1.0, 1.0], [0.0, 2.0]],
    [[[1.0, 0.3], [0.3, 0.5]], [[0.3, 0.0], [0.0, 0.3]], [[0.0, 0.0], [0.0, 0.0]]],
)


@pytest.mark.parametrize(
    ("mu", "size"),
    [
        (gaussian(2), 1.0),
        (gaussian(2), 3.0),
        (gaussian(2, rank=1), 1.0),
        (MIXTURE, 0.7),
        (MIXTURE, 2.0),
    ],
    ids=["gaussian", "gaussian frozen", "gaussian singular", "mixture", "mixture frozen"],
)
@pytest.mark.parametrize("length", [2, 9, 60])
def test_against_sampling(mu, size, length):
    """Bias, covariance, and the three mean squared errors within 6.5 standard errors (8e-11 each,
    some 150 comparisons).
    """
    attention, z = layer(2, size=size), draw(2, seed=3)
    law = finite_prompt(attention, mu, z, length)
    n = 40_000
    prompts = lp.Empirical(
        mu.sample(n * length, torch.Generator().manual_seed(1)).reshape(n, length, 2)
    )
    error = attention(prompts, z) - law.limit
    centered = attention(prompts, z) - law.mean
    checks = [
        (error, law.bias),
        (error.square().sum(-1), law.mse),
        (centered[:, :, None] * centered[:, None, :], law.covariance),
    ]
    in_v = (
        (attention.jacobian_v(prompts, z) - attention.jacobian_v(mu, z)).flatten(1).square().sum(-1)
    )
    checks.append((in_v, law.jacobian_v_mse))
    if isinstance(mu, lp.Gaussian):
        in_u = (
            (attention.jacobian_u(prompts, z) - attention.jacobian_u(mu, z))
            .flatten(1)
            .square()
            .sum(-1)
        )
        checks.append((in_u, law.jacobian_u_mse))
    for samples, expected in checks:
        assert bool(
            (
                (samples.mean(0) - expected).abs() <= 6.5 * samples.std(0) / math.sqrt(n) + 1e-12
            ).all()
        )


def test_jacobian_error_from_five_coefficients():
    """The error as five coefficients, against the conditional decomposition that
    the library uses.
    """
    mu, attention, z = gaussian(4), layer(4, o=3), draw(4, seed=2)
    G, u, V = mu.covariance, attention.U @ z, attention.V
    B, Gu = V.mT @ V, G @ u
    for length in (2, 7, 300, 10**8):
        sigma = math.sqrt(float(u @ Gu))
        p = {k: lp_moment(length, sigma, powers) for k, powers in POWERS.items()}
        c1 = p["Y"] + 2 * p["YY"] - 2 * p["W"]
        c2 = p["Y"] + p["YY"] - 2 * p["W"]
        c3 = p["Y"] + 7 * p["YY"] + 20 * p["YYY"] - 52 * p["YW"] - 14 * p["W"] + 38 * p["4"]
        c4 = p["Y"] + 11 * p["YY"] + 40 * p["YYY"] - 92 * p["YW"] - 18 * p["W"] + 58 * p["4"]
        c5 = (
            p["Y"] + 27 * p["YY"] + 240 * p["YYY"] + 840 * p["YYYY"] - 2880 * p["YYW"]
            - 680 * p["YW"] + 2480 * p["Y4"] - 62 * p["W"] + 1020 * p["WW"] + 594 * p["4"]
            - 1580 * p["5"]
        )  # fmt: skip
        tr = torch.trace
        read, size = (V @ Gu).square().sum(), Gu.square().sum()
        expected = (
            c1 * tr(B @ G @ G) + c2 * tr(G) * tr(B @ G) + c3 * (tr(G) * read + size * tr(B @ G))
            + 2 * c4 * (u @ G @ B @ G @ G @ u) + c5 * size * read
        )  # fmt: skip
        law = finite_prompt(attention, mu, z, length)
        assert_close(law.jacobian_u_mse, expected * z.square().sum(), rtol=1e-8, atol=0)


POWERS = {
    "Y": [(2, 0)], "W": [(3, 0)], "4": [(4, 0)], "5": [(5, 0)],
    "YY": [(2, 0)] * 2, "YYY": [(2, 0)] * 3, "YYYY": [(2, 0)] * 4,
    "YW": [(2, 0), (3, 0)], "YYW": [(2, 0), (2, 0), (3, 0)],
    "Y4": [(2, 0), (4, 0)], "WW": [(3, 0), (3, 0)],
}  # fmt: skip


def lp_moment(length, sigma, powers):
    from largeprompt.law import weight_moment

    return float(weight_moment(length, sigma, powers))


def test_jacobian_statistics_keep_their_digits_where_few_tokens_rule():
    """L = 2: κ = w(1-w)(ξ1-ξ2)² is one integral. Stein's polynomial alone has lost five digits at
    σ = 10.
    """
    from scipy import integrate, stats

    for sigma in (2.0, 6.0, 10.0):

        def expect(f, sigma=sigma):
            def integrand(x):
                w = 1 / (1 + math.exp(-sigma * math.sqrt(2) * x))
                return f(w, w * (1 - w) * 2 * x * x) * stats.norm.pdf(x)

            return integrate.quad(
                integrand, -10, 10, epsabs=1e-14, epsrel=1e-12, limit=500, points=[-0.3, 0.0, 0.3]
            )[0]

        found = jacobian_statistics(2, torch.tensor(sigma, dtype=F))
        assert float(found.spread) == pytest.approx(expect(lambda w, k: (k - 1) ** 2), rel=1e-9)
        assert float(found.mixed) == pytest.approx(
            expect(lambda w, k: (k - 1) * (w**2 + (1 - w) ** 2)), rel=1e-9
        )
        # Σ w²(ξ-S)² = 2 w²(1-w)²(ξ1-ξ2)² for two tokens
        assert float(found.cross) == pytest.approx(
            expect(lambda w, k: 2 * w * (1 - w) * k), rel=1e-9
        )


def test_one_token_is_read_whole():
    mu, attention, z = gaussian(3), layer(3), draw(3, seed=4)
    law = finite_prompt(attention, mu, z, 1)
    assert_close(law.mean, attention.V @ mu.mean, rtol=1e-12, atol=1e-12)
    assert_close(
        law.covariance, attention.V @ mu.covariance @ attention.V.mT, rtol=1e-9, atol=1e-12
    )
    # C_1 = 0, so the Jacobian's error is the Jacobian
    assert_close(law.jacobian_u_mse, attention.jacobian_u(mu, z).square().sum(), rtol=1e-10, atol=0)


def test_no_tilt_is_a_plain_average():
    mu = gaussian(3)
    attention = lp.SoftmaxAttention(torch.zeros(3, 3, dtype=F), torch.eye(3, dtype=F))
    law = finite_prompt(attention, mu, draw(3), 8)
    assert_close(law.covariance, mu.covariance / 8, rtol=1e-14, atol=1e-15)
    assert_close(law.bias, torch.zeros(3, dtype=F))
    # E‖C_L - Γ‖² for L = 8 uniform weights: (tr Γ² + tr²Γ)(L-1)/L² + tr Γ²/L²
    square, trace = mu.covariance.square().sum(), torch.trace(mu.covariance)
    assert_close(
        law.jacobian_u_mse,
        draw(3).square().sum() * ((square + trace**2) * 7 / 64 + square / 64),
        rtol=1e-12,
        atol=0,
    )
    assert law.regime == "linear"


def test_infinite_prompt_has_no_error():
    for mu in (gaussian(2), MIXTURE):
        law = finite_prompt(layer(2), mu, draw(2), math.inf)
        assert float(law.mse) == 0.0
        assert_close(law.mean, law.limit)
        assert law.regime == "linear"


def test_shapes_lead_with_lengths_heads_queries():
    mu = gaussian(2)
    attention = lp.SoftmaxAttention(draw(3, 2, 2), draw(3, 4, 2, seed=1))
    z = draw(5, 2, seed=2)
    law = finite_prompt(attention, mu, z, [1, 10, math.inf])
    assert law.mse.shape == law.jacobian_u_mse.shape == law.jacobian_v_mse.shape == (3, 3, 5)
    assert law.covariance.shape == (3, 3, 5, 4, 4)
    assert law.regime.shape == (3, 3, 5)
    single = finite_prompt(lp.SoftmaxAttention(attention.U[1], attention.V[1]), mu, z[2], 10)
    assert_close(law.mse[1, 1, 2], single.mse)
    assert_close(law.covariance[1, 1, 2], single.covariance)
    assert_close(law.jacobian_u_mse[1, 1, 2], single.jacobian_u_mse)
    assert law.regime[1, 1, 2] == single.regime
    assert finite_prompt(attention, MIXTURE, z, np.array([2, 3])).covariance.shape == (
        2,
        3,
        5,
        4,
        4,
    )


def test_gradients_reach_the_layer():
    mu, z = gaussian(2), draw(2, seed=1)

    def error(U, V):
        law = finite_prompt(lp.SoftmaxAttention(U, V), mu, z, 20)
        return law.mse + law.jacobian_u_mse

    arguments = tuple(t.requires_grad_() for t in (draw(2, 2, seed=2), draw(1, 2, seed=3)))
    assert torch.autograd.gradcheck(error, arguments, rtol=1e-5)


@pytest.mark.parametrize("length", [2, 50, 10**6, math.inf])
def test_hessian_at_the_origin(length):
    """At u = 0 the score variance has a second derivative though its root has none; differences of
    the gradient nearby agree.
    """
    eye = torch.eye(2, dtype=F)
    mu = lp.Gaussian(torch.zeros(2, dtype=F), torch.diag(torch.tensor([1.0, 0.5], dtype=F)))
    step = 1e-3

    def mse(z):
        return finite_prompt(lp.SoftmaxAttention(eye, eye), mu, z, length).mse

    found = torch.autograd.functional.hessian(mse, torch.zeros(2, dtype=F))
    slopes = [
        torch.autograd.functional.jacobian(mse, step * direction) for direction in (*eye, *-eye)
    ]
    assert_close(
        found,
        torch.stack(
            [
                (ahead - behind) / (2 * step)
                for ahead, behind in zip(slopes[:2], slopes[2:], strict=True)
            ]
        ),
        rtol=1e-4,
        atol=1e-12,
    )
    if length == 2:
        isotropic = torch.autograd.functional.hessian(
            lambda z: (
                finite_prompt(
                    lp.SoftmaxAttention(eye, eye), lp.Gaussian(torch.zeros(2, dtype=F), eye), z, 2
                ).mse
            ),
            torch.zeros(2, dtype=F),
        )
        assert_close(isotropic, 2 * eye)


def test_first_order_expansion_is_labeled_and_tends_to_the_exact_law():
    attention, z = layer(2, size=0.7), draw(2, seed=1)
    for mu in (gaussian(2), MIXTURE):
        rough, exact = (
            finite_prompt(attention, mu, z, 10**7, expansion=flag) for flag in (True, False)
        )
        assert rough.method == "first order"
        for name in ("mse", "bias", "covariance", "jacobian_v_mse", "effective_tokens"):
            assert_close(getattr(rough, name), getattr(exact, name), rtol=1e-3, atol=1e-12)
    assert "first order" in repr(finite_prompt(attention, lp.Rademacher(2), z, 10, expansion=True))


def test_regimes_follow_alpha():
    for sigma2 in (1.5, 2.0, 6.0):
        edge_linear, edge_frozen = math.exp(2 * sigma2), math.exp(sigma2 / 2)
        assert regime(sigma2, math.ceil(edge_linear) + 1) == "linear"
        assert regime(sigma2, math.floor(edge_linear)) == "heavy"
        assert regime(sigma2, math.ceil(edge_frozen) + 1) == "heavy"
        assert regime(sigma2, math.floor(edge_frozen)) == "frozen"
    assert regime(1.0, 1) == "frozen"


@pytest.mark.parametrize(("sigma", "power"), [(0.3, -1.0), (1.0, -1.0)])
def test_large_length_expansion_of_the_collision(sigma, power):
    """L E Y = x{1 - (2x-1)(x-1)/L + O(1/L²)}."""
    x = math.exp(sigma**2)
    for length in (10**5, 10**7):
        y = float(collision_moments(length, torch.tensor(sigma, dtype=F)).collision)
        assert length * y / x == pytest.approx(
            1 - (2 * x - 1) * (x - 1) / length, abs=50 * x**4 / length**2
        )


def test_frozen_phase():
    """E Y -> 1 - 1/α deep in the frozen phase (random energy model), slowly."""
    sigma = 40.0
    values = [
        float(collision_moments(10**k, torch.tensor(sigma, dtype=F)).collision) for k in (6, 15)
    ]
    predicted = [1 - math.sqrt(2 * math.log(10**k)) / sigma for k in (6, 15)]
    np.testing.assert_allclose(values, predicted, atol=0.02)


def test_refusals():
    attention, z = layer(2), draw(2)
    batch = lp.Rademacher(2).tilt(draw(3, 2))
    with pytest.raises(lp.InvalidArgumentError, match="without batch dimensions"):
        finite_prompt(attention, batch, z, 10)
    with pytest.raises(lp.InvalidArgumentError, match=r"expansion=True.*jacobian_certificate"):
        _ = finite_prompt(attention, MIXTURE, z, 10, expansion=True).jacobian_u_mse
    with pytest.raises(lp.TiltDomainError):
        finite_prompt(
            lp.SoftmaxAttention([[1.0]], [[1.0]]), lp.Laplace(1), [0.8], math.inf, expansion=True
        )
    with pytest.raises(lp.InvalidArgumentError, match="length: got 0"):
        finite_prompt(attention, MIXTURE, z, 0)
    with pytest.raises(lp.InvalidArgumentError, match="no lengths"):
        finite_prompt(attention, MIXTURE, z, [])
    with pytest.raises(lp.InvalidArgumentError, match="attention: got LinearAttention"):
        finite_prompt(lp.LinearAttention(attention.U, attention.V), MIXTURE, z, 5)
    with pytest.raises(lp.TiltDomainError):
        finite_prompt(
            lp.SoftmaxAttention([[1.0]], [[1.0]]), lp.Laplace(1), [0.8], 10, expansion=True
        )
    far = lp.GaussianMixture([0.5, 0.5], [[-1e5], [1e5]], [[[1.0]], [[1.0]]])
    with pytest.raises(lp.InvalidArgumentError, match="a spread of"):
        finite_prompt(lp.SoftmaxAttention([[1.0]], [[1.0]]), far, [1.0], 10)


def test_mixture_law_carries_no_half_gradient():
    z = torch.tensor([0.7], dtype=F, requires_grad=True)
    law = lp.finite_prompt(ONE, TWO_MODES, z, 10)
    assert not any(value.requires_grad for value in (law.mean, law.mse, law.limit, law.bias))


def test_large_means_cost_no_digits():
    tiny = torch.tensor([[1e-14]], dtype=F)
    near, far = (lp.finite_prompt(ONE, lp.Gaussian([m], tiny), [1e7], 100).mse for m in (0.0, 1e9))
    assert_close(near, far, rtol=1e-12, atol=0)
    assert float(
        lp.finite_prompt(ONE, lp.Gaussian([1e16], [[1.0]]), [1.0], 100).effective_tokens
    ) == pytest.approx(39.2, abs=0.1)
    for shift in (0.0, 1e8):
        found = lp.certificate(ONE, lp.Discrete([[shift - 1], [shift + 1]], [0.5, 0.5]), [0.5], 50)
        assert float(found.rho) == pytest.approx(math.cosh(1.0) / math.cosh(0.5) ** 2, rel=1e-12)
    near, far = (
        lp.finite_prompt(
            ONE,
            lp.GaussianMixture([0.3, 0.7], [[m - 1.0], [m + 1.0]], [[[0.5]], [[0.3]]]),
            [0.8],
            50,
        ).mse
        for m in (0.0, 1e8)
    )
    assert_close(near, far, rtol=1e-7, atol=0)  # the mean of the mixture itself is rounded to 1e-8


def test_odd_input_gets_our_errors():
    for call, words in (
        (lambda: lp.weight_moment(100, 1000.0, [(2, 0)]), "standard deviation of the scores"),
        (lambda: lp.finite_prompt(ONE, NORMAL, [3000.0], 100), "standard deviation of the scores"),
        (lambda: lp.weight_moment(10, 1.0, [(200, 0)]), "powers"),
        (lambda: lp.weight_moment(10, 1.0, [(2, 0)], center=[1.0, 2.0]), "center"),
        (lambda: lp.finite_prompt(ONE, NORMAL, [1.0], [[1], [1, 2]]), "length"),
        (lambda: lp.law.regime(1.0, 0), "length: got 0"),
        (lambda: lp.law.regime(math.nan, 10), "score_variance"),
        (lambda: lp.finite_prompt(ONE, NORMAL, [1.0], torch.tensor(True)), "length"),
    ):
        with pytest.raises(lp.InvalidArgumentError, match=words):
            call()


def test_no_queries_and_shared_heads_keep_their_shapes():
    assert lp.finite_prompt(ONE, TWO_MODES, torch.zeros(0, 1, dtype=F), [10, 20]).mse.shape == (
        2,
        0,
    )
    heads = lp.SoftmaxAttention(torch.ones(1, 1, dtype=F), torch.ones(3, 2, 1, dtype=F))
    for mu in (NORMAL, TWO_MODES):
        law = lp.finite_prompt(heads, mu, torch.ones(4, 1, dtype=F), [10, 20])
        for name in ("mse", "jacobian_v_mse", "effective_tokens", "score_variance", "regime"):
            assert getattr(law, name).shape == (2, 3, 4)
        assert law.mean.shape == (2, 3, 4, 2)
        assert law.limit.shape == (3, 4, 2)


def test_bfloat16_and_float32_laws():
    for dtype, tolerance in ((torch.bfloat16, 3e-2), (torch.float32, 1e-5)):
        layer = lp.SoftmaxAttention(torch.ones(1, 1, dtype=dtype), torch.ones(1, 1, dtype=dtype))
        law = lp.finite_prompt(
            layer,
            lp.Gaussian(torch.zeros(1, dtype=dtype), torch.ones(1, 1, dtype=dtype)),
            torch.ones(1, dtype=dtype),
            10,
        )
        assert law.mse.dtype == dtype
        assert float(law.mse) == pytest.approx(
            float(lp.finite_prompt(ONE, NORMAL, [1.0], 10).mse), rel=tolerance
        )
