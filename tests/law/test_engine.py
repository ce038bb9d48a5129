"""Every law through the one door: listed prompts, one token, sample values, drawn prompts, images,
batches, laws of one's own.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.testing import assert_sample_mean

F = torch.float64
ONE = lp.SoftmaxAttention([[1.0]], [[1.0]])
NAMES = (
    "mean",
    "bias",
    "covariance",
    "mse",
    "jacobian_v_mse",
    "jacobian_u_mse",
    "effective_tokens",
    "limit",
)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F)


def plain(dim):
    return lp.SoftmaxAttention(torch.eye(dim, dtype=F), torch.eye(dim, dtype=F))


def agree(law, expected, names=NAMES, rtol=1e-9):
    for name in names:
        value = torch.as_tensor(getattr(expected, name), dtype=F)
        slack = 1e-11 * float(value.abs().max())
        assert_close(
            getattr(law, name),
            value,
            rtol=rtol,
            atol=slack,
            msg=lambda text, name=name: f"{name}: {text}",
        )


def as_product(dim):
    """Signs that the engine does not list: it sees a product of scalar laws, and takes the way by
    complex tilts.
    """
    return lp.Product([lp.scalar.RademacherLaw()] * dim)


@pytest.mark.parametrize("law", [lp.Rademacher, as_product], ids=["listed", "complex tilts"])
@pytest.mark.parametrize("length", [1, 2, 3, 4])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_signs_against_all_prompts(listed, law, dim, length):
    V, u = draw(2, dim, seed=dim), draw(dim, seed=1)
    points = list(itertools.product([-1.0, 1.0], repeat=dim))
    expected = listed(points, np.full(len(points), 0.5**dim), u, V, length)
    agree(
        lp.finite_prompt(lp.SoftmaxAttention(torch.eye(dim, dtype=F), V), law(dim), u, length),
        expected,
    )


def test_products_of_unequal_laws_against_all_prompts(listed):
    """A sign and a sum of two signs: six values."""
    mu = lp.Product([lp.scalar.RademacherLaw(), lp.scalar.RademacherSumLaw(2)])
    r = math.sqrt(2)
    points = list(itertools.product([-1.0, 1.0], [-r, 0.0, r]))
    masses = [0.125, 0.25, 0.125, 0.125, 0.25, 0.125]
    V, u = draw(3, 2), torch.tensor([0.9, -0.6], dtype=F)
    for length in (2, 3, 4):
        agree(
            lp.finite_prompt(lp.SoftmaxAttention(torch.eye(2, dtype=F), V), mu, u, length),
            listed(points, masses, u, V, length),
        )


LAWS = [
    lp.Uniform(2),
    lp.Laplace(2),
    lp.Sphere(2),
    lp.scalar.SkewNormal(2, skew=0.6),
    lp.scalar.GeneralizedNormal(2, shape=4.0),
    lp.scalar.LogNormal(2, scale=0.5),
    lp.Rademacher(12).map(draw(2, 12, seed=3) / 4, [0.5, 0.0]),
    lp.Laplace(2).tilt([0.2, -0.1]),
    lp.Product([lp.scalar.UniformLaw(), lp.scalar.LaplaceLaw()]),
]
QUERY = torch.tensor([-0.5, -0.3], dtype=F)  # inside the domain of each


@pytest.mark.parametrize("mu", LAWS, ids=repr)
def test_one_token_is_read_whole(mu):
    attention = lp.SoftmaxAttention(torch.eye(2, dtype=F), draw(3, 2, seed=2))
    law, V = lp.finite_prompt(attention, mu, QUERY, 1), attention.V
    limit = mu.tilted_mean(QUERY)
    assert_close(law.mean, V @ mu.mean)
    assert_close(law.bias, V @ (mu.mean - limit))
    assert_close(law.covariance, V @ mu.covariance @ V.mT)
    assert_close(
        law.mse, torch.trace(V @ mu.covariance @ V.mT) + (V @ (mu.mean - limit)).square().sum()
    )
    assert float(law.effective_tokens) == 1.0


@pytest.mark.parametrize("mu", LAWS, ids=repr)
def test_first_order_at_large_lengths(mu):
    """L times the distance from the first order stays of one size as L grows."""
    attention = lp.SoftmaxAttention(torch.eye(2, dtype=F), draw(3, 2, seed=2))
    lengths = [10**5, 10**9]
    exact, rough = (
        lp.finite_prompt(attention, mu, QUERY / 3, lengths, expansion=flag)
        for flag in (False, True)
    )
    for name in ("mse", "bias", "covariance", "jacobian_v_mse", "effective_tokens"):
        found, first = getattr(exact, name), getattr(rough, name)
        gap = [float((found[i] / first[i] - 1).abs().max()) for i in range(2)]
        assert gap[0] < 3e-3
        # rounding leaves 3e-7 rmse of a bias
        assert gap[1] < max(3e-4 * gap[0], 2e-6 if name == "bias" else 1e-8)


@pytest.mark.parametrize("mu", [LAWS[i] for i in (3, 4, 5, 8)], ids=repr)
def test_against_drawn_prompts(mu, drawn_law):
    attention = lp.SoftmaxAttention(torch.eye(2, dtype=F), draw(2, 2, seed=2))
    for length in (2, 20):
        drawn_law(
            lp.finite_prompt(attention, mu, QUERY, length),
            attention,
            mu,
            QUERY,
            length,
            count=10_000,
        )


def test_sample_values():
    """Numbers computed once by an independent program."""
    law = lp.finite_prompt(plain(3), lp.Rademacher(3), [0.7, -0.4, 0.9], 50)
    assert float(law.mse) == pytest.approx(0.0560797208923, rel=1e-11)
    assert 1 / float(law.effective_tokens) == pytest.approx(0.0468463851168, rel=1e-11)
    assert float(
        lp.finite_prompt(plain(4), lp.Uniform(4), [0.5, 1.0, -0.3, 0.2], 1000).mse
    ) == pytest.approx(0.00764800413343, rel=1e-11)
    assert float(lp.finite_prompt(ONE, lp.Laplace(1), [0.5], 5).mse) == pytest.approx(
        0.443683959062, rel=1e-11
    )


def test_student_t_has_a_law_and_no_limit():
    law = lp.finite_prompt(ONE, lp.StudentT(1, df=5.0), [1.0], [1, 2, 10, 1000])
    np.testing.assert_allclose(law.mean[:, 0], [0.0, 0.34116922, 0.82774005, 2.29551968], atol=5e-9)
    np.testing.assert_allclose(
        1 / law.effective_tokens, [1.0, 0.62539705, 0.20729207, 0.08123798], atol=5e-9
    )
    assert float(law.covariance[0, 0, 0]) == pytest.approx(1.0)
    assert bool((law.covariance[:, 0, 0] > 0).all())
    for name in ("limit", "bias", "mse", "jacobian_u_mse", "jacobian_v_mse"):
        with pytest.raises(lp.TiltDomainError):
            getattr(law, name)
    assert "no limit" in repr(lp.finite_prompt(ONE, lp.StudentT(1, df=5.0), [1.0], 10))
    with pytest.raises(lp.TiltDomainError):
        lp.finite_prompt(ONE, lp.StudentT(1, df=5.0), [1.0], math.inf)


def test_heavy_tails_beside_other_coordinates():
    """Only the first coordinate is tilted: the others are averaged with weights that do not know
    them.
    """
    mu = lp.Product([lp.StudentT(1, df=5.0).law, lp.scalar.UniformLaw(), lp.scalar.RademacherLaw()])
    law, alone = (
        lp.finite_prompt(plain(3), mu, [1.0, 0.0, 0.0], 10),
        lp.finite_prompt(ONE, lp.StudentT(1, df=5.0), [1.0], 10),
    )
    assert_close(law.mean, torch.tensor([float(alone.mean), 0.0, 0.0], dtype=F))
    collision = 1 / float(alone.effective_tokens)
    assert_close(
        law.covariance,
        torch.diag(torch.tensor([float(alone.covariance), collision, collision], dtype=F)),
    )


def test_heavy_tails_against_drawn_prompts():
    """Mean and E Y of 40,000 prompts; false alarms below 1e-9 each."""
    law = lp.finite_prompt(ONE, lp.StudentT(1, df=5.0), [1.0], 10)
    tokens = (
        lp.StudentT(1, df=5.0).sample(400_000, torch.Generator().manual_seed(0)).reshape(40_000, 10)
    )
    weights = torch.softmax(tokens, -1)
    assert_sample_mean((weights * tokens).sum(-1, keepdim=True), law.mean)
    assert_sample_mean(weights.square().sum(-1), 1 / law.effective_tokens)


@pytest.mark.parametrize(
    "mu",
    [lp.Uniform(3), lp.Sphere(3), lp.Rademacher(3), lp.Discrete(draw(4, 3), [0.1, 0.2, 0.3, 0.4])],
    ids=repr,
)
def test_affine_images(mu):
    """Attention with U, V over A x + b is attention with A^TU, VA over x, and V b."""
    A, b = draw(3, 3, seed=1), torch.tensor([0.3, -5.0, 1.0], dtype=F)
    V, z, lengths = draw(2, 3, seed=2), torch.tensor([0.4, -0.2, 0.1], dtype=F), [1, 2, 30, 10**8]
    image = lp.finite_prompt(
        lp.SoftmaxAttention(torch.eye(3, dtype=F), V), mu.map(A, b), z, lengths
    )
    inner = lp.finite_prompt(lp.SoftmaxAttention(A.mT, V @ A), mu, z, lengths)
    assert_close(image.mean, inner.mean + V @ b, rtol=1e-11, atol=1e-12)
    for name in ("bias", "covariance", "mse", "effective_tokens"):
        assert_close(getattr(image, name), getattr(inner, name), rtol=1e-9, atol=1e-13)
    outer = lp.finite_prompt(lp.SoftmaxAttention(A.mT, A), mu, z, lengths)
    assert_close(image.jacobian_v_mse, 2 * outer.mse, rtol=1e-9, atol=0)
    row = mu.map(A[:1], b[:1])  # a law on the line, of dimension lower than its base
    expected = lp.finite_prompt(
        lp.SoftmaxAttention(torch.eye(3, dtype=F), A[:1]), mu, 0.7 * A[0], lengths
    )
    agree(
        lp.finite_prompt(ONE, row, [0.7], lengths),
        expected,
        ("bias", "covariance", "mse", "effective_tokens"),
    )
    if not isinstance(mu, lp.Discrete):  # an image of atoms is atoms: nothing new
        turned = mu.map(torch.eye(3, dtype=F)[[2, 0, 1]]).map(torch.eye(3, dtype=F)[[1, 2, 0]])
        agree(
            lp.finite_prompt(plain(3), turned, [0.1, 0.5, -0.4], [2, 50]),
            lp.finite_prompt(plain(3), mu, [0.1, 0.5, -0.4], [2, 50]),
        )


@pytest.mark.parametrize("mu", [lp.Laplace(2), lp.Rademacher(2), lp.Sphere(2)], ids=repr)
def test_batches_equal_one_at_a_time(mu):
    heads = lp.SoftmaxAttention(draw(3, 2, 2) / 4, draw(3, 4, 2, seed=1))
    z, lengths = draw(5, 2, seed=2) / 2, [1, 7, 10**6, math.inf]
    law = lp.finite_prompt(heads, mu, z, lengths)
    assert law.mean.shape == (4, 3, 5, 4)
    assert law.covariance.shape == (4, 3, 5, 4, 4)
    for i, head, query in ((0, 1, 2), (1, 0, 4), (2, 2, 0), (3, 1, 1)):
        one = lp.finite_prompt(
            lp.SoftmaxAttention(heads.U[head], heads.V[head]), mu, z[query], lengths[i]
        )
        for name in (
            "mean",
            "bias",
            "covariance",
            "mse",
            "jacobian_v_mse",
            "jacobian_u_mse",
            "effective_tokens",
        ):
            assert_close(
                getattr(law, name)[i, head, query], getattr(one, name), rtol=1e-10, atol=1e-14
            )
        assert law.regime[i, head, query] == one.regime


def test_no_queries():
    law = lp.finite_prompt(ONE, lp.Laplace(1), torch.zeros(0, 1, dtype=F), [10, 20])
    assert law.mse.shape == (2, 0)
    assert law.mean.shape == (2, 0, 1)


def test_single_precision_in_single_precision_out():
    attention = lp.SoftmaxAttention(torch.eye(2), draw(2, 2).float())
    for mu in (lp.Uniform(2), lp.Laplace(2), lp.Sphere(2), lp.Uniform(2).map(draw(2, 2, seed=1))):
        law = lp.finite_prompt(
            attention, mu.to(dtype=torch.float32), torch.tensor([0.4, -0.2]), [3, 100]
        )
        double = lp.finite_prompt(
            lp.SoftmaxAttention(attention.U.double(), attention.V.double()),
            mu,
            [0.4, -0.2],
            [3, 100],
        )
        for name in NAMES:
            if name == "jacobian_u_mse" and not isinstance(mu, lp.Uniform | lp.Laplace):
                continue
            assert getattr(law, name).dtype == torch.float32
            assert_close(getattr(law, name).double(), getattr(double, name), rtol=1e-5, atol=1e-6)


class Exponential(lp.Measure):
    """A law of one's own in three members; its finite prompts follow by autodiff."""

    dim = 1

    def cgf(self, u):
        return -torch.log(1 - u[..., 0])

    def sample(self, n, generator):
        return -torch.log1p(-torch.rand(n, 1, generator=generator, dtype=F))


