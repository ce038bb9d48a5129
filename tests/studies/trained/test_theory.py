"""Predictions of the exact theory of one layer (C6, C7) against samples and the library."""

import math

import numpy as np
import pytest
import torch

import largeprompt as lp
from largeprompt.studies.trained.theory import (
    common_optimum,
    own_moment_risk,
    predictions,
    regression,
)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_the_optimum_of_one_length_is_the_librarys_and_of_several_is_least():
    task = regression(2, 0.1)
    one = lp.training.isotropic_optimum(task, 16)
    risk, a, b = common_optimum(task, [16])
    assert (risk, a, b) == pytest.approx((one.risk, one.a, one.b), rel=1e-5)
    risk, a, b = common_optimum(task, [16, 32])

    def mean(a, b):
        point = (torch.tensor([a], dtype=torch.float64), torch.tensor([b], dtype=torch.float64))
        return np.mean([float(task.isotropic_risk(*point, length)[0]) for length in (16, 32)])

    assert risk == pytest.approx(mean(a, b), rel=1e-12)
    assert all(mean(a * x, b * y) > risk for x, y in ((1.02, 1), (0.98, 1), (1, 1.02), (1, 0.98)))
    assert risk > np.mean([lp.training.isotropic_optimum(task, length).risk for length in (16, 32)])


def test_predictions_are_in_order():
    data = predictions(regression(2, 0.1), [16, 32], [16, 32])
    assert bool((data.carried > data.softmax_optimum).all())
    assert bool((data.softmax_optimum > data.linear_optimum).all())
    assert bool((data.linear_optimum > data.bayes).all())
    assert bool((data.bayes > data.floor).all())
    assert float(data.zero_risk) == pytest.approx(0.55)


def test_risk_of_the_affine_read_out_against_drawn_prompts():
    task, length, count = regression(2, 0.1), 6, 200_000
    U = torch.tensor([[0.9, 0.2, 0.0], [-0.1, 0.7, 0.1], [0.2, 0.3, 0.0]], dtype=torch.float64)
    V = torch.tensor([[0.2, -0.1, 0.8]], dtype=torch.float64)
    expected = float(own_moment_risk(task, U[None], V[None], length))
    prompt, query, answer = task.sample(count, length, generator(2))
    mean = prompt.mean(1)
    centred = prompt - mean[:, None]
    tilt = (centred @ (query @ U.mT)[..., None]).squeeze(-1)
    read = (mean + (centred * tilt[..., None]).mean(1)) @ V.mT
    losses = ((read - answer) ** 2 / 2).squeeze(-1)
    assert abs(float(losses.mean()) - expected) < 5 * float(losses.std()) / math.sqrt(count)
