"""The audit as a study."""

import dataclasses

from largeprompt.audit.study import STUDY
from largeprompt.runs.find import find_study


def test_the_study_is_found_by_its_place():
    found = find_study("largeprompt.audit.study:STUDY")
    titled = dataclasses.replace(found, title="another")
    assert find_study(titled.source).parts == STUDY.parts
