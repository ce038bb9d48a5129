"""A made dataset of the study `discrete`: what is measured is nearly what is predicted."""

import dataclasses
import json
import math

import numpy as np
import pytest
import xarray as xr

from largeprompt.display.labels import label
from largeprompt.studies.discrete.study import STUDY


@pytest.fixture
def data():
    """All variables of a run."""
    length, step = np.array([30.0, math.inf]), np.array([0.2, 0.1, 0.05, 0.025])
    batch = np.array([[0.05, 8, 64], [0.05, 32, 64], [0.05, 128, 64], [0.1, 32, 64]])
    share, time = batch[:, 0] / batch[:, 1], np.linspace(0.0, 2.0, 9)
    adam_step, later = np.array([1e-2, 5e-3, 1e-3]), np.array([0.0, 0.3, 3.0, 300.0])
    path = 0.3 + 0.5 * time / (1 + time)
    stable = np.array([1.38, 0.51])
    made = xr.Dataset(
        {
            "predicted_gap": ("length", [0.06, 0.09]),
            "gap": (("length", "step_size"), np.outer([0.06, 0.09], step * (1 + 0.1 * step))),
            "stable_step": ("length", stable),
            "measured_stable_step": ("length", 1.0001 * stable),
            "stable_step_error": ("length", 1e-4 * stable),
            "growth_beyond": ("length", [50.0, 60.0]),
            "memory_gap": ("adam_step_size", 10 * adam_step**2),
            "adam_b": (("adam_step_size", "adam_time"), np.tile(path, (3, 1))),
            "memory_b": (("adam_step_size", "adam_time"), np.tile(path, (3, 1))),
            "adam_gauge": ("adam_step_size", [-0.8, -0.8, -0.83]),
            "memory_gauge": ("adam_step_size", [-0.8, -0.8, -0.83]),
            "flow_b": 1.45,
            "flow_gauge": 1e-9,
            "sgd_spread": ("batch", 3 * share * (1 + 40 * share)),
            "sgd_spread_error": ("batch", 0.1 * share),
            "predicted_spread": ("batch", 3 * share),
            "predicted_spread_error": ("batch", 0.03 * share),
            "sgd_gap": ("batch", np.sqrt(3 * share)),
            "sgd_gap_error": ("batch", 0.02 * np.sqrt(share)),
            "predicted_sgd_gap": ("batch", np.sqrt(3 * share)),
            "paper_spread": ("paper_step", [0.0, 1e-6, 2e-6]),
            "paper_spread_error": ("paper_step", [0.0, 1e-7, 2e-7]),
            "paper_predicted": ("paper_step", [0.0, 1e-6, 2e-6]),
            "paper_law": ("paper_time", [0.0, 1e-3, 4e-3, 1.6e-2]),
            "paper_law_error": ("paper_time", [0.0, 1e-5, 4e-5, 2e-4]),
            "paper_size": ("paper_time", [2.3, 2.4, 3.0, 4.7]),
        },
        {
            "length": length,
            "step_size": step,
            "adam_step_size": adam_step,
            "adam_time": time,
            "batch_step_size": ("batch", batch[:, 0]),
            "batch_size": ("batch", batch[:, 1]),
            "batch_runs": ("batch", batch[:, 2]),
            "paper_time": later,
            "paper_step": [0.0, 0.02, 0.05],
        },
    )
    made = label(made, STUDY.variables)
    made.attrs |= {"study": "discrete", "config": json.dumps(dataclasses.asdict(STUDY.quick))}
    return made
