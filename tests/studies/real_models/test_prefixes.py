"""Prefixes of one pass, autocorrelations and effective lengths."""

import numpy as np
import torch

from largeprompt.audit import Heads, audit_heads, summary
from largeprompt.studies.real_models.prefixes import Prefixes, query_places


def heads(tokens=128, width=4, seed=0, key=None):
    draw = torch.Generator().manual_seed(seed)
    query, value = (
        torch.randn(1, 2, tokens, width, generator=draw, dtype=torch.float64) for _ in range(2)
    )
    made = torch.randn(1, 2, tokens, width, generator=draw, dtype=torch.float64)
    return Heads(query, made if key is None else key, value, None, 0.5, causal=True)


def test_queries_stand_in_the_last_eighth():
    for length in (64, 100, 8192):
        places = query_places(length, 8)
        assert len(places) == 8
        assert places[-1] == length - 1
        assert places[0] >= length - 1 - length / 8


def test_a_prefix_of_one_pass_is_the_audit_of_the_shorter_text():
    whole = heads()
    seen = Prefixes((64, 128), 4)
    seen(3, whole, torch.zeros(1, 2, 128, 4, dtype=torch.float64))
    parts = (each[:, :, :64] for each in (whole.query, whole.key, whole.value))
    alone = Heads(*parts, None, 0.5, causal=True)
    expected = summary(
        audit_heads(alone, positions=query_places(64, 4), components=(), sinks=0)
    ).isel(layer=0)
    found = seen.summary().sel(length=64, layer=3)
    for name in ("affine_error", "score_variance", "value_spread", "tokens"):
        np.testing.assert_allclose(found[name].values, expected[name].values, rtol=1e-9)
