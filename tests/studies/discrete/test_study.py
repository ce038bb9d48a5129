"""N2 is in the registry, and what it computes can be stored."""

from study_checks import stores

from largeprompt.studies.discrete.study import STUDY
from largeprompt.studies.registry import study


def test_study_is_registered_and_stores(data, tmp_path):
    assert study("discrete").title == STUDY.title
    stores(STUDY, data, tmp_path)
