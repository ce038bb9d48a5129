"""N3: the gradient of a batch of prompts, as the study uses it."""

import torch

import largeprompt as lp
from largeprompt.studies.heavytail.training import prompts, read

F = torch.float64


def test_sgd_gradient_is_the_derivative_of_the_loss():
    """The closed gradient of one batch, as the study uses it, against autograd."""
    law = lp.scalar.StudentTLaw(3.0, 1.0)
    x, y, query, _, answer = prompts(law, (2, 8), 20, 0.1, torch.Generator().manual_seed(1))
    theta = torch.tensor([[0.6, 0.8], [0.3, 1.2]], dtype=F, requires_grad=True)
    a, b = theta[:, :1], theta[:, 1:]
    said, mean, covariance = read(a, b, x, y, query)
    error = said - answer
    (expected,) = torch.autograd.grad((error.square() / 2).mean(-1).sum(), theta)
    closed = torch.stack([(error * b * covariance * query).mean(-1), (error * mean).mean(-1)], -1)
    torch.testing.assert_close(closed.detach(), expected)
