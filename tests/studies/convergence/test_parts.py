"""C3, C4, E1: the exact curves against direct calls, the fits and the settings."""

import numpy as np
import pytest
import torch
from study_checks import SettingChecks, same_in_any_order

import largeprompt as lp
from largeprompt.studies.convergence.study import STUDY


def test_curves_are_those_of_the_operators_own_jacobians(data):
    """Empirical prompts, derivatives by attention.jacobian_u and jacobian_v: within 6.5 standard
    errors of the exact curves.
    """
    data = data.sel(score_variance=2.0)
    eye = torch.eye(4, dtype=torch.float64)
    attention, mu = (
        lp.SoftmaxAttention(eye, eye),
        lp.Gaussian(torch.zeros(4, dtype=torch.float64), eye),
    )
    z = torch.tensor([2.0**0.5, 0, 0, 0], dtype=torch.float64)
    prompts = lp.Empirical(
        mu.sample(4000 * 30, torch.Generator().manual_seed(5)).reshape(4000, 30, 4)
    )
    for name, derivative in (
        ("jacobian_u", attention.jacobian_u),
        ("jacobian_v", attention.jacobian_v),
    ):
        squared = (derivative(prompts, z) - derivative(mu, z)).square().sum((-3, -2, -1))
        expected = float(data.exact_at_samples.sel(quantity=name, sampled_length=30))
        assert abs(float(squared.mean()) - expected) < 6.5 * float(squared.std()) / 4000**0.5


def test_fits_are_those_of_the_exact_law_and_drawn_ones_are_near(data):
    for name in ("c1", "c2", "slope"):
        low, middle, high = (data[name].sel(interval=each) for each in ("lower", "exact", "upper"))
        # 7 standard errors
        assert bool((abs(middle - (low + high) / 2) < 3.5 * (high - low) / 2).all())
    at = data.exact_at_samples.sel(
        sampled_length=slice(10, 300), score_variance=2.0, quantity="jacobian_u"
    )
    slope = np.polyfit(np.log(at.sampled_length), np.log(at), 1)[0]
    assert float(
        data.slope.sel(score_variance=2.0, quantity="jacobian_u", interval="exact")
    ) == pytest.approx(slope, rel=1e-12)


class TestSettings(SettingChecks):
    study = STUDY
    refused = (
        "dim=0",
        "score_variances=-1",
        "score_variances=2,2",
        "sampled_lengths=-5",
        "sampled_lengths=10,1",
        "replicas=1",
        "fitted=2000,3000",
        "fitted=1,1000",
        "longest=inf",
        "seed=-1",
    )


def test_same_numbers_in_any_order(data):
    same_in_any_order(STUDY, data)
