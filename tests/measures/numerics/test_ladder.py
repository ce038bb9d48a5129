"""The cumulant ladder against closed forms."""

import math

import pytest
import torch

import largeprompt as lp

F = torch.float64


def test_ladder_has_the_cumulants():
    rungs = lp.measures.cumulant_ladder(
        lp.scalar.RademacherSum(1, 3), torch.tensor([[0.5], [2.0]], dtype=F)
    )
    expected = torch.tensor([[0.0, u * u, 0.0, -2 / 3 * u**4 / 6] for u in (0.5, 2.0)], dtype=F)
    torch.testing.assert_close(rungs, expected, rtol=0, atol=1e-12)
    mu, u = lp.scalar.SkewNormal(2, 0.5), 0.01 * torch.tensor([1.0, 2.0], dtype=F)
    torch.testing.assert_close(
        lp.measures.cumulant_ladder(mu, u).sum(), (u * mu.tilted_mean(u)).sum(), rtol=1e-6, atol=0
    )


def test_ladder_converges_inside_and_not_outside():
    """Four rungs of uniform tokens: the share that they miss falls like the square of the tilt over
    the radius.
    """
    mu, radius = lp.Uniform(1), math.pi / math.sqrt(3)

    def error(u):
        gap = float(mu.tilted_mean([u])) - u
        return abs(float(lp.measures.cumulant_ladder(mu, [u])[2:].sum()) / u / gap - 1)

    assert error(radius / 4) < 0.06
    assert error(radius / 8) == pytest.approx(error(radius / 4) / 4, rel=0.05)
    assert error(2 * radius) > 1


def test_bad_input():
    with pytest.raises(lp.InvalidArgumentError, match="mu"):
        lp.measures.cumulant_ladder(lp.Gaussian([[0.0], [1.0]], [[1.0]]), [1.0])
