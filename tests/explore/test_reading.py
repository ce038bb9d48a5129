"""Runs and audits as the third tab finds them."""

import math

import numpy as np
import pytest

from largeprompt.audit.kinds import FINDINGS
from largeprompt.explore.picture import in_words
from largeprompt.explore.reading import Audit, audit_of, available
from largeprompt.runs.files import RunError


@pytest.fixture(scope="module")
def audit(runs_folder):
    return Audit.of(available(runs_folder)[0]["audit-drawn"])


def test_finished_runs_are_found_and_others_said_to_be_left_out(runs_folder, tmp_path):
    runs, left_out = available(runs_folder)
    assert set(runs) == {"audit-drawn", "coin", "empty-audit"}
    assert any("half is not finished" in each for each in left_out)
    assert any("broken" in each for each in left_out)
    assert list(available(runs_folder / "coin")[0]) == ["coin"]  # a run folder itself
    assert available(tmp_path / "nowhere") == ({}, [])
    assert "not a run folder" in available(runs_folder / "broken")[1][0]


def test_an_audit_is_told_from_other_runs(runs_folder):
    runs, _ = available(runs_folder)
    assert audit_of(None) == (None, "")
    assert audit_of(runs["coin"]) == (None, "")
    assert audit_of(runs["audit-drawn"])[0] is not None
    found, trouble = audit_of(runs["empty-audit"])
    assert found is None
    assert "has no heads to show" in trouble
    with pytest.raises(RunError, match="no heads"):
        Audit.of(runs["empty-audit"])


def test_heads_by_name(audit):
    assert audit.heads == ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]
    assert audit.chosen("1.2") == "1.2"
    assert audit.chosen("9.9") == audit.chosen("<b>") == "0.0"
    assert audit.picked([("1", "h2")]) == "1.2"
    assert audit.picked([("1", "layer")]) == "1.0"
    assert audit.picked([]) == "0.0"
    for name in audit.heads:
        layer, head = map(int, name.split("."))
        assert (
            audit.finding(name)
            == FINDINGS[int(audit.data.head_finding.sel(layer=layer, head=head))]
        )


def test_every_verdict_says_why(audit):
    """The weak head reads moments, the strong one selects; the reason has the numbers of the
    dataset.
    """
    assert audit.finding("0.0") == "uniform"
    assert (
        f"the mean value alone misses {in_words(float(audit.head('0.0').head_mean_error))}"
        in audit.why("0.0")
    )
    assert audit.finding("0.1") == "moments"
    assert audit.finding("0.2") == "selects"
    assert (
        f"misses {in_words(float(audit.head('0.1').head_affine_error))} of the output"
        in audit.why("0.1")
    )
    assert "within the tolerance of 0.2" in audit.why("0.1")
    assert "picks tokens" in audit.why("0.2")


@pytest.mark.parametrize(
    ("code", "said"),
    [(1, "A Gaussian mixture of 2"), (3, "another shape"), (-1, "No query position")],
)
def test_reasons_of_the_other_verdicts(audit, code, said):
    data = audit.data.copy(deep=True)
    data["head_finding"][:] = code
    data["head_clusters"][:] = 2.0
    assert said in Audit(data, None, 0.2).why("0.1")


def test_read_outs_that_were_tried(audit):
    assert audit.read_outs == ["mean", "affine", "third", "fourth", "mixture_2"]
    assert math.isclose(audit.tolerance, 0.2)
    assert np.isfinite(audit.data.head_score_variance).all()
