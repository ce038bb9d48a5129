"""Runs and audits as the third tab finds them."""

import math
import shutil

import numpy as np
import pytest

from largeprompt.audit.kinds import FINDINGS
from largeprompt.explore.reading import Audit, audit_of, available
from largeprompt.explore.text import in_words
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
    assert list(audit.rows) == ["L0H0", "L0H1", "L0H2", "L1H0", "L1H1", "L1H2"]
    assert audit.chosen("L1H2") == "L1H2"
    assert audit.chosen("L9H9") == audit.chosen("<b>") == "L0H0"
    assert audit.picked([("1", "h2")]) == "L1H2"
    assert audit.picked([("1", "layer")]) == "L1H0"
    for name, row in audit.rows.items():
        one = audit.data.sel(audit.where(name))
        assert row["verdict"] == FINDINGS[int(one.head_finding)]
        assert row["score_variance"] == float(audit.head(name).head_score_variance)


def test_a_damaged_audit_is_said_to_be_damaged(runs_folder, tmp_path):
    shutil.copytree(runs_folder / "audit-drawn", tmp_path / "damaged")
    with (tmp_path / "damaged" / "dataset.nc").open("r+b") as file:
        file.seek(2000)
        file.write(b"damage")
    found, trouble = audit_of(available(tmp_path)[0]["damaged"])
    assert found is None
    assert trouble.startswith("Damaged audit: ")


def test_every_verdict_says_why(audit):
    """The weak head reads moments, the strong one selects; the reason has the numbers of the
    dataset.
    """
    assert audit.rows["L0H0"]["verdict"] == "uniform"
    assert (
        f"the mean value alone misses {in_words(float(audit.head('L0H0').head_mean_error))}"
        in audit.why("L0H0")
    )
    assert audit.rows["L0H1"]["verdict"] == "moments"
    assert audit.rows["L0H2"]["verdict"] == "selects"
    assert (
        f"misses {in_words(float(audit.head('L0H1').head_affine_error))} of the output"
        in audit.why("L0H1")
    )
    assert "within the tolerance of 0.2" in audit.why("L0H1")
    assert "picks tokens" in audit.why("L0H2")


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        ("few clusters", "A Gaussian mixture of 2"),
        ("other shape", "another shape"),
        ("not judged", "No query position"),
    ],
)
def test_reasons_of_the_other_verdicts(audit, verdict, said):
    row = audit.rows["L0H1"] | {"verdict": verdict, "clusters": 2.0}
    assert said in Audit(audit.data, {"L0H1": row}).why("L0H1")


def test_read_outs_that_were_tried(audit):
    assert audit.read_outs == ["mean", "affine", "third", "fourth", "mixture_2"]
    assert math.isclose(audit.tolerance, 0.2)
    assert np.isfinite(audit.data.head_score_variance).all()
