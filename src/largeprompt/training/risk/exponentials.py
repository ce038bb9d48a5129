"""f and h of :mod:`largeprompt.law.table` as sums of exponentials of q, whose averages have closed
forms.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from largeprompt.law.table import WeightTables

# times E q: score variances up to which f and h are fitted; (xy)² is larger with probability
# e^{-√1000} = 2e-14
REACH = 1e3
MIDDLE = 0.05  # exponents below it are for the tail of f and may be sparse
# real exponents in a decade below and above, the largest, other rays
Grid = tuple[tuple[float, float], float, tuple[float, ...]]
GRIDS: tuple[Grid, ...] = (
    ((2, 5), 5, ()),
    ((3, 5), 5, ()),
    ((3, 6), 15, ()),
    ((4, 8), 30, ()),
    ((5.5, 5.5), 30, (60,)),
    ((5.5, 5.5), 30, (45, 80)),
)


@dataclasses.dataclass(frozen=True, eq=False)
class ExponentialSum:
    """f(q) ≈ Re Σ_j c_j e^{-s_jq} and the same for h, Re s_j >= 0.

    Attributes
    ----------
    exponents
        s_j, real ones and those that stand for a pair; the second tensor may be empty.
    weights
        c_j of f and of h for both, shapes (2, j).
    error
        Largest difference to f or h over 2,000 score variances from 0 to the reach.
    """

    exponents: tuple[Tensor, Tensor]
    weights: tuple[Tensor, Tensor]
    error: float


# grids times sizes of scores: fewer would be made again at every step
@functools.lru_cache(maxsize=1024)
def _fitted(lengths: tuple[float, ...], reach: float, grid: Grid) -> dict[float, ExponentialSum]:
    """Least squares over exponents on rays of the right half-plane, their sizes equidistant in the
    logarithm.
    """
    (sparse, dense), top, angles = grid
    counts = (
        round(sparse * math.log10(MIDDLE * reach / 0.3)) + 1,
        round(dense * math.log10(top / MIDDLE)) + 1,
    )
    real = np.concatenate(
        [
            [0.0],
            np.geomspace(0.3 / reach, MIDDLE, counts[0])[:-1],
            np.geomspace(MIDDLE, top, counts[1]),
        ]
    )
    turned = np.outer(np.exp(1j * np.radians(angles)), np.geomspace(0.02, 8.0, 20)).reshape(-1)
    q = np.unique(
        np.concatenate(
            [[0.0], np.geomspace(1e-3, reach, 1200), np.linspace(0, min(100, reach), 800)]
        )
    )
    (f, *_), (h, *_) = WeightTables.reaching(lengths, reach).derivatives(
        torch.from_numpy(q).expand(len(lengths), -1), 1
    )
    values, waves = torch.cat([f, h]).numpy().T, np.exp(-np.outer(q, turned))
    basis = np.concatenate([np.exp(-np.outer(q, real)), waves.real, waves.imag], 1)
    found = np.linalg.lstsq(basis, values, rcond=1e-14)[0]
    errors = np.abs(basis @ found - values).max(0).reshape(2, -1).max(0)
    parts = np.split(found.T.reshape(2, len(lengths), -1), [len(real), len(real) + len(turned)], -1)
    first, cosines, sines = (torch.from_numpy(np.ascontiguousarray(part)) for part in parts)
    weights, exponents = (
        (first, torch.complex(cosines, -sines)),
        (torch.from_numpy(real), torch.from_numpy(turned)),
    )
    return {
        length: ExponentialSum(exponents, (weights[0][:, i], weights[1][:, i]), float(errors[i]))
        for i, length in enumerate(lengths)
    }


def exponential_sums(
    lengths: Sequence[float], largest: float, accuracy: float = 0.0
) -> list[ExponentialSum]:
    """With common exponents for several lengths and E q up to ``largest``: as few as the accuracy
    of f and h allows.
    """
    reach = min(REACH, math.log(min(max(accuracy, 1e-14), 0.1)) ** 2) * 4.0 ** max(
        -1, math.ceil(math.log(max(largest, 1e-300), 4))
    )
    for grid in GRIDS:
        sums = _fitted(tuple(dict.fromkeys(lengths)), reach, grid)
        if max(each.error for each in sums.values()) <= accuracy:
            break
    return [sums[length] for length in lengths]
