"""A law against numerical integration of its density."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import integrate


@pytest.fixture
def has_density():
    """Check cgf, mean, variance and fourth moment of a tilt in R against SciPy's integrals of the
    density between two ends.
    """

    def check(mu, density, ends, tilt):
        low, high = ends
        pieces = [
            low,
            *(point for point in (-1.0, 0.0, 1.0, 5.0, 30.0) if low < point < high),
            high,
        ]

        def moment(f):
            return sum(
                integrate.quad(
                    lambda x: f(x) * math.exp(tilt * x) * density(x),
                    a,
                    b,
                    epsabs=1e-13,
                    epsrel=1e-12,
                    limit=400,
                )[0]
                for a, b in itertools.pairwise(pieces)
            )

        mass = moment(lambda x: 1.0)
        mean = moment(lambda x: x) / mass
        variance = moment(lambda x: (x - mean) ** 2) / mass
        fourth = moment(lambda x: (x - 0.3) ** 4) / mass
        u = torch.tensor([tilt], dtype=torch.float64)
        np.testing.assert_allclose(mu.cgf(u), math.log(mass), rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(mu.tilted_mean(u), [mean], rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(mu.tilted_covariance(u), [[variance]], rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(mu.tilt(u).norm_moment4([0.3]), fourth, rtol=1e-8, atol=1e-9)

    return check
