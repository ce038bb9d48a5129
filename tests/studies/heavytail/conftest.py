"""A made dataset of the study `heavytail`: curves that follow what is predicted as L grows."""

import dataclasses
import json
import math

import numpy as np
import pytest
import xarray as xr

from largeprompt.display.labels import label
from largeprompt.measures import LaplaceLaw, StudentT
from largeprompt.studies.heavytail.exact import asymptote
from largeprompt.studies.heavytail.study import STUDY

CASES = [(f"df = {df:g}", df, 1.0) for df in (math.inf, 10.0, 3.0, 1.0)]
CASES += [("Laplace", math.nan, tilt) for tilt in (0.5, 1.1, 2.5)]


def curve(name, df, tilt, lengths):
    """E Σ w² as it tends to be."""
    law = LaplaceLaw() if name == "Laplace" else StudentT(1, df).law
    return np.clip(asymptote(law, tilt, np.array(lengths, dtype=float)), 1e-3, 1 - 1e-12)


@pytest.fixture
def data():
    """All variables of a run."""
    grid, length = np.geomspace(10, 1e12, 12).round(), np.array([10, 1000])
    curves, exact = (
        np.array([curve(*case, lengths) for case in CASES]) for lengths in (grid, length)
    )
    for i, (name, _, tilt) in enumerate(CASES):
        if name == "Laplace":
            curves[i] = asymptote(LaplaceLaw(), tilt, grid)
    runs = np.array([[0.08, 0.09], [0.3, 0.4], [math.inf, math.inf]])
    made = xr.Dataset(
        {
            "curve": (("case", "grid"), curves),
            "asymptote": (("case", "grid"), curves),
            "exact": (("case", "length"), exact),
            "variance": (("case", "length"), exact**2),
            "sampled": (("case", "length"), exact * 1.001),
            "of_largest": (("case", "length"), np.full((7, 2), 0.99)),
            "error": (("case", "length"), np.tile([0.5, 9.0], (7, 1))),
            "replicas": (("case", "length"), np.full((7, 2), 1000)),
            "breakdown": (("breakdown_tilt", "grid"), np.geomspace(3, 30, 12)[None]),
            "lasting": (("breakdown_tilt", "lasting_df"), [[37.0, 1e9]]),
            "diverged": (("training_df", "run"), ~np.isfinite(runs)),
            "run_risk": (("training_df", "run"), runs),
            "least_risk": ("training_df", [0.08, 0.3, math.inf]),
            "descent_risk": ("training_df", [0.08, 0.3, math.inf]),
        },
        {
            "grid": grid,
            "length": length,
            "law": ("case", [case[0] for case in CASES]),
            "df": ("case", [case[1] for case in CASES]),
            "tilt": ("case", [case[2] for case in CASES]),
            "breakdown_tilt": [1.0],
            "lasting_df": [3.0, 20.0],
            "training_df": [math.inf, 3.0, 2.0],
        },
    )
    made = label(made, STUDY.variables)
    made.attrs |= {"study": "heavytail", "config": json.dumps(dataclasses.asdict(STUDY.quick))}
    return made
