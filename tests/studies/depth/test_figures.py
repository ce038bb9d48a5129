"""Q2: figures of the depth study show its numbers."""

import math

import numpy as np

from largeprompt.runs.style import house_style
from largeprompt.studies.depth.figures import FIGURES, shown_cases


def test_figures_draw_the_data(data):
    drawn = {entry.name: entry.draw(data) for entry in FIGURES}
    for figure in drawn.values():
        with house_style():
            figure.draw_without_rendering()  # warnings are errors: empty legends, layout
    assert all(entry.caption.endswith(".") for entry in FIGURES)
    case = shown_cases(data)[0]
    panel = drawn["depth"].axes[0]
    expected = np.sqrt(data.band.sel(case=case, quantity="token") / 256).where(data.layer > 0)
    assert any(
        np.allclose(np.asarray(line.get_ydata(), dtype=float), expected, equal_nan=True)
        for line in panel.lines
        if len(line.get_ydata()) == 5
    )
    left, right = drawn["breaking"].axes
    assert any(np.allclose(line.get_ydata(), math.log(16) / 2) for line in left.lines)
    points = sum(len(line.get_xdata()) for line in right.lines if line.get_marker() != "None")
    assert points == int(np.isfinite(data.measured_breaking).sum())
    axes = drawn["normalised"].axes
    part = data.isel(normalised=0, layer=slice(1, None))
    level, error = float(part.level.mean()), float(part.level_error.mean())
    drawn_level = any(
        np.allclose(line.get_ydata(), math.sqrt(max(level, 0.0))) for line in axes[0].lines
    )
    assert drawn_level == (level > 3 * error)  # a level that may be 0 is not drawn
