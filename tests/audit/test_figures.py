"""The figures of an audit."""

import subprocess
import sys

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

import largeprompt as lp
from largeprompt.audit.figures import FIGURES
from largeprompt.audit.study import STUDY
from largeprompt.display.labels import label


def test_figures_show_the_dataset(run_data):
    drawn = {each.name: each.draw(run_data) for each in STUDY.drawable(run_data)}
    assert (
        list(drawn)
        == ["heads", "regimes", "readouts", "replacement"]
        == [each.name for each in FIGURES]
    )
    (image,) = drawn["heads"].axes[3].images
    np.testing.assert_array_equal(image.get_array(), run_data.head_affine_error.isel(length=-1))
    curve = drawn["replacement"].axes[0].lines[0]
    np.testing.assert_array_equal(curve.get_ydata(), 1 - run_data.cosine.sel(curve="audit"))
    bars = run_data.assign(
        cosine=run_data.cosine.where(run_data.replaced > 2), cosine_error=0.01 + 0 * run_data.cosine
    )
    (drawing,) = [each.draw(bars) for each in STUDY.drawable(bars) if each.name == "replacement"]
    first = drawing.axes[0].containers[0]
    assert first.lines[0].get_xdata().tolist() == [4]  # where it has a point
    (segment,) = first.lines[2][0].get_segments()
    np.testing.assert_allclose(
        segment[:, 1], 1 - run_data.cosine.values[0, 1] + np.array([-0.01, 0.01])
    )
    assert "KL" in drawn["replacement"].axes[1].get_ylabel()
    labels = [label.get_text() for label in drawn["readouts"].axes[0].get_xticklabels()]
    assert labels == ["mean", "affine", "+ 3rd", "+ 4th", "1 comp.", "4 comp."]


def test_without_replacement_or_lengths(run_data):
    heads = run_data.drop_dims(["curve", "replaced"]).isel(length=-1, drop=True)
    assert [each.name for each in STUDY.drawable(heads)] == ["heads", "regimes", "readouts"]
    for each in STUDY.drawable(heads):
        assert each.draw(heads).axes


def test_figures_and_rules_do_without_torch():
    code = (
        "import sys; import largeprompt.audit.figures, largeprompt.audit.rules; "
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_audit_draws_its_verdicts(run_data, random_heads):
    """A run, what audit_heads gives, and its summary: each in one call, on given axes."""
    seen = lp.audit.audit_heads(random_heads(tokens=80))
    found = lp.audit.summary(seen)
    for audit, expected in (
        (run_data, run_data.head_finding.isel(length=-1)),
        (seen, found.finding),
        (found, found.finding),
    ):
        axes = Figure().subplots()
        assert lp.audit.plot(audit, axes) is axes
        (image,) = axes.images
        there = np.unique(expected)
        shown = there[image.get_array().filled(-1).astype(int)]
        np.testing.assert_array_equal(shown, expected)
    for bad in (xr.Dataset({"x": 1}), "audit"):
        with pytest.raises(lp.InvalidArgumentError, match=r"audit: got .* without heads"):
            lp.audit.plot(bad)
    with pytest.raises(lp.InvalidArgumentError, match="axes: got Figure"):
        lp.audit.plot(found, Figure())


def test_every_variable_of_an_audit_has_words_and_units(run_data, random_heads):
    seen, stored = (
        lp.audit.audit_heads(random_heads(tokens=80)),
        label(run_data.copy(), STUDY.variables),
    )
    for data in (stored, seen, lp.audit.summary(seen)):
        for name, value in data.variables.items():
            assert len(value.attrs["long_name"].split()) > 1 or name in (
                "layer",
                "head",
                "finding",
            ), name
            assert value.attrs["units"], name
    assert (
        stored.head_affine_error.attrs["long_name"]
        == "by head: relative error of the affine read-out"
    )
