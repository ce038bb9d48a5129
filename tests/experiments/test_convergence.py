"""The first study on a small config: its dataset, its prediction, and the same seed giving the same numbers."""

import json

import numpy as np
import pytest

from largeprompt.experiments.convergence import ConvergenceConfig, run

SMALL = ConvergenceConfig(dim=2, score_variance=0.5, lengths=(30, 300), tokens_per_length=300_000)


@pytest.fixture(scope="module")
def data():
    return run(SMALL)


def test_dataset_is_labelled_and_says_what_made_it(data):
    assert dict(data.sizes) == {"law": 3, "length": 2}
    assert json.loads(data.attrs["config"])["dim"] == 2
    assert not any(np.isnan(value).any() for value in data.data_vars.values())


def test_error_follows_the_prediction(data):
    """At L = 300 the first order is within 5 %, and the drawn error within 6.5 standard errors of that."""
    at = data.sel(length=300)
    assert np.all(abs(at.mse - at.first_order_mse) < 6.5 * at.mse_standard_error + 0.05 * at.first_order_mse)
    assert np.all(data.mse.sel(length=300) < data.mse.sel(length=30) / 5)


def test_gap_is_zero_for_gaussian_tokens_only(data):
    assert float(data.gap.sel(law="Gaussian")) < 1e-12
    assert np.all(data.gap.sel(law=["Rademacher", "two clusters"]) > 0.01)


def test_same_seed_same_numbers(data):
    assert run(SMALL).identical(data)
