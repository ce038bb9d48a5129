"""The studies of training in small settings: what they hold, that their rules react, and that their figures draw the data."""

import numpy as np
import pytest

from largeprompt.studies.covariances import covariance, largest_alpha
from largeprompt.studies.endpoint import study as endpoint
from largeprompt.studies.endpoint.figures import endpoint_figure
from largeprompt.studies.paper import study as paper
from largeprompt.studies.paper.figures import sgd_figure, trained_figure, training_figure
from largeprompt.studies.trajectory import study as trajectory
from largeprompt.studies.trajectory.figures import excess_figure, parameters_figure, tube_figure


@pytest.fixture(scope="module")
def tubes():
    config = trajectory.TrajectoryConfig(
        dim=2, lengths=(30, 100_000), until=4.0, times=13, points=128, excess_dims=(2,), excess_decades=(1, 4), targets=(1e-1, 1e-2)
    )
    return trajectory.STUDY.run(config)


def outcomes(study, data):
    return [(verdict.claim, verdict.outcome) for verdict in study.verdicts(data)]


def test_trajectory_verdicts_follow_the_data(tubes):
    assert outcomes(trajectory.STUDY, tubes)[:4] == [("C5", "holds"), ("C7", "holds"), ("C5", "fails"), ("C5", "holds")]
    assert [verdict.control for verdict in trajectory.STUDY.verdicts(tubes)] == [False, False, True, False, False, False]
    crossed = tubes.assign(softmax_envelope=tubes.softmax_distance / 2)
    assert outcomes(trajectory.STUDY, crossed)[0] == ("C5", "fails")
    wide = tubes.assign(linear_distance=tubes.linear_distance * 0 + 1, linear_envelope=tubes.linear_envelope * 0 + 2)
    assert outcomes(trajectory.STUDY, wide)[1] == ("C7", "fails")
    unknown = tubes.assign(needed_length_softmax=tubes.needed_length_softmax * np.nan)
    assert outcomes(trajectory.STUDY, unknown)[3] == ("C5", "undecided")
    flat = tubes.assign(softmax_best=tubes.softmax_best * 0 + 0.3)
    assert [outcome for _, outcome in outcomes(trajectory.STUDY, flat)[4:]] == ["fails", "fails"]


def test_excess_risks_are_the_closed_ones(tubes):
    """Best linear attention, isotropic, W = I/d, no noise: ½ c/(1+c), c = (d+1)/L; softmax stays above it."""
    np.testing.assert_allclose(tubes.linear_best, tubes.linear_predicted, rtol=1e-6)
    assert bool((tubes.softmax_best > tubes.linear_best).all())
    assert bool((tubes.softmax_best <= tubes.softmax_at_limit_endpoint + 1e-12).all())
    needed = float(tubes.needed_length_linear.sel(epsilon=1e-2)[0])
    assert needed == pytest.approx(3 / (0.02 / 0.98), rel=0.02)  # interpolated between half decades


def test_trajectory_figures_draw_the_data(tubes):
    left, right = tube_figure(tubes).axes
    np.testing.assert_allclose(left.lines[0].get_ydata(), tubes.softmax_distance[0, 1:])
    np.testing.assert_allclose(right.lines[3].get_ydata(), tubes.linear_envelope.max("time"))
    panels = parameters_figure(tubes).axes
    assert [axes.get_title() for axes in panels] == ["$A_{11}$", "$A_{12}$", "$b$"]
    np.testing.assert_allclose(excess_figure(tubes).axes[0].lines[0].get_ydata(), tubes.softmax_best[0])


def test_endpoint_study_and_its_control():
    config = endpoint.EndpointConfig(covariances=("toeplitz",), dims=(2,))
    data = endpoint.STUDY.run(config)
    verdicts = endpoint.STUDY.verdicts(data)
    assert [v.outcome for v in verdicts] == ["holds", "holds", "holds", "fails"]
    assert [v.control for v in verdicts] == [False, False, False, True]
    assert float(data.b.sel(start="balanced, b(0) < 0").max()) < 0
    worse = data.assign(A_error=data.A_error + 1e-3)
    assert [v.outcome for v in endpoint.STUDY.verdicts(worse)][:3] == ["fails", "fails", "fails"]
    left, _ = endpoint_figure(data).axes
    np.testing.assert_allclose(left.lines[0].get_xdata(), data.b.sel(start="balanced") / data.theorem_b)
    assert largest_alpha(covariance("identity", 16)) == pytest.approx(np.sqrt(2) / 2)


@pytest.fixture(scope="module")
def small_paper():
    return paper.STUDY.run(
        paper.PaperConfig(
            dim=1,
            lengths=(5, 50),
            until=2.0,
            times=9,
            points=256,
            tolerance=1e-4,
            sgd_lengths=(5,),
            sgd_steps=300,
            sgd_seeds=(0, 1),
        )
    )


def test_paper_study_follows_both_settings_and_sgd(small_paper):
    data = small_paper
    assert data.risk.dims == ("setting", "attention", "length", "time")
    assert bool((data.risk >= data.bayes_risk - 1e-9).all())
    assert bool((data.risk.diff("time") <= 1e-9).all())  # a flow descends
    assert float(np.abs(paper.sgd_gap(data)).max()) < 0.05
    assert outcomes(paper.STUDY, data)[0] == ("P1", "undecided")  # training has not ended at t = 2
    ended = data.assign_coords(time=data.time * 150)
    assert outcomes(paper.STUDY, ended)[0] == ("P1", "fails")  # and far from Bayes that would be a failure
    reached = ended.assign(risk=ended.bayes_risk + 0 * ended.risk)
    assert outcomes(paper.STUDY, reached)[0] == ("P1", "holds")
    stuck = reached.assign(risk=reached.risk.where(reached.attention == "softmax", 2 * reached.risk))
    assert outcomes(paper.STUDY, stuck)[0] == ("P1", "fails")  # linear attention counts too
    off = data.assign(sgd_risk=data.sgd_risk * 1.2)
    assert outcomes(paper.STUDY, off)[2] == ("P1", "fails")
    assert [verdict.control for verdict in paper.STUDY.verdicts(data)] == [False, False, False, True]


def test_released_setting_multiplies_twice():
    config = paper.PaperConfig()
    intended, released = (paper.task(config, setting) for setting in paper.SETTINGS)
    factor = np.linalg.cholesky(intended.covariance.numpy())
    np.testing.assert_allclose(released.covariance, factor @ factor @ factor.T @ factor.T)
    np.testing.assert_allclose(released.query_covariance, np.eye(5))
    np.testing.assert_allclose(intended.query_covariance, intended.covariance)


def test_paper_figures_draw_the_data(small_paper):
    data = small_paper
    left, _ = trained_figure(data).axes
    np.testing.assert_allclose(left.lines[0].get_ydata(), data.risk.sel(setting="intended", attention="softmax").isel(time=-1)[:-1])
    _, right = training_figure(data).axes
    np.testing.assert_allclose(right.lines[0].get_ydata(), data.distance.sel(setting="intended", attention="softmax")[0])
    overlay, _ = sgd_figure(data).axes
    marks = [line for line in overlay.lines if line.get_marker() == "o" and len(line.get_xdata()) > 1]
    np.testing.assert_allclose(marks[0].get_ydata(), data.sgd_risk.sel(attention="softmax")[0, 0])
