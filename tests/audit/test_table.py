"""The audit's table: as text, and in pandas."""

import numpy as np
import pytest

import largeprompt as lp
from largeprompt.audit import audit_heads, summary, table
from largeprompt.audit.kinds import FINDINGS
from largeprompt.audit.table import COLUMNS


def test_rows_are_the_heads_in_the_order_of_replacement(random_heads):
    data = audit_heads(random_heads(tokens=80), components=(2,))
    heads, found = summary(data), table(data)
    assert [row["order"] for row in found.rows] == [1, 2, 3, 4]
    for row in found.rows:
        one = heads.sel(layer=row["layer"], head=row["number"])
        assert row["head"] == f"L{row['layer']}H{row['number']}"
        assert row["verdict"] == FINDINGS[int(one.finding)]
        assert row["affine_error"] == float(one.affine_error)
        assert row["factor_2"] > 1
    assert table(heads).rows == found.rows
    frame = found.to_dataframe()
    assert frame.shape[0] == 4
    assert {"head", "verdict", "score_variance", "mixture_2_error", "factor_8"} <= set(frame)
    np.testing.assert_allclose(frame.score_variance, [row["score_variance"] for row in found.rows])


def test_lengths_are_listed_longest_first_and_chosen_heads_are_marked(told):
    found = table(told)
    assert [row["length"] for row in found.rows] == [400] * 4 + [200] * 4
    assert [row["chosen"] for row in found.rows[:4]] == [True, True, False, False]
    assert {"order", "head", "L", "affine", "saves", "verdict", "replace"} <= set(found.headings)
    assert set(found.headings) <= {heading for heading, *_ in COLUMNS}
    assert {len(row) for row in found.cells} == {len(found.headings)}


def test_it_shows_as_text(told):
    found = table(told)
    first, *rows = repr(found).splitlines()
    assert first.split() == found.headings
    assert len(rows) == 8
    assert {len(row) for row in rows} == {len(first)}
    many = type(found)(found.rows * 10)
    assert repr(many).endswith("... 60 more rows")


def test_what_is_no_audit_is_refused():
    with pytest.raises(lp.InvalidArgumentError, match="data: got int without heads"):
        table(3)
