"""The figures of an audit."""

import subprocess
import sys

import numpy as np

from largeprompt.audit.figures import FIGURES
from largeprompt.audit.study import STUDY


def test_figures_show_the_dataset(run_data):
    drawn = {each.name: each.draw(run_data) for each in STUDY.drawable(run_data)}
    assert list(drawn) == ["heads", "regimes", "readouts", "replacement"] == [each.name for each in FIGURES]
    (image,) = drawn["heads"].axes[3].images
    np.testing.assert_array_equal(image.get_array(), run_data.head_affine_error.isel(length=-1))
    curve = drawn["replacement"].axes[0].lines[0]
    np.testing.assert_array_equal(curve.get_ydata(), 1 - run_data.cosine.sel(curve="audit"))
    assert "KL" in drawn["replacement"].axes[1].get_ylabel()
    labels = [label.get_text() for label in drawn["readouts"].axes[0].get_xticklabels()]
    assert labels == ["mean", "affine", "+ 3rd", "+ 4th", "1 comp.", "4 comp."]


def test_without_replacement_or_lengths(run_data):
    heads = run_data.drop_dims(["curve", "replaced"]).isel(length=-1, drop=True)
    assert [each.name for each in STUDY.drawable(heads)] == ["heads", "regimes", "readouts"]
    for each in STUDY.drawable(heads):
        assert each.draw(heads).axes


def test_figures_and_rules_do_without_torch():
    code = "import sys; import largeprompt.audit.figures, largeprompt.audit.rules; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
