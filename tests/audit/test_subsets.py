"""Random subsets of the keys of a query."""

import torch

from largeprompt.audit.heads import Heads
from largeprompt.audit.subsets import subset_sizes, subset_statistics


def test_sizes_fit_twice():
    assert subset_sizes(127) == []
    assert subset_sizes(128) == subset_sizes(255) == [32, 64]  # three errors with that of all keys
    assert subset_sizes(256) == [64, 128]
    assert subset_sizes(600) == [64, 128, 256]


def test_subsets_of_equal_keys_are_the_head_itself(random_heads):
    """All tokens but the ends alike: whichever are drawn, the error is that of n such tokens, by
    the definition.
    """
    made = random_heads(tokens=200, batch=1)
    key, value = (each[:, :, :1].expand(-1, -1, 200, -1).clone() for each in (made.key, made.value))
    # and one that differs, the first
    key[:, :, 0], value[:, :, 0] = made.key[:, :, 1], made.value[:, :, 1]
    heads = Heads(made.query, key, value, None, 0.4)
    found = subset_statistics(heads, torch.arange(0, 200, 20))
    for name, n in (("subset_32_error", 32), ("subset_64_error", 64), ("subset_all_error", 200)):
        known = ~found[name][0, 0].isnan()
        assert known.any()
        for head in range(4):
            k, v = key[0, head // 2, :n], value[0, head // 2, :n]
            for place in known.nonzero().ravel().tolist():
                s = 0.4 * k @ made.query[0, head, 20 * place]
                output = torch.softmax(s, 0) @ v
                affine = v.mean(0) + ((s - s.mean())[:, None] * v).mean(0)
                torch.testing.assert_close(
                    found[name][0, head, place], (output - affine).norm() / output.norm()
                )


def test_only_keys_that_may_be_read_are_drawn(random_heads):
    """Keys beyond a causal query, huge here, are never seen; early queries are left out."""
    made = random_heads(tokens=300, batch=1, causal=True)
    found = subset_statistics(made, torch.tensor([20, 140, 150, 160]))
    wild = Heads(made.query, made.key.clone(), made.value.clone(), None, 0.4, True)
    wild.value[:, :, 161:] = 1e9
    again = subset_statistics(wild, torch.tensor([20, 140, 150, 160]))
    assert sorted(found) == [
        "subset_32_error",
        "subset_64_error",
        "subset_all_error",
        "subset_tokens",
    ]
    assert found["subset_64_error"][..., 0].isnan().all()
    for name, values in found.items():
        torch.testing.assert_close(values, again[name], equal_nan=True)
    assert found["subset_tokens"][0, 0].tolist()[1:] == [141, 151, 161]


def test_short_texts_have_no_subsets(random_heads):
    assert subset_statistics(random_heads(tokens=100), torch.arange(100)) == {}
