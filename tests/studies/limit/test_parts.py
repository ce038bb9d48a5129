"""C1, C2: exact errors, the affine map and the settings."""

import itertools

import numpy as np
import pytest
import torch
from study_checks import SettingChecks, same_in_any_order

import largeprompt as lp
from largeprompt.studies.limit.parts import LAWS
from largeprompt.studies.limit.study import STUDY


def test_exact_errors_are_those_of_a_single_token_and_of_two(data):
    """L = 1: E‖x - T‖² = d + ‖T‖². L = 2: all pairs of two of the 16 vectors of signs, weighted by
    hand.
    """
    one = data.exact.isel(length=0)
    s = np.sqrt(1.5 / 4)
    signs = np.array(list(itertools.product([-1.0, 1.0], repeat=4)))
    limits = {"Rademacher": 2 * np.tanh(s), "Gaussian": 2 * s}  # norms
    for law, norm in limits.items():
        np.testing.assert_allclose(one.sel(law=law, quantity="limit"), 4 + norm**2, rtol=1e-12)
        np.testing.assert_allclose(one.sel(law=law, quantity="affine"), 4 + 1.5, rtol=1e-12)
    weight = np.exp(s * signs.sum(-1))
    share = weight[:, None] / (weight[:, None] + weight)
    read = share[..., None] * signs[:, None] + (1 - share[..., None]) * signs
    two = ((read - np.tanh(s)) ** 2).sum(-1).mean()
    eye = torch.eye(4, dtype=torch.float64)
    found = lp.finite_prompt(
        lp.SoftmaxAttention(eye, eye), LAWS["Rademacher"](4), s * eye.sum(0), 2
    ).mse
    assert float(found) == pytest.approx(two, rel=1e-12)


def test_gap_is_zero_for_gaussian_tokens_only(data):
    gap = data.gap
    assert float(gap.sel(law="Gaussian")) < 1e-12
    assert np.all(gap.drop_sel(law="Gaussian") > 0.01)


def test_affine_map_misses_mixtures_and_not_gaussians(data):
    error = data.affine_error
    assert float(error.sel(kind="regular").max()) < 1e-12
    assert float(error.sel(kind="mixture").min()) > 0.01


class TestSettings(SettingChecks):
    study = STUDY
    refused = (
        "dims=0",
        "dims=2,1",
        "drawn_lengths=-5",
        "drawn_lengths=100,10",
        "points=1",
        "longest=inf",
        "replicas=1",
        "score_variance=-1",
        "gap_dim=1",
        "gap_score_variances=9",
        "nodes=3",
        "seed=-1",
    )


def test_same_numbers_in_any_order(data):
    same_in_any_order(STUDY, data)
