"""Verdicts of heads with planted laws."""

import numpy as np
import pytest

from largeprompt.audit import FINDINGS, Rule, summary


def test_the_prediction_does_not_move_with_the_length_it_is_made_at(planted, audited):
    needed = []
    for tokens in (256, 1024, 4096):
        heads = planted("short", tokens=tokens, texts=12, seed=5)
        needed.append(float(summary(audited(heads, ()), Rule(tolerance=0.15)).needed_length.item()))
    assert max(needed) <= 2 * min(needed)


@pytest.mark.parametrize(
    ("kind", "finding"),
    [
        ("linear", "moments"),
        ("short", "needs a longer prompt"),
        ("frozen", "selects"),
        ("skewed", "other shape"),
        ("mixture", "few clusters"),
        ("selects", "selects"),
    ],
)
def test_a_planted_head_gets_its_verdict(kind, finding, planted, audited):
    heads = summary(audited(planted(kind), () if kind == "skewed" else (2, 4)), Rule(tolerance=0.15))
    assert FINDINGS[int(heads.finding.item())] == finding


def test_planted_moments_come_back(planted, audited):
    data = audited(planted("linear"), ())
    np.testing.assert_allclose(data.score_variance.values, 0.3 * 399 / 400, rtol=1e-9)
    assert set(np.unique(data.regime)) == {0}
    assert set(np.unique(audited(planted("frozen"), ()).regime)) == {2}
