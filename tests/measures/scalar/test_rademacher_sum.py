"""Sums of signs: one is Rademacher, many are Gaussian."""

import math

import pytest
import torch

import largeprompt as lp

F = torch.float64
TILTS = torch.tensor([[-7.0], [-1.3], [-0.01], [0.0], [0.2], [0.9], [4.0], [300.0]], dtype=F)


def test_one_sign_is_rademacher_and_many_are_gaussian():
    for name in ("cgf", "tilted_mean", "tilted_covariance"):
        one, sign = (
            getattr(lp.scalar.RademacherSum(1, 1), name)(TILTS),
            getattr(lp.Rademacher(1), name)(TILTS),
        )
        torch.testing.assert_close(one, sign, rtol=1e-15, atol=0)
    near = TILTS[TILTS.abs() < 2, None]
    many = lp.scalar.RademacherSum(1, 10**8)
    torch.testing.assert_close(
        many.cgf(near), near[:, 0] ** 2 / 2 - near[:, 0] ** 4 / (12 * 10**8), rtol=1e-12, atol=0
    )
    assert lp.scalar.RademacherSum(2, 9).support_radius == pytest.approx(math.sqrt(18))
    values = lp.scalar.RademacherSum(1, 3).sample(
        2000, torch.Generator().manual_seed(0)
    ) * math.sqrt(3)
    assert set(values.round(decimals=9).flatten().tolist()) == {-3.0, -1.0, 1.0, 3.0}


def test_far_tilts_are_drawn_exactly(draws_its_tilts):
    draws_its_tilts(lp.scalar.RademacherSumLaw(7), [-3.0, 0.5])
