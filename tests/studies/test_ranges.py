"""Grids and windows of prompt lengths."""

import numpy as np
import pytest

from largeprompt.studies.ranges import length_grid, window


def test_grid_has_both_ends_each_length_once_and_even_steps_of_the_logarithm():
    grid = length_grid(1e6, 13)
    np.testing.assert_array_equal(grid[::2], [1, 10, 100, 1000, 10_000, 100_000, 1_000_000])
    np.testing.assert_array_equal(length_grid(10, 50), np.arange(1, 11))


def test_window_counts_its_ends_and_needs_two_lengths():
    np.testing.assert_array_equal(
        window((10, 1000), [1, 10, 100, 1000, 1001]), [False, True, True, True, False]
    )
    with pytest.raises(ValueError, match="at least two"):
        window((11, 999), [1, 10, 100, 1000])
