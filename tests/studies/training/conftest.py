"""A made dataset of the study `training`: powers of L and of t such as the real one has."""

import dataclasses
import json

import numpy as np
import pytest
import xarray as xr

from largeprompt.display.labels import label
from largeprompt.studies.training.flows import STARTS
from largeprompt.studies.training.study import STUDY


def flows(kind, power):
    """Tubes that close like L to this power, and gradients beside them."""
    length = np.array([30.0, 1000.0, 1e5])
    time = np.array([0.0, 0.1, 1.0, 10.0])
    distance = xr.DataArray(length**power, {"length": length}) * xr.DataArray(
        time / (1 + time), {"time": time}
    )
    limit = xr.DataArray(
        [[0.5, 0.0, 0.5], [0.7, 0.1, 0.8], [0.9, 0.2, 1.0], [1.0, 0.3, 1.3]],
        {"time": time, "parameter": ["A[0, 0]", "A[0, 1]", "b"]},
    )
    at = np.array([10.0, 100.0, 1e4])
    apart = xr.DataArray(0.3 * at**power, {"gradient_length": at}) * xr.DataArray(
        [1.0, 1.5], {"gradient_time": [0.0, 1.0]}
    )
    found = {
        "distance": distance,
        "envelope": 3 * distance,
        "astray": 4.0 + 0 * distance.isel(length=-1, drop=True),
        "limit_theta": limit,
        "gradient_distance": apart.T,
        "gradient_cosine": (1 - apart**2).T,
    }
    return {f"{kind}_{name}": value for name, value in found.items()}


def dataset():
    """All variables of a run."""
    length = np.array([10.0, 100.0, 1000.0, 1e4, 1e5])
    best = xr.DataArray([2 / length, 4 / length], {"dim": [2, 3], "excess_length": length})
    drift_length = np.array([100.0, 1000.0, np.inf])
    time = np.geomspace(1, 3000, 5)
    late = 1 - 1 / (1 + time[None, :] ** 4 / drift_length[:2, None])
    start = [1.2, 1.2] + 0 * time[:, None]
    b = np.vstack([start.T + [[0.8], [1.0]] * late, 1.3 + 0 * time])
    one = xr.DataArray(
        np.full((5, 2), 1e-9), {"start": list(STARTS), "cell": ["I, d = 2", "T, d = 2"]}
    )
    inputs = xr.DataArray(
        1 / np.array([10.0, 100.0, 1000.0]) * np.array([1.0, 2.0])[:, None, None]
        + np.zeros((2, 2, 1)),
        {
            "inputs": ["Rademacher", "uniform"],
            "input_start": ["small tilt", "moderate tilt"],
            "input_length": [10.0, 100.0, 1000.0],
        },
    )
    level = 0.2 + 0 * inputs.isel(input_length=0, drop=True)
    missed = one.where(~one.start.isin([name for name in STARTS if "unbal" in name]), 0.5)
    drift = ("drift_length", "drift_time")
    data = xr.Dataset(
        {
            **flows("softmax", -0.5),
            **flows("linear", -1.0),
            "softmax_best": best,
            "linear_best": best / 3,
            "linear_predicted": best / 3,
            "softmax_at_limit_endpoint": best**0.8,
            "drift_b": (drift, b),
            "drift_risk": (drift, 10 / drift_length[:, None] + 1 / time**2),
            "drift_optimal_b": ("drift_length", b[:, -1]),
            "drift_theorem_b": 1.3,
            "end_b": 1.3 + one,
            "end_theorem_error": missed,
            "end_b_error": one,
            "end_A_error": one,
            "end_conserved_error": one,
            "end_risk": one / 1e9,
            "end_converged": 0 * one + 1,
            "input_distance": inputs,
            "input_gaussian_distance": inputs + level,
            "input_level": level,
            "input_limit_risk": 0.05 + 0 * level,
            "input_gaussian_risk": 0.08 + 0 * level,
        },
        {"drift_length": drift_length, "drift_time": time},
    )
    made = label(data, STUDY.variables)
    made.attrs |= {"study": "training", "config": json.dumps(dataclasses.asdict(STUDY.quick))}
    return made


@pytest.fixture
def data():
    """The made dataset."""
    return dataset()
