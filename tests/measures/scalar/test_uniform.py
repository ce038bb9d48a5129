"""Uniform tokens: the density integrated."""

import math

import pytest

import largeprompt as lp


@pytest.mark.parametrize("tilt", [-1.3, -1e-3, 0.0, 0.01, 0.7, 1.2])
def test_against_the_density(tilt, has_density):
    has_density(
        lp.Uniform(1), lambda x: 1 / (2 * math.sqrt(3)), (-math.sqrt(3), math.sqrt(3)), tilt
    )
