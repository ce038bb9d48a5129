"""What the tests of several studies ask of settings, rules and figures."""

import fnmatch
import json
import re
import warnings
from typing import get_args

import numpy as np
import pytest
import xarray as xr

from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.judging import Outcome, judge
from largeprompt.runs.settings import config_of, configured
from largeprompt.runs.style import house_style
from largeprompt.runs.words import typeset


def outcomes(study, data):
    """Claim and outcome of every verdict."""
    return [(verdict.claim, verdict.outcome) for verdict in study.judge(data)]


def verdicts(study, data, words):
    """The verdicts whose questions have these words; the other rules are not asked."""
    rules = [
        each for each in study.rules if callable(each.question) or words in typeset(each.question)
    ]
    return [found for found in judge(rules, data) if words in found.asked]


def outcome(study, data, words):
    """Outcome of the verdict whose question has these words."""
    return verdicts(study, data, words)[0].outcome


def reacts(study, data, words, before, name, index, change, after):
    """The verdict whose question has these words is ``before``, and ``after`` once an entry of a
    variable is changed.
    """
    assert outcome(study, data, words) == before, words
    wrong = data.copy(deep=True)
    wrong[name][index] = change(wrong[name][index])
    assert outcome(study, wrong, words) == after, (words, name)


def speaks_in_numbers(study, data):
    """Every verdict has numbers and none is NaN; there are controls, and they fail; what is found
    is said in at most 25 words.
    """
    found = study.judge(data)
    headlines = [verdict.headline for verdict in found if verdict.headline]
    assert headlines
    for headline in headlines:
        assert len(headline.split()) <= 25, headline
        assert "nan" not in headline
        assert [found.start() for found in re.finditer(r"\.(?!\d)", headline)] == [
            len(headline) - 1
        ], f"one sentence: {headline}"
        assert all(
            len(number.replace(".", "").lstrip("0")) <= 3
            for number in re.findall(r"\d+\.\d+", headline)
        ), headline
        assert not re.search(r"\b1 to 1(\.\d+)? times|\bto 0\.0\d*\.$", headline), (
            f"no sentence: {headline}"
        )
    assert all(
        verdict.meaning for verdict in found if verdict.outcome == "fails" and not verdict.control
    )
    assert all(any(letter.isdigit() for letter in verdict.measured) for verdict in found)
    assert not any("nan" in verdict.measured for verdict in found)
    assert {verdict.outcome for verdict in found if verdict.control} == {"fails"}


class RuleChecks:
    """What the rules of a study pass: a subclass ``TestRules`` names the study and how its verdicts
    react, as in :func:`reacts`.
    """

    study, reactions = None, ()

    def test_rules_react(self, data):
        assert self.reactions
        for reaction in self.reactions:
            reacts(self.study, data, *reaction)

    def test_verdicts_have_numbers_and_controls_fail(self, data):
        speaks_in_numbers(self.study, data)

    def test_nothing_is_decided_by_nan(self, data):
        undecided_without_numbers(self.study, data)

    def test_every_rule_has_an_answer_to_few_settings(self, data):
        answers_to_few_settings(self.study, data)


class SettingChecks:
    """What the settings of a study pass: a subclass ``TestSettings`` names the study and words that
    it refuses.
    """

    study, refused = None, ()

    def test_dataset_is_storable(self, data, tmp_path):
        stores(self.study, data, tmp_path)
        assert isinstance(self.study.quick, self.study.config)
        assert self.study.quick != self.study.config()

    def test_bad_settings_are_refused(self):
        assert self.refused
        for word in self.refused:
            refuses(self.study, word)


def same_in_any_order(study, data):
    """The cells computed in the reverse order give the same numbers."""
    config = config_of(study, json.loads(data.attrs["config"]))
    results = {name: cell.compute(config) for name, cell in reversed(study.cells(config).items())}
    assert study.finish(config, results).identical(data)


def refuses(study, word):
    """Whether a setting, as typed on the command line, is refused before anything runs."""
    with pytest.raises(InvalidArgumentError):
        configured(study, [word], quick=True)


def stores(study, data, folder):
    """The dataset can be stored, and gives the same verdicts when it is read back."""
    assert all(value.dtype.kind in "bifU" for value in data.variables.values())
    data.to_netcdf(folder / "data.nc", engine="h5netcdf")
    assert study.judge(xr.load_dataset(folder / "data.nc", engine="h5netcdf")) == study.judge(data)


def undecided_without_numbers(study, data, names=None):
    """With NaN in these variables (all of numbers, if none are named), no verdict
    holds or fails.
    """
    empty = data.copy(deep=True)
    for name in names or [
        name for name, value in data.data_vars.items() if value.dtype.kind == "f"
    ]:
        empty[name] = empty[name] * np.nan
    found = study.judge(empty)
    assert {verdict.outcome for verdict in found} == {"undecided"}, [
        each for each in found if each.outcome != "undecided"
    ]


def figures_are_complete(study, data):
    """Every figure can be drawn and laid out without warnings, with labeled axes (below the lowest
    of a column) and a caption.
    """
    assert 1 <= len(study.drawable(data)) <= 4
    for entry in study.drawable(data):
        figure = entry.draw(data)
        with house_style():
            figure.draw_without_rendering()
        panels = [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]
        places = [axes.get_subplotspec() for axes in panels]
        lowest = [place.rowspan.stop == place.get_gridspec().nrows for place in places]
        assert all(axes.get_xlabel() for axes, low in zip(panels, lowest, strict=True) if low)
        assert any(lowest)
        assert entry.caption.endswith(".")
        assert len(entry.caption) > 60


def drawn(axes, values):
    """Whether some line of the axes has these values."""
    values = np.asarray(values)
    return any(
        len(line.get_ydata()) == len(values)
        and np.allclose(np.asarray(line.get_ydata(), dtype=float), values, equal_nan=True)
        for line in axes.lines
    )


# labels that the code of a study writes down, whatever its settings: a rule may count on them
WRITTEN = {
    "quantity",
    "interval",
    "level",
    "bound",
    "found",
    "within",
    "parameter",
    "reader",
    "attention",
    "predictor",
    "source",
}
WRITTEN |= {"replaced", "setting", "kind"}


def is_labeled(study, data):
    """Every variable is described in the study's table, and has its words and units from there."""
    for name, value in data.variables.items():
        fits = [pattern for pattern in study.variables if fnmatch.fnmatchcase(name, pattern)]
        assert fits, f"{name} has no label"
        assert (
            len(value.attrs["long_name"].split()) > 1
            or value.attrs["long_name"] == study.variables[fits[0]]
        ), name
        assert value.attrs["units"], name
        assert "*" not in value.attrs["long_name"], name


def answers_to_few_settings(study, data):
    """No rule raises where settings leave one entry, along one dimension or along all; 'undecided'
    comes with a reason.
    """
    is_labeled(study, data)
    names = [name for name in data.sizes if name not in WRITTEN]
    assert names
    for where in [{name: [place]} for name in names for place in (0, -1)] + [
        {name: [0] for name in names}
    ]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of fits through one point, say
            found = study.judge(data.isel(where))
        assert found, where
        for verdict in found:
            assert verdict.outcome in get_args(Outcome), (where, verdict)
            assert len(verdict.measured.split()) > 2, (where, verdict)
