"""Trials of trained transformers: what they draw, store and repeat."""

import json
import math

import numpy as np
import pytest
import torch
import xarray as xr

from largeprompt.runs.judging import allowed_score
from largeprompt.runs.study import quiet
from largeprompt.studies.trained.choosing import z_scores
from largeprompt.studies.trained.config import TrainedConfig
from largeprompt.studies.trained.parts import Trial, trial
from largeprompt.studies.trained.study import STUDY


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_drawn_prompts_are_the_task_and_shuffled_ones_say_nothing():
    drawing = Trial(TrainedConfig(dim=2, runs=1), "attention 1x1", quiet)
    for shuffled in (False, True):
        prompt, clean, noisy = (
            each[0].double() for each in drawing.draw(generator(4), 40_000, 3, 1, shuffled)
        )
        x, y = prompt[..., :2], prompt[..., 2]
        assert bool((y[:, 3:] == 0).all())
        labels, error = y[:, :3], 5 / math.sqrt(40_000)
        assert float((noisy - clean).var()) == pytest.approx(0.1, rel=2 * error)
        assert float(clean.var()) == pytest.approx(1.0, rel=4 * error)  # w ~ N(0, I/d), x ~ N(0, I)
        assert float(labels.var()) == pytest.approx(1.1, rel=4 * error)
        # E y_l (x_l·x_q) w·x_q = E (x_q·w)² = 1 where token and query share w
        link = labels[:, 0] * (x[:, 0] * x[:, 3]).sum(-1) * clean[:, 0]
        assert float(link.mean()) == pytest.approx(
            0.0 if shuffled else 1.0, abs=5 * float(link.std()) / 200
        )


def test_small_study_reaches_the_optimum_and_repeats(data):
    """C6, C7."""
    control = data.sel(model="attention 1x1")
    gap = control.exact_objective / control.objective_optimum - 1
    assert -1e-9 < float(gap.min()) <= float(gap.max()) < 0.05
    assert float(abs(z_scores(control, control.exact_risk)).max()) < allowed_score(
        control.risk.size
    )
    expected = control.exact_replaced - control.exact_risk.sel(length=32)
    change = control.replaced_risk.sel(replaced="affine") - control.replaced_risk.sel(
        replaced="softmax"
    )
    assert float((abs(change - expected) / control.change_error.sel(replaced="affine")).max()) < 6
    # one layer: the query is all there is
    for name in ("softmax", "affine", "affine at the query"):
        kept = control.replaced_risk.sel(
            replaced="affine" if name == "affine at the query" else name
        )
        np.testing.assert_allclose(control.replaced_risk.sel(replaced=name), kept, rtol=1e-6)
    last = data.isel(checkpoint=-1)
    assert set(np.unique(last.finding.sel(model="attention 1x2", layer=1))) <= {0, 1, 2, 3}
    assert bool(last.alpha.sel(model="attention 1x1", head=2).isnull().all())
    assert float(last.alpha.sel(model="attention 1x1", head=1, layer=1).mean()) == pytest.approx(
        float(data.carried_alpha.sel(length=32)), rel=0.15
    )
    again = trial(TrainedConfig(**json.loads(data.attrs["config"])), "attention 1x1", quiet)
    np.testing.assert_array_equal(again.risk, control.risk.transpose(*again.risk.dims))


def test_dataset_survives_the_store(data, tmp_path):
    data.to_netcdf(tmp_path / "data.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "data.nc", engine="h5netcdf") as back:
        assert [each.outcome for each in STUDY.judge(back)] == [
            each.outcome for each in STUDY.judge(data)
        ]
