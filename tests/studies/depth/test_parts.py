"""The depth study (Q2): bands against drawn prompts, and slopes."""

import json
import math

import numpy as np
import pytest

from largeprompt.runs.study import quiet
from largeprompt.studies.depth.config import Case
from largeprompt.studies.depth.parts import slopes, stack_errors
from largeprompt.studies.depth.rules import band_ratio, tame
from largeprompt.studies.depth.study import STUDY


def test_cells_and_same_numbers_again(data):
    config = STUDY.config(**json.loads(data.attrs["config"]))
    assert len(STUDY.cells(config)) == 6 + 1 + 4 + 1
    case = Case("isotropic", "shared", "1/√N", 0.2)
    again = stack_errors(config, case, quiet)
    for name in ("band", "error", "predicted_edge"):
        one = data[name].sel(case=str(case))
        np.testing.assert_array_equal(
            one.dropna("length", how="all") if "length" in one.dims else one,
            again[name].sel(case=str(case)),
        )


def test_measured_errors_follow_the_band(data):
    ratio, error = band_ratio(data)
    assert ratio.sizes["case"] >= 2
    assert np.all(abs(ratio - 1) < 0.1 + 7 * error)
    raw = (
        tame(data).raw.sel(quantity="token", length=256)
        * 256
        / tame(data).band.sel(quantity="token")
    )
    assert 0.4 < float(raw.median()) < 2  # without control variates


def test_slopes_of_a_power_law():
    lengths = np.array([10.0, 100.0, 1000.0])
    values = 3 * lengths**-0.7
    middle, low, high = slopes(lengths, values, 0.01 * values)
    assert middle == pytest.approx(-0.7)
    assert high - middle == pytest.approx(middle - low)
    assert high - middle == pytest.approx(1.96 * 0.01 * math.sqrt(2) / math.log(100), rel=1e-9)
