"""C1, C2, N1: figures draw the exact errors, the gaps and the errors of the operator."""

import numpy as np
from study_checks import drawn, figures_are_complete

from largeprompt.studies.limit.figures import families, limit
from largeprompt.studies.limit.study import STUDY


def test_limit_draws_both_distances(data):
    own, affine, identity = limit.draw(data).axes
    signs = data.sel(law="Rademacher")
    assert drawn(own, np.sqrt(signs.exact))
    assert drawn(affine, np.sqrt(signs.affine))
    assert drawn(affine, [float(signs.gap)] * 2)
    assert drawn(identity, np.maximum(data.identity_error.sel(kind="mixture"), 1e-17))


def test_families_draw_distances_and_the_growth_of_the_gap(data):
    *panels, gap = families.draw(data).axes
    middle = data.isel(tilt=1)
    for axes, name in zip(panels, data.family.values, strict=True):
        one = middle.sel(family=name, member=0)
        assert drawn(axes, np.sqrt(one.family_exact))
        assert drawn(axes, np.sqrt(one.family_affine))
        assert drawn(gap, data.scaling_gap.sel(family=name))


def test_figures_are_complete(data):
    figures_are_complete(STUDY, data)
