"""C1, C2, N1: exact errors by hand, gaps near the Gaussian, and the settings."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from study_checks import SettingChecks

import largeprompt as lp
from largeprompt.studies.limit.laws import FAMILIES, LAWS
from largeprompt.studies.limit.study import STUDY


class TestSettings(SettingChecks):
    study = STUDY
    refused = (
        "dims=2,1",
        "drawn_lengths=100,10",
        "points=1",
        "longest=inf",
        "score_variance=4",
        "dim=1",
        "shapes=1.2",
        "skews=1",
        "separations=2",
        "terms=0",
    )


def test_exact_errors_are_those_of_a_single_token_and_of_two(data):
    """L = 1: E‖x - T‖² = d + ‖T‖². L = 2: all pairs of two of the 16 vectors of signs."""
    one, s = data.isel(length=0), np.sqrt(1.5 / 4)
    limits = {"Rademacher": 2 * np.tanh(s), "Gaussian": 2 * s}  # norms
    for law, norm in limits.items():
        np.testing.assert_allclose(one.exact.sel(law=law), 4 + norm**2, rtol=1e-12)
        np.testing.assert_allclose(one.affine.sel(law=law), 4 + 1.5, rtol=1e-12)
    signs = np.array(list(itertools.product([-1.0, 1.0], repeat=4)))
    weight = np.exp(s * signs.sum(-1))
    share = weight[:, None] / (weight[:, None] + weight)
    read = share[..., None] * signs[:, None] + (1 - share[..., None]) * signs
    two = ((read - np.tanh(s)) ** 2).sum(-1).mean()
    eye = torch.eye(4, dtype=torch.float64)
    attention = lp.SoftmaxAttention(eye, eye)
    found = lp.finite_prompt(attention, LAWS["Rademacher"](4), s * eye.sum(0), 2).mse
    assert float(found) == pytest.approx(two, rel=1e-12)


def test_gap_is_zero_for_gaussian_tokens_only(data):
    assert float(data.gap.sel(law="Gaussian")) < 1e-12
    assert np.all(data.gap.drop_sel(law="Gaussian") > 0.01)
    signs = data.family_gap.sel(family="Rademacher sum", member=0)
    np.testing.assert_allclose(signs, data.tilt - np.tanh(data.tilt), rtol=1e-10)


def test_slopes_near_the_gaussian():
    """By integrals over the density of the generalized normal law, at shapes on both sides of 2."""

    def tilted(shape, u):
        a = math.sqrt(math.gamma(1 / shape) / math.gamma(3 / shape))
        top, bottom = (
            quad(lambda x, k=k: x**k * math.exp(u * x - abs(x / a) ** shape), -20, 20, limit=200)[0]
            for k in (1, 0)
        )
        return top / bottom

    slope = (tilted(2.001, 1.0) - tilted(1.999, 1.0)) / 0.002
    assert FAMILIES["generalized normal"].slope(1.0) == pytest.approx(slope, rel=1e-5)


def test_members_have_unit_variance_and_their_own_parameter(data):
    for name, about in FAMILIES.items():
        mu = about.make(about.at(0.1))
        assert float(mu.covariance) == pytest.approx(1.0)
        assert bool(data.law_parameter.sel(family=name).notnull().any())
