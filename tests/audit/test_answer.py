"""The answer of an audit."""

import json
import subprocess
import sys

import numpy as np

from largeprompt.audit import Plan
from largeprompt.audit.answer import answer, files
from largeprompt.audit.kinds import FINDINGS


def test_the_answer_names_the_heads_what_they_keep_and_what_to_leave_alone(told):
    last = told.isel(length=-1, layer=0)
    first = [f"L0H{head}" for head in np.argsort(last.head_order.values)[:2]]
    text = answer(told)
    assert text.startswith(
        f"Replace these 2 heads, {first[0]}, {first[1]}: next-token loss before/after 0.9980 "
        "(0.9960 on held-out texts); "
    )
    assert "of attention's operations saved (counted, not timed)" in text
    assert "cache" not in text  # these queries read keys behind them
    leave = [
        f"L0H{head}"
        for head in range(4)
        if f"L0H{head}" not in first
        and FINDINGS[int(last.head_finding[head])] in ("selects", "other shape")
    ]
    assert f"Leave alone: {', '.join(leave)}." in text
    everything = told.assign(chosen=0 * told.chosen + 1, chosen_order=told.head_order[-1])
    assert "Replace these 4 heads" in answer(everything)
    assert "Leave alone" not in answer(everything)  # a head is never in both lists
    assert "less than the budget of 0.99" in answer(told.assign(confirmed=0.98))
    several = answer(told.assign(kept_error=0.0012, confirmed_error=0.0034))
    assert "0.9980 ± 0.0012 (0.9960 ± 0.0034 on held-out texts)" in several


def test_one_text_confirms_nothing(told):
    assert "0.9980 (not confirmed: one text)" in answer(told.assign(confirmed=np.nan))


def test_flat_scores_are_those_of_an_untrained_model(told):
    assert "untrained" not in answer(told)
    flat = told.assign(head_score_variance=0 * told.head_score_variance + 0.0005)
    warning = "Scores are flat (σ² = 0.0005): the model looks untrained."
    assert answer(flat).startswith(warning)


def test_what_is_saved_is_summed_over_the_chosen_heads(told):
    """Of four heads two are replaced, which share their cache with each other, or with all."""
    chosen = told.chosen.copy(data=np.array([[1, 1, 0, 0]], dtype=np.int8))
    order = told.chosen_order.copy(data=[[1.0, 2.0, np.nan, np.nan]])
    same = told.assign(chosen=chosen, chosen_order=order)
    for name, share in (("operations", 0.8), ("cache", 0.6)):
        same[f"head_saved_{name}"] = 0 * told.head_affine_error + share
    for size, share in ((1, 30), (2, 30), (4, 0)):
        text = answer(same.assign(head_group_size=0 * told.head_affine_error + size))
        assert f"40% of attention's operations and {share}% of its cache saved" in text
    quarter = same.assign_attrs(attending_layers=np.array([0, 2, 3, 5]))
    quarter["head_group_size"] = 0 * told.head_affine_error + 1
    # one layer of four was looked at
    assert "10% of attention's operations and 8% of its cache saved" in answer(quarter)


def test_other_answers(told, run_data):
    none = told.assign(chosen=0 * told.chosen, chosen_order=np.nan * told.chosen_order)
    assert answer(none).startswith("Replace no head: even the first misses the budget of 0.99")
    assert "Nothing was replaced" in answer(run_data)
    short = told.assign(head_finding=0 * told.head_finding - 1)
    assert "shorter than 64 tokens" in answer(short)
    assert set(files(short)) == {"answer.json"}  # nor is anything chosen
    silent = told.assign_attrs(silent_layers=np.array([0, 2]))
    assert answer(silent).endswith(" No attention in layers 0, 2.")
    plain = told.drop_vars([name for name in told if "mixture" in str(name)])
    assert "mixtures, which might read some of them, were not tried" in answer(plain)
    assert "not tried" not in answer(told)


def test_the_files_of_a_run(told, tmp_path):
    found = files(told)
    shown = json.loads(found["answer.json"])
    assert shown["answer"] == answer(told)
    assert list(shown["meanings"]) == shown["headings"]
    (tmp_path / "heads.json").write_bytes(found["heads.json"])
    assert Plan.load(tmp_path / "heads.json").heads == ((0, 0),)


def test_it_does_without_torch():
    code = "import sys, largeprompt.audit.answer; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
