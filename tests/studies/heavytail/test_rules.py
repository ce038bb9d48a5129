"""N3: the rules of the heavy-tail study change their mind when the data does, and its control
fails.
"""

import math

import numpy as np
import pytest
import xarray as xr
from study_checks import answers_to_few_settings, undecided_without_numbers, verdicts

from largeprompt.studies.heavytail.rules import allowed_distance
from largeprompt.studies.heavytail.study import STUDY


def find(data, words):
    return verdicts(STUDY, data, words)[0]


def test_verdicts_of_the_small_setting(data):
    expected = {
        "Do drawn prompts agree": "holds",
        "Where there is a limit": "holds",
        "Below which df": "holds",
        "Is there a finite df": "fails",
        "return its largest token": "holds",
        "Laplace: does": "holds",
        "Lognormal": "holds",
        "affine read-out": "fails",
        "same variance describe": "fails",
    }
    assert {words: find(data, words).outcome for words in expected} == expected
    assert find(data, "same variance describe").control
    assert {verdict.claim for verdict in STUDY.judge(data)} == {"N3"}


def doctored(data, **changes):
    data = data.copy(deep=True)
    for name, change in changes.items():
        data[name] = change(data[name])
    return data


@pytest.mark.parametrize(
    ("words", "changes", "outcome"),
    [
        ("Do drawn prompts agree", {"sampled": lambda v: 1.5 * v}, "fails"),
        ("Where there is a limit", {"route_difference": lambda v: v + 1e-6}, "fails"),
        ("Below which df", {"measured_breakdown": lambda v: 3 * v}, "fails"),
        ("Is there a finite df", {"breakdown": lambda v: -v}, "undecided"),
        ("return its largest token", {"of_largest": lambda v: 0 * v + 0.5}, "fails"),
        ("return its largest token", {"asymptote": lambda v: 0.5 * v}, "fails"),
        ("Laplace: does", {"curve": lambda v: v**0.9}, "fails"),
        ("Lognormal", {"asymptote": lambda v: 2 * v}, "fails"),
        ("affine read-out", {"error": lambda v: v / v.length**2}, "holds"),
        ("df = ∞: does SGD", {"run_risk": lambda v: v + 1}, "fails"),
        ("learn at every df", {"run_median": lambda v: 0 * v.fillna(0).clip(0, 1)}, "holds"),
    ],
)
def test_verdicts_can_go_the_other_way(data, words, changes, outcome):
    before, after = find(data, words), find(doctored(data, **changes), words)
    assert after.outcome == outcome
    assert after.measured != before.measured


def test_tail_index_that_sees_every_breakdown_holds_and_one_that_sees_none_fails(data):
    data = data.copy(deep=True)
    base = data.exact.sel(quantity="participation").isel(case=0)
    broken = data.exact.sel(quantity="participation") / base >= 2
    data["tail_index"] = (0 * data.tail_index.fillna(0) + broken.astype(float)).transpose(
        *data.tail_index.dims
    )
    assert find(data, "see the breakdown").outcome == "holds"
    data["tail_index"] = 1 - data.tail_index
    assert find(data, "see the breakdown").outcome == "fails"


def test_control_holds_when_heavy_tails_are_taken_away(data):
    data = data.copy(deep=True)
    base = data.isel(case=0)
    for i in range(data.sizes["case"]):
        if float(data.df[i]) == 2.5:
            data.sampled[i] = base.exact
    assert find(data, "same variance describe").outcome == "holds"


def test_allowed_distance_is_not_passed_by_rare_events():
    """Means of 100 coins of probability 1e-3: where none fell their own error is 0, and Bernstein's
    bound still holds.
    """
    random = np.random.default_rng(0)
    means = random.binomial(100, 1e-3, size=20_000) / 100
    one = xr.DataArray(1.0)
    allowed = float(allowed_distance(xr.DataArray(1e-3 * 0.999), one, xr.DataArray(100), 1e-4))
    assert (np.abs(means - 1e-3) > allowed).mean() <= 1e-3
    assert float(allowed_distance(one / 12, one, xr.DataArray(10**6), 1e-6)) < 6 / math.sqrt(
        12 * 10**6
    )


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # medians of nothing
def test_nothing_is_decided_by_nan(data):
    undecided_without_numbers(STUDY, data)


def test_lognormal_needs_tilts_of_both_signs(data):
    positive = data.isel(case=np.flatnonzero((data.tilt > 0).values))
    assert find(positive, "Lognormal").outcome == "undecided"


def test_every_rule_has_an_answer_to_few_settings(data):
    answers_to_few_settings(STUDY, data)
