"""Points that average over contexts: calibrated weights and cubature."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.studies.softmax_vs_linear.calibration import (
    calibrated_weights,
    calibration,
    quadratic_points,
    quartic_points,
)
from largeprompt.training import SobolAverage
from largeprompt.training.risk.exact import context_risk

F = torch.float64


def task(d=2, noise=0.1, query=None):
    generator = torch.Generator().manual_seed(d)
    root = torch.randn(d, d, generator=generator, dtype=F)
    return lp.LinearRegression(
        root @ root.mT / d + torch.eye(d, dtype=F) / 2, torch.eye(d, dtype=F) * 0.6, noise, query
    )


def test_calibrated_weights_are_positive_and_exact():
    points = torch.randn(600, 4, generator=torch.Generator().manual_seed(0), dtype=F)
    functions = torch.cat([points, points**2 - 1, points[:, :1] * points[:, 1:2]], -1)
    uniform = torch.full((600,), 1 / 600, dtype=F)
    weights = calibrated_weights(functions, uniform)
    assert float(weights.min()) > 0
    assert float(weights.sum()) == pytest.approx(1, abs=1e-14)
    assert float((weights @ functions).abs().max()) < 1e-10
    assert calibrated_weights(functions[:20], uniform[:20] * 30) is None  # too few points
    assert calibrated_weights(points[:, :1].abs() + 1, uniform) is None  # no positive weights do it
    assert calibrated_weights(functions[:, :0], uniform) is None
    dependent = torch.cat(
        [
            functions,
            functions @ torch.randn(9, 5, generator=torch.Generator().manual_seed(1), dtype=F),
        ],
        -1,
    )
    assert_close(
        calibrated_weights(dependent + 1e-9 * points[:, :1], uniform), weights, rtol=1e-4, atol=1e-8
    )


@pytest.mark.parametrize("singular", ["prior", "query"])
def test_singular_laws_are_calibrated_too(singular):
    direction = torch.tensor([1.0, 2.0, 3.0], dtype=F)
    flat, eye = direction.unsqueeze(-1) * direction, torch.eye(3, dtype=F)
    chosen = lp.LinearRegression(
        eye, flat if singular == "prior" else eye, 0.1, flat if singular == "query" else eye
    )
    contexts = chosen.contexts(SobolAverage())
    weights = calibrated_weights(calibration(chosen, contexts), contexts.weight)
    assert weights is not None
    U, V = 0.2 * torch.ones(1, 4, 4, dtype=F), 0.3 * torch.ones(1, 1, 4, dtype=F)
    fitted = dataclasses.replace(contexts, weight=weights)
    assert_close(
        context_risk(U, V, fitted, [math.inf], lp.SoftmaxAttention),
        chosen.limit_risk(U, V),
        rtol=1e-8,
        atol=1e-9,
    )


def test_calibration_makes_the_infinite_prompt_exact_and_helps_the_finite_one():
    chosen = task(2)
    generator = torch.Generator().manual_seed(2)
    U, V = (
        0.5 * torch.randn(1, 3, 3, generator=generator, dtype=F),
        torch.randn(1, 1, 3, generator=generator, dtype=F),
    )
    truth = float(chosen.general_risks(U, V, [1e4]))
    plain, better = [], []
    for seed in range(12):
        contexts = chosen.contexts(SobolAverage(1024, seed))
        fitted = dataclasses.replace(
            contexts, weight=calibrated_weights(calibration(chosen, contexts), contexts.weight)
        )
        assert_close(
            context_risk(U, V, fitted, [math.inf], lp.SoftmaxAttention),
            chosen.limit_risk(U, V),
            rtol=1e-10,
            atol=1e-12,
        )
        plain.append(abs(float(context_risk(U, V, contexts, [1e4], lp.SoftmaxAttention)) - truth))
        better.append(abs(float(context_risk(U, V, fitted, [1e4], lp.SoftmaxAttention)) - truth))
    assert sum(better) < sum(plain) / 3


@pytest.mark.parametrize(
    ("call", "words"),
    [(lambda: SobolAverage(0), "points: got 0"), (lambda: SobolAverage(seed=-1), "seed: got -1")],
)
def test_bad_input(call, words):
    with pytest.raises(lp.InvalidArgumentError, match=words):
        call()


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_cubature_is_exact(dim):
    def moment(points, weights, powers):
        return float((weights * (points ** torch.tensor(powers, dtype=F)).prod(-1)).sum())

    for powers in np.ndindex(*(5,) * min(dim, 2)):
        if sum(powers) > 5:
            continue
        exact = math.prod(0 if k % 2 else math.prod(range(1, k, 2)) for k in powers)
        padded = [*powers, *(0,) * (dim - len(powers))]
        assert moment(*quartic_points(dim), padded) == pytest.approx(exact, abs=1e-12)
        if sum(powers) <= 3:
            assert moment(*quadratic_points(dim), padded) == pytest.approx(exact, abs=1e-12)
