"""P1: the authors' two settings, rules about the end of training and about SGD, and figures."""

import dataclasses
import json

import numpy as np
import pytest
import xarray as xr
from study_checks import RuleChecks, SettingChecks, drawn, figures_are_complete, outcome

from largeprompt.display.labels import label
from largeprompt.runs.study import quiet
from largeprompt.studies.paper import (
    SETTINGS,
    STUDY,
    PaperConfig,
    flows,
    sgd,
    sgd_risks,
    task,
    trained_risks,
)


@pytest.fixture
def data():
    """A made dataset: risks that fall to Bayes with t and L, and SGD around them."""
    length = xr.DataArray([10.0, 100.0, 1000.0, np.inf], dims="length")
    time = xr.DataArray(np.linspace(0, 300, 31), dims="time")
    bayes = 0.05 + 0.5 / length
    settled = bayes + xr.DataArray([1.0, 0.5], dims="attention") / length
    risk = (settled + 0.5 * np.exp(-time / 20)).expand_dims(setting=2)
    sgd_time = np.linspace(0, 10, 5)
    flow = settled.isel(length=0) + 0.5 * np.exp(-xr.DataArray(sgd_time, dims="sgd_time") / 20)
    noise = xr.DataArray([[1.01] * 5, [0.99] * 5], dims=("sgd_seed", "sgd_time"))
    made = xr.Dataset(
        {
            "risk": risk,
            "bayes_risk": bayes.expand_dims(setting=2, attention=2),
            "sgd_risk": (flow * noise).expand_dims(sgd_length=[10]),
        },
        {
            "setting": list(SETTINGS),
            "length": length.values,
            "time": time.values,
            "attention": ["softmax", "linear"],
            "sgd_time": sgd_time,
            "sgd_seed": [0, 1],
        },
    ).transpose("setting", "attention", "sgd_length", "sgd_seed", ...)
    made = label(made, STUDY.variables)
    made.attrs |= {"study": "paper", "config": json.dumps(dataclasses.asdict(STUDY.quick))}
    return made


class TestRules(RuleChecks):
    study = STUDY
    reactions = (
        ("to the Bayes risk", "holds", "risk", {"attention": 1}, lambda x: 2 * x, "fails"),
        ("within 2", "holds", "sgd_risk", {}, lambda x: 1.2 * x, "fails"),
        ("longest prompts", "fails", "sgd_risk", {}, lambda x: x / 0.0 * 0, "undecided"),
    )

    def test_short_training_decides_nothing(self, data):
        short = data.assign_coords(time=data.time / 10)
        assert outcome(STUDY, short, "to the Bayes risk") == "undecided"


class TestSettings(SettingChecks):
    study = STUDY
    refused = (
        "dim=0",
        "lengths=50,10",
        "lengths=10.5",
        "noise_variance=-1",
        "sgd_lengths=33",
        "sgd_seeds=0,0",
        "learning_rate=0",
        "batch_size=0",
    )


def test_figures_draw_the_data(data):
    assert drawn(trained_risks.draw(data).axes[0], data.risk[0, 0, :-1, -1])
    assert drawn(sgd_risks.draw(data).axes[1], data.sgd_risk[1, 0, 0])
    figures_are_complete(STUDY, data)


def test_flows_descend_to_no_less_than_bayes_and_sgd_follows():
    config = PaperConfig(
        dim=1, lengths=(5, 50), until=0.5, times=6, tolerance=1e-4, sgd_lengths=(5,), sgd_steps=120
    )
    flow = flows(config, "intended", "softmax", quiet)
    assert bool((flow.risk >= flow.bayes_risk - 1e-9).all())
    assert bool((flow.risk.diff("time") <= 1e-9).all())
    run = sgd(config, "softmax", 5, 0, quiet).sgd_risk
    beside = np.interp(run.sgd_time, flow.time, flow.risk[0])
    assert float(abs(run / beside - 1).max()) < 0.05


def test_released_setting_multiplies_twice():
    intended, released = (task(PaperConfig(), setting) for setting in SETTINGS)
    factor = np.linalg.cholesky(intended.covariance.numpy())
    np.testing.assert_allclose(released.covariance, factor @ factor @ factor.T @ factor.T)
    np.testing.assert_allclose(released.query_covariance, np.eye(5))
    np.testing.assert_allclose(intended.query_covariance, intended.covariance)
