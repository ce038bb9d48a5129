"""The verdicts of an audit (claim 'audit')."""

import numpy as np
import pytest
import xarray as xr

from largeprompt.audit.rules import RULES, clusters, kinds, last, length, order, predictions
from largeprompt.runs.judging import judge


def test_verdicts_of_planted_heads(run_data):
    found = judge(RULES, run_data)
    assert [each.control for each in found] == [False, False, False, False, False, True]
    assert {each.claim for each in found} == {"audit"}
    assert kinds(run_data).outcome == "holds in part"
    assert kinds(run_data).measured.startswith("1 of 4 heads do, to 0.2 of their output; ")
    assert "head 0) to" in kinds(run_data).measured
    assert order(run_data).outcome == "holds"
    assert "with 2 heads replaced: audit 0.990, reverse 0.700" in order(run_data).measured
    assert "KL divergence of the next token" in order(run_data).measured
    assert last(run_data).outcome == "fails"


def test_the_order_must_be_better_than_random_and_the_last_heads_worse(run_data):
    swapped = run_data.assign(
        cosine=run_data.cosine.copy(data=run_data.cosine.values[[1, 0, 2, 3, 4]])
    )
    assert order(swapped).outcome == "fails"
    assert last(swapped).outcome == "holds"
    assert "KL" not in order(run_data.assign(kl=run_data.kl * np.nan)).measured


def test_orders_are_compared_where_all_curves_have_points(run_data):
    """The first step has the audit's curve alone."""
    more = run_data.isel(replaced=[0, 0, 1]).assign_coords(replaced=[1, 2, 4])
    more["cosine"] = more.cosine.where((more.replaced > 1) | (more.curve == "audit"))
    assert order(more).measured == order(run_data).measured
    assert last(more).measured == last(run_data).measured


def test_nothing_is_said_of_what_was_not_computed(run_data):
    heads = run_data.drop_dims(["curve", "replaced"])
    assert [each.asked for each in judge(RULES, heads)] == [each.question for each in RULES[:4]]
    plain = heads.drop_vars([name for name in heads if "mixture" in name])
    assert clusters(plain).outcome == "undecided"
    assert length(heads.assign_attrs(tolerance=np.inf)).measured.startswith(
        "Every head is within the tolerance"
    )


def test_what_length_would_do_is_said_with_its_reach_and_its_record(run_data):
    """Four heads beyond the tolerance: one within reach, two beyond it, one at no length; and six
    tested promises.
    """
    heads = run_data.isel(length=-1)
    known = {
        "shape_share": [0.0, 0.5, 0.5, 1.0],
        "affine_error": [0.5] * 4,
        "needed_length": [900, 5000, 6000, np.inf],
    }
    known |= {"out_of_reach": [0, 1, 1, 1]}
    told = heads.assign(
        {f"head_{name}": heads.head_affine_error.copy(data=[each]) for name, each in known.items()}
    )
    told = told.assign(
        head_predictions_made=6, head_predictions_kept=1, head_predictions_close=0.57
    ).assign_attrs(positions_allowed=2048)
    found = length(told)
    assert found.outcome == "undecided"  # one in four, by predictions that do not come true
    assert (
        "1 of the 4 heads beyond the tolerance would come within it inside the 2,048 tokens that "
        "it reads, 2 at" in found.measured
    )
    assert (
        "57% of the predicted errors that could be tested are close, and 1 of 6 promises came true"
        in found.measured
    )
    assert length(told.assign(head_predictions_kept=6)).outcome == "holds in part"
    assert length(told.assign(head_out_of_reach=0 * told.head_out_of_reach + 1)).outcome == "fails"
    assert (
        "Nothing of this could be tested"
        in length(told.assign(head_predictions_close=np.nan)).measured
    )


def test_the_length_that_a_prediction_takes_is_said(run_data):
    """128 keys, which the earliest of a causal model's later queries see at 256 tokens."""
    plain = run_data.assign(head_predictions_close=np.nan).isel(length=[-1])
    assert "read two lengths of at least 128 tokens" in predictions(plain).measured
    assert (
        "read two lengths of at least 256 tokens"
        in predictions(plain.assign(query=plain.tokens.isel(layer=0, head=0) - 1)).measured
    )
    window = run_data.assign(head_predictions_close=np.nan, tokens=0 * run_data.tokens + 100)
    assert "queries see 100 keys at most, and 128 are needed" in predictions(window).measured


def test_predictions_hold_only_where_eight_in_ten_of_at_least_five_came_true(run_data):
    for made, kept, outcome in ((10, 8, "holds"), (10, 7, "fails"), (4, 4, "undecided")):
        told = run_data.assign(
            head_predictions_made=made, head_predictions_kept=kept, head_predictions_close=0.6
        )
        assert predictions(told).outcome == outcome
        assert (
            f"{made} heads were predicted to come within the tolerance, and {kept} did"
            in predictions(told).measured
        )


@pytest.mark.parametrize("rule", RULES, ids=[each.question for each in RULES])
def test_a_verdict_that_rests_on_nan_is_undecided(rule, run_data):
    broken = xr.Dataset(
        {
            name: values * np.nan
            if name in ("head_mean_error", "head_shape_share", "head_predictions_close", "cosine")
            else values
            for name, values in run_data.items()
        },
        attrs=run_data.attrs,
    )
    broken["head_finding"] = xr.full_like(run_data.head_finding, -1)
    assert rule(broken).outcome == "undecided"
