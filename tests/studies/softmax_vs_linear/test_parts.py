"""Q1: standard tasks have unit signal."""

import pytest
import torch

from largeprompt.studies.softmax_vs_linear.parts import relative_excess, standard_task
from largeprompt.studies.softmax_vs_linear.shifted import ShiftedRegression
from largeprompt.training import linear_optimum


def test_standard_tasks_have_unit_signal():
    for spectrum in ("identity", "toeplitz", "condition 1e4"):
        task = standard_task(4, 0.3, spectrum)
        assert float(torch.trace(task.prior_covariance @ task.covariance)) == pytest.approx(1.0)
        assert relative_excess(task, (0.3 + 1.0) / 2) == pytest.approx(1.0)
    line = standard_task(3, 0.0, "queries near a line")
    assert relative_excess(line, linear_optimum(line, 10**12).risk) == pytest.approx(0.0, abs=1e-10)
    assert ShiftedRegression(2, 0.0).crossing_length() == float("inf")
