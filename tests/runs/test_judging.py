"""How a dataset is judged: rule by rule, and never by the words of a text."""

import math

import numpy as np
import pytest
import xarray as xr
from scipy.stats import norm

from largeprompt.runs.judging import (
    FALSE_ALARM,
    Finding,
    NotInRunError,
    allowed_score,
    at,
    judge,
    judged,
    log_slope,
    rule,
    span,
)


@rule("C1", "Is it?")
def fine(data):
    return "holds", "0.5 of Hernando, nan"


@pytest.mark.parametrize(
    "error",
    [IndexError("-1"), ValueError("zero-size"), ZeroDivisionError("0"), FloatingPointError("0")],
)
def test_a_rule_with_nothing_to_look_at_is_undecided_and_leaves_the_others_alone(error):
    @rule("C2", "Is it so?", control=True)
    def broken(data):
        raise error

    first, second = judge([broken, fine], xr.Dataset())
    assert (first.claim, first.asked, first.outcome, first.control) == (
        "C2",
        "Is it so?",
        "undecided",
        True,
    )
    assert type(error).__name__ in first.measured
    # no outcome is read from the text
    assert (second.outcome, second.measured) == ("holds", "0.5 of Hernando, nan")


@pytest.mark.parametrize("error", [AttributeError, KeyError, NameError, TypeError])
def test_a_rule_with_a_mistake_in_it_is_an_error(error):
    @rule("C1", "?")
    def typo(data):
        raise error("typo")

    with pytest.raises(error):
        judge([fine, typo], xr.Dataset())


def test_a_name_that_the_dataset_lacks_is_an_error():
    @rule("C1", "?")
    def typo(data):
        return "holds", str(data.valeu)

    with pytest.raises(AttributeError, match="valeu"):
        judge([typo], xr.Dataset())


def test_rules_may_have_nothing_to_say_and_ask_what_the_data_suggests():
    @rule("C1", "?")
    def silent(data):
        return None

    @rule("C1", lambda data: f"At {int(data.n)}?")
    def asking(data):
        return "fails", "No."

    (only,) = judge([silent, asking], xr.Dataset({"n": 3}))
    assert only.asked == "At 3?"


@pytest.mark.parametrize("outcome", ["holds", "fails"])
def test_a_verdict_has_a_headline_and_says_what_failed(outcome):
    @rule("C1", "Below 1e-06?", fails="The form, for L >= 2.")
    def spoken(data):
        return outcome, "1.9e-01 %.", "At 3e-09."

    (only,) = judge([spoken], xr.Dataset())
    assert (only.asked, only.measured, only.headline) == ("Below 10⁻⁶?", "0.19%.", "At 3×10⁻⁹.")
    assert only.meaning == ("The form, for L ≥ 2." if outcome == "fails" else "")


@pytest.mark.parametrize(
    ("arguments", "outcome"),
    [
        ({"holds": True}, "holds"),
        ({"holds": False}, "fails"),
        ({"holds": False, "in_part": True}, "holds in part"),
        ({"holds": True, "rests_on": [1.0, math.inf]}, "holds"),
        ({"holds": True, "rests_on": [1.0, math.nan]}, "undecided"),
        ({"holds": False, "rests_on": [xr.DataArray([1.0, np.nan])]}, "undecided"),
    ],
)
def test_an_outcome_that_rests_on_nan_is_undecided(arguments, outcome):
    assert judged(arguments.pop("holds"), **arguments) == outcome


def test_allowed_score_keeps_the_rate_of_false_alarms():
    """P(the largest of n independent |scores| exceeds it) is at most the rate, and
    nearly the rate.
    """
    for count in (1, 7, 1000):
        assert 1 - (1 - 2 * norm.sf(allowed_score(count))) ** count == pytest.approx(
            FALSE_ALARM, rel=1e-3
        )
    assert allowed_score(5, sides=1) < allowed_score(5)


def test_log_slope():
    assert log_slope([1, 10, 100], [5, 0.5, 0.05]) == pytest.approx(-1.0)
    for places in ([], [3.0], [3.0, 3.0]):
        with pytest.raises(ValueError, match="two places"):
            log_slope(places, places)


def test_values_in_words():
    values = xr.DataArray([0.25, 0.5, np.nan], coords={"L": [10, 100, 1000]})
    assert span(values, ".2f") == "0.25 to 0.50"
    assert span([3, 1, 2], "g") == "1 to 3"


RISK = xr.DataArray([[0.5, 0.3]], coords={"kind": ["softmax"], "length": [16, 32]}, name="risk")


def test_a_value_that_the_settings_left_out_is_undecided_for_that_reason():
    @rule("C1", "At L = 64?", control=True)
    def long_prompt(data):
        return "fails", f"{float(at(data.risk, length=64).max())}"

    missing, other = judge([long_prompt, fine], RISK.to_dataset())
    assert (missing.outcome, missing.asked, missing.control) == ("undecided", "At L = 64?", True)
    assert (
        missing.measured
        == "The rule cannot be applied to what these settings gave (needs length = 64; the run has "
        "16, 32)."
    )
    assert other.outcome == "holds"


def test_values_are_found_as_sel_finds_them():
    for where in ({"length": 32}, {"length": [32, 16]}, {"kind": "softmax", "length": [16]}):
        assert at(RISK, **where).identical(RISK.sel(where))
    with pytest.raises(NotInRunError, match=r"needs kind = linear; the run has softmax"):
        at(RISK, kind="linear")
    with pytest.raises(NotInRunError, match=r"needs length = 8, inf; the run has 16, 32"):
        at(RISK, length=[8, 16, math.inf])
    with pytest.raises(NotInRunError, match=r"the run has none"):
        at(RISK.isel(length=[]), length=16)


def test_a_misspelled_coordinate_is_an_error():
    @rule("C1", "?")
    def typo(data):
        return "holds", str(at(data.risk, lenght=16))

    with pytest.raises(KeyError, match="lenght"):
        judge([typo], RISK.to_dataset())


def test_ranges_of_numbers_end_without_a_point():
    numbers = {"length": np.array([3.2, 101.0]), "more risk": (np.array([-35.6, 131.8]), "%")}
    found = Finding("holds", numbers=numbers)
    assert found.measured == "length 3.20 to 101; more risk -35.6 to 132 %."