class Cube(lp.scalar.ScalarLaw):
    """A scalar law of one's own: 0, 1 and 4 with equal chances."""

    def cgf(self, u):
        return torch.log((1 + torch.exp(u) + torch.exp(4 * u)) / 3)

    def sample(self, u, generator):
        raise NotImplementedError


class Waiting(lp.scalar.ScalarLaw):
    """The same as a scalar law."""

    domain = (-math.inf, 1.0)

    def cgf(self, u):
        return -torch.log(1 - u)

    def sample(self, u, generator):
        raise NotImplementedError


class Closed(Exponential):
    """A cgf that compares its argument, as complex numbers cannot be."""

    def cgf(self, u):
        return torch.where(u[..., 0] < 1, -torch.log1p(-u[..., 0]), math.inf)


def test_a_law_of_ones_own():
    """Exponential tokens at L = 2 by quadrature in the sum and the difference; in general by
    drawing.
    """
    law, u = lp.finite_prompt(ONE, Exponential(), [0.4], [2, 5]), 0.4
    gap = np.linspace(0, 60, 600_001)[1:] - 5e-5  # of two exponentials: again one
    mass = np.exp(-gap) * 1e-4
    first = 1 / (1 + np.exp(-u * gap))
    # the smaller has mean 1/2
    assert float(law.mean[0, 0]) == pytest.approx(0.5 + (mass * first * gap).sum(), rel=1e-8)
    tokens = Exponential().sample(200_000, torch.Generator().manual_seed(1)).reshape(40_000, 5)
    output = (torch.softmax(u * tokens, -1) * tokens).sum(-1, keepdim=True)
    assert_sample_mean(output, law.mean[1])
    assert_sample_mean((output - law.limit).square().sum(-1), law.mse[1])
    assert_close(
        law.jacobian_u_mse,
        lp.finite_prompt(ONE, lp.Product([Waiting()]), [0.4], [2, 5]).jacobian_u_mse,
        rtol=1e-9,
        atol=0,
    )


