"""Progress at a keyboard: after two seconds, and never in a pipe."""

import io
import sys

import pytest
from training_examples import SCALAR, scalar_layer

import largeprompt as lp
from largeprompt.training.dynamics import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on by a second whenever it is read."""
    seconds = iter(range(10**6))
    monkeypatch.setattr(progress, "monotonic", lambda: float(next(seconds)))
    for name in ("largeprompt.cli", "ipykernel"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def run(monkeypatch, stream, **options):
    monkeypatch.setattr(sys, "stderr", stream)
    lp.gradient_flow(SCALAR, scalar_layer(), 20, 2.0, parametrization="block", **options)
    return stream.getvalue()


def test_a_slow_flow_shows_time_and_rate_in_a_terminal(clock, monkeypatch):
    shown = run(monkeypatch, Terminal())
    assert "flow: time 2 of 2, " in shown
    assert "a second" in shown
    assert shown.endswith("\n")


def test_pipes_and_functions_of_the_caller_get_nothing(clock, monkeypatch):
    assert run(monkeypatch, io.StringIO()) == ""
    times = []
    assert run(monkeypatch, Terminal(), progress=times.append) == ""
    assert times[-1] == 2.0


def test_quick_flows_are_silent(monkeypatch):
    assert run(monkeypatch, Terminal()) == ""
