"""C1, C2: the drawn part, the affine map and the settings."""

import numpy as np
import pytest
from study_checks import refuses, same_in_any_order, stores

from largeprompt.studies.limit.parts import LimitConfig
from largeprompt.studies.limit.study import STUDY


def test_sampled_error_follows_the_prediction(data):
    """At L = 3000 the first order is within 2 %, and the drawn error within 6.5 standard errors of that."""
    at = data.sel(length=3000)
    assert np.all(abs(at.mse - at.first_order_mse) < 6.5 * at.mse_standard_error + 0.02 * at.first_order_mse)


def test_gap_is_zero_for_gaussian_tokens_only(data):
    gap = data.gap
    assert float(gap.sel(law="Gaussian")) < 1e-12
    assert np.all(gap.sel(law=["Rademacher", "two clusters"]) > 0.01)


def test_affine_map_misses_mixtures_and_not_gaussians(data):
    error = data.affine_error
    assert float(error.sel(kind="regular").max()) < 1e-12
    assert float(error.sel(kind="mixture").min()) > 0.01


def test_dataset_is_storable(data, tmp_path):
    stores(STUDY, data, tmp_path)
    assert isinstance(STUDY.quick, LimitConfig)
    assert STUDY.quick != LimitConfig()


@pytest.mark.parametrize(
    "word",
    [
        "dims=0",
        "dims=2,1",
        "lengths=-5",
        "lengths=10",
        "lengths=100,10",
        "score_variance=-1",
        "gap_dim=1",
        "gap_score_variances=9",
        "nodes=3",
        "seed=-1",
    ],
)
def test_bad_settings_are_refused(word):
    refuses(STUDY, word)


def test_same_numbers_in_any_order(data):
    same_in_any_order(STUDY, data)
