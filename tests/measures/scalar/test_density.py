"""Which scalar laws declare their density, and that it is one."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

import largeprompt as lp
from largeprompt.measures.scalar.density import HasDensity

LAWS = [
    (lp.scalar.StudentTLaw(3.0, 0.6), stats.t(3, scale=0.6)),
    (lp.scalar.StudentTLaw(1.0, 1.0), stats.t(1)),
    (lp.scalar.LaplaceLaw(), stats.laplace(scale=1 / math.sqrt(2))),
]


@pytest.mark.parametrize(
    ("law", "known"),
    [*LAWS, (lp.scalar.LogNormalLaw(0.5), None)],
    ids=lambda law: type(law).__name__,
)
def test_tails_and_quantiles_are_those_of_the_density(law, known):
    found = law.density()
    last = min(float(found.upper_quantile(np.array(1e-13))), 1e3)
    for x in (0.3, 1.2, -0.4):
        whole = integrate.quad(found.density, x, last, limit=400)[0] + float(
            found.upper(np.array(last))
        )
        assert whole == pytest.approx(float(found.upper(np.array(x))), rel=1e-5)
        assert float(found.upper_quantile(found.upper(np.array(x)))) == pytest.approx(x, rel=1e-9)
        assert float(found.lower_quantile(found.lower(np.array(x)))) == pytest.approx(x, rel=1e-9)
    if known is not None:
        x = np.array([-1e6, -30.0, -1.0, 0.3, 50.0, 1e8])
        np.testing.assert_allclose(found.density(x), known.pdf(x), rtol=1e-12)
        np.testing.assert_allclose(found.mirrored().upper(x), known.cdf(-x), rtol=1e-11)


def test_the_density_of_a_lognormal_law_is_that_of_its_tokens():
    law, x = lp.scalar.LogNormalLaw(0.7), np.array([-1.0, -0.5, 0.0, 1.0, 10.0, 1e4])
    known = law.center + law.spread * x
    np.testing.assert_allclose(
        law.density().density(x), law.spread * stats.lognorm.pdf(known, 0.7), rtol=1e-12
    )
    assert law.density().density(np.array([-5.0]))[0] == 0


def test_laws_with_closed_cgfs_declare_none():
    assert not isinstance(lp.scalar.RademacherLaw(), HasDensity)
    assert not isinstance(lp.scalar.UniformLaw(), HasDensity)
