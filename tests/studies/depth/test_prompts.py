"""The depth study (Q2): its stacks, control variates and kurtosis."""

import math

import numpy as np
import pytest
import torch

from largeprompt.depth import ResidualStack, deep_limit, deep_noise
from largeprompt.studies.depth import prompts as depth_prompts
from largeprompt.studies.depth.config import Case
from largeprompt.studies.depth.prompts import entry_law, make_stack, spectrum

F = torch.float64


def test_control_variates_have_mean_zero():
    """And are what they say: the squared norm of the first-order displacement, averaged over
    queries that are no tokens.
    """
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
    assert float(depth_prompts.excess_kurtosis(sphere.reshape(1, -1, 3)).mean()) == pytest.approx(
        -2 / 5, abs=5e-3
    )
