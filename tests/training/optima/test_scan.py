"""The least value of a function with several valleys."""

import math

import numpy as np
import pytest

from largeprompt.training.optima.scan import scan_minimum

GRID = np.linspace(-3, 3, 25)


def test_the_deeper_of_two_valleys_is_found():
    """(x² - 1)² + 0.1x has valleys near ±1; the deeper one is the root -1.0123 of 4x³ -
    4x + 0.1.
    """
    x, least, last = scan_minimum(lambda x: (x * x - 1) ** 2 + 0.1 * x, GRID)
    root = min(np.roots([4, 0, -4, 0.1]).real)
    assert x == pytest.approx(root, abs=1e-6)
    assert least == pytest.approx((root**2 - 1) ** 2 + 0.1 * root, abs=1e-12)
    assert not last


def test_an_end_of_the_grid_is_said_and_no_point_of_it_is_better():
    x, least, last = scan_minimum(lambda x: -x, GRID)
    assert (x, least, last) == (3.0, -3.0, True)
    x, least, last = scan_minimum(lambda x: x, GRID)
    assert (x, least, last) == (-3.0, -3.0, False)
    x, least, _ = scan_minimum(lambda x: 0.0 if x == GRID[7] else 1.0 + math.cos(x) / 10, GRID)
    assert (x, least) == (GRID[7], 0.0)  # a point of the grid that the search around it misses
