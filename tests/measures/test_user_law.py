"""Laws of one's own: the usual mistakes are named at every door, with how to write the law."""

import pytest
import torch

import largeprompt as lp

ONE = lp.SoftmaxAttention([[1.0]], [[1.0]])


class Law(lp.scalar.ScalarLaw):
    def __init__(self, function):
        self.function = function

    def cgf(self, u):
        return self.function(u)

    def sample(self, u, generator):
        return u


class OwnMeasure(lp.Measure):
    dim = 1

    def __init__(self, function):
        self.function = function

    def cgf(self, u):
        return self.function(u[..., 0])

    def sample(self, n, generator):
        return torch.zeros(n, 1, dtype=torch.float64)


def half_series(u):
    """A series near 0 in a branch, next to a branch that has no derivatives there."""
    return torch.where(u == 0, u**2 / 6, torch.log(torch.sinh(u) / u))


MISTAKES = {
    "mass e": (lambda u: 1 + u**2 / 2, "whose cgf is 1 at 0; .* Subtract it"),
    "0/0": (lambda u: torch.log(torch.sinh(u) / u), "whose cgf is nan at 0; .* series near 0"),
    "no derivatives": (half_series, "derivatives nan and nan at 0; .* differentiate twice at 0"),
    "no curvature": (lambda u: u.abs() ** 1.5, "derivatives 0 and (inf|nan) at 0; .* finite var"),
    "negative variance": (lambda u: -(u**2), "derivatives .* and -2 at 0; .* not negative"),
    "hidden curvature": (
        lambda u: torch.where(u.abs() < 1e-5, 0 * u, torch.log(torch.cosh(u))),
        "second derivative 0 at 0 by autograd and 1 by differences",
    ),
}
DOORS = {
    "attention": lambda mu: ONE(mu, [0.5]),
    "jacobian_u": lambda mu: ONE.jacobian_u(mu, [0.5]),
    "finite_prompt": lambda mu: lp.finite_prompt(ONE, mu, [0.5], 10).mse,
    "certificate": lambda mu: lp.certificate(ONE, mu, [0.5], 10),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", ["scalar", "measure"])
def test_mistakes_are_named_with_how_to_write_the_law(mistake, door, kind):
    function, words = MISTAKES[mistake]
    mu = lp.Product([Law(function)]) if kind == "scalar" else OwnMeasure(function)
    with pytest.raises(lp.InvalidArgumentError, match=f"^mu: got .*{words}"):
        DOORS[door](mu)


def test_a_cgf_of_real_tilts_alone_is_named():
    mu = OwnMeasure(lambda u: torch.lgamma(1 - u))
    assert float(ONE(mu, [0.5])) == pytest.approx(1.9635, abs=1e-4)  # -ψ(1/2)
    with pytest.raises(lp.InvalidArgumentError, match=r"lp\.measures\.log_gamma"):
        lp.finite_prompt(ONE, mu, [0.2], 10).mse  # noqa: B018
