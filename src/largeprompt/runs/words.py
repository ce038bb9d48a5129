"""Numbers as a printed page has them: raised exponents and minus signs."""

import re
from decimal import Decimal

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
FLOAT = re.compile(r"(?<![\w.])(-?\d+(?:\.\d+)?)e([+-]\d+)(?!\w)")
LONG = re.compile(r"(?<![\w.,])1(0{5,})(?![\d.])")
CARET = re.compile(r"(?<![\w.])10\^(-?\d+)(?!\w|\.\d|/)")
INFINITE = re.compile(r"\binf\b")
PERCENT = re.compile(r"(?<=\d) %")
MINUS = re.compile(r"(?<![\w.)\]-])-(?=\d|∞)")


def typeset(text: str) -> str:
    """A text with its numbers as in print.

    Examples
    --------
    >>> typeset("3.1e-15 at L = 1e+06, slope -0.5, 50 % of 2.2e+03, L >= 100000")
    '3.1×10⁻¹⁵ at L = 10⁶, slope −0.5, 50% of 2200, L ≥ 10⁵'
    """
    text = PERCENT.sub(
        "%", INFINITE.sub("∞", text.replace("<=", "≤").replace(">=", "≥").replace(" - ", " − "))
    )
    text = LONG.sub(lambda found: _power(len(found[1])), FLOAT.sub(_plain, text))
    return MINUS.sub("−", CARET.sub(lambda found: _power(int(found[1])), text))


def _power(exponent: int) -> str:
    return "10" + str(exponent).translate(RAISED)


def _plain(found: re.Match[str]) -> str:
    """A float with an exponent: written out from 0.001 to 99,999, else as a power of ten."""
    mantissa, exponent = found[1], int(found[2])
    if Decimal(mantissa) == 0:
        return "0"
    if -3 <= exponent <= 4:
        return f"{Decimal(mantissa).scaleb(exponent):f}"
    return _power(exponent) if Decimal(mantissa) == 1 else f"{mantissa}×{_power(exponent)}"
