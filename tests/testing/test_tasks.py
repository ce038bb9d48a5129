"""Every task of the library through the one contract."""

import torch

import largeprompt as lp
from largeprompt.testing import TaskContract

F = torch.float64
COVARIANCE = torch.tensor([[1.0, 0.3], [0.3, 0.6]], dtype=F)


class TestLinearRegression(TaskContract):
    task = lp.LinearRegression(
        COVARIANCE, torch.eye(2, dtype=F) / 2, 0.2, 0.7 * torch.eye(2, dtype=F)
    )
