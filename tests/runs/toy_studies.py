"""A study of a few numbers, whose cells can be counted and made to fail; at top level, so that worker processes can import it."""

import dataclasses
import os
import time
from pathlib import Path

import numpy as np
import xarray as xr

from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.study import Study, Verdict, along


@dataclasses.dataclass(frozen=True)
class SmallConfig:
    """``scratch`` is a folder: calls are counted in it, and a file 'fail NAME' or 'sleep NAME' in it acts on that cell."""

    scratch: str = ""
    sizes: tuple[int, ...] = (1, 2, 3)
    scale: float = 1.0
    seed: int = 0


def cells(config):
    return [f"size = {size}" for size in config.sizes]


def compute(config, cell, progress):
    size = int(cell.split()[-1])
    if config.scratch:
        scratch = Path(config.scratch)
        with (scratch / "calls").open("a") as file:
            file.write(f"{cell}\n")
        if (scratch / f"fail {cell}").exists():
            raise InvalidArgumentError("size", str(size), "something else")  # an exception that cannot be unpickled
        if (scratch / f"die {cell}").exists():
            os._exit(9)
        if (scratch / f"sleep {cell}").exists():
            time.sleep(60)
    draws = np.random.default_rng([config.seed, size]).standard_normal(5)
    values = config.scale * np.array([np.inf, np.nan, *np.exp(draws)])
    return xr.Dataset(
        {
            "value": ("draw", values, {"long_name": "a number"}),
            "count": ("draw", np.arange(7) + 2**62),
            "threads": os.environ.get("OMP_NUM_THREADS", ""),
        },
        {"draw": list("abcdefg")},
    )


def verdicts(data):
    return [
        Verdict("C9", "Are the numbers there?", "holds", f"{data.sizes['size']} sizes."),
        Verdict("C9", "Not?", "fails", "No.", True),
    ]


STUDY = Study(
    "small", "Small", "Is it small?", "By counting.", SmallConfig, SmallConfig(sizes=(1,)), cells, compute, along("size"), verdicts
)


def task(name, config, cell):
    assert name == "small"
    return compute(config, cell, print)


def calls(scratch):
    path = Path(scratch) / "calls"
    return sorted(path.read_text().splitlines()) if path.exists() else []
