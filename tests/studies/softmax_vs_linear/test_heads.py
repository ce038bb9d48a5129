"""Q1: risks of several heads given the inputs."""

import pytest
import torch

from largeprompt.studies.softmax_vs_linear.heads import read_risk

F = torch.float64


def test_risk_given_the_inputs_averages_over_the_task_vector():
    """w and the noise averaged out by formula, against a large sample of them for one prompt."""
    generator = torch.Generator().manual_seed(1)
    x, query = (
        torch.randn(1, 7, 2, generator=generator, dtype=F),
        torch.randn(1, 2, generator=generator, dtype=F),
    )
    A, b = (
        torch.stack([torch.eye(2, dtype=F), -0.5 * torch.eye(2, dtype=F)]),
        torch.tensor([1.2, -0.7], dtype=F),
    )
    w = torch.randn(100_000, 2, generator=generator, dtype=F) / 2**0.5
    y = w @ x[0].mT + 0.5**0.5 * torch.randn(100_000, 7, generator=generator, dtype=F)
    share = torch.softmax(x[0] @ (A @ query[0]).mT, 0) @ b
    error = (y @ share - w @ query[0]).square()
    assert float(read_risk(x, query, A, b, 0.5)) == pytest.approx(
        float(error.mean()), abs=6 * float(error.std()) / 100_000**0.5
    )
