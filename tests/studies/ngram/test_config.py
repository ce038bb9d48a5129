"""Q3: settings of the study of in-context Markov chains."""

import dataclasses

import pydantic
import pytest

from largeprompt.studies.ngram.study import STUDY

BAD = [
    {"cases": ((1, 1),)},
    {"cases": ((3, 0),)},
    {"cases": ((3, 1), (3, 1))},
    {"lengths": (-5,)},
    {"lengths": (512, 32)},
    {"concentration": -1.0},
    {"betas": (-0.5,)},
    {"holdings": (1.0,)},
    {"training_lengths": (128,)},
    {"training_alphabets": ()},
    {"risk_concentrations": (1.0, 1.0)},
    {"replicas": 1},
    {"tube_until": 1e9},
    {"batches": 501},
    {"seed": -1},
]


@pytest.mark.parametrize("settings", BAD)
def test_bad_settings_are_refused(settings):
    with pytest.raises(pydantic.ValidationError, match=next(iter(settings))):
        dataclasses.replace(STUDY.quick, **settings)
