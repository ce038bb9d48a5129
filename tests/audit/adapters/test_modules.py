"""Heads of a torch.nn.MultiheadAttention."""

import pytest
import torch

from largeprompt.audit import module_heads
from largeprompt.errors import InvalidArgumentError


def test_torch_module_outside_transformers():
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(12, 3, batch_first=True, dtype=torch.float64)
    tokens = torch.randn(2, 9, 12, dtype=torch.float64)
    heads = module_heads(module, tokens)
    exact = torch.cat([rows.read(rows.weights()) for _, rows in heads.rows(torch.arange(9))], 2)
    torch.testing.assert_close(
        module.out_proj(exact.transpose(1, 2).flatten(2)), module(tokens, tokens, tokens)[0]
    )
    sideways = torch.nn.MultiheadAttention(12, 3, dtype=torch.float64)
    sideways.load_state_dict(module.state_dict())
    torch.testing.assert_close(module_heads(sideways, tokens.transpose(0, 1)).query, heads.query)
    assert module_heads(module, tokens, causal=True).causal  # compared with the module's output
    module.dropout = 0.5
    module_heads(module.train(), tokens)
    for bad in (torch.zeros(2, 9, 5), torch.zeros(9, 12)):
        with pytest.raises(InvalidArgumentError, match="tokens"):
            module_heads(module, bad)
    with pytest.raises(InvalidArgumentError, match="module"):
        module_heads(torch.nn.Linear(3, 3), tokens)
    with pytest.raises(InvalidArgumentError, match="module"):
        module_heads(torch.nn.MultiheadAttention(12, 3, add_zero_attn=True), tokens)