def test_derivative_error_of_a_law_of_ones_own_in_many_dimensions():
    class Seven(Exponential):
        dim = 7

        def cgf(self, u):
            return -torch.log(1 - u).sum(-1)

    with pytest.raises(
        lp.InvalidArgumentError, match=r"up to six dimensions.*complex_cumulants\(w, order=4\)"
    ):
        _ = lp.finite_prompt(plain(7), Seven(), 0.05 * torch.ones(7, dtype=F), 10).jacobian_u_mse


def test_a_scalar_law_of_ones_own(listed):
    points = list(itertools.product([0.0, 1.0, 4.0], repeat=2))
    u = torch.tensor([0.3, -0.5], dtype=F)
    for length in (2, 3):
        law = lp.finite_prompt(plain(2), lp.Product([Cube(), Cube()]), u, length)
        agree(law, listed(points, np.full(9, 1 / 9), u, np.eye(2), length))


def test_a_law_that_refuses_complex_numbers_is_told_what_to_write():
    with pytest.raises(
        lp.InvalidArgumentError, match=r"mu: got Closed.*complex tilts.*implement complex_cumulants"
    ):
        lp.finite_prompt(ONE, Closed(), [0.4], 5)


def test_symmetries():
    """Permuted coordinates, turned spheres, mirrored laws, and tokens scaled against the layer."""
    u, order = torch.tensor([0.9, -0.4, 0.2], dtype=F), [2, 0, 1]
    for mu in (lp.Laplace(3), lp.Uniform(3), lp.Rademacher(3)):
        one, moved = (lp.finite_prompt(plain(3), mu, v, [3, 10**4]) for v in (u, -u[order]))
        assert_close(one.mse, moved.mse, rtol=1e-11, atol=0)
        assert_close(one.bias[:, order], -moved.bias, rtol=1e-10, atol=1e-15)
    turn = torch.linalg.qr(draw(3, 3))[0]
    one, turned = (lp.finite_prompt(plain(3), lp.Sphere(3), v, [3, 10**4]) for v in (u, turn @ u))
    assert_close(one.mse, turned.mse, rtol=1e-12, atol=0)
    assert_close(one.covariance, turn.mT @ turned.covariance @ turn, rtol=1e-10, atol=1e-14)
    big, small = (
        lp.finite_prompt(plain(3), lp.Sphere(3, radius=5.0), u / 5, [3, 10**4]),
        lp.finite_prompt(plain(3), lp.Sphere(3, radius=1.0), u, [3, 10**4]),
    )
    assert_close(big.mse, 25 * small.mse, rtol=1e-12, atol=0)
    assert_close(big.effective_tokens, small.effective_tokens, rtol=1e-12, atol=0)


