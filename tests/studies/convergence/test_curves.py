"""The curves against definitions and closed forms; other laws; the settings."""

import math
from typing import get_args

import numpy as np
import pytest
import torch
from study_checks import SettingChecks

import largeprompt as lp
from largeprompt.runs.settings import configured
from largeprompt.studies.convergence.config import Spectrum, spectrum
from largeprompt.studies.convergence.curves import fit_paper_form, paper_form
from largeprompt.studies.convergence.study import STUDY

EYE = torch.eye(4, dtype=torch.float64)


class TestSettings(SettingChecks):
    study = STUDY
    refused = (
        "dim=0",
        "law=laplace",
        "score_variances=2,2",
        "drawn_lengths=10,1",
        "replicas=1",
        "fitted=2,2",
        "longest=inf",
        "spectra=condition 0",
        "short_longest=20",
        "reference_length=1",
        "seed=-1",
    )


def test_curves_are_those_of_the_operators_own_jacobians(data):
    """Empirical prompts, derivatives by attention.jacobian_u and jacobian_v."""
    attention, mu = lp.SoftmaxAttention(EYE, EYE), lp.Gaussian(0 * EYE[0], EYE)
    z = 2.0**0.5 * EYE[0]
    tokens = mu.sample(4000 * 10, torch.Generator().manual_seed(5)).reshape(4000, 10, 4)
    part = data.sel(score_variance=2.0)
    for name in ("jacobian_u", "jacobian_v"):
        derivative = getattr(attention, name)
        squared = (
            (derivative(lp.Empirical(tokens), z) - derivative(mu, z)).square().sum((-3, -2, -1))
        )
        exact = float(part.exact.sel(quantity=name, length=10))
        assert abs(float(squared.mean()) - exact) < 6.5 * float(squared.std()) / 4000**0.5


def test_one_token_in_closed_form(data):
    """T_1 = V z_1: its error is tr Γ + ‖Γu‖² for isotropic tokens and for every spectrum."""
    short = data.short_exact.sel(short_length=1)
    np.testing.assert_allclose(short, data.short_dim + data.short_variance, rtol=1e-12)
    one = data.spectrum_exact.sel(spectrum_length=1)
    np.testing.assert_allclose(
        one, (data.trace + data.spectrum_size).broadcast_like(one), rtol=1e-9
    )


def test_paper_form_is_fitted():
    length = np.array([10, 100, 1000])
    made = paper_form(length, 2.0, 0.7, 1.3, 2)
    assert fit_paper_form(length, made, 2.0, 2) == pytest.approx((0.7, 1.3))


def test_spectra_have_their_trace_and_condition():
    for name in get_args(Spectrum):
        values = spectrum(name, 20)
        assert values.sum() == pytest.approx(20)
        assert values[0] == values.max()
        if name.startswith("condition"):
            assert values.max() / values.min() == pytest.approx(float(name.split()[1]))
    assert spectrum("spike 0.5", 20)[0] == pytest.approx(10)


def test_length_scaling_keeps_effective_tokens(data):
    """E Y at 8 times the length and the factor's variance is E Y at the reference length."""
    q = float(data.scaled_variance[1])
    factor = float(data.factor.sel(growth=8)[1])
    sigma = torch.tensor([math.sqrt(q)], dtype=torch.float64)
    before = lp.law.collision_moments(8192, sigma).collision
    after = lp.law.collision_moments(8 * 8192, factor * sigma).collision
    torch.testing.assert_close(after, before, rtol=1e-9, atol=0)


def test_other_laws_are_a_setting():
    """Signs have other errors and certificates, and drawn prompts agree with them."""
    config = configured(
        STUDY, ["law=rademacher", "score_variances=1", "points=5", "derivative_lengths=10"]
    )
    part = STUDY.parts[0]
    data = part.join(config, {1.0: part.compute(config, 1.0, progress=print)})
    z = [1.0, 0.0, 0.0, 0.0]
    law = lp.finite_prompt(lp.SoftmaxAttention(EYE, EYE), lp.Rademacher(4), z, 100)
    found = data.exact.sel(quantity="output", length=100, score_variance=1.0)
    assert float(found) == pytest.approx(float(law.mse), rel=1e-12)
    drawn = abs(data.drawn - data.exact_at_drawn) / data.drawn_error
    assert int(drawn.notnull().sum()) == 2
    assert float(drawn.max()) < 5
    assert bool((data.certified >= data.exact * (1 - 1e-9)).all())
