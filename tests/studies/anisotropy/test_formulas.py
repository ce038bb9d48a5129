"""E3: spectra by name."""

import numpy as np
import pytest

from largeprompt.errors import InvalidArgumentError
from largeprompt.studies.anisotropy.formulas import eigenvalues


def test_spectra():
    for name, condition in (("condition 1e2", 100.0), ("power law 2", 25.0), ("spike 0.5", 4.0)):
        values = eigenvalues(name, 5)
        assert values.sum() == pytest.approx(5)
        assert values[0] / values[-1] == pytest.approx(condition)
        assert np.all(np.diff(values) <= 1e-12)


@pytest.mark.parametrize(
    "name", ["condition 0.5", "condition", "power law x", "spike 1", "toeplit 2", "spike nan"]
)
def test_unknown_spectra_are_refused(name):
    with pytest.raises(InvalidArgumentError, match="spectra"):
        eigenvalues(name, 4)
