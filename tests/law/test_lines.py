"""Laws along tilts keep the digits that contours need: saturated coordinates, rare large scores, sums of very many terms."""

import math

import pytest
import torch
from mpmath import mp, mpf

import largeprompt as lp
from largeprompt.errors import InvalidArgumentError


@pytest.mark.parametrize("u", [12.0, 15.0, 18.0, 30.0])
def test_a_saturated_part_keeps_its_own_digits(u):
    """Of twelve signs V reads the first, tilted by u: the law of one sign, however much larger the error of the others is."""
    eye, lengths = torch.eye(12, dtype=torch.float64), [100, 10_000, 10**15]
    part = lp.finite_prompt(lp.SoftmaxAttention(eye, eye[:1]), lp.Rademacher(12), u * eye[0], lengths)
    alone = lp.finite_prompt(lp.SoftmaxAttention([[1.0]], [[1.0]]), lp.Rademacher(1), [u], lengths)
    for name in ("mse", "bias", "covariance"):
        torch.testing.assert_close(getattr(part, name), getattr(alone, name), rtol=1e-9, atol=0.0)


@pytest.mark.parametrize("u", [12.0, 17.0, 20.0, -25.0])
@pytest.mark.parametrize(
    "signs",
    [
        lp.Product([lp.scalar.RademacherLaw()]),
        lp.scalar.RademacherSum(1, terms=1),
        lp.Sphere(1),
        lp.GaussianMixture([0.5, 0.5, 0.0], [[1.0], [-1.0], [900.0]], [[[0.0]]] * 3),
    ],
    ids=str,
)
def test_saturated_signs_are_signs_however_they_are_given(u, signs):
    attention, lengths = lp.SoftmaxAttention([[1.0]], [[1.0]]), [2, 10, 1000, 10**9]
    found, listed = (lp.finite_prompt(attention, mu, [u], lengths) for mu in (signs, lp.Rademacher(1)))
    for name in ("mse", "bias"):
        torch.testing.assert_close(getattr(found, name), getattr(listed, name), rtol=1e-9, atol=0.0)


def test_rare_large_scores_are_no_small_tilt():
    """Their variance is small, and yet they carry the limit: T = 10⁴ p e^{30}/(1 - p + p e^{30})."""
    p, attention = 1e-12, lp.SoftmaxAttention([[1.0]], [[1.0]])
    law = lp.finite_prompt(attention, lp.Discrete([[0.0], [1e4]], [1 - p, p]), [0.003], 1)
    limit = 1e4 * p * math.exp(30) / (1 - p + p * math.exp(30))
    assert float(law.bias) == pytest.approx(1e4 * p - limit, rel=1e-12)
    assert float(law.mse) == pytest.approx(p * 1e8 - 2 * 1e4 * p * limit + limit**2, rel=1e-12)


def test_a_rare_large_score_of_ones_own_law_is_right_or_refused():
    class Spike(lp.scalar.ScalarLaw):
        """100 with probability 10⁻⁸, else 0."""

        def cgf(self, u):
            return torch.log1p(1e-8 * torch.expm1(100 * u))

        def sample(self, u, generator):
            raise NotImplementedError

    attention, lengths = lp.SoftmaxAttention([[1.0]], [[1.0]]), [2, 1000, 10**6]
    found = lp.finite_prompt(attention, lp.Product([Spike()]), [0.05], lengths)
    listed = lp.finite_prompt(attention, lp.Discrete([[0.0], [100.0]], [1 - 1e-8, 1e-8]), [0.05], lengths)
    torch.testing.assert_close(found.bias, listed.bias, rtol=1e-8, atol=0.0)
    with pytest.raises(InvalidArgumentError, match="rounding leaves"):
        lp.finite_prompt(attention, lp.Product([Spike()]), [0.09], lengths).mse  # noqa: B018


def test_several_saturated_signs_are_right_or_refused():
    """Eleven signs by contours against 2,048 atoms by listing; parts that no choice of contours resolves are refused."""
    atoms = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0], dtype=torch.float64)] * 11)
    listed = lp.Discrete(atoms, torch.full((2**11,), 2.0**-11, dtype=torch.float64))
    eye, z = torch.eye(11, dtype=torch.float64), torch.linspace(0.0, 0.7, 11, dtype=torch.float64)
    z[:4] = torch.tensor([25.0, -6.0, 3.0, -25.0])
    for V, length in ((eye, 10), (eye, 10**6), (eye[3:4], 10**6), (eye[1:2], 10**6)):
        attention = lp.SoftmaxAttention(eye, V)
        found, expected = (lp.finite_prompt(attention, mu, z, length) for mu in (lp.Rademacher(11), listed))
        torch.testing.assert_close(found.mse, expected.mse, rtol=1e-8, atol=0.0)
        torch.testing.assert_close(found.covariance, expected.covariance, rtol=1e-7, atol=1e-8 * float(found.mse))
    for name in ("mse", "bias", "covariance"):
        with pytest.raises(InvalidArgumentError, match="a part of the output whose squared error is"):
            getattr(lp.finite_prompt(lp.SoftmaxAttention(eye, eye[3:4]), lp.Rademacher(11), z, 100), name)


