"""Least value of a function of one number that may have several valleys: a grid, then a search
around its best point.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray


def scan_minimum(
    value: Callable[[float], float], grid: NDArray[np.float64], tolerance: float = 1e-7
) -> tuple[float, float, bool]:
    """Where it is least, the least value, and whether the last point of the grid was the best of
    them.
    """
    from scipy.optimize import minimize_scalar

    values = [value(float(x)) for x in grid]
    i = int(np.argmin(values))
    around = grid[max(i - 1, 0)], grid[min(i + 1, len(grid) - 1)]
    found = minimize_scalar(value, bounds=around, method="bounded", options={"xatol": tolerance})
    least, x = min((float(found.fun), float(found.x)), (values[i], float(grid[i])))
    return x, least, i == len(grid) - 1
