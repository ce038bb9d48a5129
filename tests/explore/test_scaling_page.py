"""The third tab: the exact factor and the published rules."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

import largeprompt as lp
from largeprompt.explore import scaling_page
from largeprompt.explore.state import TIMES, TRAINED, VARIANCES, ScalingState

STATE = ScalingState(trained=1024, times=4, variance=2.0)


def cells(state):
    page = ElementTree.fromstring(scaling_page.page(state))
    rows = [row for row in page.iter("tr") if "data-row" in row.attrib]
    return {row.attrib["data-row"]: [cell.text for cell in row.iter("td")] for row in rows}


def test_factors_are_those_of_the_library():
    found = cells(STATE)
    assert found["exact"][0] == f"{float(lp.length_scaling(4096, 1024, 2.0)):.3f}"
    # ln 4096/ln 1024 and (1 + 0.1 ln 4)²
    assert (found["log-n, LongRoPE"][0], found["YaRN"][0]) == ("1.200", "1.296")


def test_the_exact_factor_keeps_the_tokens_that_are_read():
    found = cells(STATE)
    kept = float(lp.output_scale(1024, 2.0)) ** -2
    assert found["exact"][1] == f"{kept:,.0f}"
    assert f"softmax reads {kept:,.0f} tokens" in scaling_page.page(STATE)
    assert float(found["none"][1]) > kept


def test_each_rule_crosses_the_exact_factor_once():
    said = re.findall(r"<title>σ² = ([\d.]+)</title>", scaling_page.page(STATE))
    for variance, rule in zip(said, (1.2, (1 + 0.1 * np.log(4)) ** 2), strict=True):
        assert float(lp.length_scaling(4096, 1024, float(variance))) == pytest.approx(
            rule, rel=0.01
        )


@pytest.mark.parametrize("trained", [TRAINED[0], TRAINED[-1]])
@pytest.mark.parametrize("variance", [VARIANCES[0], VARIANCES[-1]])
def test_every_corner_of_the_controls_has_a_page(trained, variance):
    page = scaling_page.page(ScalingState(trained, TIMES[-1], variance))
    assert [card.attrib["id"] for card in ElementTree.fromstring(page)] == [
        "by-variance",
        "by-length",
        "scaling",
    ]
    assert "nan" not in page
