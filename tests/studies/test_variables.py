"""What the variables of studies are called: words, units in brackets, a study's own first."""

import pytest

from largeprompt.studies import registry
from largeprompt.studies.registry import OURS
from largeprompt.studies.variables import labels


@pytest.mark.parametrize("study", OURS)
def test_words_are_words_and_units_stand_in_brackets(study):
    for name, words in registry.study(study).variables.items():
        assert words == words.strip(), name
        assert words[0] != "[", name
        assert words.count("[") == words.count("]") <= 1, name
        assert not words.endswith((".", ",")), name
        assert words.count("*") == name.count("*") <= 1, name


def test_own_words_go_before_common_ones():
    own = {"exact": "another error"}
    assert labels(own)["exact"] == "another error"
    assert labels({})["exact"] == "mean squared error, exact"
