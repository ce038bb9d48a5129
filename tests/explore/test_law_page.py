"""The first tab: every picture follows its state, and says in words what it shows."""

import re
from xml.etree import ElementTree

import pytest

import largeprompt as lp
from largeprompt.explore import law_page, numbers
from largeprompt.explore.state import LAWS, LENGTHS, LawState

PICTURES = {
    "scores": law_page.scores,
    "tokens": law_page.effective_tokens,
    "readout": law_page.read_out,
}
PICTURES |= {"errors": law_page.errors, "phase": law_page.phase_diagram}
PICTURES |= {"answer": lambda state: law_page.summary(state, law_page.sentence(state))}


def parts(page):
    """The cards of a page by their ids; the page must be well-formed."""
    root = ElementTree.fromstring(page)
    return {card.attrib["id"]: ElementTree.tostring(card, encoding="unicode") for card in root}


@pytest.mark.parametrize("law", LAWS)
def test_the_page_is_well_formed_with_all_pictures(law):
    state = LawState(law=law, dim=2, strength=1.0)
    found = parts(law_page.page(state, "words"))
    assert set(found) == set(PICTURES)
    assert all("nan" not in card.replace("on-map", "") for card in found.values())


@pytest.mark.parametrize(
    ("change", "moved"),
    [
        ({"law": "signs"}, set(PICTURES)),
        ({"strength": 2.0}, set(PICTURES)),
        ({"length": 30}, {"tokens", "readout", "errors", "phase", "answer", "scores"}),
        ({"dim": 3}, {"errors", "answer", "scores"}),
        ({"decay": 1.5}, {"errors", "answer"}),
        ({"tolerance": 0.5}, {"errors", "answer"}),
    ],
)
def test_pictures_follow_the_controls(change, moved):
    """Those that depend on a control change with it, and the others stay as they are."""
    before, after = LawState(dim=2), LawState(**{"dim": 2} | change)
    changed = {name for name, draw in PICTURES.items() if draw(before) != draw(after)}
    assert changed == moved


def test_squares_are_filled_in_proportion_to_effective_tokens():
    state = LawState(length=1000)
    tokens = numbers.curve(state).tokens[LENGTHS.index(1000)]
    heights = [
        float(height)
        for height in re.findall(
            r'class="full"[^>]* height="([\d.]+)"', law_page.effective_tokens(state)
        )
    ]
    assert sum(heights) / 14 / 200 == pytest.approx(tokens / 1000, rel=2e-3)


def test_a_token_among_millions_is_still_seen():
    """The filled part is never invisible: at least 0.6 of a pixel of a square."""
    drawn = law_page.effective_tokens(LawState(strength=4.0, length=30))
    assert len(re.findall(r'class="full"', drawn)) >= 1


def test_the_sentence_names_the_lengths_of_prompt_length():
    state = LawState(dim=2, tolerance=0.3)
    here = numbers.problem(state)
    exact, proved = (
        int(lp.prompt_length(here.attention, here.mu, here.z, 0.3, method))
        for method in ("exact", "certified")
    )
    assert law_page.sentence(state) == (
        f"For an error of 0.3: {exact:,} tokens. By the certificate: {proved:,} tokens."
    )
    never = law_page.sentence(LawState(law="laplace", dim=1, strength=1.4, tolerance=0.02))
    assert never.endswith("By the certificate: no length up to 10¹⁵.")


@pytest.mark.parametrize(
    ("length", "whole", "square"),
    [
        (1, "1 token", ""),
        (100, "100 tokens", ""),
        (300, "300 tokens", "one square: 1.5 tokens"),
        (10**7, "10,000,000 tokens", "one square: 50,000 tokens"),
    ],
)
def test_tokens_read_are_whole_and_squares_hold_more_than_one(length, whole, square):
    here, card = (
        numbers.problem(LawState()),
        ElementTree.fromstring(law_page.effective_tokens(LawState(length=length))),
    )
    tokens = float(lp.finite_prompt(here.attention, here.mu, here.z, length).effective_tokens)
    number = f"{round(tokens, -4 if length == 10**7 else None):,.0f}"  # three digits of a million
    assert card.find("figcaption").text == f"It reads about {number} of {whole}"
    assert "".join(card.find("div").itertext()) == square


def test_a_query_that_is_too_strong_for_laplace_tokens_is_weakened_and_said_to_be():
    state = LawState.of({"law": "laplace"})
    said = law_page.too_strong(1.5, state)
    assert said == "Laplace tokens have no limit at strength 1.5: shown at 1.4."
    assert law_page.too_strong(1.4, state) == law_page.too_strong(4.0, LawState(strength=4.0)) == ""
    page = law_page.page(state, "words")
    assert "nan" not in page.replace("on-map", "")


def test_gaussian_tokens_are_linear_and_signs_are_not():
    assert "a linear map of the query" in law_page.read_out(LawState())
    # 1 - tanh(2)/2 = 0.518
    assert "52 % off the affine read-out" in law_page.read_out(LawState(law="signs", strength=2.0))


def test_the_answer_comes_second():
    first, second = (stage() for stage in law_page.stages(LawState(dim=2)))
    assert "Counting the tokens that are needed for an error of 0.2" in first
    assert law_page.sentence(LawState(dim=2)) in second
