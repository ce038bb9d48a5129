"""The verdicts of an audit (claim 'audit')."""

import numpy as np
import pytest
import xarray as xr

from largeprompt.audit.rules import RULES, clusters, kinds, last, order
from largeprompt.runs.judging import judge


def test_verdicts_of_planted_heads(run_data):
    found = judge(RULES, run_data)
    assert [each.control for each in found] == [False, False, False, True]
    assert {each.claim for each in found} == {"audit"}
    assert kinds(run_data).outcome == "holds in part"
    assert kinds(run_data).headline == "1 of 4 heads read only moments."
    assert kinds(run_data).measured.startswith("heads that read only moments 1 of 4; ")
    assert "(L0H0 to L0H3)" in kinds(run_data).measured
    assert order(run_data).outcome == "holds"
    told = "heads replaced 2; cosine, audit 0.990; cosine, reverse 0.700; "
    assert order(run_data).measured.startswith(told)
    assert "KL divergence, audit 0.0100" in order(run_data).measured
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
    assert [each.asked for each in judge(RULES, heads)] == [each.question for each in RULES[:2]]
    plain = heads.drop_vars([name for name in heads if "mixture" in name])
    assert clusters(plain).outcome == "undecided"


@pytest.mark.parametrize("rule", RULES, ids=[each.question for each in RULES])
def test_a_verdict_that_rests_on_nan_is_undecided(rule, run_data):
    broken = xr.Dataset(
        {
            name: values * np.nan if name in ("head_mean_error", "cosine") else values
            for name, values in run_data.items()
        },
        attrs=run_data.attrs,
    )
    broken["head_finding"] = xr.full_like(run_data.head_finding, -1)
    assert rule(broken).outcome == "undecided"
