"""C3: local exponents against known ones, the radial rule, and the settings."""

import numpy as np
import pytest
import xarray as xr
from study_checks import SettingChecks

from largeprompt.studies.exponent.formulas import sharp_exponent, without_logarithm
from largeprompt.studies.exponent.parts import ExponentConfig, average_over_queries
from largeprompt.studies.exponent.rules import decided
from largeprompt.studies.exponent.study import STUDY


def test_exponents_tend_to_the_prediction_in_one_dimension():
    """Local slopes of the exact law for d = 1, L from 10^2 to 10^14, computed once with a finer
    radial rule.
    """
    config = ExponentConfig(squares=(0.75, 1.0, 2.0, 4.0), dims=(1,), decades=(2, 3, 13, 14))
    data = STUDY.run(config)
    found = data.exponent.sel(dim=1)
    np.testing.assert_allclose(found.sel(decade_end=3), [0.713, 0.638, 0.479, 0.341], atol=0.03)
    np.testing.assert_allclose(found.sel(decade_end=14), [0.740, 0.603, 0.365, 0.232], atol=0.003)
    np.testing.assert_allclose(data.sharp, [0.758, 0.618, 0.366, 0.207], atol=5e-4)
    assert decided(data).values.tolist() == [[1, 1, 1, 0]]
    assert sharp_exponent(0.4) == 1.0


def test_radial_logarithm_brings_dimensions_together(data):
    one, four = (without_logarithm(data).sel(dim=d, square=[1.0, 2.0]) for d in (1, 4))
    raw = data.exponent.isel(decade_end=-1).sel(square=[1.0, 2.0])
    assert np.all(abs(one - four) < 0.4 * abs(raw.sel(dim=1) - raw.sel(dim=4)))


def test_radial_rule_is_converged():
    """Spectral in one dimension, of fourth order in the step where the density starts like r³."""
    for dim, tolerance in ((1, 1e-9), (4, 1e-6)):
        coarse, fine = (average_over_queries(1000, 1.0, dim, step, 9.0) for step in (0.1, 0.05))
        assert coarse == pytest.approx(fine, rel=tolerance)


def dims_asked(data):
    """The dimensions that the verdicts on the exponent name, and what they say."""
    found = [verdict for verdict in STUDY.judge(data) if "g(H) rather" in verdict.asked]
    return {verdict.asked[verdict.asked.rindex("(") :]: verdict for verdict in found}


def test_every_dimension_is_in_a_verdict(data):
    """One dimension by itself, all others together, however many; an H² is listed with the
    dimensions that vote for it.
    """
    assert list(dims_asked(data)) == ["(d = 1)", "(d = 4)"]
    assert list(dims_asked(data.sel(dim=[4]))) == ["(d = 4)"]
    several = xr.concat(
        [data, data.sel(dim=[4]).assign_coords(dim=[16])], "dim", data_vars="minimal"
    )
    # for 1/(1+H²) there
    several.exponent.loc[{"dim": 16}] = several.bohbot - 15 / (19 * np.log(10)) * (
        several.square >= 0.5
    )
    found = dims_asked(several)
    assert list(found) == ["(d = 1)", "(d = 4, 16)"]
    assert found["(d = 1)"].outcome == dims_asked(data)["(d = 1)"].outcome
    assert found["(d = 4, 16)"].outcome == "undecided"  # the dimensions disagree
    assert "for 1/(1+H²): 0.3, 1, 2 (d = 16);" in found["(d = 4, 16)"].measured


class TestSettings(SettingChecks):
    study = STUDY
    refused = (
        "dims=0",
        "dims=1,1",
        "squares=-1",
        "squares=2,1",
        "decades=3",
        "decades=-5,2",
        "decades=5,2",
        "step=0",
    )
