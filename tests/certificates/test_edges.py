"""Certificates, exact laws and planning at the edges: huge scores, no values, missing moments, odd shapes and dtypes."""

import itertools
import math

import pytest
import torch
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.measures import scalar

F = torch.float64
ONE = lp.SoftmaxAttention([[1.0]], [[1.0]])
NORMAL = lp.Gaussian([0.0], [[1.0]])
MIXTURE = lp.GaussianMixture([0.5, 0.5], [[-1.0], [1.0]], [[[0.5]], [[0.5]]])


def test_tail_of_the_derivative_counts_the_whole_error():
    """Signs without a tilt, L = 10: P(|C_L - 1| > 1/2) is a binomial probability, 0.0215."""
    layer = lp.SoftmaxAttention([[0.0]], [[1.0]])
    counts = [math.comb(10, k) / 2**10 for k in range(11)]
    truth = sum(p for k, p in enumerate(counts) if ((2 * k - 10) / 10) ** 2 > 0.5)
    assert truth == pytest.approx(0.0215, abs=1e-4)
    assert float(lp.jacobian_certificate(layer, lp.Rademacher(1), [1.0], 10).tail(0.5)) >= truth


@pytest.mark.parametrize("seed", range(12))
def test_tails_by_enumeration(seed):
    """Every prompt of three tokens from three atoms: output and derivative, bound and tail, nothing left to chance."""
    generator = torch.Generator().manual_seed(seed)
    atoms = torch.randn(3, 1, generator=generator, dtype=F)
    weights = torch.softmax(torch.randn(3, generator=generator, dtype=F), 0)
    mu = lp.Discrete(atoms, weights / weights.sum())
    z = torch.randn(1, generator=generator, dtype=F)
    choices = torch.tensor(list(itertools.product(range(3), repeat=3)))
    prompts, chance = lp.Empirical(atoms[choices]), weights[choices].prod(-1)
    for found, error in (
        (lp.certificate(ONE, mu, z, 3), (ONE(prompts, z) - ONE(mu, z)).square().sum(-1)),
        (lp.jacobian_certificate(ONE, mu, z, 3), (ONE.jacobian_u(prompts, z) - ONE.jacobian_u(mu, z)).flatten(1).square().sum(-1)),
    ):
        assert float(found.bound) >= float((chance * error).sum())
        for distance in (0.05, 0.2, 0.5, 1.0):
            assert float(found.tail(distance)) >= float(chance[error > distance**2].sum()) * (1 - 1e-12)


@pytest.mark.parametrize("df", [2.1, 3.0, 4.5])
def test_student_tokens_without_a_tilt_are_a_plain_average(df):
    """E‖T_L - T‖² = 1/L: moments come from the law, not from its placeholder cgf."""
    bounds = lp.certificate(ONE, lp.StudentT(1, df), [0.0], [1, 2, 5, 100]).bound
    assert bool((bounds >= torch.tensor([1.0, 0.5, 0.2, 0.01], dtype=F)).all())


def test_student_cumulants_through_an_affine_map():
    assert_close(lp.StudentT(1, df=5.0).map([[1.0]]).norm_moment4([0.0]), torch.tensor(9.0, dtype=F))
    assert_close(lp.StudentT(1, df=5.0).directional_cumulants([[2.0]])[1], torch.tensor([4.0], dtype=F))
    with pytest.raises(lp.NoMomentError):
        lp.StudentT(1, df=3.0).map([[1.0]]).norm_moment4([0.0])


def test_very_long_prompts_have_a_jacobian_certificate():
    for mu in (NORMAL, MIXTURE):
        for length in (10**12, 10**15):
            assert math.isfinite(float(lp.jacobian_certificate(ONE, mu, [1.0], length).bound))
    exact = lp.finite_prompt(ONE, NORMAL, [1.0], 10**12).jacobian_u_mse
    assert 1 <= float(lp.jacobian_certificate(ONE, NORMAL, [1.0], 10**12).bound / exact) < 1.01


def test_a_layer_that_reads_nothing_has_no_error():
    silent = lp.SoftmaxAttention([[1.0]], [[0.0]])
    for mu in (MIXTURE, lp.Laplace(1), lp.Sphere(1)):
        assert float(lp.certificate(silent, mu, [0.5], 100).bound) == 0.0
        assert lp.prompt_length(silent, mu, [0.5], 0.1, "certified") == 1
    assert float(lp.jacobian_certificate(silent, lp.Sphere(1), [0.5], 100).bound) == 0.0


def test_mixture_law_and_certificates_carry_no_half_gradient():
    z = torch.tensor([0.7], dtype=F, requires_grad=True)
    law = lp.finite_prompt(ONE, MIXTURE, z, 10)
    assert not any(value.requires_grad for value in (law.mean, law.mse, law.limit, law.bias))
    assert not lp.certificate(ONE, NORMAL, z, 10).bound.requires_grad
    assert not lp.jacobian_certificate(ONE, NORMAL, z, 10).bound.requires_grad


