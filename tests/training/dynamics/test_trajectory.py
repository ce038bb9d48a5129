"""A trajectory: its times, its dataset and what lies between its times."""

import math

import pytest
import torch
from matplotlib.figure import Figure
from torch.testing import assert_close
from training_examples import blocks, noiseless

import largeprompt as lp
from largeprompt.training.dynamics.objective import make_objective
from largeprompt.training.dynamics.trajectory import hessians_along, slopes_along

F = torch.float64


def test_trajectory_has_times_dataset_and_dense_output():
    task = noiseless(torch.eye(1, dtype=F))
    flow = lp.gradient_flow(
        task, blocks(1), 50, 2.0, parametrization="block", times=[0.5, 1.0], tolerance=1e-6
    )
    assert flow.times.tolist() == [0.0, 0.5, 1.0, 2.0]
    assert flow.to_xarray().attrs["status"] == "finished"
    assert list(flow.to_xarray().parameter.values) == ["A[0, 0]", "b"]
    assert_close(flow.theta(1.0), flow.parameters[2])
    assert (
        repr(flow)
        == f"Trajectory(softmax, length=50, until=2, risk={float(flow.risk[-1]):.4g}, finished)"
    )
    descent = lp.gradient_descent(task, blocks(1), 50, 0.1, 10, parametrization="block")
    assert_close(descent.theta(0.25), (descent.parameters[2] + descent.parameters[3]) / 2)
    with pytest.raises(lp.InvalidArgumentError, match="time: got 3"):
        flow.at(3.0)


def test_trajectory_draws_and_prints_itself():
    task = noiseless(torch.eye(1, dtype=F))
    options = {"parametrization": "block", "times": [0.5, 1.0], "tolerance": 1e-4}
    flow = lp.gradient_flow(task, blocks(1), [50, math.inf], 2.0, **options)
    title, head, *rows = repr(flow).splitlines()
    assert title == "Trajectory(softmax, 2 lengths, until=2, finished)"
    assert head.split() == ["length", "risk", "gradient_norm"]
    assert [float(row.split()[1]) for row in rows] == pytest.approx(
        flow.risk[:, -1].tolist(), rel=1e-3
    )
    assert flow._repr_html_().count("<tr>") == 3
    data = flow.to_xarray()
    assert all(
        value.attrs["long_name"] and value.attrs["units"] for value in data.variables.values()
    )
    axes = flow.plot(Figure().subplots())
    assert_close(torch.tensor(axes.lines[1].get_ydata()), flow.risk[1])
    assert axes.lines[1].get_color() == "black"
    both = flow.plot(Figure().subplots(), show="parameters", ls=":")
    assert_close(
        torch.stack([torch.tensor(line.get_ydata()) for line in both.lines]),
        flow.parameters.mT.reshape(4, -1),
    )
    one = lp.gradient_flow(task, blocks(1), 50, 2.0, **options)
    assert len(one.plot(Figure().subplots()).lines) == 1
    assert one.to_xarray().length.item() == 50
    for bad, words in (({"show": "loss"}, "show: got 'loss'"), ({"axes": 3}, "axes: got int")):
        with pytest.raises(lp.InvalidArgumentError, match=words):
            flow.plot(**bad)


@pytest.mark.parametrize("length", [30, [30, 1000, math.inf]])
def test_derivatives_along_a_path_are_those_of_its_points(length):
    """Forty times, several at once: the first pieces are full, the last is not."""
    task = noiseless(torch.tensor([[1.0, 0.4], [0.4, 0.5]], dtype=F))
    objective, start, _ = make_objective(task, blocks(2), length, "block")
    path = start + 0.1 * torch.randn(
        40, *start.shape, generator=torch.Generator().manual_seed(0), dtype=F
    )
    risks, gradients = slopes_along(objective, path)
    hessians = hessians_along(objective, path[:18])
    assert hessians.shape == (18, len(start), 5, 5)
    for time in (0, 17, 39):
        risk, gradient = objective.gradient(path[time])
        assert_close(risks[time], risk, rtol=1e-9, atol=1e-12)
        assert_close(gradients[time], gradient, rtol=1e-8, atol=1e-10)
    assert_close(hessians[17], objective.hessian(path[17]), rtol=1e-7, atol=1e-9)
