"""Laplace tokens: the density integrated, and a domain that ends at √2."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import largeprompt as lp


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.floats(math.sqrt(2), 1e6), st.booleans(), st.integers(1, 3), st.data())
def test_laplace_domain_is_guarded_everywhere(size, negative, d, data):
    mu = lp.Laplace(d)
    u = np.zeros(d)
    u[data.draw(st.integers(0, d - 1))] = -size if negative else size
    for function in (
        mu.cgf,
        mu.tilt,
        mu.tilted_mean,
        mu.tilted_covariance,
        mu.tilt(np.zeros(d)).cgf,
        mu.map(np.eye(d)).cgf,
    ):
        with pytest.raises(lp.TiltDomainError, match="no infinite-prompt limit"):
            function(u)


@pytest.mark.parametrize("tilt", [-1.3, -1e-3, 0.0, 0.01, 0.7, 1.2])
def test_against_the_density(tilt, has_density):
    has_density(
        lp.Laplace(1), lambda x: math.exp(-math.sqrt(2) * abs(x)) / math.sqrt(2), (-400, 400), tilt
    )