def test_prompt_length_where_the_error_rises_before_it_falls():
    """A rare token that the limit reads is missing from most short prompts."""
    b, u, p = math.exp(-3) / 2, 3.0, 1e-4
    other = p * math.exp(3) / (b * math.exp(-3 * b))
    mu = lp.GaussianMixture([1 - p - other, p, other], [[0.0], [1.0], [-b]], torch.zeros(3, 1, 1, dtype=F))
    answer = lp.prompt_length(ONE, mu, [u], 0.0186)
    assert answer > 20
    later = lp.finite_prompt(ONE, mu, [u], [int(answer) * k for k in (1, 2, 3, 10, 100)]).mse.sqrt()
    assert bool((later <= 0.0186).all())


def test_large_means_cost_no_digits():
    tiny = torch.tensor([[1e-14]], dtype=F)
    near, far = (lp.finite_prompt(ONE, lp.Gaussian([m], tiny), [1e7], 100).mse for m in (0.0, 1e9))
    assert_close(near, far, rtol=1e-12, atol=0)
    assert float(lp.finite_prompt(ONE, lp.Gaussian([1e16], [[1.0]]), [1.0], 100).effective_tokens) == pytest.approx(39.2, abs=0.1)
    for shift in (0.0, 1e8):
        found = lp.certificate(ONE, lp.Discrete([[shift - 1], [shift + 1]], [0.5, 0.5]), [0.5], 50)
        assert float(found.rho) == pytest.approx(math.cosh(1.0) / math.cosh(0.5) ** 2, rel=1e-12)
    near, far = (
        lp.finite_prompt(ONE, lp.GaussianMixture([0.3, 0.7], [[m - 1.0], [m + 1.0]], [[[0.5]], [[0.3]]]), [0.8], 50).mse
        for m in (0.0, 1e8)
    )
    assert_close(near, far, rtol=1e-7, atol=0)  # the mean of the mixture itself is rounded to 1e-8


def test_single_precision_bounds_are_rounded_outward():
    single = lp.SoftmaxAttention(torch.ones(1, 1), torch.ones(1, 1))
    bound = lp.certificate(single, lp.Gaussian(torch.zeros(1), torch.ones(1, 1)), torch.ones(1), 1).bound
    assert float(bound) > 2.0  # the truth is 2, an equality


def test_odd_input_gets_our_errors():
    for call, words in (
        (lambda: lp.weight_moment(100, 1000.0, [(2, 0)]), "standard deviation of the scores"),
        (lambda: lp.finite_prompt(ONE, NORMAL, [3000.0], 100), "standard deviation of the scores"),
        (lambda: lp.weight_moment(10, 1.0, [(200, 0)]), "powers"),
        (lambda: lp.law.weight_moments(10, 1.0, []), "products"),
        (lambda: lp.weight_moment(10, 1.0, [(2, 0)], center=[1.0, 2.0]), "center"),
        (lambda: lp.finite_prompt(ONE, NORMAL, [1.0], [[1], [1, 2]]), "length"),
        (lambda: lp.jacobian_certificate(ONE, torch.zeros(3), [1.0], 10), "mu: got Tensor"),
        (lambda: lp.query_average(3, NORMAL, NORMAL, 10), "attention"),
        (lambda: lp.query_average(ONE, NORMAL, [1.0], 10), "queries"),
        (lambda: lp.query_average(ONE, NORMAL, NORMAL, 10, points=100), "points: got 100"),
        (lambda: lp.prompt_length(ONE, lp.Gaussian([[0.0], [1.0]], [[1.0]]), [1.0], 0.1), "batch"),
        (lambda: lp.prompt_length(ONE, NORMAL, [0.0], 0.1, relative=True), "norm 0"),
        (lambda: lp.law.regime(1.0, 0), "length: got 0"),
        (lambda: lp.law.regime(math.nan, 10), "score_variance"),
        (lambda: ONE(lp.Gaussian(torch.zeros(1), torch.ones(1, 1)), [1.0]), "mu: got torch.float32"),
        (lambda: ONE(lp.Empirical([[1e200], [-1e200]]), [1e200]), "z: got"),
        (lambda: lp.finite_prompt(ONE, NORMAL, [1.0], torch.tensor(True)), "length"),
    ):
        with pytest.raises(lp.InvalidArgumentError, match=words):
            call()


def test_no_queries_and_shared_heads_keep_their_shapes():
    assert lp.finite_prompt(ONE, MIXTURE, torch.zeros(0, 1, dtype=F), [10, 20]).mse.shape == (2, 0)
    heads = lp.SoftmaxAttention(torch.ones(1, 1, dtype=F), torch.ones(3, 2, 1, dtype=F))
    for mu in (NORMAL, MIXTURE):
        law = lp.finite_prompt(heads, mu, torch.ones(4, 1, dtype=F), [10, 20])
        for name in ("mse", "jacobian_v_mse", "effective_tokens", "score_variance", "regime"):
            assert getattr(law, name).shape == (2, 3, 4)
        assert law.mean.shape == (2, 3, 4, 2)
        assert law.limit.shape == (3, 4, 2)


