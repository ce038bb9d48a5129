"""N3: drawn prompts share their random numbers; where a law breaks is where the ratio says."""

import dataclasses
import math

import numpy as np
import pytest
from study_checks import is_labeled

from largeprompt.display.labels import label
from largeprompt.measures import StudentT
from largeprompt.runs.study import quiet
from largeprompt.studies.heavytail.exact import squared_weights
from largeprompt.studies.heavytail.parts import breakdown, crossing, first_length, law_with_tilts
from largeprompt.studies.heavytail.study import STUDY

SMALL = dataclasses.replace(
    STUDY.quick,
    lengths=(10, 100),
    tokens=20_000,
    most_replicas=200,
    decades=3,
    per_decade=1,
    finest=4,
)


def test_drawn_prompts_are_near_the_exact_law_whatever_else_is_drawn():
    found = law_with_tilts(SMALL, "df = 5", quiet)
    spread = np.sqrt(found.variance / found.replicas)
    assert float((abs(found.sampled - found.exact) / spread).max()) < 6
    np.testing.assert_allclose(found.curve[:, :2], found.exact)
    fewer = law_with_tilts(dataclasses.replace(SMALL, dfs=(math.inf, 5.0)), "df = 5", quiet)
    assert fewer.identical(found)
    is_labeled(STUDY, label(found, STUDY.variables))


def test_breakdown_and_lasting_length_are_exact_and_inverse():
    found = breakdown(SMALL, 1.0, quiet).isel(breakdown_tilt=0)

    def ratio(df, length):
        heavy, normal = (squared_weights(StudentT(1, x).law, 1.0, [length]) for x in (df, math.inf))
        return float((heavy / normal)[0])

    for length in (100, 1000):
        broken = float(found.breakdown.sel(grid=length))
        assert ratio(broken, length) == pytest.approx(2.0, abs=1e-4)
    near = found.lasting.isel(lasting_df=[0, 1, 2])
    for df, length in zip(near.lasting_df.values, near.values, strict=True):
        assert ratio(float(df), int(length)) >= 2.0 > ratio(float(df), int(length) - 1)
    assert np.isinf(found.lasting[-1])  # beyond the lengths of this setting


def test_crossing_finds_the_level():
    df = np.geomspace(2, 100, 30)
    assert crossing(df, 1 + 30 / df**1.5) == pytest.approx(30 ** (1 / 1.5), rel=2e-3)
    assert math.isnan(crossing(df, np.ones(30)))
    assert math.isinf(crossing(df, np.full(30, 3.0)))


def test_first_length_is_the_first_that_passes():
    lengths = [10, 100, 1000, 10**6]
    assert first_length(lambda at: np.array(at) / 150, lengths) == 300
    assert first_length(lambda at: np.array(at) / 1e5, lengths) == pytest.approx(2e5, rel=1e-3)
    assert first_length(lambda at: np.zeros(len(at)), lengths) == math.inf
