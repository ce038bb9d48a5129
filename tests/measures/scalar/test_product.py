"""Products of scalar laws, those of users among them."""

import math

import pytest
import torch

import largeprompt as lp


def test_each_says_its_parameter():
    measures = [
        lp.scalar.RademacherSum(2, 3),
        lp.scalar.GeneralizedNormal(2, 1.5),
        lp.scalar.SkewNormal(2, -0.5),
        lp.scalar.LogNormal(2, 0.5),
    ]
    assert [repr(mu).split(", ")[1] for mu in measures] == [
        "terms=3)",
        "shape=1.5)",
        "skew=-0.5)",
        "scale=0.5)",
    ]


@pytest.mark.parametrize("kind", [lp.Rademacher, lp.Uniform, lp.Laplace])
def test_one_coordinate_unless_told_otherwise(kind):
    assert kind().dim == 1
    assert kind(dim=3).dim == 3


class Gamma(lp.scalar.ScalarLaw):
    """A centered gamma law of shape 4 whose author forgot that its cgf ends at 1."""

    def cgf(self, u):
        return -4 * torch.log1p(-u) - 4 * u

    def sample(self, u, generator):
        return torch._standard_gamma(torch.full_like(u, 4.0), generator=generator) / (1 - u) - 4


class GammaWithDomain(Gamma):
    domain = (-math.inf, 1.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda mu, u: mu.cgf(u),
        lambda mu, u: mu.tilted_mean(u),
        lambda mu, u: mu.tilted_covariance(u),
        lambda mu, u: mu.tilt(u),
        lambda mu, u: mu.map([[1.0]]).tilted_mean(u),
        lambda mu, u: mu.tilted_norm_moment4(u, [0.0]),
        lambda mu, u: lp.SoftmaxAttention([[1.0]], [[1.0]])(mu, u),
    ],
)
@pytest.mark.parametrize("law", [Gamma, GammaWithDomain])
def test_a_law_beyond_its_domain_raises_and_names_the_tilt(law, call):
    """Autograd through NaN gives a finite number: -6.0 for the mean of this law at u = 3."""
    mu = lp.Product([law()])
    with pytest.raises(lp.TiltDomainError, match="u: got the entry 3 on"):
        call(mu, [3.0])
    call(mu, [0.5])


def test_a_measure_in_place_of_a_scalar_law_is_told_what_to_write():
    with pytest.raises(lp.errors.InvalidArgumentError, match=r"lp\.scalar\.RademacherLaw"):
        lp.Product([lp.scalar.Rademacher()])
    with pytest.raises(TypeError, match=r"^StudentT\.__init__.*'df'"):
        lp.scalar.StudentT(1)


def test_beyond_its_domain_a_law_names_what_still_works():
    """Scores can be shrunk to where a Laplace law has a limit, and not for Student's."""
    layer = lp.SoftmaxAttention([[1.0]], [[1.0]])
    for mu, shrink in ((lp.Laplace(1), True), (lp.StudentT(1, 3.0), False)):
        with pytest.raises(lp.TiltDomainError, match=r"lp\.finite_prompt\(") as caught:
            layer(mu, [1.6])
        assert ("shrink the scores" in str(caught.value)) == shrink
        assert bool(torch.isfinite(lp.finite_prompt(layer, mu, [1.6], 10).effective_tokens))


def test_equal_tilts_are_computed_once_and_no_others():
    """Against half of the rows at a time, too few to look for equal columns; then two columns that
    agree in the last row only.
    """
    mu, w = (
        lp.Uniform(5),
        torch.randn(1000, 5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64),
    )
    w = torch.view_as_complex(0.3 * w)
    w[:, 2], w[:, 3] = w[:, 0], 0.0
    for last in (w[-1, 4].clone(), w[-1, 1]):
        w[-1, 4] = last
        for found, *halves in zip(
            *(mu.complex_cumulants(part) for part in (w, w[:500], w[500:])), strict=True
        ):
            torch.testing.assert_close(found, torch.cat(halves), rtol=1e-14, atol=1e-15)