def test_a_users_law_outside_its_domain_is_refused():
    class Exponential(lp.Measure):
        dim = 1

        def cgf(self, u):
            return -torch.log1p(-u[..., 0])

        def sample(self, n, generator):
            return -torch.log1p(-torch.rand(n, 1, generator=generator, dtype=self.dtype))

    with pytest.raises(lp.TiltDomainError, match="not finite"):
        ONE(Exponential(), [1.5])


def test_bfloat16_and_float32_laws():
    for dtype, tolerance in ((torch.bfloat16, 3e-2), (torch.float32, 1e-5)):
        layer = lp.SoftmaxAttention(torch.ones(1, 1, dtype=dtype), torch.ones(1, 1, dtype=dtype))
        law = lp.finite_prompt(
            layer, lp.Gaussian(torch.zeros(1, dtype=dtype), torch.ones(1, 1, dtype=dtype)), torch.ones(1, dtype=dtype), 10
        )
        assert law.mse.dtype == dtype
        assert float(law.mse) == pytest.approx(float(lp.finite_prompt(ONE, NORMAL, [1.0], 10).mse), rel=tolerance)


@pytest.mark.parametrize("size", [300.0, 380.0, 400.0, 1e5, 1e150])
def test_tilts_beyond_the_exponential_still_have_a_bound(size):
    """inf times 0 bounds nothing: a sign is within 2 of any limit, and at u = 300 and beyond the limit is the sign 1 itself."""
    found = lp.certificate(ONE, lp.Rademacher(1), [size], [1, 2, 100, 10**6])
    chance = torch.tensor([0.5, 0.25, 0.5**100, 0.0], dtype=F)  # that all signs are -1, where T_L - T = -2
    assert bool((found.bound >= 4 * chance).all())
    assert bool((found.bound <= 4.0 * (1 + 1e-12)).all())
    assert not bool(torch.isnan(torch.stack([found.bound, found.leading, found.remainder, found.theta, found.rho])).any())


def test_certified_length_far_out_is_near_that_of_smaller_tilts():
    """Two signs: 380 and 400 are the same prompt as 300, up to e^-600; one of the bounds overflows there."""
    near, far, further = (lp.prompt_length(ONE, lp.Rademacher(1), [size], 0.1, "certified") for size in (300.0, 380.0, 400.0))
    assert near == 45
    assert far == further == 50


@pytest.mark.parametrize("size", [1e2, 1e8, 1e12, 1e17, 1e150])
@pytest.mark.parametrize("z", [[1.0, 0.0], [0.6, 0.8]])
def test_scores_that_swamp_the_cgf_are_not_certified_below_the_truth(size, z):
    """Tokens on a circle and scores so large that attention reads the nearest: E‖T_L - T‖² >= 4 (π/(L+1))²/10 or so."""
    eye = torch.eye(2, dtype=F)
    found = lp.certificate(lp.SoftmaxAttention(size * eye, eye), lp.Sphere(2), z, [2, 100])
    prompts = lp.Empirical(lp.Sphere(2).sample(2000 * 100, torch.Generator().manual_seed(0)).reshape(2000, 100, 2))
    layer = lp.SoftmaxAttention(size * eye, eye)
    error = (layer(prompts, z) - layer(lp.Sphere(2), z)).square().sum(-1)
    assert float(found.bound[1]) >= float(error.mean()) * 0.8
    assert bool((found.bound >= 0).all())
    assert "j" not in repr(lp.certificate(layer, lp.Sphere(2), z, 100))


def test_a_layer_that_reads_nothing_has_no_error_where_the_cgf_is_one_sided():
    silent = lp.SoftmaxAttention([[1.0]], [[0.0]])
    for mu, z in ((scalar.LogNormal(1, 0.5), [-1.0]), (lp.Laplace(1), [1.2]), (lp.Rademacher(1), [1e5]), (NORMAL, [100.0])):
        found = lp.certificate(silent, mu, z, [1, 10, 10**6])
        assert bool((found.bound == 0).all())
        assert not bool(torch.isnan(found.leading).any())
    assert float(lp.jacobian_certificate(silent, lp.Rademacher(1), [1e5], 10).bound) == 0.0
    assert lp.prompt_length(silent, scalar.LogNormal(1, 0.5), [-1.0], 0.1, "certified") == 1


def test_a_users_cgf_that_is_nan_beyond_its_domain_is_an_infinite_moment():
    """The exponential law has no second moment of the weights at u = 0.7: its certificate is the one of Λ(2u) = ∞."""

    class Exponential(lp.Measure):
        dim = 1

        def cgf(self, u):
            return -torch.log1p(-u[..., 0])

        def sample(self, n, generator):
            return -torch.log1p(-torch.rand(n, 1, generator=generator, dtype=self.dtype))

    found = lp.certificate(ONE, Exponential(), [0.7], 1000)
    assert math.isinf(float(found.rho))
    assert math.isfinite(float(found.bound))
    assert "infinite at 2u" in found.reason
