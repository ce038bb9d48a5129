"""The route by complex tilts against laws summed over real nodes, against densities, and where
scores are wide.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

import largeprompt as lp
from largeprompt.errors import InvalidArgumentError
from largeprompt.law.blocks import OutputMoments
from largeprompt.law.contour import contour_blocks
from largeprompt.law.nodes import node_blocks

F = torch.float64
LENGTHS = [2, 3, 10, 1000, 10**6, 10**9, 10**12, 10**15]
# of a tilt
SIZES = st.one_of(st.floats(-8.0, 0.5).map(lambda power: 10.0**power), st.floats(3.0, 30.0))


def spread(mu, u):
    """E‖x - T‖², T the limit."""
    return float(mu.covariance.trace() + (mu.mean - mu.tilted_mean(u)).square().sum())


def by_contours(mu, u, lengths):
    return OutputMoments(contour_blocks(mu, u[None], lengths)[0], lengths, spread(mu, u))


def by_nodes(mu, u, lengths):
    return OutputMoments(
        node_blocks(mu, u, mu.tilted_mean(u).numpy(), lengths), lengths, spread(mu, u)
    )


def tilt(dim, size, seed=0):
    u = torch.randn(dim, generator=torch.Generator().manual_seed(seed), dtype=F)
    return size * u / u.norm()


def signs(dim):
    atoms = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=dim)), dtype=F)
    return lp.Discrete(atoms, torch.full((len(atoms),), 1 / len(atoms), dtype=F))


def assert_agree(found, expected):
    """Bias, E Y, mse and second moments at any length, to the accuracy contract of docs/design.md
    and ten times better.
    """
    scale = expected.collision * expected.spread
    mse = expected.error(np.eye(expected.bias.shape[-1]))
    slack = 1e-9 * mse + 1e-14 * scale
    np.testing.assert_allclose(found.collision, expected.collision, rtol=1e-10)
    assert bool((np.abs(found.error(np.eye(found.bias.shape[-1])) - mse) <= slack).all())
    size = np.linalg.norm(expected.bias, axis=-1)
    assert bool(
        (
            np.linalg.norm(found.bias - expected.bias, axis=-1)
            <= 1e-9 * size + np.sqrt(1e-14 * scale)
        ).all()
    )
    assert bool((np.linalg.norm(found.second() - expected.second(), axis=(1, 2)) <= slack).all())


MIXTURE = lp.GaussianMixture(
    [0.2, 0.5, 0.3],
    [[1.0, 0.0], [-1.0, 1.0], [0.0, 2.0]],
    [[[1.0, 0.3], [0.3, 0.5]], [[0.3, 0.0], [0.0, 0.3]], [[0.1, 0.0], [0.0, 0.2]]],
)


@pytest.mark.parametrize("size", [1e-3, 0.4, 1.0, 2.0])
@pytest.mark.parametrize(
    ("mu", "twin"),
    [
        (lp.Rademacher(1), signs(1)),
        (lp.Rademacher(4), signs(4)),
        (lp.Sphere(2), lp.Sphere(2)),
        (lp.Sphere(3, radius=1.0), lp.Sphere(3, radius=1.0)),
        (lp.Sphere(9), lp.Sphere(9)),
        (MIXTURE, MIXTURE),
        (signs(2), signs(2)),
        (lp.Discrete([[0.0, 1.0], [1.0, 0.0], [3.0, -1.0]], [0.5, 0.4, 0.1]),) * 2,
    ],
    ids=["sign", "signs", "circle", "sphere", "high sphere", "mixture", "listed signs", "atoms"],
)
def test_contours_equal_nodes(mu, twin, size):
    """Two routes that share the integral over τ and nothing else."""
    u = tilt(mu.dim, size)
    assert_agree(by_contours(mu, u, LENGTHS), by_nodes(twin, u, LENGTHS))


@pytest.mark.parametrize("size", [0.1, 1.0, 2.0])
def test_contours_equal_the_gaussian_lattice(size):
    root = torch.randn(3, 3, generator=torch.Generator().manual_seed(1), dtype=F) / 2
    mu, u = lp.Gaussian([0.3, -1.0, 0.2], root @ root.mT), tilt(3, size)
    found = by_contours(mu, u, LENGTHS)
    law = lp.finite_prompt(
        lp.SoftmaxAttention(torch.eye(3, dtype=F), torch.eye(3, dtype=F)), mu, u, LENGTHS
    )
    np.testing.assert_allclose(found.error(np.eye(3)), law.mse, rtol=1e-11)
    np.testing.assert_allclose(found.collision, 1 / law.effective_tokens, rtol=1e-11)
    np.testing.assert_allclose(
        found.bias, law.bias, rtol=1e-8, atol=1e-11 * float(law.bias.abs().max())
    )


def interval(low, high, count):
    x, w = np.polynomial.legendre.leggauss(count)
    return (low + high) / 2 + (high - low) / 2 * x, w


def both_sides(log_density, count=1500, last=5.5):
    """A symmetric law with a kink at 0: x = e^{y - e^{-y}} on either side, by
    the trapezoid rule.
    """
    y = np.linspace(-4, last, count)
    x = np.exp(y - np.exp(-y))
    w = x * (1 + np.exp(-y)) * np.exp(log_density(x))
    return np.r_[-x[::-1], x], np.r_[w[::-1], w]


def skewed(skew):
    law, x = lp.scalar.SkewNormalLaw(skew), np.linspace(-20, 20, 3001)
    y = x * law.spread + law.center
    return x, np.exp(-(y**2) / 2) * special.ndtr(law.delta / math.sqrt(1 - law.delta**2) * y)


def lognormal(scale):
    law, xi = lp.scalar.LogNormalLaw(scale), np.linspace(-9.5, 9.5, 2001)
    return (np.exp(scale * xi) - law.center) / law.spread, np.exp(-(xi**2) / 2)


def width(shape):
    return math.exp((math.lgamma(1 / shape) - math.lgamma(3 / shape)) / 2)


DENSITIES = [
    (lp.Uniform(1), interval(-math.sqrt(3), math.sqrt(3), 300), (0.5, 3.0)),
    (lp.Laplace(1), both_sides(lambda x: -math.sqrt(2) * x), (0.5, 1.0)),
    (
        lp.scalar.GeneralizedNormal(1, shape=1.5),
        both_sides(lambda x: -((x / width(1.5)) ** 1.5)),
        (-0.5,),
    ),
    (
        lp.scalar.GeneralizedNormal(1, shape=6.0),
        both_sides(lambda x: -((x / width(6.0)) ** 6)),
        (-0.5,),
    ),
    (lp.scalar.SkewNormal(1, skew=0.7), skewed(0.7), (-1.0, 1.5)),
    (lp.scalar.SkewNormal(1, skew=-0.95), skewed(-0.95), (-1.0, 1.5)),
    (lp.scalar.LogNormal(1, scale=0.4), lognormal(0.4), (-0.5,)),
    (lp.scalar.LogNormal(1, scale=0.8), lognormal(0.8), (-1.0,)),
    (
        lp.StudentT(1, df=math.inf),
        (np.linspace(-20, 20, 2001), np.exp(-(np.linspace(-20, 20, 2001) ** 2) / 2)),
        (1.0, 2.5),
    ),
    (
        lp.scalar.RademacherSum(1, terms=3),
        (np.array([-3.0, -1.0, 1.0, 3.0]) / math.sqrt(3), np.array([1.0, 3.0, 3.0, 1.0])),
        (1.0, 3.0),
    ),
]


@pytest.mark.parametrize(
    ("mu", "rule", "tilts"), DENSITIES, ids=[repr(case[0]) for case in DENSITIES]
)
def test_contours_equal_a_rule_over_the_density(mu, rule, tilts):
    """A law known by its cgf, against the discrete law of a fine quadrature of its density, summed
    over nodes.
    """
    points, masses = rule
    kept = masses > 0
    masses = masses[kept] / masses[kept].sum()
    twin = lp.Discrete(torch.from_numpy(points[kept]).unsqueeze(-1), torch.from_numpy(masses))
    # low scores have no exponential moment
    lengths = [10, 1000, 10**9, 10**15] if isinstance(mu, lp.scalar.LogNormal) else LENGTHS
    for size in tilts:
        u = torch.tensor([size], dtype=F)
        assert_agree(by_contours(mu, u, lengths), by_nodes(twin, u, lengths))


@pytest.mark.parametrize("dim", [1, 2, 3, 6])
@settings(max_examples=25, derandomize=True, deadline=None)
@given(size=SIZES, seed=st.integers(0, 1000), length=st.sampled_from(LENGTHS))
def test_wide_signs(dim, size, seed, length):
    u = tilt(dim, size, seed)
    assert_agree(by_contours(lp.Rademacher(dim), u, [length]), by_nodes(signs(dim), u, [length]))


@settings(max_examples=25, derandomize=True, deadline=None)
@given(size=SIZES, length=st.sampled_from(LENGTHS))
def test_wide_uniform_tokens(size, length):
    points, masses = interval(-math.sqrt(3), math.sqrt(3), 600)
    twin, u = (
        lp.Discrete(
            torch.from_numpy(points).unsqueeze(-1), torch.from_numpy(masses / masses.sum())
        ),
        torch.tensor([size], dtype=F),
    )
    assert_agree(by_contours(lp.Uniform(1), u, [length]), by_nodes(twin, u, [length]))


def test_lengths_and_ranges_share_one_set_of_blocks():
    """Seven lengths together equal each alone, though the grid of τ and the contours are then
    others.
    """
    u = tilt(5, 1.2)
    together = by_contours(lp.Laplace(5), u, LENGTHS)
    for row, length in enumerate(LENGTHS):
        alone = by_contours(lp.Laplace(5), u, [length])
        np.testing.assert_allclose(
            together.error(np.eye(5))[row], alone.error(np.eye(5))[0], rtol=1e-12
        )
        np.testing.assert_allclose(together.bias[row], alone.bias[0], rtol=1e-8)


LAWS = [
    lp.Uniform(3),
    lp.Laplace(3),
    lp.scalar.SkewNormal(3, skew=0.8),
    lp.Product([lp.scalar.LaplaceLaw()] + 2 * [lp.scalar.UniformLaw()]),
]


@pytest.mark.parametrize("mu", LAWS, ids=repr)
def test_queries_share_one_set_of_contours(mu):
    """Queries from tiny to the edge of the domain in one call equal each alone, though contours and
    nodes are others then.
    """
    u = torch.stack(
        [
            tilt(3, size, seed)
            for seed, size in enumerate([0.0, 1e-6, 1e-3, 0.1, 0.3, 0.5, 0.8, 1.1, 1.3, 1.4])
        ]
    )
    eye = torch.eye(3, dtype=F)
    together = lp.finite_prompt(lp.SoftmaxAttention(eye, eye), mu, u, LENGTHS)
    for row, one in enumerate(u):
        alone = lp.finite_prompt(lp.SoftmaxAttention(eye, eye), mu, one, LENGTHS)
        for name in ("mse", "effective_tokens", "covariance", "mean"):
            size = float(getattr(alone, name).abs().max()) + 1e-300
            np.testing.assert_allclose(
                getattr(together, name)[:, row], getattr(alone, name), rtol=1e-9, atol=1e-12 * size
            )
        slack = torch.sqrt(1e-14 * spread(mu, one) / alone.effective_tokens)[:, None]
        assert bool(
            ((together.bias[:, row] - alone.bias).abs() <= 1e-9 * alone.bias.abs() + slack).all()
        )


TILTED = torch.tensor([0.5, 0.2, -0.4], dtype=F)


CORNERS = torch.tensor([[1.0, 0.5], [-1.0, 0.0], [0.0, -2.0]], dtype=F)


class Corners(lp.Measure):
    """Three points by their cgf."""

    dim = 2

    def cgf(self, u):
        return torch.log(torch.exp(u @ CORNERS.to(u.dtype).mT).mean(-1))

    def sample(self, n, generator=None):
        raise NotImplementedError


class Ball(lp.Measure):
    """The sphere of radius √3 in R³ by its closed cgf log(sinh k/k), k = √3‖u‖, tilted so that 0 is
    no special point.
    """

    dim = 3

    def cgf(self, u):
        k, k0 = (torch.sqrt(3 * v.square().sum(-1)) for v in (u + TILTED, TILTED))
        return torch.log(torch.sinh(k) / k) - torch.log(torch.sinh(k0) / k0)

    def sample(self, n, generator=None):
        raise NotImplementedError


def test_a_law_of_ones_own_and_a_tilted_sphere():
    """Derivatives by autodiff, against ratios of hypergeometric functions, which know no more than
    two of them.
    """
    z, lengths, eye = [0.3, 0.6, 0.1], [2, 1000], torch.eye(3, dtype=F)
    own, tilted = (
        lp.finite_prompt(lp.SoftmaxAttention(eye, eye), mu, z, lengths)
        for mu in (Ball(), lp.Sphere(3).tilt(TILTED))
    )
    for name in ("bias", "mse", "covariance"):
        torch.testing.assert_close(getattr(own, name), getattr(tilted, name), rtol=1e-9, atol=1e-13)
    with pytest.raises(lp.InvalidArgumentError, match="two derivatives"):
        _ = tilted.jacobian_u_mse


def test_fourth_derivatives_of_a_law_of_ones_own():
    """Along directions, against nodes."""
    z, lengths, eye, listed = (
        [0.3, 0.6],
        [2, 1000],
        torch.eye(2, dtype=F),
        lp.Discrete(CORNERS, torch.full((3,), 1 / 3, dtype=F)),
    )
    own, known = (
        lp.finite_prompt(lp.SoftmaxAttention(eye, eye), mu, z, lengths)
        for mu in (Corners(), listed)
    )
    torch.testing.assert_close(own.jacobian_u_mse, known.jacobian_u_mse, rtol=1e-8, atol=0)


def test_derivative_error_of_a_cgf_that_bends_far_out():
    """Two tokens that differ by d: C_2 = dd^T sech²(u·d/2)/4. At 4u this law has scores far wider
    than at u.
    """
    shape, u = 1.3, np.array([0.9, -0.6])
    width = math.sqrt(math.gamma(1 / shape) / math.gamma(3 / shape))
    x, step = np.arange(-6000, 6001) / 200, 0.05  # of d
    density = shape / (2 * width * math.gamma(1 / shape)) * np.exp(-(np.abs(x / width) ** shape))
    apart = np.convolve(density, density)[::10] / 200  # of d from -60 to 60
    d = np.arange(-1200, 1201) * step
    near = np.abs(d) < 30
    a, b, mass = d[near][:, None], d[near][None], np.outer(apart[near], apart[near]) * step**2
    mu = lp.scalar.GeneralizedNormal(2, shape=shape)
    limit = mu.tilted_covariance(u).numpy()
    share = 1 / (4 * np.cosh((u[0] * a + u[1] * b) / 2) ** 2)
    spread = share * np.stack(np.broadcast_arrays(a * a, a * b, a * b, b * b)) - limit.reshape(
        4, 1, 1
    )
    eye = torch.eye(2, dtype=torch.float64)
    found = lp.finite_prompt(lp.SoftmaxAttention(eye, eye), mu, u, 2).jacobian_u_mse
    assert float(found) == pytest.approx(u @ u * (mass * spread**2).sum(), rel=1e-4)


def test_few_evaluations_at_complex_tilts(monkeypatch):
    """Seven lengths need the cumulants at complex tilts for six contours, two poles and three looks
    at the law: 35 calls before.
    """
    calls, plain = [], lp.Rademacher.complex_cumulants
    monkeypatch.setattr(
        lp.Rademacher,
        "complex_cumulants",
        lambda self, w, order=2: calls.append(len(w)) or plain(self, w, order),
    )
    generator = torch.Generator().manual_seed(0)
    u = torch.randn(40, generator=generator, dtype=torch.float64) / 40**0.5
    by_contours(lp.Rademacher(40), u, [10.0, 100.0, 1e10])
    assert len(calls) <= 12


@pytest.mark.parametrize("scale", [1 - 1e-15, 1.0, 1 + 1e-15, 1 + 1e-12])
def test_a_tilt_whose_double_is_the_edge_of_the_domain(scale):
    """Laplace tokens at u = 1/√2, where E e^{2s} ends: between its neighbors, as the law is
    continuous there.
    """
    eye = torch.eye(3, dtype=torch.float64)
    attention, lengths = lp.SoftmaxAttention(eye, eye), [2, 100, 10**9]
    here, below, above = (
        lp.finite_prompt(attention, lp.Laplace(3), [tilt, 0.0, 0.0], lengths).mse
        for tilt in (scale * math.sqrt(0.5), 0.70710, 0.70711)
    )
    assert bool(((here - below) * (here - above) < 0).all())


@pytest.mark.parametrize(("shape", "tilt"), [(1.1, 0.7), (1.3, -2.0), (50.0, 1.0)])
def test_generalized_normal_tokens_by_their_density(shape, tilt):
    """Two tokens: T_2 = (x + y)/2 + tanh(u(x-y)/2)(x-y)/2, by Gauss rules on a fine grid; and E Y
    at large L by the first order.
    """
    mu = lp.scalar.GeneralizedNormal(1, shape=shape)
    nodes, weights = np.polynomial.legendre.leggauss(12)
    edges = np.concatenate(
        [
            -(edges := np.concatenate([[0.0], 1e-4 * 3.0 ** np.arange(8), np.arange(1.0, 50.0)]))[
                :0:-1
            ],
            edges,
        ]
    )
    width = mu.law.width
    bends = width * np.linspace(0.8, 1.2, 21) if shape > 2 else np.zeros(0)
    edges = np.unique(np.concatenate([edges, bends, -bends]))
    x = (edges[:-1, None] + np.diff(edges)[:, None] * (1 + nodes) / 2).ravel()
    mass = (np.diff(edges)[:, None] * weights / 2).ravel() * np.exp(-(np.abs(x / width) ** shape))
    kept = mass > 1e-18
    x, mass = x[kept], mass[kept] / mass.sum()
    first = 1 / (1 + np.exp(-tilt * (x[:, None] - x)))
    read = first * x[:, None] + (1 - first) * x
    law = lp.finite_prompt(lp.SoftmaxAttention([[1.0]], [[1.0]]), mu, [tilt], [2, 10**15])
    assert float(law.mean[0, 0]) == pytest.approx(mass @ read @ mass, rel=1e-8)
    assert 1 / float(law.effective_tokens[0]) == pytest.approx(
        mass @ (first**2 + (1 - first) ** 2) @ mass, rel=1e-8
    )
    if shape > 1.4:
        tilts = torch.tensor([[tilt], [2 * tilt]], dtype=F)
        one, two = mu.cgf(tilts)
        assert 1e15 / float(law.effective_tokens[1]) == pytest.approx(
            math.exp(float(two - 2 * one)), rel=1e-8
        )


@pytest.mark.parametrize("shape", [1.05, 1.3, 1.6, 3.0])
def test_the_mode_of_a_small_tilt_beside_a_kink(shape):
    """All weights are 1/L: E (T_L - T)² = 1/L to order u²."""
    one, mu = lp.SoftmaxAttention([[1.0]], [[1.0]]), lp.scalar.GeneralizedNormal(1, shape=shape)
    for u in (1e-12, 1e-7):
        torch.testing.assert_close(
            lp.finite_prompt(one, mu, [u], [2, 10**6]).mse,
            torch.tensor([1 / 2, 1e-6], dtype=F),
            rtol=1e-12,
            atol=0,
        )


class Coin(lp.Measure):
    """0 or 1, as a new user writes it."""

    dim = 1

    def __init__(self, p):
        self.p = p

    def cgf(self, u):
        return torch.log1p(self.p * torch.expm1(u[..., 0]))

    def sample(self, n, generator):
        return (torch.rand(n, 1, generator=generator, dtype=torch.float64) < self.p).double()


NEAR_LAPLACE = lp.scalar.GeneralizedNormal(1, 1.1)


@pytest.mark.parametrize(
    ("law", "u", "words"),
    [
        # e^{2u} overflows in the second derivative by autograd: an mse 1700 times the truth
        (Coin(0.01), 240.0, "derivatives of the cgf"),
        (Coin(0.001), 360.0, "derivatives of the cgf"),
        # cumulants that grow like u^11: gigabytes, or an IndexError
        (NEAR_LAPLACE, -4.0, "bends sharply"),
        (NEAR_LAPLACE, 2.0, "bends sharply"),
    ],
)
def test_tilts_that_contours_cannot_follow_are_refused(law, u, words):
    with pytest.raises(InvalidArgumentError, match=words):
        lp.finite_prompt(lp.SoftmaxAttention([[1.0]], [[1.0]]), law, [u], 1000)


def test_fourth_derivatives_that_overflow_are_refused():
    """At u = 60 the first two are good, and e^{4u} in the fourth is not."""
    found = lp.finite_prompt(lp.SoftmaxAttention([[1.0]], [[1.0]]), Coin(0.01), [60.0], 2)
    assert float(found.mse) == pytest.approx(0.99**2, rel=1e-8)
    with pytest.raises(InvalidArgumentError, match="derivatives of the cgf"):
        _ = found.jacobian_u_mse
