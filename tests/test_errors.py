"""The errors: one sentence with argument, value, what is allowed and what to do."""

import copy
import pickle

import pytest

import largeprompt as lp
from largeprompt.errors import (
    InvalidArgumentError,
    LargePromptError,
    NoMomentError,
    TiltDomainError,
)


def test_message_and_parts():
    error = InvalidArgumentError("length", "0", "an integer of at least 1", "Give one token.")
    assert str(error) == "length: got 0; allowed: an integer of at least 1. Give one token."
    assert (error.name, error.given, error.allowed, error.remedy) == (
        "length",
        "0",
        "an integer of at least 1",
        "Give one token.",
    )
    assert str(InvalidArgumentError("a", "b", "c")) == "a: got b; allowed: c."


@pytest.mark.parametrize("kind", [TiltDomainError, NoMomentError, InvalidArgumentError])
@pytest.mark.parametrize("travel", [copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_errors_survive_a_journey_between_processes(kind, travel):
    found = travel(kind("length", "0", "an integer of at least 1", "Give one token."))
    assert type(found) is kind
    assert str(found) == "length: got 0; allowed: an integer of at least 1. Give one token."
    assert (found.name, found.remedy) == ("length", "Give one token.")


@pytest.mark.parametrize(
    "kind", [TiltDomainError, NoMomentError, InvalidArgumentError, LargePromptError]
)
def test_all_are_value_errors_of_the_library(kind):
    assert issubclass(kind, lp.LargePromptError)
    assert issubclass(kind, ValueError)
