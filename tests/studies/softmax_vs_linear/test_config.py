"""Q1: settings of the contest of softmax and linear attention."""

import dataclasses
import math

import pydantic
import pytest

from largeprompt.studies.softmax_vs_linear.study import STUDY

BAD = [
    {"dims": (30,)},
    {"dims": (0,)},
    {"pair_lengths": (1,)},
    {"lengths": (-5,)},
    {"lengths": (math.inf,)},
    {"lengths": (100, 20)},
    {"noises": (-1.0,)},
    {"spectra": ("toeplit",)},
    {"trained_spectra": ("identity", "identity")},
    {"free_heads": (3,)},
    {"skew_ratios": (1.0,)},
    {"outlier_shares": (1.0,)},
    {"largest_scale": 100.0},
    {"seed": -1},
]


@pytest.mark.parametrize("settings", BAD)
def test_bad_settings_are_refused(settings):
    with pytest.raises(pydantic.ValidationError, match=next(iter(settings))):
        dataclasses.replace(STUDY.quick, **settings)
