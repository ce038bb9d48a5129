"""Words and numbers on the page, and text that stays text."""

import re
from xml.etree import ElementTree

import pytest

from largeprompt.explore.text import answer, figure, in_words, note, table


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0, "0"),
        (0.02314, "0.0231"),
        (0.2, "0.200"),
        (999.6, "1,000"),
        (1240.0, "1,240"),
        (-1.5, "-1.50"),
        (3.2e9, "3.20·10⁹"),
        (4.56e-5, "4.56·10⁻⁵"),
        (float("inf"), "∞"),
        (float("nan"), "unknown"),
    ],
)
def test_numbers_as_one_reads_them(value, words):
    assert in_words(value) == words


def test_two_digits_are_two_digits():
    assert in_words(2614.0, 2) == "2,600"


def test_titles_and_legends_are_text():
    drawn = figure("name", "<script>", "", [("c0", "a < b")])
    assert "<script>" not in drawn + note("<script>") + answer("name", "<script>", "")
    assert re.search(r"a &lt; b", drawn)


def test_tables_have_their_names_and_text_that_stays_text():
    found = table("<b>", [("a < b", "1", "<i>")], ("row", "one", "two"))
    root = ElementTree.fromstring(found)
    assert root.find("caption").text == "<b>"
    assert [row.attrib.get("data-row") for row in root.iter("tr")] == [None, "a < b"]
    assert [cell.text for cell in root.iter("td")] == ["1", "<i>"]
