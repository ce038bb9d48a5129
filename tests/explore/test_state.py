"""What a link holds."""

import dataclasses

import pytest

from largeprompt.explore.state import (
    LENGTHS,
    STATES,
    LawState,
    RunsState,
    ScalingState,
    TrainingState,
    address_bar,
)


def fields(state):
    return dataclasses.asdict(state)


@pytest.mark.parametrize(
    "state",
    [
        LawState(),
        LawState(
            law="signs", dim=3, decay=1.2, strength=2.7, direction="all", length=30, tolerance=0.06
        ),
        TrainingState(attention="linear", dim=5, noise=0.3, start=0.7, until=35.0),
        ScalingState(trained=512, times=64, variance=0.5),
        RunsState(run="audit-1 & <b>", head="L2H11"),
    ],
)
def test_a_link_gives_back_its_state(state):
    from urllib.parse import parse_qs, urlsplit

    query = {name: values[0] for name, values in parse_qs(urlsplit(state.link).query).items()}
    assert type(state).of(query) == state
    # marimo gives lists for repeated names
    assert type(state).of({name: [value] for name, value in query.items()}) == state


def test_a_link_says_only_what_differs():
    assert LawState().query == {}
    assert LawState(strength=2.5).query == {"strength": "2.5"}


def test_the_address_bar_forgets_other_tabs():
    assert {name: value for name, value in address_bar(LawState(dim=3)).items() if value} == {
        "tab": "law",
        "dim": "3",
    }
    assert address_bar(LawState())["run"] is None


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"dim": "1000"}, {"dim": 32}),
        ({"dim": "-3"}, {"dim": 1}),
        ({"dim": "many"}, {}),
        ({"dim": "nan"}, {}),
        ({"strength": "nan"}, {}),
        ({"strength": "inf"}, {"strength": 4.0}),
        ({"strength": "1.234"}, {"strength": 1.2}),
        ({"law": "<script>"}, {}),
        ({"length": "17"}, {}),
        ({"length": "300"}, {"length": 300}),
        ({"direction": []}, {}),
        ({"tolerance": "1e999"}, {"tolerance": 1.0}),
        ({"length": ["30", "300"], "dim": ["3", "4"]}, {"dim": 4}),
    ],
)
def test_what_is_not_allowed_is_put_right(query, expected):
    assert fields(LawState.of(query)) == fields(LawState()) | expected


def test_lengths_are_ascending_whole_numbers():
    assert list(LENGTHS) == sorted(set(LENGTHS))
    assert all(isinstance(length, int) for length in LENGTHS)
    assert LawState().length in LENGTHS


def test_laplace_tokens_are_asked_only_where_they_have_a_limit():
    assert LawState.of({"law": "laplace"}).strength == 1.4
    assert LawState.of({"law": "laplace", "strength": "0.7"}).strength == 0.7
    wide = {"law": "laplace", "direction": "all", "strength": "4"}
    assert LawState.of(wide | {"dim": "32"}).strength == 4.0
    # 4/√8 is √2 but for rounding
    assert LawState.of(wide | {"dim": "8"}).strength == 3.9
    assert LawState.of({"law": "signs", "strength": "4"}).strength == 4.0


def test_every_field_has_a_label_but_those_of_runs():
    labeled = {
        kind.tab: all("label" in f.metadata for f in dataclasses.fields(kind)) for kind in STATES
    }
    assert labeled == {"law": True, "training": True, "scaling": True, "runs": False}
