"""The code that the explorer shows runs as it stands, and gives the numbers that are shown."""

import contextlib
import io
import re

import numpy as np
import pytest

from largeprompt.explore import law_page, numbers, training
from largeprompt.explore.code import TOKENS, executed, law_code, runs_code, training_code
from largeprompt.explore.picture import in_words
from largeprompt.explore.reading import Audit, available
from largeprompt.explore.state import DIRECTIONS, LAWS, LENGTHS, LawState, RunsState, TrainingState


def run(program):
    """Names that a program defines in a fresh namespace, and what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        names = executed(program)
    return names, printed.getvalue()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("direction", ["strong", "all"])
def test_law_code_gives_the_numbers_on_the_page(law, direction):
    state = LawState(law=law, dim=3, strength=0.6, direction=direction, length=30, tolerance=0.5)
    names, printed = run(law_code(state))
    place, strength = LENGTHS.index(30), numbers.STRENGTHS.index(0.6)
    assert float(names["law"].mse.sqrt()) == pytest.approx(
        numbers.curve(state).errors[place], rel=1e-9
    )
    assert float(names["law"].effective_tokens) == pytest.approx(
        numbers.curve(state).tokens[place], rel=1e-9
    )
    limit, affine = numbers.read_outs(state)
    unit = names["z"] / 0.6
    assert float(names["limit"] @ unit) == pytest.approx(limit[strength], rel=1e-12)
    assert float(names["affine"] @ unit) == pytest.approx(affine[strength], rel=1e-12)
    shown = dict(re.findall(r'data-value="([^"]+)">([^<]*)<', law_page.summary(state)))
    assert shown["exact"] == in_words(float(names["law"].mse) ** 0.5, 4)
    assert shown["tokens read"] == in_words(float(names["law"].effective_tokens), 4)
    assert all(
        kind in printed for kind in ("FinitePromptLaw(exact", "Certificate(", "PromptLength(")
    )


def test_every_law_and_direction_has_its_code():
    from largeprompt.explore import code

    assert set(TOKENS) == set(LAWS) == set(law_page.TOKENS)
    assert set(code.DIRECTIONS) == set(DIRECTIONS)


@pytest.mark.parametrize("law", LAWS)
def test_tokens_have_the_covariance_that_the_sliders_say(law):
    """λ_i proportional to i^-decay with trace dim, and scores of the standard
    deviation asked for.
    """
    here = numbers.problem(LawState(law=law, dim=4, decay=1.0, strength=1.3, direction="all"))
    spectrum = 4 / np.arange(1, 5) / np.sum(1 / np.arange(1, 5))
    np.testing.assert_allclose(here.mu.covariance.numpy(), np.diag(spectrum), atol=1e-12)
    assert float(here.z @ here.mu.covariance @ here.z) == pytest.approx(1.3**2, rel=1e-12)


def test_training_code_gives_the_flows_on_the_page():
    state = TrainingState(attention="linear", dim=1, until=5.0)
    names, printed = run(training_code(state))
    found = training.flows(state)
    np.testing.assert_array_equal(names["tube"].flow.risk.numpy(), found.risks)
    assert names["bayes"] == list(found.bayes)
    assert f"risk at the end: {found.risks[0, -1]}" in printed


def test_code_of_a_run_reads_the_head_on_the_page(runs_folder):
    found = available(runs_folder)[0]["audit-drawn"]
    audit = Audit.of(found)
    names, printed = run(
        runs_code(str(found.folder), RunsState("audit-drawn", "1.1"), audit.length)
    )
    assert found.title in printed
    assert float(names["head"].head_score_variance) == float(audit.head("1.1").head_score_variance)
    coin = available(runs_folder)[0]["coin"]
    assert "A coin" in run(runs_code(str(coin.folder), RunsState("coin"), None))[1]


def test_code_of_a_run_quotes_what_comes_from_disk(tmp_path):
    """A folder's name stands in the program as a string, whatever it is."""
    evil = str(tmp_path / "');import os;('")
    program = runs_code(evil, RunsState("x", "0.3"), 512)
    assert repr(evil) in program
    compile(program, "shown", "exec")
    assert "layer=0, head=3, length=512" in program
    with pytest.raises(ValueError, match="invalid literal"):
        runs_code("x", RunsState("x", "0.3; import os"), None)
