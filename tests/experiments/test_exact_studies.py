"""Studies of the exact law: numbers known from elsewhere, and rules converged."""

import math

import numpy as np
import pytest
import torch
from small_studies import dataset

import largeprompt as lp
from largeprompt.studies.anisotropy import study as anisotropy
from largeprompt.studies.exponent import study as exponent
from largeprompt.studies.phase_diagram import study as phase_diagram
from largeprompt.studies.registry import study
from largeprompt.studies.sharpness import study as sharpness
from largeprompt.studies.shortcontext import study as shortcontext


def test_exponents_tend_to_the_prediction_in_one_dimension():
    """MATHS section 3 gives these local slopes for d = 1, L from 10^2 to 10^14."""
    config = exponent.ExponentConfig(squares=(0.75, 1.0, 2.0, 4.0), dims=(1,), decades=(2, 3, 13, 14))
    data = study("exponent").run(config)
    found = data.exponent.sel(dim=1)
    np.testing.assert_allclose(found.sel(decade_end=3), [0.713, 0.638, 0.479, 0.341], atol=0.03)
    np.testing.assert_allclose(found.sel(decade_end=14), [0.740, 0.603, 0.365, 0.232], atol=0.003)
    np.testing.assert_allclose(data.sharp, [0.758, 0.618, 0.366, 0.207], atol=5e-4)
    assert exponent.decided(data, 1).values.tolist() == [1, 1, 1, 0]
    assert exponent.sharp_exponent(0.4) == 1.0


def test_radial_logarithm_brings_dimensions_together():
    data = dataset("exponent")
    one, four = (exponent.without_logarithm(data, d).sel(square=[1.0, 2.0]) for d in (1, 4))
    raw = data.exponent.isel(decade_end=-1).sel(square=[1.0, 2.0])
    assert np.all(abs(one - four) < 0.4 * abs(raw.sel(dim=1) - raw.sel(dim=4)))


def test_radial_rule_is_converged():
    """Spectral in one dimension, of fourth order in the step where the density starts like r³."""
    for dim, tolerance in ((1, 1e-9), (4, 1e-6)):
        coarse, fine = (exponent.average_over_queries(1000, 1.0, dim, step, 9.0) for step in (0.1, 0.05))
        assert coarse == pytest.approx(fine, rel=tolerance)


def test_phase_diagram_shows_the_regimes():
    data = dataset("phase_diagram")
    tokens = data.effective_tokens
    np.testing.assert_allclose(tokens.sel(score_variance=0.0), data.length)
    assert 1 < float(tokens.sel(score_variance=40.0, length=100.0, method="nearest")) < 2
    # linear regime: 1/E Y = L e^{-σ²}(1 + O(ρ²/L))
    assert float(tokens.sel(score_variance=10.0, length=1e12)) == pytest.approx(1e12 * math.exp(-10), rel=1e-2)
    assert str(data.regime.sel(score_variance=10.0, length=1e12).values) == "linear"


def test_critical_number_of_tokens():
    """At α = 1 the effective tokens tend to √(π ln L): within 8 % at L = 10^6, nearer at 10^12."""
    errors = []
    for length in (10**6, 10**12):
        tokens = 1 / float(lp.weight_moment(length, math.sqrt(2 * math.log(length)), [(2, 0)]))
        errors.append(abs(tokens / math.sqrt(math.pi * math.log(length)) - 1))
    assert errors[1] < errors[0] < 0.08
    assert set(np.unique(phase_diagram.named_by_tokens(dataset("phase_diagram")))) == {"linear", "heavy", "frozen"}


def test_sharpness():
    data = dataset("sharpness")
    assert float(data.ratio.isel(multiple=-1).max()) < 1.01
    assert np.all(sharpness.sharp_from(data) > 0.3)
    # signs at L = 1: T_1 = ±1 against tanh u, ρ = cosh 2u/cosh² u
    u = data.sign_tilt.values
    rho, gap = np.cosh(2 * u) / np.cosh(u) ** 2, np.tanh(2 * u) - np.tanh(u)
    leading = rho * (1 / np.cosh(2 * u) ** 2 + gap**2) / (1 + np.tanh(u) ** 2)
    np.testing.assert_allclose(data.sign_leading_ratio, leading, rtol=1e-10)


