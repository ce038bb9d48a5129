"""The code that the explorer shows runs as it stands, and gives the numbers that are shown."""

import contextlib
import io
import re

import matplotlib.pyplot as plt
import numpy as np
import pytest

import largeprompt as lp
from largeprompt.explore import law_page, numbers, training_page
from largeprompt.explore.code import (
    TOKENS,
    executed,
    law_code,
    runs_code,
    scaling_code,
    training_code,
)
from largeprompt.explore.reading import Audit, available
from largeprompt.explore.state import (
    DIRECTIONS,
    LAWS,
    LENGTHS,
    LawState,
    ScalingState,
    TrainingState,
)
from largeprompt.explore.text import in_words

ROWS = re.compile(r'data-row="([^"]+)"><th scope="row">[^<]*</th><td>([^<]*)<')


def run(program):
    """Names that a program defines in a fresh namespace, and what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        names = executed(program)
    plt.close("all")
    return names, printed.getvalue()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("direction", ["strong", "all"])
def test_law_code_gives_the_numbers_on_the_page(law, direction):
    state = LawState(law=law, dim=3, strength=0.6, direction=direction, length=30, tolerance=0.5)
    names, printed = run(law_code(state))
    place, strength = LENGTHS.index(30), 5
    assert float(names["law"].mse.sqrt()) == pytest.approx(
        numbers.curve(state).errors[place], rel=1e-9
    )
    assert float(names["law"].effective_tokens) == pytest.approx(
        numbers.curve(state).tokens[place], rel=1e-9
    )
    strengths, limit, affine = numbers.read_outs(state)
    assert strengths[strength] == 0.6
    unit = names["z"] / 0.6
    assert float(names["limit"] @ unit) == pytest.approx(limit[strength], rel=1e-12)
    assert float(names["affine"] @ unit) == pytest.approx(affine[strength], rel=1e-12)
    shown = dict(ROWS.findall(law_page.summary(state, "")))
    assert shown["exact"] == in_words(float(names["law"].mse) ** 0.5, 4)
    assert shown["tokens read"] == in_words(float(names["law"].effective_tokens), 4)
    assert all(
        kind in printed for kind in ("FinitePromptLaw(exact", "Certificate(", "PromptLength(")
    )


def test_every_law_and_direction_has_its_code():
    from largeprompt.explore import code

    assert set(TOKENS) == set(LAWS)
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
    found = training_page.flows(state)
    risks = found["tube"].flow.risk
    np.testing.assert_array_equal(names["tube"].flow.risk, risks)
    assert names["bayes"] == found["bayes"]
    assert f"risk at the end: {float(risks[0, -1])}" in printed


def test_scaling_code_gives_the_factor_on_the_page():
    names, printed = run(scaling_code(ScalingState(trained=1024, times=4, variance=2.0)))
    assert float(names["factor"]) == float(lp.length_scaling(4096, 1024, 2.0))
    assert "exact, log-n, YaRN:" in printed


@pytest.mark.parametrize(
    "program",
    [law_code(LawState()), training_code(TrainingState()), scaling_code(ScalingState())],
    ids=["law", "training", "scaling"],
)
def test_code_draws(program):
    assert re.search(r"\.plot\(\)|plt\.", program)
    assert max(map(len, program.splitlines())) < 160


def test_code_of_a_run_reads_the_head_on_the_page(runs_folder):
    found = available(runs_folder)[0]["audit-drawn"]
    audit = Audit.of(found)
    names, printed = run(runs_code(str(found.folder), audit.where("L1H1")))
    assert found.title in printed
    assert "L1H1" in printed
    assert float(names["head"].head_score_variance) == float(audit.head("L1H1").head_score_variance)
    coin = available(runs_folder)[0]["coin"]
    assert "A coin" in run(runs_code(str(coin.folder), {}))[1]


def test_code_of_a_run_quotes_what_comes_from_disk(tmp_path):
    """A folder's name stands in the program as a string, whatever it is."""
    evil = str(tmp_path / "');import os;('")
    program = runs_code(evil, {"layer": 0, "head": 3, "length": 512})
    assert repr(evil) in program
    compile(program, "shown", "exec")
    assert "layer=0, head=3, length=512" in program
    with pytest.raises(ValueError, match="format code"):
        runs_code("x", {"layer": "0; import os"})
