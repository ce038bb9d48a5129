"""The studies of finite prompts: what they predict, and that it holds."""

import math

import numpy as np
import pytest
import torch

import largeprompt as lp
from largeprompt.experiments import exponent, finite_error, phase_diagram, sharpness


def test_finite_error_curves_are_in_order():
    data = finite_error.run(finite_error.FiniteErrorConfig(points=21, sampled_lengths=(3, 30, 300), replicas=2000))
    assert np.all(data.certified >= data.exact * (1 - 1e-12))
    eye = torch.eye(4, dtype=torch.float64)
    mu, attention = lp.Gaussian(torch.zeros(4, dtype=torch.float64), eye), lp.SoftmaxAttention(eye, eye)
    for variance in (0.5, 2.0, 6.0):
        exact = lp.finite_prompt(attention, mu, [variance**0.5, 0.0, 0.0, 0.0], [3, 30, 300]).mse.numpy()
        at = data.sel(score_variance=variance)
        assert np.all(abs(at.sampled - exact) < 6.5 * at.sampled_standard_error)


def test_paper_form_is_recovered_from_itself():
    length = np.array([10.0, 100.0, 1000.0])
    c1, c2 = finite_error.fit_paper_form(length, 0.7 * 2.0**3 * np.log(length) / length ** (1.3 / 2.0), 2.0)
    assert (c1, c2) == (pytest.approx(0.7), pytest.approx(1.3))


def test_exponents_tend_to_the_prediction_in_one_dimension():
    """MATHS section 3 gives these local slopes for d = 1, L from 10^2 to 10^14."""
    data = exponent.run(exponent.ExponentConfig(squares=(0.75, 1.0, 2.0, 4.0), dims=(1,), decades=(2, 3, 13, 14)))
    found = data.exponent.sel(dim=1)
    np.testing.assert_allclose(found.sel(decade_end=3), [0.713, 0.638, 0.479, 0.341], atol=0.03)
    np.testing.assert_allclose(found.sel(decade_end=14), [0.740, 0.603, 0.365, 0.232], atol=0.003)
    np.testing.assert_allclose(data.sharp, [0.758, 0.618, 0.366, 0.207], atol=5e-4)
    # nearer to g(H) than to 1/(1 + H²) wherever the two differ by more than logarithms can
    closer = abs(found.sel(decade_end=14) - data.sharp) < abs(found.sel(decade_end=14) - data.bohbot)
    assert bool(closer.sel(square=[0.75, 1.0, 2.0]).all())
    assert exponent.sharp_exponent(0.4) == 1.0


def test_radial_rule_is_converged():
    """Spectral in one dimension, of fourth order in the step where the density starts like r³."""
    for dim, tolerance in ((1, 1e-9), (4, 1e-6)):
        coarse, fine = (exponent.average_over_queries(1000, 1.0, dim, step, 9.0) for step in (0.1, 0.05))
        assert coarse == pytest.approx(fine, rel=tolerance)


def test_phase_diagram_shows_the_regimes():
    data = phase_diagram.run(phase_diagram.PhaseDiagramConfig(variances=5, lengths=7))
    tokens = data.effective_tokens
    np.testing.assert_allclose(tokens.sel(score_variance=0.0), data.length)
    frozen = tokens.sel(score_variance=40.0, length=100.0, method="nearest")
    assert 1 < float(frozen) < 2
    # linear regime: 1/E Y = L e^{-σ²}(1 + O(ρ²/L))
    assert float(tokens.sel(score_variance=10.0, length=1e12)) == pytest.approx(1e12 * math.exp(-10), rel=1e-2)


def test_sharpness_is_at_least_one():
    data = sharpness.run(sharpness.SharpnessConfig(points=7))
    assert float(data.ratio.min()) >= 1 - 1e-10
    assert float(data.ratio.isel(multiple=-1).max()) < 1.01
