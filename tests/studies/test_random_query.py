"""Random queries: the exponents are those of the exact average, and rules change their mind."""

import numpy as np
import pytest
import torch
from study_checks import RuleChecks, SettingChecks, drawn, figures_are_complete

import largeprompt as lp
from largeprompt.studies.lengths import sharp_exponent
from largeprompt.studies.random_query import STUDY, RandomQueryConfig, figure, last_exponents


@pytest.fixture(scope="module")
def data():
    """Computed once; copy before changing it."""
    return STUDY.run(
        RandomQueryConfig(decades=(2, 13, 14), squares=(0.15, 0.5, 1.0), spikes=(0.05, 0.5, 0.95))
    )


class TestSettings(SettingChecks):
    study = STUDY
    refused = ("squares=0", "squares=2,1", "decades=2", "dims=0", "spikes=1", "spiked_dim=1")


class TestRules(RuleChecks):
    study = STUDY
    reactions = (
        ("rather than", "holds", "exponent", {"square": 2}, lambda x: 0.7 * x, "holds in part"),
        ("rather than", "holds", "exponent", {}, lambda x: 0 * x, "fails"),
        ("paper's form", "fails", "exponent", {}, lambda x: 0 * x + 1, "fails"),
        ("spread eigenvalues", "holds", "spiked_exponent", {}, lambda x: x + 0.1, "fails"),
        ("faster", "fails", "exponent", {"square": 0}, lambda x: 1.1 * x, "holds"),
    )


def test_one_constant_is_recognized(data):
    """Exponents c2/H² are."""
    made = data.assign(exponent=0 * data.exponent + 0.1 / data.square)
    rule = next(each for each in STUDY.rules if "one c2" in each.question)
    assert rule(made).outcome == "holds"


def test_errors_are_means_over_drawn_queries(data):
    """H² = 0.15, d = 4: 40,000 drawn queries, each by the exact law."""
    generator = torch.Generator().manual_seed(0)
    z = 0.15**0.5 * torch.randn(40_000, 4, generator=generator, dtype=torch.float64)
    eye = torch.eye(4, dtype=torch.float64)
    mu = lp.Gaussian(torch.zeros(4, dtype=torch.float64), eye)
    each = lp.finite_prompt(lp.SoftmaxAttention(eye, eye), mu, z, 100).mse
    found = float(data.mse.sel(dim=4, square=0.15, decade=2))
    assert found == pytest.approx(float(each.mean()), abs=5 * float(each.std()) / 200)


def test_exponents_in_one_dimension():
    """Local slopes of the exact law for d = 1, computed once with a fine radial rule."""
    config = RandomQueryConfig(squares=(0.75, 1.0, 2.0), dims=(1,), decades=(13, 14), spikes=(0.9,))
    data = STUDY.run(config)
    np.testing.assert_allclose(data.exponent[0, :, 0], [0.740, 0.603, 0.365], atol=0.003)
    np.testing.assert_allclose(data.sharp, [0.758, 0.618, 0.366], atol=5e-4)


def test_spikes_below_the_others_do_not_set_the_exponent():
    data = STUDY.run(RandomQueryConfig(decades=(2, 3), squares=(0.5,), dims=(1,), spikes=(0.01,)))
    assert float(data.spiked_square[0]) == pytest.approx(2.0 * 0.99 / 19)


def test_figure_draws_exponents_and_prediction(data):
    one, four, spiked = figure.draw(data).axes
    assert drawn(one, data.exponent.sel(dim=1).isel(decade_end=-1))
    assert drawn(four, last_exponents(data).sel(dim=4))
    assert drawn(spiked, data.spiked_exponent.isel(decade_end=-1))
    curve = one.lines[0]
    np.testing.assert_allclose(curve.get_ydata(), sharp_exponent(curve.get_xdata()))
    figures_are_complete(STUDY, data)
