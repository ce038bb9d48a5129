"""Which scalar laws have a density here, and that it is one."""

import numpy as np
import pytest
from scipy import integrate

import largeprompt as lp
from largeprompt.law.density import has_density, scalar_density

LAWS = [lp.scalar.StudentTLaw(3.0, 1.0), lp.scalar.LaplaceLaw(), lp.scalar.LogNormalLaw(0.5), lp.scalar.UniformLaw()]
LAWS += [lp.scalar.GeneralisedNormalLaw(shape) for shape in (0.4, 0.7, 1.5, 8.0)]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_tails_and_quantiles_are_those_of_the_density(law):
    known = scalar_density(law)
    assert has_density(law)
    for x in (0.3, 1.2, -0.4):
        whole = integrate.quad(known.density, x, float(known.upper_quantile(np.array(1e-13))), limit=400)[0]
        assert whole == pytest.approx(float(known.upper(np.array(x))), rel=1e-5)
        assert float(known.upper_quantile(known.upper(np.array(x)))) == pytest.approx(x, rel=1e-9)
        assert float(known.lower_quantile(known.lower(np.array(x)))) == pytest.approx(x, rel=1e-9)
        step = 1e-5
        slope = (known.lower(np.array(x + step)) - known.lower(np.array(x - step))) / (2 * step)
        assert float(slope) == pytest.approx(float(known.density(np.array(x))), rel=1e-7)


def test_other_laws_are_refused():
    assert not has_density(lp.scalar.RademacherLaw())
    with pytest.raises(lp.InvalidArgumentError, match="ScalarDensity of your own"):
        scalar_density(lp.scalar.RademacherLaw())
