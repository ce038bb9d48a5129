"""Certificates after rounding: laws that somebody writes in three lines, saturated tilts, values
that cancel the tokens.
"""

import math

import mpmath as mp
import numpy as np
import pytest
import torch
from scipy import stats

import largeprompt as lp
from largeprompt.certificates.ingredients import UNITS

F = torch.float64
EPS = torch.finfo(F).eps
ONE = lp.SoftmaxAttention([[1.0]], [[1.0]])
TILTS = [0.0, 0.3, 3.0, -5.0, 10.0, 16.0, 18.0, -20.0, 20.9, 40.0, 300.0]
LENGTHS = [1, 2, 5, 1000, 10**6, 10**15]


class Coin(lp.Measure):
    """1 with probability p, else 0."""

    dim = 1

    def __init__(self, p):
        self.p = p

    def cgf(self, u):
        return torch.log(1 - self.p + self.p * torch.exp(u[..., 0]))

    def sample(self, n, generator):
        return (torch.rand(n, 1, generator=generator, dtype=self.dtype) < self.p).to(self.dtype)


class Sign(lp.Measure):
    dim = 1

    def cgf(self, u):
        return torch.log(torch.cosh(u[..., 0]))

    def sample(self, n, generator):
        return 2.0 * torch.randint(2, (n, 1), generator=generator) - 1


class Signs(Sign):
    dim = 2

    def cgf(self, u):
        return torch.log(torch.cosh(u[..., 0]) * torch.cosh(u[..., 1]))


class SignLaw(lp.scalar.ScalarLaw):
    def cgf(self, u):
        return torch.logaddexp(u, -u) - math.log(2)

    def sample(self, u, generator):
        return torch.where(
            torch.rand(u.shape, generator=generator, dtype=u.dtype) < torch.sigmoid(2 * u),
            1.0,
            -1.0,
        )


def two_values(p, score, length):
    """Mean squares of W - P and of W(1 - W) - P(1 - P), W the weight of one of two values, of
    probability p, and P its limit.

    The scores differ by ``score``. With k such tokens and r = e^score, W - P = r(k - pL)/((kr + L -
    k)(pr + q)): nothing cancels.
    """
    if length <= 1000:
        k = np.arange(length + 1.0)
        mass = stats.binom.pmf(k, length, p)
    elif length <= 10**6:
        k = np.arange(max(0.0, length * p - 6000), min(length, length * p + 6000))
        mass = stats.binom.pmf(k, length, p)
    else:  # the normal law, right to 1/L
        z, mass = np.polynomial.hermite_e.hermegauss(40)
        k, mass = length * p + math.sqrt(length * p * (1 - p)) * z, mass / mass.sum()
    swap = score > 0  # the value of the larger score is the one whose r is divided out
    r, one, other = math.exp(-abs(score)), (k if swap else length - k), (length - k if swap else k)
    a, b = (p, 1 - p) if swap else (1 - p, p)
    off = r * (k - p * length) / ((one + other * r) * (a + b * r))
    larger = r * other / (one + other * r)  # 1 - W or W, whichever is the smaller share
    rest = 1 - larger - b * r / (a + b * r)  # 1 - W - P up to its sign
    return float(mass @ off**2), float(mass @ (off * rest) ** 2)


def test_the_truth_against_fifty_digits():
    mp.mp.dps = 50
    for p, score, length in ((0.3, 20.9, 12), (0.5, -36.0, 7), (0.001, 3.0, 30), (0.5, 0.0, 4)):
        q, r, total, other = mp.mpf(p), mp.exp(score), 0, 0
        limit = q * r / (q * r + 1 - q)
        for k in range(length + 1):
            chance, weight = (
                mp.binomial(length, k) * q**k * (1 - q) ** (length - k),
                k * r / (k * r + length - k),
            )
            total, other = (
                total + chance * (weight - limit) ** 2,
                other + chance * (weight * (1 - weight) - limit * (1 - limit)) ** 2,
            )
        np.testing.assert_allclose(
            two_values(p, score, length), [float(total), float(other)], rtol=1e-11
        )


def check(mu, V, u, p, step):
    """A law on two values, whose difference is ``step``: output and derivative in U (z = U^T u with
    U = 1).
    """
    layer, z = (
        lp.SoftmaxAttention(torch.eye(mu.dim, dtype=F), torch.as_tensor(V, dtype=F)),
        torch.as_tensor(u, dtype=F),
    )
    step = [mp.mpf(one) for one in step]
    read = [
        mp.fsum(mp.mpf(float(v)) * one for v, one in zip(row, step, strict=True)) for row in layer.V
    ]
    score = float(mp.fsum(mp.mpf(float(v)) * one for v, one in zip(z, step, strict=True)))
    across, along = (
        float(mp.fsum(one**2 for one in read)),
        float(mp.fsum(one**2 for one in step) * mp.fsum(one**2 for one in read)),
    )
    output, jacobian = (
        found(layer, mu, z, LENGTHS).bound for found in (lp.certificate, lp.jacobian_certificate)
    )
    for length, bound, slope in zip(LENGTHS, output.tolist(), jacobian.tolist(), strict=True):
        mean, second = two_values(p, score, length)
        assert bound >= mean * across * (1 - 1e-9), (length, u)
        assert slope >= second * along * float(z @ z) * (1 - 1e-9), (length, u)
        assert bound > 0


