"""What a read-out of moments saves."""

import pytest

from largeprompt.audit.savings import saved_cache, saved_operations


def test_counted_one_by_one():
    """A token of 100 keys of width 3 and values of width 2: 300 + 200 products; the read-out 6 to update and 6 to read."""
    assert saved_operations(100, 3, 2) == pytest.approx(1 - 12 / 500)
    assert saved_cache(100, 3, 2) == pytest.approx(1 - (6 + 3 + 2) / 500)


def test_short_prompts_cost_more():
    assert saved_operations(16, 64, 64) < 0
    assert saved_operations(10**6, 64, 64) > 0.999
