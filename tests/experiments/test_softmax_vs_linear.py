"""The contest of softmax and linear attention in a small setting: what it holds, that its rules react, and that figures draw it."""

import dataclasses

import numpy as np
import pytest
import torch

from largeprompt.errors import InvalidArgumentError
from largeprompt.measures import Empirical
from largeprompt.studies.softmax_vs_linear.config import relative_excess, standard_task
from largeprompt.studies.softmax_vs_linear.drawn import linear_read, softmax_read
from largeprompt.studies.softmax_vs_linear.figures import heads_figure, regression_map_figure, selection_map_figure
from largeprompt.studies.softmax_vs_linear.heads import read_risk
from largeprompt.studies.softmax_vs_linear.study import STUDY
from largeprompt.training import ShiftedRegression, linear_optimum

F = torch.float64


@pytest.fixture(scope="module")
def data():
    """Even smaller than the quick setting."""
    return STUDY.run(dataclasses.replace(STUDY.quick, dims=(5,), noises=(0.0,), lengths=(20, 1_000_000_000), largest_scale=6.5))


@pytest.fixture(scope="module")
def outcomes(data):
    return [verdict.outcome for verdict in STUDY.judge(data)]


LIMIT, ONE, PAIR, HEADS, FREE, TRAINED, STARTS, LOCATION, OUTLIERS, SHIFTS, DRAWN, SAME, BLIND = range(13)


def judged(data, index):
    return STUDY.judge(data)[index].outcome


def test_verdicts_of_the_small_setting(data, outcomes):
    expected = dict.fromkeys((LIMIT, ONE, PAIR, TRAINED, LOCATION, OUTLIERS, SHIFTS, DRAWN, SAME), "holds") | {STARTS: "undecided"}
    assert {i: outcomes[i] for i in expected} == expected
    assert outcomes[HEADS] == "holds in part"
    assert outcomes[BLIND] == "fails"
    assert [verdict.control for verdict in STUDY.judge(data)] == [i == BLIND for i in range(13)]
    assert {verdict.claim for verdict in STUDY.judge(data)} == {"Q1", "C7"}


@pytest.mark.parametrize(
    ("index", "change", "outcome"),
    [
        (LIMIT, lambda d: d.assign(limit_ratio=1.1 * d.limit_ratio), "fails"),
        (LIMIT, lambda d: d.assign(spectrum_limit=1.1 * d.spectrum_limit), "fails"),
        (ONE, lambda d: d.assign(softmax_best=0.9 * d.linear_best), "fails"),
        (PAIR, lambda d: d.assign(pair_small_tilt=1.01 * d.pair_small_tilt), "fails"),
        (PAIR, lambda d: d.assign(heads_excess=1.01 * d.heads_excess), "fails"),
        (HEADS, lambda d: d.assign(heads_excess=1.2 * d.heads_excess), "fails"),
        (FREE, lambda d: d.assign(free_gain=0.1 * d.free_exact, free_gain_error=1e-4 * d.free_exact), "holds"),
        (FREE, lambda d: d.assign(free_at_optimum=d.free_exact + 9 * d.free_at_optimum_error), "undecided"),
        (TRAINED, lambda d: d.assign(softmax_trained=1.1 * d.softmax_found), "fails"),
        (STARTS, lambda d: d.assign(start_excess=1.001 * d.start_block + 0 * d.start_excess), "holds"),
        (STARTS, lambda d: d.assign(start_excess=0.9 * d.start_linear + 0 * d.start_excess), "fails"),
        (LOCATION, lambda d: d.assign(location_softmax=0.5 * d.location_softmax), "holds in part"),
        (LOCATION, lambda d: d.assign(location_missed=0 * d.location_missed + 1.1), "fails"),
        (OUTLIERS, lambda d: d.assign(outlier_crossing=1.5 * d.outlier_predicted), "fails"),
        (SHIFTS, lambda d: d.assign(shift_excess=d.shift_excess * (1 + 99 * (d.reader == "pair"))), "fails"),
        (DRAWN, lambda d: d.assign(drawn_mean=d.drawn_exact + 9 * d.drawn_error), "fails"),
        (SAME, lambda d: d.assign(identical_heads=d.identical_heads + 1e-6), "fails"),
        (BLIND, lambda d: d.assign(outlier_unmarked=0.5 * d.outlier_unmarked / d.outlier_unmarked), "holds"),
        (SHIFTS, lambda d: d.assign(shift_floor=np.nan * d.shift_floor), "undecided"),
    ],
)  # fmt: skip
def test_rules_can_go_the_other_way(data, index, change, outcome):
    assert judged(change(data), index) == outcome


