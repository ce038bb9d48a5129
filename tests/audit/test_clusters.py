"""Gaussian mixtures of keys and values."""

import torch

from largeprompt.audit.clusters import responsibilities


def test_responsibilities_sum_to_one_and_forget_padding(random_heads, masks):
    heads = random_heads(mask=masks(50)["padded"])
    member = responsibilities(heads, (3,), sinks=2)[3]
    assert member.shape == (2, 2, 50, 5)
    torch.testing.assert_close(member[0].sum(-1), torch.ones(2, 50, dtype=torch.float64))
    assert float(member[1, :, 40:].abs().max()) == 0
