"""The second tab."""

from xml.etree import ElementTree

from largeprompt.explore import training_page
from largeprompt.explore.picture import in_words
from largeprompt.explore.state import TrainingState
from largeprompt.explore.training import flows

STATE = TrainingState(attention="linear", dim=2, until=10.0)


def test_the_page_is_well_formed_and_shows_the_flows():
    found, page = flows(STATE), ElementTree.fromstring(training_page.page(STATE))
    assert [card.attrib["id"] for card in page] == ["risks", "tube", "ends"]
    rows = [[cell.text for cell in row.iter("td")] for row in page.iter("tr")]
    for length, risk, bayes in zip(found.lengths, found.risks, found.bayes, strict=True):
        assert [f"{length:,}", in_words(risk[-1], 4), in_words(bayes, 4)] in [
            row[:3] for row in rows
        ]
    assert rows[-1][0] == "∞"


def test_the_sentence_says_what_short_prompts_lose():
    found = flows(STATE)
    lost = in_words(float(found.risks[0, -1] - found.limit_risks[-1]), 2)
    assert (
        f"linear attention ends {lost} above the risk of an infinite prompt"
        in training_page.ends(STATE, found)
    )


def test_each_length_has_its_line_its_tube_and_its_bayes_risk():
    found = flows(STATE)
    assert training_page.risks(found).count('class="line') == 2 * (len(found.lengths) + 1)
    assert training_page.tube(found).count('class="line') == 2 * len(found.lengths)
