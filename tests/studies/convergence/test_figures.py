"""The figures draw the exact law, the bounds, the fitted form, spectra and regimes."""

import numpy as np
from study_checks import drawn, figures_are_complete

from largeprompt.studies.convergence.curves import paper_form
from largeprompt.studies.convergence.figures import convergence, regimes, short, spectra
from largeprompt.studies.convergence.study import STUDY


def test_errors_bounds_and_form(data):
    axes = convergence.draw(data).axes
    assert len(axes) == 6
    for panel, quantity, logs in ((axes[1], "output", 1), (axes[4], "jacobian_u", 2)):
        part = data.sel(score_variance=2.0, quantity=quantity)
        assert drawn(panel, part.exact)
        assert drawn(panel, part.certified)
        form = paper_form(data.length.values, 2.0, float(part.c1), float(part.c2), logs)
        assert drawn(panel, np.where(data.length > 1, form, np.nan))


def test_spectra_and_their_constants(data):
    errors, relative, table = spectra.draw(data).axes
    one = data.sel(spectrum="condition 10000", direction="weak", score_variance=2.0)
    assert drawn(errors, one.spectrum_exact * data.spectrum_length)
    assert drawn(relative, np.sqrt(one.spectrum_exact / one.spectrum_size))
    cells = table.tables[0].get_celld()
    words = {cell.get_text().get_text() for cell in cells.values()}
    assert f"{float(data.c2.sel(score_variance=2.0, quantity='output')):.3g}" in words


def test_short_prompts_and_regimes(data):
    limit, first, risk = short.draw(data).axes
    one = data.sel(short_dim=1, short_variance=2.0, short_length=slice(1, 30))
    assert drawn(limit, np.sqrt(one.short_exact / 2.0))
    assert drawn(first, one.short_first_order / one.short_exact)
    assert drawn(risk, data.risk.sel(attention="softmax")[0])
    plane, sharp, scaled = regimes.draw(data).axes[:3]
    assert drawn(plane, np.exp(2 * data.regime_variance))
    assert drawn(sharp, data.ratio[0])
    assert drawn(scaled, data.yarn_factor)


def test_figures_are_complete(data):
    figures_are_complete(STUDY, data)
