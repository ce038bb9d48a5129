"""Paths of Markov chains (Q3): extrapolated constants, and cells that repeat."""

import dataclasses
import json
import math

import numpy as np
import pytest

from largeprompt.runs.study import quiet
from largeprompt.studies.ngram.config import NgramConfig
from largeprompt.studies.ngram.paths import convergence, extrapolation, summary


def test_cells_are_reproducible_and_independent(data):
    config = NgramConfig(**json.loads(data.attrs["config"]))
    again = convergence(config, 3, 1, quiet)
    np.testing.assert_array_equal(again.mse, data.mse.sel(case="3 symbols, order 1"))
    other = convergence(dataclasses.replace(config, seed=1), 3, 1, quiet)
    assert not np.allclose(other.mse, again.mse)
    assert not np.allclose(other.constant, again.constant)


def test_extrapolation_removes_the_second_order():
    lengths = (16, 64, 256, 1024)
    weights = extrapolation(lengths, 60)
    at = np.array(lengths, dtype=float)
    assert weights[0] == 0
    assert float(weights @ (3.0 + 5.0 / at)) == pytest.approx(3.0, rel=1e-12)
    assert np.isnan(extrapolation(lengths, 100)).all()
    paths = np.random.default_rng(0).normal(1.0, 0.1, 500)
    found = summary((3.0 / at + 5.0 / at**2)[:, None] * paths, lengths, np.asarray(60.0))
    assert float(found["extrapolated"]) == pytest.approx(3.0 * paths.mean(), rel=1e-12)
    assert float(found["extrapolated_standard_error"]) == pytest.approx(
        3.0 * paths.std(ddof=1) / math.sqrt(500), rel=1e-12
    )
