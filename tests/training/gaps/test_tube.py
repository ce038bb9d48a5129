"""The tube around the infinite-prompt flow and its envelope (claim C5)."""

import math

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from scipy.integrate import solve_ivp
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.training.gaps.tube import gronwall

F = torch.float64


def start(kind=lp.SoftmaxAttention, size=0.4):
    U, V = torch.zeros(3, 3, dtype=F), torch.zeros(1, 3, dtype=F)
    U[:2, :2], V[0, 2] = size * torch.eye(2, dtype=F) / math.sqrt(2), size
    return kind(U, V)


TASK = lp.LinearRegression([[1.0, 0.4], [0.4, 0.8]], torch.eye(2, dtype=F), 0.1)


@pytest.mark.parametrize("kind", [lp.SoftmaxAttention, lp.LinearAttention])
@pytest.mark.parametrize("way", ["block", "full"])
def test_distance_stays_inside_the_envelope_and_the_tube_closes(kind, way):
    times = np.linspace(0, 4, 33)
    found = lp.training.tube(
        TASK, start(kind), [30, 1000, 30_000], 4.0, parametrization=way, times=times, tolerance=1e-7
    )
    assert bool((found.distance <= found.envelope + 1e-6).all())
    assert bool((found.supremum.diff() < 0).all())
    # a bound that says something
    assert float(found.envelope[-1, -1]) < 60 * float(found.distance[-1, -1])
    assert float(found.distance[:, 0].max()) == 0
    data = found.to_xarray()
    assert set(data.dims) == {"length", "time"}
    assert_close(torch.from_numpy(data.distance.values), found.distance)
    assert all(
        value.attrs["long_name"] and value.attrs["units"] for value in data.variables.values()
    )
    assert "Tube(until=4" in repr(found)
    assert found._repr_html_().count("<tr>") == 4
    axes = found.plot(Figure().subplots())
    assert_close(torch.tensor(axes.lines[0].get_ydata()), found.envelope[0, 1:])
    assert_close(torch.tensor(axes.lines[-1].get_ydata()), found.distance[-1, 1:])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "$L=30$",
        "$L=10^{3}$",
        "$L=30000$",
    ]
    assert float((found.flow.theta(2.0)[0] - found.limit.theta(2.0)[0]).norm()) == pytest.approx(
        float(found.distance[0, 16]), rel=1e-6
    )


def test_envelope_fails_without_the_forcing():
    """A negative control: the inequality needs the difference of the gradients."""
    found = lp.training.tube(
        TASK, start(), [30], 2.0, parametrization="block", times=np.linspace(0, 2, 21)
    )
    without = gronwall(found.times, 0 * found.forcing, found.growth)
    assert bool((found.distance > without + 1e-6).any())


def test_gronwall_solves_its_equation():
    times = torch.linspace(0, 3, 2001, dtype=F)
    forcing, growth = 0.3 + times.sin() ** 2, 0.5 - times
    exact = solve_ivp(
        lambda t, e: 0.3 + np.sin(t) ** 2 + (0.5 - t) * e,
        (0, 3),
        [0.0],
        rtol=1e-10,
        atol=1e-12,
        t_eval=times.numpy(),
    )
    found = gronwall(times, forcing, growth)
    assert bool((found >= torch.from_numpy(exact.y[0]) - 1e-9).all())
    np.testing.assert_allclose(found, exact.y[0], rtol=5e-3, atol=1e-6)
    assert_close(gronwall(times, torch.ones_like(times), 0 * times), times)


def test_bad_input_is_refused():
    with pytest.raises(lp.InvalidArgumentError, match="length"):
        lp.training.tube(TASK, start(), [10, math.inf], 1.0)
    with pytest.raises(lp.InvalidArgumentError, match="length"):
        lp.training.tube(TASK, start(), [0], 1.0)
    with pytest.raises(lp.InvalidArgumentError, match="until"):
        lp.training.tube(TASK, start(), [10], -1.0)
    with pytest.raises(lp.InvalidArgumentError, match="times"):
        lp.training.tube(TASK, start(), [10], 1.0, times=[2.0])
    with pytest.raises(
        lp.LargePromptError, match=r"a score variance of 5\.51e\+03; risks are computed up to 2048"
    ):
        lp.training.tube(TASK, start(size=80.0), [10], 1.0, parametrization="block")


def test_coarse_envelopes_are_infinite_not_nan():
    ones = torch.ones(1, 2, dtype=F)
    assert float(gronwall(torch.tensor([0.0, 1000.0], dtype=F), ones, ones)[0, 1]) == math.inf
    assert float(gronwall(torch.tensor([0.0, 1000.0], dtype=F), 0 * ones, ones)[0, 1]) == 0
