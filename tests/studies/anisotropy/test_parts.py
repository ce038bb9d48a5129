"""E3: averages over queries and needed lengths against other routes, and the settings."""

import math

import numpy as np
import pytest
import torch
from study_checks import SettingChecks, same_in_any_order

import largeprompt as lp
from largeprompt.studies.anisotropy.formulas import eigenvalues
from largeprompt.studies.anisotropy.parts import spiked_average
from largeprompt.studies.anisotropy.study import STUDY


def test_spiked_average_against_the_rule_for_queries():
    """The same average by lp.query_average, another rule."""
    dim, share, q = 4, 0.5, 0.8
    spectrum = torch.from_numpy(eigenvalues(f"spike {share}", dim))
    eye, zero = torch.eye(dim, dtype=torch.float64), torch.zeros(dim, dtype=torch.float64)
    queries = lp.Gaussian(zero, eye * q / dim)
    mu = lp.Gaussian(zero, torch.diag(spectrum))
    found = lp.query_average(lp.SoftmaxAttention(eye, eye), mu, queries, [10, 1000])
    exact = spiked_average(share, dim, q, (10.0, 1000.0))
    np.testing.assert_allclose(exact, found.mse.numpy(), rtol=1e-4)
    finer = spiked_average(share, dim, q, (10.0, 1000.0), step=0.05)
    np.testing.assert_allclose(exact, finer, rtol=1e-4)


def test_needed_length_is_the_planners(data):
    values = torch.from_numpy(eigenvalues("condition 1e4", 6))
    eye, zero = torch.eye(6, dtype=torch.float64), torch.zeros(6, dtype=torch.float64)
    z = eye[0] * math.sqrt(2.0 / float(values[0]))
    attention, mu = lp.SoftmaxAttention(eye, eye), lp.Gaussian(zero, torch.diag(values))
    planned = lp.prompt_length(attention, mu, z, 0.1, relative=True)
    found = float(
        data.needed_length.sel(spectrum="condition 1e4", direction="strong", score_variance=2.0)
    )
    # interpolated between lengths a factor of ten apart
    assert found == pytest.approx(int(planned), rel=0.1)


class TestSettings(SettingChecks):
    study = STUDY
    refused = (
        "dim=0",
        "dim=1",
        "spectra=toeplit",
        "spectra=condition 1,condition 1",
        "score_variances=-1",
        "score_variances=2,1",
        "sampled_lengths=-5",
        "replicas=1",
        "spikes=1",
        "decades=3",
        "fitted=2,3",
        "seed=-1",
    )


def test_same_numbers_in_any_order(data):
    same_in_any_order(STUDY, data)