def test_drift_optimum_is_a_minimum_of_the_risk():
    eye = torch.eye(3, dtype=torch.float64)
    task = lp.LinearRegression(eye, eye, 0.0)
    b = lp.isotropic_optimum(task, 100.0).b
    a = torch.linspace(0.1, 1.0, 181, dtype=torch.float64)
    least = [float(task.isotropic_risk(a, torch.full_like(a, factor * b), 100.0).min()) for factor in (0.97, 1.0, 1.03)]
    assert least[1] < min(least[0], least[2])
    assert b == pytest.approx(1.77, abs=0.01)  # docs/training.md


def test_spectra():
    for name, condition in (("condition 1e2", 100.0), ("power law 2", 25.0), ("spike 0.5", 4.0)):
        values = anisotropy.eigenvalues(name, 5)
        assert values.sum() == pytest.approx(5)
        assert values[0] / values[-1] == pytest.approx(condition)
        assert np.all(np.diff(values) <= 1e-12)


def test_spiked_average_against_sobol_queries():
    """The same average by lp.query_average: within six of its standard errors and 1e-3."""
    dim, share, q = 4, 0.5, 0.8
    spectrum = torch.from_numpy(anisotropy.eigenvalues(f"spike {share}", dim))
    eye, zero = torch.eye(dim, dtype=torch.float64), torch.zeros(dim, dtype=torch.float64)
    queries = lp.Gaussian(zero, eye * q / dim)
    mu = lp.Gaussian(zero, torch.diag(spectrum))
    found = lp.query_average(lp.SoftmaxAttention(eye, eye), mu, queries, [10, 1000], points=4096)
    exact = anisotropy.spiked_average(share, dim, q, (10.0, 1000.0))
    assert np.all(np.abs(found.mse.numpy() - exact) < 6 * found.standard_error.numpy() + 1e-3 * exact)
    finer = anisotropy.spiked_average(share, dim, q, (10.0, 1000.0), step=0.05)
    np.testing.assert_allclose(exact, finer, rtol=1e-4)


def test_needed_length_is_the_planners():
    data = dataset("anisotropy")
    values = torch.from_numpy(anisotropy.eigenvalues("condition 1e4", 6))
    eye, zero = torch.eye(6, dtype=torch.float64), torch.zeros(6, dtype=torch.float64)
    z = eye[0] * math.sqrt(2.0 / float(values[0]))
    attention, mu = lp.SoftmaxAttention(eye, eye), lp.Gaussian(zero, torch.diag(values))
    planned = lp.prompt_length(attention, mu, z, 0.1, relative=True)
    found = float(data.needed_length.sel(spectrum="condition 1e4", direction="strong", score_variance=2.0))
    assert found == pytest.approx(int(planned), rel=0.1)  # interpolated between lengths a factor of ten apart


def test_short_contexts_at_one_token_and_long_enough():
    data = dataset("shortcontext")
    np.testing.assert_allclose(data.exact.sel(length=1.0), data.at_one, rtol=1e-12)
    np.testing.assert_allclose(data.risk.sel(regression_length=1.0, attention="softmax"), data.risk_at_one, rtol=1e-9)
    error = np.sqrt(data.exact / data["size"])
    for case in range(data.sizes["case"]):
        start = float(data.limit_from.sel(within=0.5).isel(case=case))
        row = error.isel(case=case)
        assert bool((row.sel(length=slice(start, None)) <= 0.5).all())
        assert float(row.sel(length=slice(None, start - 0.5))[-1]) > 0.5


def test_long_enough_is_infinite_where_it_never_is():
    data = dataset("shortcontext")
    assert bool(np.isinf(shortcontext._long_enough(data.exact * 0 + 1, "length", 0.5)).all())
    assert float(shortcontext._long_enough(data.exact * 0, "length", 0.5).max()) == 1.0


def test_regression_risk_is_the_tasks_own():
    """Against the general form of the risk, with its own Sobol points: 1 %."""
    data = dataset("shortcontext").sel(regression_condition=1.0)
    task = lp.LinearRegression(torch.eye(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64) / 2, 0.1)
    b = 2**0.25
    U, V = torch.diag(torch.tensor([1 / b, 1 / b, 0.0], dtype=torch.float64)), torch.tensor([[0.0, 0.0, b]], dtype=torch.float64)
    for kind, layer in (("softmax", lp.SoftmaxAttention(U, V)), ("linear", lp.LinearAttention(U, V))):
        found = float(data.risk.sel(attention=kind, regression_length=10.0))
        assert found == pytest.approx(float(task.risk(layer, 10)), rel=0.01)
