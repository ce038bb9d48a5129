"""Q1: figures of the contest of softmax and linear attention show its numbers."""

import numpy as np

from largeprompt.studies.softmax_vs_linear.figures import heads, regression, selection


def test_figures_draw_the_data(data):
    left, right = regression.draw(data).axes
    np.testing.assert_allclose(
        left.lines[0].get_ydata(), (data.softmax_best / data.linear_best).isel(dim=0, noise=0)
    )
    np.testing.assert_allclose(right.lines[0].get_ydata(), data.limit_ratio.isel(noise=0))
    panel = heads.draw(data).axes[0]
    np.testing.assert_allclose(
        panel.lines[0].get_ydata(),
        (data.heads_vanishing / data.heads_linear).isel(head_dim=0, head_noise=0),
    )
    first, second, third = selection.draw(data).axes
    spikes = data.spike > 0
    np.testing.assert_allclose(
        first.lines[0].get_ydata(), data.location_softmax.isel(location_length=0).sel(spike=spikes)
    )
    np.testing.assert_allclose(
        second.lines[0].get_ydata(), data.outlier_predicted.isel(outlier_length=0)
    )
    np.testing.assert_allclose(
        third.lines[0].get_ydata(),
        data.shift_excess.sel(reader="linear").isel(shift_dim=-1, shift_variance=0),
    )
