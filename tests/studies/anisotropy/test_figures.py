"""E3: the figures of spread eigenvalues draw errors, constants and exponents."""

import numpy as np
from study_checks import drawn, figures_are_complete

from largeprompt.studies.anisotropy.figures import collapse, constants
from largeprompt.studies.anisotropy.study import STUDY


def test_anisotropy_figures(data):
    part = data.sel(score_variance=2.0, spectrum="condition 1e4", direction="weak")
    left, middle, right = collapse.draw(data).axes
    assert drawn(left, part.exact * data.length)
    assert drawn(middle, np.sqrt(part.exact / part["size"]))
    every = data.sel(score_variance=2.0)
    share = every.exact * data.length / (every.trace + every["size"])
    # the band of both traces, along its edges
    corners = right.collections[1].get_paths()[0].vertices
    for edge in (share.min(("spectrum", "direction")), share.max(("spectrum", "direction"))):
        assert all(
            np.isclose(corners, (x, y)).all(1).any() for x, y in zip(data.length, edge, strict=True)
        )
    assert len(left.lines) <= 6  # no thicket
    second, first, exponents = constants.draw(data).axes
    chosen = data.sel(score_variance=2.0, direction="strong")
    for panel, name in ((second, "c2"), (first, "c1")):
        assert any(np.array_equal(line.get_xdata(), chosen[name]) for line in panel.lines)
    assert drawn(exponents, data.random_exponent.isel(decade_end=-1))


def test_figures_are_complete(data):
    figures_are_complete(STUDY, data)