CERTIFIED = [
    *LAWS[:4],
    LAWS[6],
    LAWS[8],
    lp.Rademacher(2),
    lp.Discrete(draw(4, 2), [0.1, 0.2, 0.3, 0.4]),
]


@pytest.mark.parametrize("mu", CERTIFIED, ids=repr)
def test_no_certificate_lies_below_the_exact_error(mu):
    """2,304 cases here, as all lengths of a query cost little more than one; 10^5 of them in ``make
    bench``.
    """
    lengths = [
        *range(1, 10),
        15,
        20,
        30,
        50,
        *(10**k for k in (2, 3, 4, 5, 6, 8, 9, 10, 12, 14, 15)),
    ]
    queries = torch.linspace(0.01, 0.9, 12, dtype=F)[:, None] * torch.nn.functional.normalize(
        draw(12, 2, seed=8), dim=-1
    )
    attention = lp.SoftmaxAttention(torch.eye(2, dtype=F), draw(2, 2, seed=9))
    law = lp.finite_prompt(attention, mu, queries, lengths)
    bound = lp.certificate(attention, mu, queries, lengths).bound
    assert bound.shape == law.mse.shape == (24, 12)
    assert bool((law.mse <= bound * (1 + 1e-9)).all())


def test_dimensions_beyond_which_matrices_do_not_fit():
    mu, u = lp.Uniform(700), torch.zeros(700, dtype=F)
    u[0] = 1.0
    law = lp.finite_prompt(
        lp.SoftmaxAttention(torch.eye(700, dtype=F), torch.eye(700, dtype=F)[:1]), mu, u, 10
    )
    assert float(law.mse) == pytest.approx(
        float(lp.finite_prompt(ONE, lp.Uniform(1), [1.0], 10).mse), rel=1e-11
    )
    with pytest.raises(lp.InvalidArgumentError, match="dimension at most"):
        _ = law.jacobian_u_mse


