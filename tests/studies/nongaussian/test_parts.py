"""Tokens that are not Gaussian (N1): predictions in closed form, storage, and the families."""

import itertools
import math

import numpy as np
import pytest
import torch
import xarray as xr

import largeprompt as lp
from largeprompt.runs.study import quiet
from largeprompt.studies.nongaussian.config import NonGaussianConfig
from largeprompt.studies.nongaussian.parts import (
    FAMILIES,
    _error_moments,
    family,
    generalized_normal_slope,
)
from largeprompt.studies.nongaussian.rules import interpolated_crossing
from largeprompt.studies.nongaussian.study import STUDY

F = torch.float64


def test_it_is_stored_and_read_back(data, judged, tmp_path):
    assert all(value.dtype.kind in "bifU" for value in data.variables.values())
    data.to_netcdf(tmp_path / "data.nc", engine="h5netcdf")
    again = xr.load_dataset(tmp_path / "data.nc", engine="h5netcdf")
    assert STUDY.judge(again) == judged


def test_a_cell_is_the_same_again(data):
    small = NonGaussianConfig(
        tilts=(0.5, 1.0), replicas=20, lengths=(10,), separations=(0.6,), scaling_points=2
    )
    first, second = (family(small, "mixture", quiet) for _ in range(2))
    assert first.identical(second)


def test_predictions_are_the_closed_forms(data):
    signs = data.sel(family="Rademacher sum")
    for member, k in enumerate((1, 8)):
        gap = math.sqrt(k) * np.tanh(signs.tilt / math.sqrt(k)) - signs.tilt
        np.testing.assert_allclose(signs.gap[member], gap, rtol=1e-12)
        np.testing.assert_allclose(signs.fourth[member], -(signs.tilt**3) / (3 * k), rtol=1e-10)
        assert (
            float(signs.radius[member]) == pytest.approx(math.pi * math.sqrt(k) / 2, rel=1e-6)
            or k > 4
        )
    mixture = data.sel(family="mixture").isel(member=0)
    m = 0.6
    np.testing.assert_allclose(
        mixture.gap, m * np.tanh(m * mixture.tilt) - m * m * mixture.tilt, rtol=1e-12
    )
    identity = (
        data.mse
        + 2 * data.gap * (data.affine_mse - data.mse - data.gap**2) / (2 * data.gap)
        + data.gap**2
    )
    np.testing.assert_allclose(
        identity.sel(family="skew"), data.affine_mse.sel(family="skew"), rtol=1e-9
    )


def test_crossing_is_the_least_length_whose_exact_error_is_below_the_gap(data):
    """Signs: 8, by the library's search for lengths; the Gaussian law has no gap
    and never crosses.
    """
    one = data.sel(family="Rademacher sum", tilt=1.0).isel(member=0)
    attention = lp.SoftmaxAttention([[1.0]], [[1.0]])
    assert (
        float(one.crossing)
        == lp.prompt_length(attention, lp.Rademacher(1), [1.0], abs(float(one.gap)))
        == 8
    )
    assert math.isinf(float(data.crossing.sel(family="Gaussian", tilt=1.0)[0]))
    on_grid = interpolated_crossing(data, "mse").sel(family="generalised normal", tilt=1.0)
    np.testing.assert_allclose(
        on_grid[0], data.crossing.sel(family="generalised normal", tilt=1.0)[0], rtol=0.2
    )


def test_the_rule_of_a_generalized_normal_law_stands_for_it(data):
    """The study reads its exact errors off the atoms of a rule: here by the cgf
    at complex tilts.
    """
    one = data.sel(family="generalised normal", tilt=0.5).isel(member=0)
    law = lp.finite_prompt(
        lp.SoftmaxAttention([[1.0]], [[1.0]]),
        FAMILIES["generalised normal"].make(8.0),
        [0.5],
        [10, 100, 1000],
    )
    np.testing.assert_allclose(one.mse, law.mse, rtol=1e-11)
    np.testing.assert_allclose(data.route_difference.fillna(0), 0, atol=1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_gaps_near_the_gaussian_are_predicted(name):
    family, u = FAMILIES[name], 0.8
    x = 1e-4 ** (1 / family.power)
    mu = family.make(family.at(x))
    gap = float(mu.tilted_mean(torch.tensor([u], dtype=F))) - u
    assert gap == pytest.approx(family.slope(u) * x**family.power, rel=0.03)


def test_generalized_normal_slope_has_the_fourth_cumulant():
    assert generalized_normal_slope(0.05) == pytest.approx(-(0.05**3) / 6, rel=1e-3)


RULE = lp.Discrete([[-1.2], [0.3], [0.9]], [0.2, 0.5, 0.3])


@pytest.mark.parametrize("length", [2, 4])
def test_four_moments_are_those_of_all_prompts(length):
    z = torch.tensor([[0.7], [-2.0]], dtype=F)
    limits = RULE.tilted_mean(z)[:, 0].numpy()
    found = _error_moments(RULE, z, limits, [length])[:, 0]
    for column, u in enumerate(z):
        expected = torch.zeros(4, dtype=F)
        for index in itertools.product(range(3), repeat=length):
            tokens, chance = RULE.atoms[list(index)], RULE.weights[list(index)].prod()
            error = torch.softmax(tokens @ u, 0) @ tokens[:, 0] - limits[column]
            expected += chance * error ** torch.arange(1, 5)
        np.testing.assert_allclose(found[:, column], expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("length", [10**10, 10**12, 10**15])
def test_moments_of_very_long_prompts(length):
    """The second is that of the exact law; the error is Gaussian in the limit: the fourth is three
    times its square.
    """
    z, one = torch.tensor([[0.7]], dtype=F), lp.SoftmaxAttention([[1.0]], [[1.0]])
    _, second, _, fourth = _error_moments(RULE, z, RULE.tilted_mean(z)[:, 0].numpy(), [length])[
        :, 0, 0
    ]
    assert second == pytest.approx(float(lp.finite_prompt(one, RULE, z[0], length).mse), rel=1e-9)
    assert fourth / second**2 == pytest.approx(3.0, rel=1e-6)
