"""What a read-out of moments saves."""

import numpy as np
import pytest
import torch
import xarray as xr

from largeprompt.audit import Heads, audit_heads, summary
from largeprompt.audit.savings import freed_cache, saved_cache, saved_operations


def test_counted_one_by_one():
    """A token of 100 keys of width 3 and values of width 2: 300 + 200 products; the read-out 6 to
    update and 6 to read.
    """
    assert saved_operations(100, 3, 2) == pytest.approx(1 - 12 / 500)
    assert saved_cache(100, 3, 2) == pytest.approx(1 - (6 + 3 + 2) / 500)


def test_short_prompts_cost_more():
    assert saved_operations(16, 64, 64) < 0
    assert saved_operations(10**6, 64, 64) > 0.999


@pytest.fixture(scope="module")
def layer():
    """Summary of a layer of 80 tokens, whose queries read the keys before them or all of them."""
    draw = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 2, 80, width, generator=draw) for width in (4, 4, 6))

    def make(causal, **attributes):
        data = audit_heads(
            Heads(query, key, value, None, 0.5, causal), positions=[19, 39, 79], components=()
        )
        return summary(data.assign_attrs(tokens=80, **attributes)).isel(layer=0, head=0)

    return make


def test_only_models_that_look_back_have_a_cache(layer):
    back, around = layer(True), layer(False)
    assert float(back.saved_cache) == pytest.approx(saved_cache(80, 4, 6))
    assert np.isnan(around.saved_cache)
    assert float(around.saved_operations) == pytest.approx(saved_operations(80, 4, 6))
    # median over those queries that see 40 and 80
    assert float(back.saved_operations) == pytest.approx(saved_operations(60, 4, 6))


def test_the_longer_length_is_one_that_the_model_reads(layer):
    free = layer(True)
    assert float(free.longer_length) == 640
    assert float(free.saved_cache_longer) == pytest.approx(saved_cache(640, 4, 6))
    assert float(free.saved_operations_longer) == pytest.approx(saved_operations(480, 4, 6))
    bounded = layer(True, positions_allowed=200)
    assert float(bounded.longer_length) == 200
    assert float(bounded.saved_cache_longer) == pytest.approx(saved_cache(200, 4, 6))
    full = layer(True, positions_allowed=80)
    assert np.isnan(full.longer_length)
    assert np.isnan(full.saved_cache_longer)


def test_a_shared_cache_goes_where_all_its_heads_are_replaced():
    chosen = xr.DataArray(
        [[1, 1, 1, 0], [0, 1, 1, 0]], dims=("layer", "head"), coords={"head": range(4)}
    )
    saved = xr.full_like(chosen, 0.5, dtype=float)
    assert freed_cache(saved, chosen, 1) == pytest.approx(5 * 0.5 / 8)
    assert freed_cache(saved, chosen, 2) == pytest.approx(2 * 0.5 / 8)
    assert freed_cache(saved, chosen, 4) == 0
    assert np.isnan(freed_cache(saved * np.nan, chosen, 1))
