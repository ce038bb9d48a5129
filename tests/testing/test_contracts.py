"""Every law of the library, its tilts, its images and a law that a user wrote, through the one
contract.
"""

import math

import numpy as np
import pytest
import torch

import largeprompt as lp
from largeprompt.testing import MeasureContract

F = torch.float64


def spd(dim: int, seed: int, rank: int | None = None) -> torch.Tensor:
    root = torch.randn(dim, rank or dim, generator=torch.Generator().manual_seed(seed), dtype=F)
    return root @ root.mT / dim


def mixture(dim: int, seed: int = 3) -> lp.GaussianMixture:
    means = torch.randn(3, dim, generator=torch.Generator().manual_seed(seed), dtype=F)
    covariances = torch.stack([spd(dim, 1), spd(dim, 2, rank=1), 0.3 * torch.eye(dim, dtype=F)])
    return lp.GaussianMixture([0.5, 0.2, 0.3], means, covariances)


class TestGaussian(MeasureContract):
    measure = lp.Gaussian(np.array([1.0, -0.5, 0.2]), spd(3, 0))


class TestGaussianScalar(MeasureContract):
    measure = lp.Gaussian([0.7], [[1.3]])


class TestGaussianSingular(MeasureContract):
    measure = lp.Gaussian([1.0, -0.5, 0.2, 0.0], spd(4, 0, rank=2))


class TestGaussianPointMass(MeasureContract):
    measure = lp.Gaussian([1.0, -0.5], torch.zeros(2, 2, dtype=F))


class TestMixture(MeasureContract):
    measure = mixture(3)


class TestMixtureWithEmptyComponent(MeasureContract):
    measure = lp.GaussianMixture(
        [0.0, 1.0], [[5.0, 5.0], [0.0, 1.0]], torch.stack([10 * spd(2, 4), spd(2, 5)])
    )


class TestEmpirical(MeasureContract):
    measure = lp.Empirical(torch.randn(40, 3, generator=torch.Generator().manual_seed(0), dtype=F))


class TestEmpiricalWeighted(MeasureContract):
    measure = lp.Empirical([[0.0, 1.0], [1.0, 0.0], [-1.0, 0.5], [9.0, 9.0]], [0.5, 0.3, 0.2, 0.0])


class TestEmpiricalOneToken(MeasureContract):
    measure = lp.Empirical([[0.3, -1.0]])


