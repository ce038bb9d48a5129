"""N3: where a law breaks, found by interpolation and by bisection, against the exact ratio."""

import math

import numpy as np
import pytest

from largeprompt.measures import StudentT, StudentTLaw
from largeprompt.studies.heavytail.exact import output
from largeprompt.studies.heavytail.formulas import crossing, first_length, jackknife_error


def test_crossing_finds_the_level():
    df = np.geomspace(2, 100, 30)
    assert crossing(df, 1 + 30 / df**1.5) == pytest.approx(30 ** (1 / 1.5), rel=2e-3)
    assert math.isnan(crossing(df, np.ones(30)))
    assert math.isinf(crossing(df, np.full(30, 3.0)))


def test_breakdown_and_lasting_length_are_exact_and_inverse(data):
    data = data.sel(breakdown_tilt=1.0)
    gaussian = StudentTLaw(math.inf, 1.0)

    def ratio(df, length):
        return float(
            (
                output(StudentT(1, df).law, 1.0, [length]).collision
                / output(gaussian, 1.0, [length]).collision
            )[0]
        )

    for length in (100, 10**6):
        assert ratio(float(data.breakdown.sel(grid=length)), length) == pytest.approx(2.0, abs=1e-4)
    for df, length in zip(data.lasting_df.values, data.lasting.values, strict=True):
        assert ratio(float(df), int(length)) == pytest.approx(
            2.0, abs=0.02 if length > 100 else 0.1
        )
    assert (np.diff(data.lasting.values) > 0).all()


def test_first_length_is_the_first_that_passes():
    lengths = [10, 100, 1000, 10**6]
    assert first_length(lambda at: np.array(at) / 150, lengths) == 300
    assert first_length(lambda at: np.array(at) / 1e5, lengths) == pytest.approx(2e5, rel=1e-3)
    assert first_length(lambda at: np.zeros(len(at)), lengths) == math.inf


def test_jackknife_of_a_mean_is_its_standard_error():
    values = np.random.default_rng(0).normal(size=50)
    without = np.array([np.delete(values, i).mean() for i in range(50)])
    assert jackknife_error(without) == pytest.approx(values.std(ddof=1) / math.sqrt(50))
    assert math.isnan(jackknife_error(np.array([1.0, math.inf])))