def test_a_coordinate_without_exponential_moments_that_no_score_reads():
    """Its output is E Y times its own variance, whatever its tails; and the other way round there
    is a law and no limit.
    """
    mixed = lp.Product([lp.scalar.StudentTLaw(5.0, 1.0), lp.scalar.RademacherLaw()])
    eye = torch.eye(2, dtype=torch.float64)
    law = lp.finite_prompt(lp.SoftmaxAttention(eye, eye), mixed, [0.0, 1.0], 10)
    torch.testing.assert_close(law.covariance[0, 0], 5 / 3 / law.effective_tokens)
    other = lp.finite_prompt(lp.SoftmaxAttention(eye, eye), mixed, [1.0, 0.0], 10)
    torch.testing.assert_close(other.covariance[1, 1], 1 / other.effective_tokens)
    with pytest.raises(lp.TiltDomainError):
        _ = other.mse
    assert "no limit" in repr(other)
    heavier = lp.finite_prompt(
        lp.SoftmaxAttention([[1.0]], [[1.0]]), lp.StudentT(1, 1.5), [1.0], [1, 10]
    )
    with pytest.raises(lp.NoMomentError):
        _ = heavier.covariance
    assert 1 < float(heavier.effective_tokens[1]) < 10


def test_a_law_of_ones_own_close_to_the_edge_of_its_domain():
    """Two exponential waiting times read at 0.9 of their domain, by Gauss-Laguerre over both."""
    x, w = np.polynomial.laguerre.laggauss(150)
    weight = np.exp(0.9 * x[:, None]) / (np.exp(0.9 * x[:, None]) + np.exp(0.9 * x))
    read, limit = weight * x[:, None] + (1 - weight) * x, 10.0  # 1/(1 - 0.9)
    law = lp.finite_prompt(lp.SoftmaxAttention([[1.0]], [[1.0]]), lp.Product([Waiting()]), [0.9], 2)
    assert float(law.mse) == pytest.approx(float(w @ (read - limit) ** 2 @ w), rel=1e-8)