def test_figures_draw_the_data(data):
    left, right = regression_map_figure(data).axes
    np.testing.assert_allclose(left.lines[0].get_ydata(), (data.softmax_best / data.linear_best).isel(dim=0, noise=0))
    np.testing.assert_allclose(right.lines[0].get_ydata(), data.limit_ratio.isel(noise=0))
    panel = heads_figure(data).axes[0]
    np.testing.assert_allclose(
        panel.lines[0].get_ydata(), (data.heads_vanishing / data.heads_linear).isel(head_dim=0, head_noise=0)
    )
    first, second, third = selection_map_figure(data).axes
    spikes = data.spike > 0
    np.testing.assert_allclose(first.lines[0].get_ydata(), data.location_softmax.isel(location_length=0).sel(spike=spikes))
    np.testing.assert_allclose(second.lines[0].get_ydata(), data.outlier_predicted.isel(outlier_length=0))
    np.testing.assert_allclose(
        third.lines[0].get_ydata(), data.shift_excess.sel(reader="linear").isel(shift_dim=-1, shift_variance=0)
    )


def test_read_outs_of_drawn_prompts_are_attention():
    generator = torch.Generator().manual_seed(0)
    tokens, u = torch.randn(3, 6, 4, generator=generator, dtype=F), torch.randn(3, 4, generator=generator, dtype=F)
    for i in range(3):
        mu = Empirical(tokens[i])
        torch.testing.assert_close(softmax_read(tokens, u)[i], mu.tilted_mean(u[i]))
        torch.testing.assert_close(linear_read(tokens, u)[i], tokens[i].mT @ tokens[i] @ u[i] / 6)


def test_risk_given_the_inputs_averages_over_the_task_vector():
    """w and the noise averaged out by formula, against a large sample of them for one prompt."""
    generator = torch.Generator().manual_seed(1)
    x, query = torch.randn(1, 7, 2, generator=generator, dtype=F), torch.randn(1, 2, generator=generator, dtype=F)
    A, b = torch.stack([torch.eye(2, dtype=F), -0.5 * torch.eye(2, dtype=F)]), torch.tensor([1.2, -0.7], dtype=F)
    w = torch.randn(100_000, 2, generator=generator, dtype=F) / 2**0.5
    y = w @ x[0].mT + 0.5**0.5 * torch.randn(100_000, 7, generator=generator, dtype=F)
    share = torch.softmax(x[0] @ (A @ query[0]).mT, 0) @ b
    error = (y @ share - w @ query[0]).square()
    assert float(read_risk(x, query, A, b, 0.5)) == pytest.approx(float(error.mean()), abs=6 * float(error.std()) / 100_000**0.5)


def test_standard_tasks_have_unit_signal():
    for spectrum in ("identity", "toeplitz", "condition 1e4"):
        task = standard_task(4, 0.3, spectrum)
        assert float(torch.trace(task.prior_covariance @ task.covariance)) == pytest.approx(1.0)
        assert relative_excess(task, (0.3 + 1.0) / 2) == pytest.approx(1.0)
    line = standard_task(3, 0.0, "queries near a line")
    assert relative_excess(line, linear_optimum(line, 10**12).risk) == pytest.approx(0.0, abs=1e-10)
    assert ShiftedRegression(2, 0.0).crossing_length() == float("inf")


def test_settings_that_cannot_work_are_refused():
    with pytest.raises(InvalidArgumentError, match="dims"):
        STUDY.cells(dataclasses.replace(STUDY.quick, dims=(30,)))
    with pytest.raises(InvalidArgumentError, match="lengths"):
        STUDY.cells(dataclasses.replace(STUDY.quick, pair_lengths=(1,)))
