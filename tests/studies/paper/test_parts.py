"""P1: the authors' two settings, flows that descend to no less than the Bayes risk, and bad
settings.
"""

import dataclasses

import numpy as np
from study_checks import stores

from largeprompt.studies.paper.config import SETTINGS, PaperConfig
from largeprompt.studies.paper.parts import task
from largeprompt.studies.paper.rules import sgd_gap
from largeprompt.studies.paper.study import STUDY


def test_dataset(data, tmp_path):
    stores(STUDY, data, tmp_path)
    assert data.risk.dims == ("setting", "attention", "length", "time")
    assert data.sgd_risk.dims == ("attention", "sgd_length", "sgd_seed", "sgd_time")
    assert bool((data.risk >= data.bayes_risk - 1e-9).all())
    assert bool((data.risk.diff("time") <= 1e-9).all())  # a flow descends
    assert float(np.abs(sgd_gap(data)).max()) < 0.05


def test_released_setting_multiplies_twice():
    config = PaperConfig()
    intended, released = (task(config, setting) for setting in SETTINGS)
    factor = np.linalg.cholesky(intended.covariance.numpy())
    np.testing.assert_allclose(released.covariance, factor @ factor @ factor.T @ factor.T)
    np.testing.assert_allclose(released.query_covariance, np.eye(5))
    np.testing.assert_allclose(intended.query_covariance, intended.covariance)


def test_sgd_may_be_left_out():
    config = dataclasses.replace(STUDY.quick, sgd_lengths=())
    assert not any("SGD" in name for name in STUDY.cells(config))
