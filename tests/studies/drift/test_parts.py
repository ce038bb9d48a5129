"""C5, C6: the optimum of a finite length is a minimum of its risk, and bad settings are refused."""

import pytest
import torch
from study_checks import refuses, stores

from largeprompt.studies.drift.study import STUDY
from largeprompt.training import LinearRegression, isotropic_optimum


def test_dataset_is_storable(data, tmp_path):
    stores(STUDY, data, tmp_path)


def test_optimum_is_a_minimum_of_the_risk():
    eye = torch.eye(3, dtype=torch.float64)
    task = LinearRegression(eye, eye, 0.0)
    b = isotropic_optimum(task, 100.0).b
    a = torch.linspace(0.1, 1.0, 181, dtype=torch.float64)
    least = [
        float(task.isotropic_risk(a, torch.full_like(a, factor * b), 100.0).min())
        for factor in (0.97, 1.0, 1.03)
    ]
    assert least[1] < min(least[0], least[2])
    assert b == pytest.approx(1.77, abs=0.01)  # docs/training.md


@pytest.mark.parametrize(
    "word", ["dim=0", "lengths=-5", "lengths=", "alpha=-1", "until=0", "points=9"]
)
def test_bad_settings_are_refused(word):
    refuses(STUDY, word)
