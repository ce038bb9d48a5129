"""Settings of the study of trained transformers."""

import dataclasses

import pydantic
import pytest

from largeprompt.studies.trained.config import Shape
from largeprompt.studies.trained.study import STUDY

BAD = [
    {"models": ("blocks 2",)},
    {"models": ("blocks 0x1",)},
    {"models": ("blocks 1x2", "blocks 1x2")},
    {"width": 9},
    {"device": "abacus"},
    {"queries": 1},
    {"training_lengths": (-5,)},
    {"test_lengths": (32, 16)},
    {"dim": 0},
    {"noise_variance": -1.0},
    {"test_prompts": 1},
    {"seed": -1},
]


@pytest.mark.parametrize("settings", BAD)
def test_bad_settings_are_refused(settings):
    with pytest.raises(pydantic.ValidationError, match=next(iter(settings))):
        dataclasses.replace(STUDY.quick, **settings)


def test_names_of_models():
    assert Shape.named("shuffled blocks 2x4") == ("blocks", 2, 4, True)
    with pytest.raises(ValueError, match="LxH"):
        Shape.named("blocks 2x")
