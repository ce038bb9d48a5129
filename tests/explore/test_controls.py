"""Controls for every field of a state."""

import dataclasses
import functools
import threading
import types

import pytest

from largeprompt.errors import LargePromptError
from largeprompt.explore.state import LENGTHS, LawState, ScalingState, TrainingState

pytest.importorskip("marimo", reason="marimo is not installed: pip install 'largeprompt[explore]'")
from largeprompt.explore.controls import controls, in_stages, with_values


@pytest.mark.parametrize(
    "state",
    [
        LawState(law="signs", length=30, strength=2.3, decay=1.7),
        TrainingState(attention="linear", noise=0.7),
        ScalingState(variance=2.5, times=64),
    ],
)
def test_controls_start_at_their_state(state):
    found = controls(state)
    assert type(state).of(found.value) == state
    assert set(found.value) == {field.name for field in dataclasses.fields(state)}


def test_sliders_have_the_steps_of_the_state():
    found = controls(LawState()).elements
    assert found["length"].steps == list(LENGTHS)
    assert (found["dim"].start, found["dim"].stop, found["dim"].step) == (1, 32, 1)


def test_the_length_is_written_out_beside_its_slider():
    import marimo

    found = controls(LawState(length=10**7)).elements
    shown = with_values(marimo, found)
    assert [each.text for name, each in zip(found, shown, strict=True) if name != "length"] == [
        each.text for name, each in found.items() if name != "length"
    ]
    row = shown[list(found).index("length")].text
    assert ">10,000,000</output>" in row
    assert "data-show-value='false'" in row


class Notebook:
    """What :func:`in_stages` needs of marimo: threads that may be told to leave, and an output."""

    Html = staticmethod(str)

    def __init__(self, leave_after):
        self.shown, self.leave_after, self.started = [], leave_after, []
        self.output = types.SimpleNamespace(replace=self.shown.append)

    def current_thread(self):
        return self

    @property
    def should_exit(self):
        return len(self.shown) > self.leave_after

    def Thread(self, target, daemon):
        thread = threading.Thread(target=target, daemon=daemon)
        self.started.append(thread)
        return thread


@pytest.mark.parametrize(("leave_after", "stages"), [(9, 3), (1, 1)])
def test_stages_follow_each_other_until_the_cell_runs_again(leave_after, stages):
    computed = []

    def stage(number):
        computed.append(number)
        if number == 2:
            raise LargePromptError("there is <no> answer")
        return f"stage {number}"

    notebook = Notebook(leave_after)
    later = (functools.partial(stage, number) for number in (1, 2, 3))
    in_stages(notebook, [lambda: "computing", *later])
    notebook.started[0].join()
    assert computed == [1, 2, 3][:stages]
    words = ["computing", "stage 1", '<p class="foot">there is &lt;no&gt; answer</p>', "stage 3"]
    assert notebook.shown == words[: stages + 1]