@pytest.mark.parametrize("terms", [10**9, 10**12, 10**15])
def test_sums_of_very_many_signs_are_gaussian_to_the_last_digits(terms):
    """They differ by one over the number of terms."""
    attention, z = lp.SoftmaxAttention([[1.0]], [[1.0]]), torch.tensor([[1e-5], [1e-2], [1.0]], dtype=torch.float64)
    lengths = [2, 10, 10**9]
    found, gaussian = (
        lp.finite_prompt(attention, mu, z, lengths).mse
        for mu in (lp.scalar.RademacherSum(1, terms=terms), lp.Gaussian([0.0], [[1.0]]))
    )
    torch.testing.assert_close(found, gaussian, rtol=1e-12 + 10 / terms, atol=0.0)


def test_a_direction_in_which_tokens_do_not_vary_is_read_without_error():
    """What rounding leaves of nothing is no part that is refused for being small."""
    normal = torch.tensor([1.0, 2.0, -2.0], dtype=torch.float64) / 3
    across = torch.eye(3, dtype=torch.float64) - torch.outer(normal, normal)
    flat = torch.randn(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) @ across + 3.3 * normal
    attention = lp.SoftmaxAttention(torch.eye(3, dtype=torch.float64), normal[None])
    for mu in (lp.Empirical(flat), lp.GaussianMixture([0.3, 0.7], flat[:2], torch.stack([across, across / 2]))):
        law = lp.finite_prompt(attention, mu, [0.5, -1.0, 0.2], [2, 10, 1000])
        assert float(law.mse.abs().max()) < 1e-13


@pytest.mark.parametrize("signs", [lp.Rademacher(1), lp.Sphere(1), lp.Product([lp.scalar.RademacherLaw()])], ids=repr)
@pytest.mark.parametrize(("u", "length"), [(5.0, 3), (12.0, 50), (16.0, 90), (18.0, 100), (18.0, 300)])
def test_prompts_of_one_sign_are_not_left_out(signs, u, length):
    """All L signs are wrong with probability 2^-L, which may be all of the error: against the sum over their number."""
    with mp.workdps(50):
        ratio, limit = mp.exp(-2 * mpf(u)), mp.tanh(mpf(u))
        outputs = [((length - k) - k * ratio) / ((length - k) + k * ratio) for k in range(length + 1)]
        exact = mp.fsum(mp.binomial(length, k) * (x - limit) ** 2 for k, x in enumerate(outputs)) / mpf(2) ** length
    found = lp.finite_prompt(lp.SoftmaxAttention([[1.0]], [[1.0]]), signs, [u], length).mse
    assert float(found) == pytest.approx(float(exact), rel=1e-9)


def test_the_covariance_of_a_part_is_its_error_less_its_bias():
    """The first of eleven signs, of which the others are read too: at L = 100 all of its error is of prompts of one sign."""
    z = torch.tensor([20.0, *[0.5] * 10], dtype=torch.float64)
    eye = torch.eye(11, dtype=torch.float64)
    law = lp.finite_prompt(lp.SoftmaxAttention(eye, eye[:1]), lp.Rademacher(11), z, [100, 1000])
    torch.testing.assert_close(law.covariance.flatten(), law.mse - law.bias.flatten().square(), rtol=1e-9, atol=0.0)
    assert float(law.mse[0]) == pytest.approx(4 * 2.0**-100, rel=1e-3)


def test_coordinates_in_small_units_are_no_parts_too_small():
    """What V reads is 10⁻¹² of the whole, by its units alone."""
    flat = torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=torch.float64).expand(2, 2, 2)

    def errors(unit):
        mu = lp.GaussianMixture([0.5, 0.5], [[1.0, unit], [-1.0, -unit]], flat)
        return lp.finite_prompt(lp.SoftmaxAttention(torch.eye(2).double(), [[0.0, 1 / unit]]), mu, [2.0, 0.0], lengths).mse

    lengths = [10, 20, 30, 50, 1000]
    torch.testing.assert_close(errors(1e-6), errors(1.0), rtol=1e-10, atol=0.0)


def test_a_length_or_a_query_that_contours_hardly_serve_spoils_no_other():
    eye, z = (
        torch.eye(12, dtype=torch.float64),
        4 * torch.randn(12, generator=torch.Generator().manual_seed(0), dtype=torch.float64),
    )
    attention, signs = lp.SoftmaxAttention(eye, eye[:1]), lp.Rademacher(12)
    alone = lp.finite_prompt(attention, signs, z, 10_000).mse
    together = lp.finite_prompt(attention, signs, torch.stack([z, z / 8]), [3, 50, 10_000]).mse
    torch.testing.assert_close(together[-1, 0], alone, rtol=1e-10, atol=0.0)
    image = signs.map(torch.diag(torch.tensor([1.0] + 11 * [1e-9], dtype=torch.float64)))
    law = lp.finite_prompt(lp.SoftmaxAttention(eye, eye[-1:]), image, 12 * eye[0], [3, 10_000])
    torch.testing.assert_close(law.mse, law.covariance.flatten(), rtol=1e-9, atol=0.0)  # of a coordinate without bias
