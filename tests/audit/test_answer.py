"""The answer of an audit, and its table of heads."""

import json
import subprocess
import sys

import numpy as np
import pytest

from largeprompt.audit.answer import answer, chosen_plan, head_rows, table
from largeprompt.audit.kinds import FINDINGS


@pytest.fixture
def told(run_data):
    """A run in which two heads were chosen."""
    chosen = (run_data.head_order.isel(length=-1) <= 2).astype(np.int8)
    return run_data.assign(chosen=chosen, kept=0.998, confirmed=0.996).assign_attrs(budget=0.99)


def test_the_answer_names_the_heads_what_they_keep_and_what_to_leave_alone(told):
    last = told.isel(length=-1, layer=0)
    first = [f"0.{head}" for head in np.argsort(last.head_order.values)[:2]]
    text = answer(told)
    assert text.startswith(
        f"Replace these 2 heads, {first[0]}, {first[1]}: loss of the next token before over after 0.9980 (0.9960 on"
    )
    assert "of attention's operations saved" in text
    kept = [head for head in range(4) if f"0.{head}" not in first]
    leave = [f"0.{head}" for head in kept if FINDINGS[int(last.head_finding[head])] in ("selects", "other shape")]
    assert f"Leave alone: {', '.join(leave)}." in text
    everything = answer(told.assign(chosen=0 * told.chosen + 1))  # a head is never in both lists
    assert "Replace these 4 heads" in everything
    assert "Leave alone" not in everything
    assert "less than the budget" in answer(told.assign(confirmed=0.98))
    assert "on texts" not in answer(told.assign(confirmed=np.nan))


def test_other_answers(told, run_data):
    assert answer(told.assign(chosen=0 * told.chosen)).startswith("Replace no head: not even the first")
    assert "Nothing was replaced" in answer(run_data)
    assert chosen_plan(run_data) is None
    assert "shorter than 64 tokens" in answer(told.assign(head_finding=0 * told.head_finding - 1))


def test_every_head_at_every_length_ranked(told):
    rows = head_rows(told)
    json.dumps(rows, allow_nan=False)
    assert [row["length"] for row in rows] == [400] * 4 + [200] * 4
    assert [row["order"] for row in rows] == [1, 2, 3, 4] * 2
    assert [row["chosen"] for row in rows[:4]] == [True, True, False, False]
    headings, cells = table(rows)
    assert {"order", "head", "L", "affine", "saves", "verdict", "replace"} <= set(headings)
    assert {len(row) for row in cells} == {len(headings)}
    errors = [float(row[headings.index("affine")]) for row in cells[:4]]
    assert errors == sorted(errors)


def test_the_plan_of_a_run_has_its_heads_in_order(told):
    plan = chosen_plan(told)
    order = told.head_order.isel(length=-1)
    assert [float(order.sel(layer=layer, head=head)) for layer, head in plan.heads] == [1, 2]
    assert (plan.budget, plan.kept, plan.confirmed) == (0.99, 0.998, 0.996)


def test_it_does_without_torch():
    subprocess.run([sys.executable, "-c", "import sys, largeprompt.audit.answer; sys.exit('torch' in sys.modules)"], check=True)
