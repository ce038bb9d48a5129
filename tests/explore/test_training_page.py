"""The second tab: flows at several lengths and at infinity."""

import dataclasses
from xml.etree import ElementTree

import numpy as np
import pytest

import largeprompt as lp
from largeprompt.explore import training_page
from largeprompt.explore.state import TrainingState
from largeprompt.explore.text import in_words
from largeprompt.explore.training_page import flows

STATE = TrainingState(attention="linear", dim=2, until=10.0)


def test_flows_start_and_end_where_the_library_says():
    found = flows(STATE)
    task, risks = found["task"], found["tube"].flow.risk
    U, V = np.diag([0.3, 0.3, 0.0]), np.array([[0.0, 0.0, 0.3]])
    layer = lp.LinearAttention(U, V)
    for length, risk in zip(found["lengths"], risks, strict=True):
        assert float(risk[0]) == pytest.approx(float(task.risk(layer, length)), rel=1e-9)
        best = lp.training.linear_optimum(task, length).risk
        assert best * (1 - 1e-9) <= float(risk[-1]) < 1.05 * best
    assert found["bayes"] == [task.bayes_risk(length) for length in found["lengths"]]


def test_distances_stay_in_their_tubes_and_shrink_with_the_length():
    tube = flows(STATE)["tube"]
    # the solver's tolerance is 1e-4
    assert (tube.distance <= tube.envelope * (1 + 1e-3) + 1e-6).all()
    assert (tube.distance.amax(1).diff() < 0).all()
    assert (tube.flow.risk[:, -1] > tube.limit.risk[0, -1]).all()


@pytest.mark.parametrize("change", [{}, {"attention": "softmax"}, {"dim": 5, "noise": 0.0}])
def test_coarse_flows_end_where_fine_ones_do(change):
    state = dataclasses.replace(STATE, **change)
    coarse, fine = (flows(state, each)["tube"].flow.risk[:, -1].numpy() for each in (False, True))
    np.testing.assert_allclose(coarse, fine, rtol=0.02, atol=2e-4)


def test_the_page_is_well_formed_and_shows_the_flows():
    found, page = flows(STATE), ElementTree.fromstring(training_page.page(STATE, True))
    assert [card.attrib["id"] for card in page] == ["risks", "tube", "ends"]
    rows = [["".join(cell.itertext()) for cell in row] for row in page.iter("tr")]
    risks = found["tube"].flow.risk[:, -1].tolist()
    for length, risk, bayes in zip(found["lengths"], risks, found["bayes"], strict=True):
        assert [f"{length:,}", in_words(risk, 4), in_words(bayes, 4)] in [row[:3] for row in rows]
    assert rows[-1][0] == "∞"
    assert rows[-1][2] == "0.05000"


def test_the_stages_are_coarse_then_fine():
    first, coarse, fine = (stage() for stage in training_page.stages(STATE))
    assert "Computing" in first
    assert "coarse; refining" in coarse
    assert "refining" not in fine
    assert fine == training_page.page(STATE, True)


def test_the_sentence_says_what_short_prompts_lose():
    found = flows(STATE)
    lost = in_words(float(found["tube"].flow.risk[0, -1] - found["tube"].limit.risk[0, -1]), 2)
    said = training_page.ends(STATE, found, True)
    assert f"linear attention ends {lost} above the risk of an infinite prompt" in said


def test_each_length_has_its_line_its_tube_and_its_bayes_risk():
    found = flows(STATE)
    lines = 2 * len(found["lengths"])
    assert training_page.risks(found).count('class="line') == lines + 2
    assert training_page.distances(found).count('class="line') == lines
