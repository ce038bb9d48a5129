"""The two ways to average over (w, x_q) outside the blocks."""

import math

import pytest
import torch

import largeprompt as lp
from largeprompt.training.risk.general import general_excess
from largeprompt.training.risk.scores import RiskError

F = torch.float64


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F)


def layers(size, scale=1.0):
    task = lp.LinearRegression([[1.0, 0.3], [0.3, 0.7]], [[0.5, 0.1], [0.1, 0.4]], 0.2)
    U, V = scale * draw(1, 3, 3, seed=1), draw(1, 1, 3, seed=2)
    U[:, 2] *= size
    return task._layers(U, V)


def test_both_averages_agree_near_the_blocks():
    """Points over ω, which a gradient takes, and the integral over ρ: the fourth power of ϱ apart,
    and nothing at 0.
    """
    for size in (0.0, 2e-4):
        with torch.no_grad():
            integral = float(general_excess(layers(size), [20.0])[0])
        assert float(general_excess(layers(size), [20.0])[0]) == pytest.approx(integral, rel=1e-10)


def test_finer_settings_change_nothing():
    for length in (1.0, 40.0, 1e9):
        default, fine = (
            float(general_excess(layers(1.0), [length], step=step)[0]) for step in (0.16, 0.05)
        )
        assert default == pytest.approx(fine, rel=1e-9, abs=1e-12)
        coarse, error = general_excess(layers(1.0), [length], accuracy=1e-4)
        assert error < 1e-4
        assert float(coarse) == pytest.approx(fine, abs=1e-5)


def test_infinite_prompts_have_no_excess_and_large_scores_are_refused():
    two = layers(1.0)[[0, 0]]
    assert general_excess(two, [math.inf, 5.0])[0].tolist() == [
        0.0,
        float(general_excess(layers(1.0), [5.0])[0]),
    ]
    with pytest.raises(
        RiskError,
        match=r"a score variance of .* Use a smaller U; in training, a smaller step or start",
    ):
        general_excess(layers(1.0, 200.0), [5.0])
