"""Tasks and read-outs of the contest of softmax and linear attention (Q1)."""

import pytest
import torch

from largeprompt.measures import Empirical
from largeprompt.studies.softmax_vs_linear.heads import read_risk
from largeprompt.studies.softmax_vs_linear.parts import relative_excess, standard_task
from largeprompt.studies.softmax_vs_linear.tasks import linear_read, softmax_read
from largeprompt.training import ShiftedRegression, linear_optimum

F = torch.float64


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
