"""Numbers as in print: the same value, no programmer's notation."""

import re

import pytest

from largeprompt.runs.words import typeset

RAISED = {ord(a): b for a, b in zip("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789", strict=True)}


def value(text):
    """What a typeset number says."""
    mantissa, _, power = (
        text.replace("−", "-").partition("×")
        if "×" in text
        else ("1", "", text)
        if text[2:].translate(RAISED) != text[2:]
        else (text, "", "")
    )
    return float(mantissa) * (10.0 ** int(power[2:].translate(RAISED)) if power else 1.0)


@pytest.mark.parametrize("form", [".0e", ".1e", ".2e", ".3g"])
@pytest.mark.parametrize(
    "number", [3.14e-15, 1e-6, 2.5e-4, 0.0123, 0.19, 5.5, 1234.0, 98765.0, 1e6, 7.3e12, -4.2e-9]
)
def test_a_number_keeps_its_value(number, form):
    written = f"{number:{form}}"
    found = typeset(written)
    assert "e" not in found
    assert value(found) == pytest.approx(float(written), rel=1e-12)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("1.9e-01", "0.19"),
        ("1e+04 and 1e-05", "10000 and 10⁻⁵"),
        ("0e+00", "0"),
        ("L = 100000 to 10^14", "L = 10⁵ to 10¹⁴"),
        ("10^-0.5 and 10^(2u)", "10^−0.5 and 10^(2u)"),
        ("slope -0.98 [-1.0, -0.9]", "slope −0.98 [−1.0, −0.9]"),
        ("x - 1, u-v, 2512-10656, AR(1) -0.5", "x − 1, u-v, 2512-10656, AR(1) −0.5"),
        ("df = inf, infinite, at 10^14.", "df = ∞, infinite, at 10¹⁴."),
        ("50 % of L >= 3 <= 4", "50% of L ≥ 3 ≤ 4"),
        ("condition 1e4, type2e+x, 0.100000", "condition 1e4, type2e+x, 0.100000"),
    ],
)
def test_words_around_numbers_stay(before, after):
    assert typeset(before) == after
    assert typeset(after) == after
    assert not re.search(r"\de[+-]\d", after)
