"""A study of a few numbers, whose cells can be counted and made to fail; at top level, so that
worker processes can import it.
"""

import os
import time
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.judging import Claim, rule
from largeprompt.runs.settings import settings
from largeprompt.runs.study import Part, Study, StudyFigure, along


@settings
class SmallConfig:
    """``scratch`` is a folder: calls are counted in it, and a file 'fail 2' or 'sleep 2' in it acts
    on that size.
    """

    scratch: str = ""
    sizes: tuple[int, ...] = (1, 2, 3)
    scale: float = 1.0
    seed: int = 0


def sizes(config):
    return config.sizes


def compute(config, size, progress):
    progress(f"at size {size}")
    if config.scratch:
        scratch = Path(config.scratch)
        with (scratch / "calls").open("a") as file:
            file.write(f"size: {size}\n")
        if (scratch / f"fail {size}").exists():
            # an exception that cannot be unpickled
            raise InvalidArgumentError("size", str(size), "something else")
        if (scratch / f"die {size}").exists():
            os._exit(9)
        if (scratch / f"sleep {size}").exists():
            time.sleep(60)
        while (scratch / "hold").exists():
            time.sleep(0.05)
        if (scratch / "pause").exists():
            time.sleep(0.2)
        if (scratch / "backwards").exists():
            time.sleep(0.3 / size)
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


@rule("C9", "Are the numbers there?")
def there(data):
    return "holds", f"{data.sizes['size']} sizes."


@rule("C9", "Not?", control=True)
def absent(data):
    return "fails", "No."


def draw(data):
    figure = Figure(figsize=(2, 2))
    figure.subplots().plot(data.value.values[:, 2:].T)
    return figure


STUDY = Study(
    "small",
    "Small",
    "Is it small?",
    "By counting.",
    SmallConfig,
    SmallConfig(sizes=(1,)),
    parts=[Part("size", compute, over=sizes, join=along("size"))],
    rules=[there, absent],
    figures=[StudyFigure("one", draw, "A caption with Σ.")],
    claims=[Claim("C9", "Ninth", "There are numbers.")],
)


def calls(scratch):
    path = Path(scratch) / "calls"
    return sorted(path.read_text().splitlines()) if path.exists() else []


def shout(path):
    """Dies the first time that it is called with this path."""
    if Path(path).exists():
        return "second attempt"
    Path(path).touch()
    os._exit(3)
