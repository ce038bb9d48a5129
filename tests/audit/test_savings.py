"""What a read-out of moments saves."""

import numpy as np
import pytest
import torch
import xarray as xr

from largeprompt.audit import Heads, audit_heads, summary
from largeprompt.audit.savings import freed_cache


@pytest.fixture(scope="module")
def layer():
    """Summary of a layer of 80 tokens, whose queries read the keys before them or all of them."""
    draw = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 2, 80, width, generator=draw) for width in (4, 4, 6))

    def make(causal):
        heads = Heads(query, key, value, None, 0.5, causal)
        data = audit_heads(heads, positions=[19, 39, 79], components=())
        return summary(data).isel(layer=0, head=0)

    return make


def test_counted_one_by_one_and_only_models_that_look_back_have_a_cache(layer):
    """Keys of width 4 and values of width 6: 24 products to update a state and 24 to read it."""
    back, around = layer(True), layer(False)
    assert float(around.saved_operations) == pytest.approx(1 - 48 / (80 * 10))
    # median over those queries that see 40 and 80
    assert float(back.saved_operations) == pytest.approx(1 - 48 / (60 * 10))
    assert float(back.saved_cache) == pytest.approx(1 - (24 + 4 + 6) / (80 * 10))
    assert np.isnan(around.saved_cache)


def test_a_shared_cache_goes_where_all_its_heads_are_replaced():
    chosen = xr.DataArray(
        [[1, 1, 1, 0], [0, 1, 1, 0]], dims=("layer", "head"), coords={"head": range(4)}
    )
    saved = xr.full_like(chosen, 0.5, dtype=float)
    assert freed_cache(saved, chosen, 1) == pytest.approx(5 * 0.5 / 8)
    assert freed_cache(saved, chosen, 2) == pytest.approx(2 * 0.5 / 8)
    assert freed_cache(saved, chosen, 4) == 0
    assert np.isnan(freed_cache(saved * np.nan, chosen, 1))
