"""Tables as text and as HTML."""

import math
from xml.etree import ElementTree

from largeprompt.display.tables import entry, html_table, plain, text_table

COLUMNS = {
    "length": [10.0, 100_000.0, math.inf],
    "rmse": [0.123456, 1e-7, 0.0],
    "regime": ["frozen", "linear", "<b>&"],
}


def test_text_is_aligned_numbers_to_the_right_and_words_to_the_left():
    assert text_table("Law(exact)", COLUMNS).splitlines() == [
        "Law(exact)",
        "   length    rmse  regime",
        "       10  0.1235  frozen",
        "  100,000   1e-07  linear",
        "        ∞       0  <b>&",
    ]


def test_entries():
    assert [entry(x) for x in (1234567, 0.5, -math.inf, 1e12, "word", 3920.4)] == [
        "1,234,567",
        "0.5",
        "-∞",
        "1e+12",
        "word",
        "3,920",
    ]


def test_numbers_in_a_line_of_code():
    assert [plain(x) for x in (1e6, 66556.4, 18.8173, 1e12, math.inf, 1e-7)] == [
        "1000000",
        "66556",
        "18.82",
        "1000000000000",
        "inf",
        "1e-07",
    ]


def test_html_is_well_formed_escaped_and_without_colors():
    text = html_table("Law(<exact>)", COLUMNS)
    table = ElementTree.fromstring(text)  # raises where tags do not close
    assert [cell.text for cell in table.iter("td")][:3] == ["10", "0.1235", "frozen"]
    assert [cell.text for cell in table.iter("th")] == list(COLUMNS)
    assert [cell.text for cell in table.iter("td")][-1] == "<b>&"
    assert table.find("caption").text == "Law(<exact>)"
    assert "<b>" not in text
    # as the notebook has them, light or dark
    assert not any(word in text for word in ("#", "rgb", "background"))
