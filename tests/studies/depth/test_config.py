"""Q2: settings of the depth study."""

import dataclasses

import pydantic
import pytest

from largeprompt.studies.depth.study import STUDY

BAD = [
    {"spectra": ("flat",)},
    {"weights": ("toeplit",)},
    {"scales": ("2",)},
    {"lengths": (-5, 128, 512)},
    {"lengths": (512, 128)},
    {"dim": 0},
    {"normalised_dims": (4, 4)},
    {"normalised_lengths": (64,)},
    {"score_variance": -1.0},
    {"replicas": (1, 100)},
    {"longest": 512},
    {"fitted_from": 500},
    {"other_score_variances": (0.2,)},
    {"seed": -1},
]


@pytest.mark.parametrize("settings", BAD)
def test_bad_settings_are_refused(settings):
    with pytest.raises(pydantic.ValidationError, match=next(iter(settings))):
        dataclasses.replace(STUDY.quick, **settings)
