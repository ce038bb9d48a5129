"""Training of the tilt strength (Q3): control variates."""

import pytest
import torch

from largeprompt.measures import MarkovChain
from largeprompt.studies.ngram.learning import _adjusted, drawn
from largeprompt.testing import assert_sample_mean


def test_controls_have_mean_zero_and_take_noise_off():
    """The pull of the final context is in them: without it the mean would be off by many standard
    errors.
    """
    chains = [MarkovChain.random(3, 1, 1.0, torch.Generator().manual_seed(4))]
    (prompts,) = drawn(chains, (64,), 40_000, 4.0, torch.Generator().manual_seed(0))
    assert_sample_mean(prompts.controls, torch.zeros(2, dtype=torch.float64))
    noise = torch.randn(40_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    values = 2.0 + prompts.controls @ torch.tensor([1.0, -3.0], dtype=torch.float64) + 0.01 * noise
    adjusted = _adjusted(values, prompts.controls)
    assert float(adjusted.std()) < 0.011
    assert float(adjusted.mean()) == pytest.approx(2.0, abs=5e-4)
