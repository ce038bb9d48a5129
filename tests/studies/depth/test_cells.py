"""The depth study: its stacks, its control variates, and prompts that repeat."""

import json
import math

import numpy as np
import pytest
import torch

from largeprompt.depth import ResidualStack, deep_limit, deep_noise
from largeprompt.runs.study import quiet
from largeprompt.studies.depth.cells import (
    Case,
    control_variates,
    entry_law,
    make_stack,
    stack_errors,
)
from largeprompt.studies.depth.study import STUDY


def test_cells_give_the_same_numbers_again(data):
    config = STUDY.config(**json.loads(data.attrs["config"]))
    case = Case("isotropic", "shared", "1/√N")
    again = stack_errors(config, case, quiet)
    for name in ("band", "error", "predicted_first"):
        np.testing.assert_array_equal(data[name].sel(case=str(case)), again[name][0])


def test_control_variates_have_mean_zero():
    mu = entry_law("spiked", 2, 0.25)
    stack = make_stack(Case("spiked", "random", "1"), mu, 2, 0, 0.2)
    noise = deep_noise(deep_limit(stack, mu), 3)
    tokens = mu.sample(20_000 * 20, torch.Generator().manual_seed(0)).reshape(20_000, 20, 2)
    values = control_variates(noise, noise.moments(tokens), 20)
    spread = values.std(-1) / math.sqrt(values.shape[-1])
    known = torch.isfinite(spread) & (spread > 0)
    assert bool((values.mean(-1)[known].abs() < 6 * spread[known]).all())
    assert bool(values[1, 0].isnan().all())


def test_stack_has_the_score_variance_and_the_trace_it_names():
    mu = entry_law("power law", 5, 0.3)
    stack = make_stack(Case("power law", "random", "1/N"), mu, 6, 1, 0.7)
    for k in range(6):
        alone = deep_limit(ResidualStack(stack.U[k : k + 1], stack.V[k : k + 1]), mu)
        assert float(alone.score_variance[0]) == pytest.approx(0.7)
    shared = make_stack(Case("power law", "shared", "1"), mu, 6, 1, 0.7)
    torch.testing.assert_close(shared.V, shared.V[:1].expand(6, 5, 5))
    torch.testing.assert_close(shared.V[0], 6 * stack.V[0])
    for kind in ("isotropic", "power law", "spiked"):
        assert float(entry_law(kind, 5, 0.0).covariance.trace()) == pytest.approx(5)
