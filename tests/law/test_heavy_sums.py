"""The score of several heavy-tailed coordinates: against closed forms, Fourier integrals, the Gaussian law and drawn prompts."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.law.by_density import by_density, digits_left
from largeprompt.law.heavy_sums import can_add, groups_of, score_of

F = torch.float64
EYE = torch.eye(2, dtype=F)
PLAIN = lp.SoftmaxAttention(EYE, EYE)
CAUCHY = lp.scalar.StudentTLaw(1.0, 1.0)


def test_sums_of_cauchy_variables_are_cauchy():
    """With relative accuracy as far as a prompt of 10^15 tokens reaches; given the score each has its share of it."""
    score = score_of([CAUCHY] * 3, [1.0, 0.3, 0.05], 1e15, 2)
    x = np.array([0.0, 0.1, 1.0, 10.0, 1e3, 1e6, 1e12, 1e20])
    known = stats.cauchy(scale=1.35)
    np.testing.assert_allclose(score.density(-x), known.pdf(x), rtol=1e-11)
    np.testing.assert_allclose(score.upper(x), known.sf(x), rtol=1e-11)
    np.testing.assert_allclose(score.upper(-x[1:4]), known.cdf(x[1:4]), rtol=1e-11)
    moments = score.at(x, range(1, 10))  # three means, then products
    np.testing.assert_allclose(moments[:3], np.outer([1.0, 0.3, 0.05], x) / 1.35, rtol=1e-10, atol=1e-13)
    whole = sum((1 + (i != j)) * moments[3 + k] for k, (i, j) in enumerate(zip(*np.triu_indices(3), strict=True)))
    np.testing.assert_allclose(whole[1:], x[1:] ** 2, rtol=1e-10)


@pytest.mark.parametrize(("shapes", "tilts"), [((3.0, 50.0), (0.1, 1.0)), ((3.0, math.inf), (1e-3, 1.0))])
def test_density_against_adaptive_integration(shapes, tilts):
    """A wide light coordinate and a narrow heavy one: the tail changes from one to the other."""
    score = score_of([lp.scalar.StudentTLaw(df, 1.0) for df in shapes], tilts, 1e6, 1)
    one, other = (
        stats.norm(scale=tilt) if math.isinf(df) else stats.t(df, scale=tilt) for df, tilt in zip(shapes, tilts, strict=True)
    )
    for s in (3.0, 200.0):
        places = sorted({s / 2, *(sign * 10.0**k for k in range(-4, 5) for sign in (-1, 1)), 0.0})
        below = [place for place in places if place <= s / 2]
        total = 0.0
        for a, b in ((one, other), (other, one)):
            for low, high in itertools.pairwise(below):
                total += integrate.quad(lambda x, a=a, b=b, s=s: a.pdf(x) * b.pdf(s - x), low, high, epsabs=0, epsrel=1e-11)[0]
        assert float(score.density(np.array([s]))[0]) == pytest.approx(total, rel=1e-9)


def test_two_tokens_are_fourier_integrals():
    """With D the difference of the scores, tanh(D/2) = 2∫ sin(ωD)/sinh(πω) dω and E Y = 1 - 2∫ ω E cos(ωD)/sinh(πω) dω."""
    u, rate = (0.9, -0.4), 1.0  # √3 times the scale that makes the variance one
    law = lp.finite_prompt(PLAIN, lp.StudentT(2, df=3.0), u, 2)

    def transform(w):
        return (1 + rate * abs(w)) * math.exp(-rate * abs(w))  # of one token's coordinate, df = 3

    def pairs(omega):
        return (transform(u[0] * omega) * transform(u[1] * omega)) ** 2

    rest = integrate.quad(lambda omega: omega / math.sinh(math.pi * omega) * pairs(omega), 0, 20, epsrel=1e-13)[0]
    assert 1 / float(law.effective_tokens) == pytest.approx(1 - 2 * rest, rel=1e-10)
    for i in range(2):

        def slope(omega, i=i):
            w = u[i] * omega
            return 2 * rate**2 * w * math.exp(-rate * abs(w)) * transform(w) * transform(u[1 - i] * omega) ** 2

        mean = integrate.quad(lambda omega, slope=slope: slope(omega) / math.sinh(math.pi * omega), 0, 20, epsrel=1e-13)[0]
        assert float(law.mean[i]) == pytest.approx(mean, rel=1e-10)


def test_many_degrees_of_freedom_are_gaussian():
    """df = inf by its density, with all moments, against the closed form for Gaussian tokens."""
    u, lengths = torch.tensor([0.8, -0.5, 0.3], dtype=F), [2, 10, 1000, 10**9]
    eye = torch.eye(3, dtype=F)
    expected = lp.finite_prompt(lp.SoftmaxAttention(eye, eye), lp.Gaussian([0.0] * 3, eye), u, lengths)
    found = by_density(lp.StudentT(3, df=math.inf), u, lengths)
    assert_close(torch.from_numpy(1 / found.collision), expected.effective_tokens, rtol=1e-9, atol=0)
    assert_close(torch.from_numpy(found.bias), expected.bias, rtol=1e-8, atol=1e-12)
    centred = found.second() - found.bias[:, :, None] * found.bias[:, None, :]
    for row, matrix in zip(torch.from_numpy(centred), expected.covariance, strict=True):
        assert_close(row, matrix, rtol=1e-8, atol=1e-9 * float(matrix.abs().max()))


def test_cauchy_tokens_read_as_one():
    """E Y depends on the law of the score alone, and the score is Cauchy: at every length that of one coordinate."""
    lengths = [2, 100, 10**6, 10**15]
    both = lp.finite_prompt(PLAIN, lp.StudentT(2, df=1.0), [0.7, 0.3], lengths)
    one = lp.finite_prompt(lp.SoftmaxAttention([[1.0]], [[1.0]]), lp.StudentT(1, df=1.0), [1.0], lengths)
    assert_close(both.effective_tokens, one.effective_tokens, rtol=1e-10, atol=0)
    assert bool(both.mean.isnan().all())


def test_against_drawn_prompts():
    """Six standard errors for seven numbers: a false alarm once in 10^8."""
    mu = lp.Product([lp.scalar.StudentTLaw(7.0, 1.0), lp.scalar.LaplaceLaw(), lp.scalar.UniformLaw()])
    u, eye = torch.tensor([0.6, -1.6, 0.0], dtype=F), torch.eye(3, dtype=F)
    law = lp.finite_prompt(lp.SoftmaxAttention(eye, eye), mu, u, 8)
    tokens = mu.sample(8 * 60_000, torch.Generator().manual_seed(0)).reshape(-1, 8, 3)
    weights = torch.softmax(tokens @ u, -1)
    read = (weights.unsqueeze(-1) * tokens).sum(1)
    moved = read - law.mean
    numbers = [(weights.square().sum(-1), 1 / law.effective_tokens)]
    numbers += [(moved[:, i], torch.zeros((), dtype=F)) for i in range(3)]
    numbers += [(moved[:, i] * moved[:, j], law.covariance[i, j]) for i, j in ((0, 0), (0, 1), (1, 1), (2, 2))]
    for drawn, exact in numbers:
        assert abs(float(drawn.mean() - exact)) < 6 * float(drawn.std()) / math.sqrt(len(drawn))


def test_one_token_and_no_limit():
    mu = lp.StudentT(2, df=5.0)
    law = lp.finite_prompt(PLAIN, mu, [1.0, 0.5], [1, 10])
    assert_close(law.mean[0], torch.zeros(2, dtype=F))
    assert_close(law.covariance[0], EYE)
    for name in ("limit", "bias", "mse"):
        with pytest.raises(lp.TiltDomainError):
            getattr(law, name)
    with pytest.raises(lp.TiltDomainError):
        lp.finite_prompt(PLAIN, mu, [1.0, 0.5], math.inf)
    heavier = lp.finite_prompt(PLAIN, lp.StudentT(2, df=1.5), [1.0, 0.5], 10)
    with pytest.raises(lp.errors.NoMomentError, match="infinite at every length"):
        _ = heavier.covariance


TRANSFORMS = {  # of coordinates, and their derivatives
    lp.scalar.StudentTLaw(3.0, 1 / math.sqrt(3)): (lambda w: (1 + abs(w)) * math.exp(-abs(w)), lambda w: -w * math.exp(-abs(w))),
    lp.scalar.RademacherLaw(): (math.cos, lambda w: -math.sin(w)),
    lp.scalar.UniformLaw(): (
        lambda w: np.sinc(math.sqrt(3) * w / math.pi),
        lambda w: math.cos(math.sqrt(3) * w) / w - math.sin(math.sqrt(3) * w) / (math.sqrt(3) * w**2) if w else 0.0,
    ),
}
HEAVY, SIGN, BOX = TRANSFORMS


@pytest.mark.parametrize(
    ("laws", "u"),
    [
        ((HEAVY, SIGN), (0.9, 0.4)),
        ((SIGN, HEAVY, SIGN, SIGN), (0.3, 0.5, 0.3, -0.3)),
        ((BOX, HEAVY), (-0.7, 0.6)),
        ((HEAVY, BOX, SIGN, BOX), (0.5, 0.3, 1.0, 0.3)),
        ((HEAVY,) * 8, (0.3,) * 8),
        ((HEAVY,) * 40, (0.1,) * 40),
    ],
)
def test_two_tokens_of_other_coordinates_are_fourier_integrals(laws, u):
    """As above, for signs and uniform coordinates beside heavy ones, once refused, and many equal ones, once minutes."""
    eye = torch.eye(len(u), dtype=F)
    law = lp.finite_prompt(lp.SoftmaxAttention(eye, eye), lp.Product(list(laws)), u, 2)

    def kernel(omega):
        return (
            2 / math.sinh(math.pi * omega) * math.prod(TRANSFORMS[one][0](t * omega) ** 2 for one, t in zip(laws, u, strict=True))
        )

    rest = integrate.quad(lambda omega: omega * kernel(omega) if omega else 2 / math.pi, 0, 15, epsrel=1e-13, limit=200)[0]
    assert 1 / float(law.effective_tokens) == pytest.approx(1 - rest, rel=1e-10)
    for i in range(min(len(u), 4)):
        value, slope = TRANSFORMS[laws[i]]

        def mean(omega, value=value, slope=slope, t=u[i]):
            return -slope(t * omega) / value(t * omega) * kernel(omega)

        assert float(law.mean[i]) == pytest.approx(integrate.quad(mean, 1e-12, 15, epsrel=1e-12, limit=200)[0], rel=1e-9)


def test_groups_of_equal_coordinates_are_the_limit_of_unequal_ones():
    """Three equal tilts, one group; and three that differ in the eighth digit, which are added one by one."""
    mu, eye = lp.Product([lp.scalar.StudentTLaw(6.0, 1.0)] * 3 + [SIGN] * 2), torch.eye(5, dtype=F)
    layer, lengths = lp.SoftmaxAttention(eye, eye), [2, 50, 10**6]
    equal = lp.finite_prompt(layer, mu, [0.5, -0.5, 0.5, 0.4, 0.4], lengths)
    apart = lp.finite_prompt(layer, mu, [0.5, -0.5 * (1 + 1e-8), 0.5 * (1 - 1e-8), 0.4, 0.4 * (1 + 1e-8)], lengths)
    assert_close(equal.mean, apart.mean, rtol=1e-6, atol=0)
    assert_close(equal.covariance, apart.covariance, rtol=1e-6, atol=1e-8)
    assert_close(equal.effective_tokens, apart.effective_tokens, rtol=1e-6, atol=0)
    assert [len(group) for group in groups_of([HEAVY, SIGN, HEAVY, BOX, BOX, SIGN], [1.0, 0.5, 1.0, 0.3, 0.3, 0.5])] == [2, 1, 1, 2]


def test_generalised_normal_coordinates_without_exponential_moments():
    """Shape 0.7: the density of a sum by adaptive integration; the law by drawn prompts, six standard errors for six numbers."""
    law = lp.scalar.GeneralisedNormalLaw(0.7)
    known = stats.gennorm(0.7, scale=law.width)
    score = score_of([law] * 2, [0.7, 0.3], 1e6, 1)
    for s in (0.0, 0.4, 5.0):
        places = sorted({s / 2, 0.0, s, *(sign * 10.0**k for k in range(-6, 3) for sign in (-1, 1))})
        total = sum(
            integrate.quad(lambda x, s=s: known.pdf(x / 0.7) / 0.7 * known.pdf((s - x) / 0.3) / 0.3, low, high, epsrel=1e-11)[0]
            for low, high in itertools.pairwise(places)
        )
        assert float(score.density(np.array([s]))[0]) == pytest.approx(total, rel=1e-8)
    mu = lp.scalar.GeneralisedNormal(2, 0.7)
    found = lp.finite_prompt(PLAIN, mu, [0.7, 0.3], 30)
    tokens = mu.sample(30 * 40_000, torch.Generator().manual_seed(3)).reshape(-1, 30, 2)
    weights = torch.softmax(tokens @ torch.tensor([0.7, 0.3], dtype=F), -1)
    moved = (weights.unsqueeze(-1) * tokens).sum(1) - found.mean
    numbers = [(weights.square().sum(-1), 1 / found.effective_tokens), (moved[:, 0], 0.0), (moved[:, 1], 0.0)]
    numbers += [(moved[:, i] * moved[:, j], found.covariance[i, j]) for i, j in ((0, 0), (0, 1), (1, 1))]
    for drawn, exact in numbers:
        assert abs(float(drawn.mean() - exact)) < 6 * float(drawn.std()) / math.sqrt(len(drawn))
    with pytest.raises(lp.TiltDomainError):
        _ = found.limit


def test_shapes_near_one_whose_tilts_bend_too_far_for_contours():
    """Once refused: two coordinates of shape 1.1; six standard errors for three numbers; and where contours serve too."""
    mu, u = lp.scalar.GeneralisedNormal(2, 1.1), torch.tensor([1.2, 0.5], dtype=F)
    law = lp.finite_prompt(PLAIN, mu, u, [2, 60])
    tokens = mu.sample(60 * 30_000, torch.Generator().manual_seed(5)).reshape(-1, 60, 2)
    moved = (torch.softmax(tokens @ u, -1).unsqueeze(-1) * tokens).sum(1) - law.limit
    for drawn, exact in ((moved[:, 0], law.bias[1, 0]), (moved[:, 1], law.bias[1, 1]), (moved.square().sum(-1), law.mse[1])):
        assert abs(float(drawn.mean() - exact)) < 6 * float(drawn.std()) / math.sqrt(len(drawn))
    known = lp.finite_prompt(PLAIN, mu, [0.4, 0.3], [2, 100, 10**4])  # by contours
    found = by_density(mu, torch.tensor([0.4, 0.3], dtype=F), [2, 100, 10**4])
    assert_close(torch.from_numpy(found.bias), known.bias, rtol=1e-10, atol=0)
    assert_close(torch.from_numpy(found.error(EYE.numpy())), known.mse, rtol=1e-12, atol=0)
    with pytest.raises(lp.InvalidArgumentError, match="a bias of which rounding leaves"):
        digits_left(found, 1e6 * np.ones(2))


def test_what_can_be_added():
    assert can_add([HEAVY, SIGN, BOX])
    assert not can_add([SIGN, SIGN])
    assert not can_add([HEAVY, lp.scalar.LogNormalLaw(0.5)])


def test_what_cannot_be_added_is_said():
    with pytest.raises(lp.TiltDomainError, match=r"2 coordinates of LogNormal.*sample_prompts"):
        lp.finite_prompt(PLAIN, lp.scalar.LogNormal(2, scale=0.5), [1.0, 0.5], 10)
    with pytest.raises(lp.InvalidArgumentError, match="Ask about shorter prompts"):
        score_of([lp.scalar.StudentTLaw(0.2, 1.0)] * 2, [1.0, 1.0], 1e15, 1)
