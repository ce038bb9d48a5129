"""The answer of an audit, and its table of heads."""

import json
import subprocess
import sys

import numpy as np
import pytest

from largeprompt.audit.answer import MEANINGS, answer, chosen_plan, head_rows, table
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
        f"Replace these 2 heads, {first[0]}, {first[1]}: loss of the next token before over after "
        "0.9980 (0.9960 on"
    )
    assert "of attention's operations saved (" in text
    assert text.count("at 3,200 tokens)") == 1
    assert "cache" not in text  # these queries read keys behind them
    kept = [head for head in range(4) if f"0.{head}" not in first]
    leave = [
        f"0.{head}"
        for head in kept
        if FINDINGS[int(last.head_finding[head])] in ("selects", "other shape")
    ]
    assert f"Leave alone: {', '.join(leave)}." in text
    everything = answer(told.assign(chosen=0 * told.chosen + 1))  # a head is never in both lists
    assert "Replace these 4 heads" in everything
    assert "Leave alone" not in everything
    assert "less than the budget" in answer(told.assign(confirmed=0.98))
    assert "on texts" not in answer(told.assign(confirmed=np.nan))
    several = answer(told.assign(kept_error=0.0012, confirmed_error=0.0034))
    assert "0.9980 ± 0.0012 (0.9960 ± 0.0034 on texts that did not choose them)" in several


def test_what_is_saved_is_summed_over_the_chosen_heads(told):
    """Of four heads two are replaced, which share their cache with each other, or
    with the others.
    """
    chosen = told.chosen.copy(data=np.array([[1, 1, 0, 0]], dtype=np.int8))
    shares = {"head_saved_operations": 0.8, "head_saved_cache": 0.6, "head_saved_cache_longer": 0.9}
    same = told.assign(
        chosen=chosen,
        **{name: 0 * told.head_affine_error + share for name, share in shares.items()},
    )
    same["head_saved_operations_longer"] = np.nan * same.head_saved_operations
    for size, here, later in ((1, 30, 45), (2, 30, 45), (4, 0, 0)):
        text = answer(same.assign(head_group_size=0 * told.head_affine_error + size))
        assert (
            f"40% of attention's operations and {here}% of its cache saved (40% and {later}% at "
            "3,200 tokens)" in text
        )
    quarter = answer(
        same.assign_attrs(attending_layers=np.array([0, 2, 3, 5])).assign(
            head_group_size=0 * told.head_affine_error + 1
        )
    )
    # one layer of four was looked at
    assert "10% of attention's operations and 8% of its cache saved" in quarter
    assert " saved. " in answer(same.assign(head_longer_length=np.nan * told.head_longer_length))


def test_other_answers(told, run_data):
    assert answer(told.assign(chosen=0 * told.chosen)).startswith(
        "Replace no head: not even the first"
    )
    assert "Nothing was replaced" in answer(run_data)
    assert chosen_plan(run_data) is None
    short = told.assign(head_finding=0 * told.head_finding - 1)
    assert "shorter than 64 tokens" in answer(short)
    assert chosen_plan(short) is None  # nor is anything chosen
    assert "chosen" not in head_rows(short)[0]
    assert answer(told.assign_attrs(silent_layers=np.array([0, 2]))).endswith(
        " No attention in layers 0, 2."
    )
    assert answer(run_data.assign_attrs(silent_layers=1)).endswith(" No attention in layer 1.")


def test_every_head_at_every_length_ranked(told):
    rows = head_rows(told)
    json.dumps(rows, allow_nan=False)
    assert [row["length"] for row in rows] == [400] * 4 + [200] * 4
    assert [row["order"] for row in rows] == [1, 2, 3, 4] * 2
    assert [row["chosen"] for row in rows[:4]] == [True, True, False, False]
    headings, cells = table(rows)
    assert {
        "order",
        "head",
        "L",
        "affine",
        "saves",
        "longer L",
        "saves then",
        "verdict",
        "replace",
    } <= set(headings)
    assert set(headings) | {"predicted", "cache", "cache then", "±"} == set(MEANINGS)
    assert {len(row) for row in cells} == {len(headings)}
    errors = [float(row[headings.index("affine")]) for row in cells[:4]]
    assert errors == sorted(errors)


def test_shape_is_shown_only_where_the_row_does_not_contradict_it(told):
    """Little shape, and yet no longer prompt helps: not known. Too much of it, or a head within the
    tolerance: shown.
    """
    row = head_rows(told)[0] | {"affine_error": 0.5, "shape_error": 0.01, "needed_length": 9000.0}
    rows = [
        row | {"finding": "selects"},
        row | {"finding": "selects", "shape_error": 0.4, "needed_length": None},
    ]
    rows += [
        row | {"finding": name} for name in ("other shape", "moments", "needs a longer prompt")
    ]
    headings, cells = table(rows)
    assert [cell[headings.index("shape")] for cell in cells] == ["-", "0.40", "-", "0.01", "0.01"]


def test_that_mixtures_were_not_tried_is_said(told):
    plain = told.drop_vars([name for name in told if "mixture" in str(name)])
    assert "Leave alone" in answer(plain)
    assert "mixtures, which might read some of them, were not tried" in answer(plain)
    assert "not tried" not in answer(told)


def test_the_plan_of_a_run_has_its_heads_in_order(told):
    plan = chosen_plan(told)
    order = told.head_order.isel(length=-1)
    assert [float(order.sel(layer=layer, head=head)) for layer, head in plan.heads] == [1, 2]
    assert (plan.budget, plan.kept, plan.confirmed) == (0.99, 0.998, 0.996)
    # by the texts that chose them
    turned = told.assign(chosen_order=(3 - order).where(told.chosen > 0))
    assert chosen_plan(turned).heads == plan.heads[::-1]
    more = chosen_plan(told.assign_attrs(attending_layers=np.array([0, 2])))
    assert more.layers == (0, 2)
    assert more.full_attention[1] == [1] * 4


def test_it_does_without_torch():
    subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, largeprompt.audit.answer; sys.exit('torch' in sys.modules)",
        ],
        check=True,
    )
