"""Student tokens: moments that exist, those that do not, and the Gaussian at the end
of the family.
"""

import math

import pytest
import torch
from scipy import stats
from torch.testing import assert_close

import largeprompt as lp

F = torch.float64


def test_student_cumulants_through_an_affine_map():
    assert_close(
        lp.StudentT(1, df=5.0).map([[1.0]]).norm_moment4([0.0]), torch.tensor(9.0, dtype=F)
    )
    two, zero = torch.tensor([[2.0]], dtype=F), torch.zeros(1, dtype=F)
    assert_close(lp.StudentT(1, df=5.0)._directional_cumulants(two, zero)[1], 2 * two[0])
    with pytest.raises(lp.NoMomentError):
        lp.StudentT(1, df=3.0).map([[1.0]]).norm_moment4([0.0])


@pytest.mark.parametrize("tilt", [-1.3, -1e-3, 0.0, 0.01, 0.7, 1.2])
def test_against_the_density(tilt, has_density):
    has_density(lp.StudentT(1, math.inf), stats.norm.pdf, (-30, 30), tilt)
