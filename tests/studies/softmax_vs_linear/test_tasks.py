"""Q1: read-outs of drawn prompts."""

import torch

from largeprompt.measures import Empirical
from largeprompt.studies.softmax_vs_linear.tasks import linear_read, softmax_read

F = torch.float64


def test_read_outs_of_drawn_prompts_are_attention():
    generator = torch.Generator().manual_seed(0)
    tokens, u = (
        torch.randn(3, 6, 4, generator=generator, dtype=F),
        torch.randn(3, 4, generator=generator, dtype=F),
    )
    for i in range(3):
        mu = Empirical(tokens[i])
        torch.testing.assert_close(softmax_read(tokens, u)[i], mu.tilted_mean(u[i]))
        torch.testing.assert_close(linear_read(tokens, u)[i], tokens[i].mT @ tokens[i] @ u[i] / 6)
