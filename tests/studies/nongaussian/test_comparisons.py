"""N1: probabilities of gamma laws that the rules compare with."""

import numpy as np
import xarray as xr

from largeprompt.studies.nongaussian.comparisons import least_chance


def test_gamma_probabilities_are_uniform_for_squared_normals():
    random = np.random.default_rng(0)
    means = xr.DataArray((random.standard_normal((300, 300)) ** 2).mean(1))
    one = xr.ones_like(means)
    lowest = [least_chance(means[i : i + 1], one[:1], 2 * one[:1], 300) for i in range(len(means))]
    assert 0.4 < np.mean(np.array(lowest) < 0.5) < 0.6
    assert least_chance(1.8 * one[:1], one[:1], 2 * one[:1], 300) < 1e-12