@pytest.mark.parametrize(
    ("u", "size"),
    [*((u, 1.0) for u in TILTS), (3.0, 1e-8), (20.0, 1e-8), (3.0, 1e150), (20.0, 1e150)],
)
def test_laws_on_two_values(u, size):
    """A user's law with a saturated tilt: log cosh at u = 20 had the certificate 0 at L = 2, where
    the error is 1.
    """
    for mu, p, step in (
        (Sign(), 0.5, 2.0),
        (lp.Product([SignLaw()]), 0.5, 2.0),
        (lp.Rademacher(1), 0.5, 2.0),
        (Coin(0.3), 0.3, 1.0),
        (Coin(1e-3), 1e-3, 1.0),
        (lp.Discrete([[0.0], [1.0]], [0.7, 0.3]), 0.3, 1.0),
    ):
        check(mu, [[size]], [u], p, [step])


@pytest.mark.parametrize("u", [0.3, 3.0, -9.0, 20.0])
@pytest.mark.parametrize("cancelled", [1.0, 1e-3, 1e-6, 1e-9, 0.0])
def test_images_read_where_they_hardly_vary(u, cancelled):
    """x ↦ (x, x + 5) and V = (1, c - 1): c of the spread is left."""
    for base, p, step in ((Sign(), 0.5, 2.0), (Coin(0.3), 0.3, 1.0)):
        check(
            base.map([[1.0], [1.0]], [1e3, 5.0]),
            [[1.0, cancelled - 1.0], [0.0, 0.0]],
            [u, 0.0],
            p,
            [step, step],
        )


@pytest.mark.parametrize("u", [[0.4, -0.3], [20.0, 18.0], [0.0, 20.0], [-19.0, 1e-3]])
def test_two_coordinates_by_enumeration(u):
    """log(cosh u_1 cosh u_2), and a product of a user's scalar laws: every prompt of one, two and
    three tokens.
    """
    corners = [(a, b) for a in (1, -1) for b in (1, -1)]
    mp.mp.dps = 60
    weight = {x: mp.exp(mp.mpf(u[0]) * x[0] + mp.mpf(u[1]) * x[1]) for x in corners}
    limit = [mp.tanh(mp.mpf(one)) for one in u]

    def squared(*prompt):
        total = mp.fsum(weight[x] for x in prompt)
        return mp.fsum(
            (mp.fsum(weight[x] * x[i] for x in prompt) / total - limit[i]) ** 2 for i in (0, 1)
        )

    truth = [
        mp.fsum(squared(x) for x in corners) / 4,
        mp.fsum(squared(x, y) for x in corners for y in corners) / 16,
        mp.fsum(squared(x, y, z) for x in corners for y in corners for z in corners) / 64,
    ]
    eye = torch.eye(2, dtype=F)
    for mu in (
        Signs(),
        lp.Product([SignLaw(), SignLaw()]),
        lp.Product([SignLaw(), lp.scalar.RademacherLaw()]),
    ):
        found = (
            lp.jacobian_certificate(
                lp.SoftmaxAttention(eye, eye), mu, u, [1, 2, 3]
            ).jacobian_v_bound
            / 2
        )
        assert all(
            bound >= float(one) * (1 - 1e-12)
            for bound, one in zip(found.tolist(), truth, strict=True)
        )


def test_a_length_that_is_certified_is_long_enough():
    """It was 2 tokens; signs of the library need 45, and the error is 0.1 from 9 on."""
    found = lp.prompt_length(ONE, Sign(), [20.0], 0.1, "certified")
    assert 45 <= found <= 80
    assert math.sqrt(4 * two_values(0.5, 40.0, int(found))[0]) <= 0.1


def test_nothing_is_lost_where_rounding_is_small():
    """A law of one's own has the certificate of the library's law, up to 1e-9,
    at ordinary tilts.
    """

    class Bounded(Sign):
        support_radius = 1.0

    for u in (0.1, 1.0, 2.5):
        for prove in (lp.certificate, lp.jacobian_certificate):
            own, ours = (prove(ONE, mu, [u], LENGTHS).bound for mu in (Bounded(), lp.Rademacher(1)))
            torch.testing.assert_close(own, ours, rtol=1e-9, atol=0)


