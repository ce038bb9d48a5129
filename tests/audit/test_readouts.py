"""Read-outs at every position against their definitions."""

import pytest
import torch

from largeprompt.audit import read_out
from largeprompt.audit.readouts import chosen_heads


@pytest.mark.parametrize("kind", ["plain", "causal", "window", "padded"])
@pytest.mark.parametrize("read", ["mean", "affine"])
def test_running_moments_give_the_read_out_of_every_prefix(
    kind, read, monkeypatch, random_heads, one_by_one, masks
):
    monkeypatch.setattr("largeprompt.audit.readouts.CHUNK", 16)
    heads = random_heads(causal=kind == "causal", mask=masks(50).get(kind))
    given = read_out(heads, read)
    for text, head, position in ((0, 0, 7), (1, 3, 49), (0, 2, 16), (1, 1, 15)):
        scores, value = one_by_one(heads, text, head, position)
        want = value.mean(0) + ((scores - scores.mean())[:, None] * value).mean(0) * (
            read == "affine"
        )
        torch.testing.assert_close(given[text, head, position], want, rtol=1e-10, atol=1e-10)


def test_one_component_is_the_affine_read_out_and_all_components_are_exact(random_heads):
    heads = random_heads(tokens=12)
    torch.testing.assert_close(
        read_out(heads, "mixture", 1, sinks=0), read_out(heads, "affine"), rtol=1e-9, atol=1e-9
    )
    exact = torch.nn.functional.scaled_dot_product_attention(
        heads.query, heads.key, heads.value, scale=heads.scale, enable_gqa=True
    )
    torch.testing.assert_close(read_out(heads, "mixture", 1, sinks=12), exact, rtol=1e-9, atol=1e-9)


def test_few_heads_are_those_of_the_whole(random_heads):
    heads = random_heads(causal=True)
    torch.testing.assert_close(
        read_out(chosen_heads(heads, [1, 3]), "affine"), read_out(heads, "affine")[:, [1, 3]]
    )
