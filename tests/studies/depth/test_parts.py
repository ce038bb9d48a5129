"""The depth study (Q2): bands against drawn prompts, stacks, kurtosis and slopes."""

import json
import math

import numpy as np
import pytest
import torch

from largeprompt.depth import ResidualStack, deep_limit, deep_noise
from largeprompt.runs.study import quiet
from largeprompt.studies.depth import prompts as depth_prompts
from largeprompt.studies.depth.config import Case
from largeprompt.studies.depth.parts import slopes, stack_errors
from largeprompt.studies.depth.prompts import entry_law, make_stack, spectrum
from largeprompt.studies.depth.rules import band_ratio, tame
from largeprompt.studies.depth.study import STUDY

F = torch.float64


def test_cells_and_same_numbers_again(data):
    config = STUDY.config(**json.loads(data.attrs["config"]))
    assert len(STUDY.cells(config)) == 6 + 1 + 4 + 1
    case = Case("isotropic", "shared", "1/√N", 0.2)
    again = stack_errors(config, case, quiet)
    for name in ("band", "error", "predicted_edge"):
        one = data[name].sel(case=str(case))
        np.testing.assert_array_equal(
            one.dropna("length", how="all") if "length" in one.dims else one, again[name].sel(case=str(case))
        )


def test_measured_errors_follow_the_band(data):
    ratio, error = band_ratio(data)
    assert ratio.sizes["case"] >= 2
    assert np.all(abs(ratio - 1) < 0.1 + 7 * error)
    raw = tame(data).raw.sel(quantity="token", length=256) * 256 / tame(data).band.sel(quantity="token")
    assert 0.4 < float(raw.median()) < 2  # without control variates


def test_control_variates_have_mean_zero():
    """And are what they say: the squared norm of the first-order displacement, averaged over queries that are no tokens."""
    case = Case("spiked", "random", "1", 0.2)
    mu = entry_law("spiked", 2, 0.25)
    stack = make_stack(case, mu, 2, 0)
    noise = deep_noise(deep_limit(stack, mu), 3)
    tokens = mu.sample(20_000 * 20, torch.Generator().manual_seed(0)).reshape(20_000, 20, 2)
    values = depth_prompts._control_variates(noise, noise.moments(tokens), 20)
    spread = values.std(-1) / math.sqrt(values.shape[-1])
    known = np.isfinite(spread) & (spread > 0)
    assert np.all(np.abs(values.mean(-1))[known] < 6 * spread[known])
    assert np.isnan(values[1, 0]).all()


def test_stack_has_the_score_variance_it_names():
    mu = entry_law("power law", 5, 0.3)
    stack = make_stack(Case("power law", "random", "1/N", 0.7), mu, 6, 1)
    for k in range(6):
        alone = deep_limit(ResidualStack(stack.U[k : k + 1], stack.V[k : k + 1]), mu)
        assert float(alone.score_variance[0]) == pytest.approx(0.7)
    shared = make_stack(Case("power law", "shared", "1", 0.7), mu, 6, 1)
    torch.testing.assert_close(shared.V, shared.V[:1].expand(6, 5, 5))
    torch.testing.assert_close(shared.V[0], 6 * stack.V[0])
    for kind in ("isotropic", "power law", "spiked"):
        assert float(spectrum(kind, 5).trace()) == pytest.approx(5)


def test_kurtosis_is_zero_for_gaussian_tokens_and_known_on_the_sphere():
    z = torch.randn(400, 100, 3, generator=torch.Generator().manual_seed(0), dtype=F)
    found = depth_prompts.excess_kurtosis(z)
    assert abs(float(found.mean())) < 6 * float(found.std()) / 20
    sphere = z / z.norm(dim=-1, keepdim=True)
    assert float(depth_prompts.excess_kurtosis(sphere.reshape(1, -1, 3)).mean()) == pytest.approx(-2 / 5, abs=5e-3)


def test_slopes_of_a_power_law():
    lengths = np.array([10.0, 100.0, 1000.0])
    values = 3 * lengths**-0.7
    middle, low, high = slopes(lengths, values, 0.01 * values)
    assert middle == pytest.approx(-0.7)
    assert high - middle == pytest.approx(middle - low)
    assert high - middle == pytest.approx(1.96 * 0.01 * math.sqrt(2) / math.log(100), rel=1e-9)