def test_never_zero_where_something_varies():
    """Read across the score, and at lengths at which e^{-L} is no number; a layer that reads a
    constant may say 0.
    """
    mu = lp.Discrete([[0.0, 1.0], [0.0, -1.0], [5.0, 0.0]], [0.25, 0.25, 0.5])
    layer = lp.SoftmaxAttention(torch.eye(2, dtype=F), [[0.0, 1.0]])
    for prove in (lp.certificate, lp.jacobian_certificate):
        assert bool((prove(layer, mu, [1000.0, 0.0], [1, 2, 1000, 10**6, 10**15]).bound > 0).all())
        assert bool((prove(ONE, Sign(), [700.0], [10**6, 10**15]).bound > 0).all())
    still = lp.Discrete([[3.0, 1.0], [5.0, 1.0]], [0.5, 0.5])
    assert float(lp.certificate(layer, still, [1.0, 0.0], 10).bound) == 0.0


@pytest.mark.parametrize("cancelled", [1e-3, 1e-6, 1e-9])
def test_values_that_cancel_the_spread_of_atoms(cancelled):
    """One token: V read 1e-6 of the spread with a bound 5e-4 below the error, and 1e-9 with a bound
    of 1e-7 of it.
    """
    generator = torch.Generator().manual_seed(0)
    mp.mp.dps = 50
    for _ in range(40):
        along, across = torch.tensor([[1.0, 2.0]], dtype=F), torch.tensor([[2.0, -1.0]], dtype=F)
        x, y = torch.randn(2, 4, 1, generator=generator, dtype=F)
        atoms, weights, u = (
            x @ along + cancelled * y @ across,
            [0.1, 0.2, 0.3, 0.4],
            torch.randn(2, generator=generator, dtype=F),
        )
        mu = lp.Discrete(atoms, weights)
        points = [[mp.mpf(float(v)) for v in row] for row in atoms]
        chance = [mp.mpf(w) / mp.fsum(map(mp.mpf, weights)) for w in weights]
        tilted = [
            c * mp.exp(mp.fsum(mp.mpf(float(v)) * a for v, a in zip(u, row, strict=True)))
            for c, row in zip(chance, points, strict=True)
        ]
        read = [2 * row[0] - row[1] for row in points]
        limit = mp.fdot(tilted, read) / mp.fsum(tilted)
        truth = mp.fdot(chance, [(one - limit) ** 2 for one in read])
        bound = float(
            lp.certificate(lp.SoftmaxAttention(torch.eye(2, dtype=F), across), mu, u, 1).bound
        )
        size = float(atoms.square().sum(-1).mean()) * 5
        assert float(truth) * (1 - 1e-13) <= bound <= float(truth) * (1 + 1e-10) + 1e-13 * size


def test_values_that_cancel_the_spread_of_gaussian_tokens():
    """Nearly singular covariances, whose computed tr VΓV^T was 3 % below the true one, or negative;
    a random query too.
    """
    generator = torch.Generator().manual_seed(1)
    mp.mp.dps = 50

    def exact(matrix):
        return mp.matrix([[mp.mpf(float(v)) for v in row] for row in matrix])

    for _ in range(60):
        root, v, u = (torch.randn(3, 1, generator=generator, dtype=F) for _ in range(3))
        covariance = root @ root.mT + 10.0 ** -float(
            6 + 10 * torch.rand(1, generator=generator)
        ) * torch.eye(3, dtype=F)
        V = (v - root * (v.mT @ root) / (root.mT @ root)).mT
        shift = exact(V) * exact(covariance)
        spread, eye = (shift * exact(V).T)[0], torch.eye(3, dtype=F)
        if spread <= 0:  # rounding of the covariance itself
            continue
        mu, layer = lp.Gaussian(torch.zeros(3, dtype=F), covariance), lp.SoftmaxAttention(eye, V)
        for z, truth in (
            (u[:, 0], spread + (shift * exact(u))[0] ** 2),
            (lp.Gaussian(torch.zeros(3, dtype=F), eye), spread + mp.fsum(one**2 for one in shift)),
        ):
            assert float(lp.certificate(layer, mu, z, 1).bound) >= float(truth)


def moments(law, u):
    """Λ and its first two derivatives, for laws given by their cgf in mpmath."""
    return law(u), mp.diff(law, u), mp.diff(law, u, 2)


