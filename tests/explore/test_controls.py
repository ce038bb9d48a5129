"""Controls for every field of a state."""

import dataclasses

import pytest

from largeprompt.explore.state import LENGTHS, LawState, TrainingState

pytest.importorskip("marimo", reason="marimo is not installed: pip install '.[explore]'")
from largeprompt.explore.controls import LABELS, controls, with_length


@pytest.mark.parametrize(
    "state",
    [
        LawState(law="signs", length=30, strength=2.3, decay=1.7),
        TrainingState(attention="linear", noise=0.7),
    ],
)
def test_controls_start_at_their_state(state):
    found = controls(state)
    assert type(state).of(found.value) == state
    assert set(found.value) == {field.name for field in dataclasses.fields(state)} <= set(LABELS)


def test_sliders_have_the_steps_of_the_state():
    found = controls(LawState()).elements
    assert found["length"].steps == list(LENGTHS)
    assert (found["dim"].start, found["dim"].stop, found["dim"].step) == (1, 32, 1)


def test_the_length_is_written_out_beside_its_slider():
    import marimo

    found = controls(LawState(length=10**7)).elements
    shown = with_length(marimo, found)
    assert [each.text for name, each in zip(found, shown, strict=True) if name != "length"] == [
        each.text for name, each in found.items() if name != "length"
    ]
    row = shown[list(found).index("length")].text
    assert ">10,000,000</output>" in row
    assert "data-show-value='false'" in row