class TestDiscrete(MeasureContract):
    measure = lp.Discrete([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [0.2, 0.3, 0.5])


class TestNgrams(MeasureContract):
    measure = lp.measures.MarkovChain.random(3, 2, 1.0, 0).ngrams(3)


class TestRademacher(MeasureContract):
    measure = lp.Rademacher(3)


class TestUniform(MeasureContract):
    measure = lp.Uniform(3)


class TestLaplace(MeasureContract):
    measure = lp.Laplace(3)
    far = None
    tilt_size = 0.45


class TestRademacherSum(MeasureContract):
    measure = lp.scalar.RademacherSum(3, terms=5)


class TestGeneralizedNormalHeavy(MeasureContract):
    measure = lp.scalar.GeneralizedNormal(2, shape=1.2)


class TestGeneralizedNormalLight(MeasureContract):
    measure = lp.scalar.GeneralizedNormal(2, shape=6.0)


class TestGeneralizedNormalOfShapeOneIsLaplace(MeasureContract):
    measure = lp.scalar.GeneralizedNormal(2, shape=1.0)
    far = None
    tilt_size = 0.45


class TestSkewNormal(MeasureContract):
    measure = lp.scalar.SkewNormal(3, skew=-0.7)


class TestLogNormal(MeasureContract):
    """Its cgf is finite for tilts without a positive entry: those are tried, and images by matrices
    that keep them so.
    """

    measure = lp.scalar.LogNormal(2, scale=0.4)

    def tilts(self, *shape: int, seed: int = 0) -> torch.Tensor:
        return -super().tilts(*shape, seed=seed).abs()

    def test_affine_image(self):
        generator = torch.Generator().manual_seed(11)
        matrix = torch.rand(3, 2, generator=generator, dtype=F)
        offset = torch.tensor([0.3, -1.0, 0.1], dtype=F)
        v = -0.3 * torch.rand(5, 3, generator=generator, dtype=F)
        image = self.measure.map(matrix, offset)
        self.close(image.cgf(v), self.measure.cgf(v @ matrix) + v @ offset)
        self.close(image.tilted_mean(v), self.measure.tilted_mean(v @ matrix) @ matrix.mT + offset)
        self.close(
            image.tilted_covariance(v),
            matrix @ self.measure.tilted_covariance(v @ matrix) @ matrix.mT,
        )
        center = torch.tensor([0.1, 0.2, 0.0], dtype=F)
        self.close(image.norm_moment4(center), lp.Measure.norm_moment4(image, center))

    def test_positive_tilts_are_refused(self):
        for function in (
            self.measure.cgf,
            self.measure.tilt,
            self.measure.tilted_mean,
            self.measure.tilted_covariance,
        ):
            with pytest.raises(lp.TiltDomainError, match="no infinite-prompt limit"):
                function(torch.tensor([-1.0, 1e-6], dtype=F))


class TestStudentTAtInfinityIsGaussian(MeasureContract):
    measure = lp.StudentT(2, df=math.inf)


class TestSphereDefault(MeasureContract):
    measure = lp.Sphere(3)


class TestSpherePair(MeasureContract):
    measure = lp.Sphere(1, radius=2.0)


class TestSphereCircle(MeasureContract):
    measure = lp.Sphere(2, radius=0.5)
    tilt_size = 3.0


class TestSphereHigh(MeasureContract):
    measure = lp.Sphere(7)
    draws = 60_000


class TestProduct(MeasureContract):
    measure = lp.Product(
        [
            lp.scalar.UniformLaw(),
            lp.scalar.RademacherLaw(),
            lp.scalar.UniformLaw(),
            lp.scalar.StudentTLaw(math.inf, 1.0),
        ]
    )


class TestTilted(MeasureContract):
    measure = lp.Sphere(3).tilt([1.0, 0.0, 2.0])
    tilt_size = 0.5


class TestAffineImage(MeasureContract):
    measure = lp.Uniform(3).map(
        torch.tensor([[1.0, 0.5, 0.0], [0.0, 1.0, -1.0]], dtype=F), [1.0, 2.0]
    )


class Exponential(lp.scalar.ScalarLaw):
    """A user's law: waiting times minus their mean."""

    domain = (-math.inf, 1.0)

    def cgf(self, u):
        return -torch.log1p(-u) - u

    def sample(self, u, generator):
        uniform = torch.rand(u.shape, generator=generator, dtype=u.dtype, device=u.device)
        return -torch.log1p(-uniform) / (1 - u) - 1


class TestUsersScalarLaw(MeasureContract):
    measure = lp.Product([Exponential(), lp.scalar.RademacherLaw()])
    far = None
    tilt_size = 0.3


class Checkerboard(lp.Measure):
    """A user's measure with nothing but the three members that the base asks for: (s, st) for signs
    s, t.
    """

    dim = 2

    def cgf(self, u):
        a, b = u[..., 0], u[..., 1]
        return torch.logsumexp(torch.stack([a + b, a - b, -a - b, -a + b]), 0) - math.log(4)

    def sample(self, n, generator):
        signs = 2.0 * torch.randint(2, (n, 2), generator=generator) - 1
        return torch.stack([signs[:, 0], signs[:, 0] * signs[:, 1]], -1).to(F)


class TestUsersMeasure(MeasureContract):
    """``torch.logsumexp`` takes complex numbers: all that a finite prompt asks for is derived."""

    measure = Checkerboard()


class Waiting(lp.Measure):
    """A user's measure with a bounded domain, and a cgf that compares its argument, as complex
    numbers cannot be.
    """

    dim = 1

    def cgf(self, u):
        return torch.where(u[..., 0] < 1, -torch.log1p(-u[..., 0]), math.inf)

    def sample(self, n, generator):
        return -torch.log1p(-torch.rand(n, 1, generator=generator, dtype=F))


class TestUsersMeasureWithoutComplexTilts(MeasureContract):
    measure = Waiting()
    complex_tilts = False
    far = None
    tilt_size = 0.2


class Exponentials(lp.Measure):
    """Two independent waiting times, as anybody would write them."""

    dim = 2

    def cgf(self, u):
        return -torch.log(1 - u).sum(-1)

    def sample(self, n, generator):
        return -torch.log1p(-torch.rand(n, 2, generator=generator, dtype=F))


class TestUsersMeasureInTwoLines(MeasureContract):
    measure = Exponentials()
    far = None
    tilt_size = 0.2


class Wrong(lp.Rademacher):
    """A law with mistakes: a cgf that is not 0 at 0, a mean that is not its gradient, draws of
    another law, and others.
    """

    def cgf(self, u):
        return super().cgf(u) + 0.1

    def tilted_mean(self, u):
        return 2 * super().tilted_mean(u)

    def sample(self, n, generator):
        return super().sample(n, generator) / 2

    def complex_cumulants(self, w, order=2):
        value, *slopes = super().complex_cumulants(w, order)
        return value + w.imag.sum(-1), *slopes

    def tilt_range(self, u):
        return -3.0, 3.0


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("test_cgf_vanishes_at_the_origin", r"cgf\(0\) must be 0"),
        ("test_tilted_mean_is_the_gradient", r"tilted_mean\(u\) must be the gradient of cgf"),
        ("test_samples_have_the_moments", r"sample\(\) must have the covariance of the law"),
        ("test_complex_cumulants_agree_on_the_real_axis", r"must begin with cgf\(w\)"),
        ("test_complex_cumulants_are_derivatives_off_the_axis", r"must be analytic"),
        ("test_tilt_range_ends_where_the_cgf_does", r"cgf must be infinite beyond tilt_range"),
    ],
)
def test_a_broken_promise_is_named(name, sentence):
    contract = MeasureContract()
    contract.measure = Wrong(2)
    with pytest.raises(AssertionError, match=sentence):
        getattr(contract, name)()


class NoCurvature(lp.Measure):
    """Signs by a formula whose second derivative autograd cannot find at 0."""

    dim = 1

    def cgf(self, u):
        return torch.log(torch.cosh((u[..., 0] ** 2).sqrt()))

    def sample(self, n, generator):
        return lp.Rademacher(1).sample(n, generator)


def test_a_cgf_without_second_derivative_is_blamed_and_not_the_sampler():
    contract = MeasureContract()
    contract.measure, contract.draws = NoCurvature(), 1000
    with pytest.raises(AssertionError, match="of the law, from its cgf, must be finite"):
        contract.test_samples_have_the_moments()