LAWS = {
    "signs": (lp.Rademacher(1), lambda u: mp.log(mp.cosh(u)), 50.0),
    "uniform": (lp.Uniform(1), lambda u: mp.log(mp.sinh(mp.sqrt(3) * u) / (mp.sqrt(3) * u)), 50.0),
    "laplace": (lp.Laplace(1), lambda u: -mp.log(1 - u**2 / 2), 1.41),
    "sum": (
        lp.scalar.RademacherSum(1, terms=5),
        lambda u: 5 * mp.log(mp.cosh(u / mp.sqrt(5))),
        50.0,
    ),
    "mixture": (
        lp.GaussianMixture([0.25, 0.75], [[-1.0], [2.0]], [[[0.5]], [[0.25]]]),
        lambda u: mp.log(mp.exp(-u + u**2 / 4) / 4 + 3 * mp.exp(2 * u + u**2 / 8) / 4),
        30.0,
    ),
    "atoms": (
        lp.Discrete([[-3.0], [0.5], [1000.0]], [0.25, 0.5, 0.25]),
        lambda u: mp.log(mp.exp(-3 * u) / 4 + mp.exp(u / 2) / 2 + mp.exp(1000 * u) / 4),
        1.0,
    ),
    "own sign": (Sign(), lambda u: mp.log(mp.cosh(u)), 50.0),
    "own coin": (Coin(0.25), lambda u: mp.log((3 + mp.exp(u)) / 4), 50.0),
    "own product": (lp.Product([SignLaw()]), lambda u: mp.log(mp.cosh(u)), 50.0),
    "own image": (
        Coin(0.25).map([[3.0]], [1e4]),
        lambda u: mp.log((3 + mp.exp(3 * u)) / 4) + 10000 * u,
        20.0,
    ),
}


@pytest.mark.parametrize("name", LAWS)
def test_tilted_moments_are_within_the_rounding_that_is_assumed(name):
    """(cert.20), with a quarter of the units, at 24 tilts of either sign."""
    mu, law, most = LAWS[name]
    mp.mp.dps = 200
    for size in np.geomspace(1e-4, most, 12):
        for u in (size, -size):
            tilt = torch.tensor([u], dtype=F)
            value, mean, variance = (
                float(a - mp.mpf(float(b)))
                for a, b in zip(
                    moments(law, mp.mpf(u)),
                    (mu.cgf(tilt), mu.tilted_mean(tilt), mu.tilted_covariance(tilt)),
                    strict=True,
                )
            )
            r, s = (float(one) for one in mu._scales(tilt))
            t, unit = abs(u) * r, UNITS / 4 * EPS
            assert abs(value) <= unit * (1 + t)
            assert abs(mean) <= unit * (r + t * s)
            assert abs(variance) <= unit * (1 + t) * s**2


@pytest.mark.parametrize("prove", [lp.certificate, lp.jacobian_certificate])
def test_inference_mode_and_numpy_that_raises(prove):
    """The numbers of an ordinary call; autodiff failed in inference mode."""
    laws = [
        Sign(),
        Coin(0.3),
        lp.scalar.SkewNormal(1, 0.8),
        lp.Sphere(1),
        lp.Gaussian([0.0], [[1.0]]),
    ]
    plain = [prove(ONE, mu, [2.0], [1, 100]).bound for mu in laws]
    with torch.inference_mode():
        layer, z = lp.SoftmaxAttention([[1.0]], [[1.0]]), torch.tensor([2.0], dtype=F)
        quiet = [prove(layer, mu, z, [1, 100]).bound for mu in laws]
        # made there
        image = prove(layer, lp.scalar.SkewNormal(1, 0.8).map([[2.0]], [1.0]), z / 2, 100).bound
    with np.errstate(all="raise"):
        strict = [prove(ONE, mu, [2.0], [1, 100]).bound for mu in laws]
    for a, b, c in zip(plain, quiet, strict, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)
        assert not b.is_inference()
    assert math.isfinite(float(image))


def test_random_queries_and_numpy_that_raises():
    normal = lp.Gaussian([0.0], [[1.0]])
    for size in (1e-160, 0.5, 0.9, 4.0):
        layer = lp.SoftmaxAttention([[size]], [[1.0]])
        plain = lp.certificate(layer, normal, normal, [1, 10, 10**15]).bound
        with np.errstate(all="raise"), torch.inference_mode():
            assert torch.equal(lp.certificate(layer, normal, normal, [1, 10, 10**15]).bound, plain)


class Expm1Coin(Coin):
    def cgf(self, u):
        return torch.log1p(self.p * torch.expm1(u[..., 0]))


@pytest.mark.parametrize("p", [0.5, 0.1])
@pytest.mark.parametrize("u", [-18.0, -25.0, -40.0, -300.0, 18.0, 300.0])
def test_slopes_that_automatic_differentiation_loses_whole(p, u):
    """The slope of expm1(u) is 0 by autograd from u = -37: the bound was 9e-308, the truth 0.25."""
    for length in (1, 2, 10):
        ones = np.arange(length + 1)
        shares = ones / (ones + (length - ones) * math.exp(-u))
        error = shares - p / (p + (1 - p) * math.exp(-u))
        truth = float(stats.binom.pmf(ones, length, p) @ error**2)
        assert truth <= float(lp.certificate(ONE, Expm1Coin(p), [u], length).bound)
