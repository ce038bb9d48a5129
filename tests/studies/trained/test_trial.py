"""Trials of trained transformers: what they draw, find and repeat."""

import json
import math

import numpy as np
import pytest
import torch

from largeprompt.runs.study import quiet
from largeprompt.studies.trained.study import TrainedConfig
from largeprompt.studies.trained.trial import draw, trial


def test_drawn_prompts_are_the_task_and_shuffled_ones_say_nothing():
    config = TrainedConfig(dim=2, runs=1)
    for shuffled in (False, True):
        stream = torch.Generator().manual_seed(4)
        drawn = draw(config, stream, 40_000, 3, 1, shuffled)
        prompt, clean, noisy = (each[0].double() for each in drawn)
        x, y = prompt[..., :2], prompt[..., 2]
        assert bool((y[:, 3:] == 0).all())
        labels, error = y[:, :3], 5 / math.sqrt(40_000)
        assert float((noisy - clean).var()) == pytest.approx(0.1, rel=2 * error)
        assert float(clean.var()) == pytest.approx(1.0, rel=4 * error)  # w ~ N(0, I/d), x ~ N(0, I)
        assert float(labels.var()) == pytest.approx(1.1, rel=4 * error)
        # E y_l (x_l·x_q) w·x_q = E (x_q·w)² = 1 where token and query share w
        link = labels[:, 0] * (x[:, 0] * x[:, 3]).sum(-1) * clean[:, 0]
        expected = 0.0 if shuffled else 1.0
        assert float(link.mean()) == pytest.approx(expected, abs=5 * float(link.std()) / 200)


def test_one_bare_head_has_the_exact_risk_of_its_matrices(data):
    head = data.sel(model="attention 1x1")
    assert float((abs(head.risk - head.exact_risk) / head.risk_error).max()) < 5
    gap = head.exact_objective / head.objective_optimum - 1
    assert -1e-9 < float(gap.min()) <= float(gap.max()) < 0.1
    assert bool(head.isel(checkpoint=-1).alpha.sel(head=2).isnull().all())


def test_no_model_beats_bayes(data):
    assert float(((data.risk - data.bayes) / data.risk_error).min()) > -5


def test_a_trial_repeats(data):
    config = TrainedConfig(**json.loads(data.attrs["config"]))
    again = trial(config, "attention 1x1", quiet)
    found = data.risk.sel(model="attention 1x1").transpose(*again.risk.dims)
    np.testing.assert_array_equal(again.risk, found)
