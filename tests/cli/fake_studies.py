"""Two studies of a few numbers for tests of the command; their cells can be counted, and made to
fail.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from largeprompt.runs import executors
from largeprompt.runs.judging import rule
from largeprompt.runs.settings import Seed, settings
from largeprompt.runs.study import Part, Study, StudyFigure, along
from largeprompt.studies import registry


@settings
class FirstConfig:
    sizes: tuple[int, ...] = (1, 2, 3)  # cells
    # of all numbers;
    scale: float = 1.0  # 0 gives nothing
    seed: Seed = 0


@settings
class SecondConfig:
    sizes: tuple[int, ...] = (4, 5)


@rule("C9", "Is it?")
def is_it(data):
    return "holds", "1.", f"It is, {data.sizes['size']} times."


@rule("C9", "Not?", control=True)
def is_it_not(data):
    return "fails", "2."


class Fakes:
    """``calls`` are the sizes computed so far; ``raising`` maps a size to what it raises."""

    def __init__(self):
        self.calls, self.raising = [], {}
        self.studies = {
            name: Study(
                name,
                name.title(),
                "What?",
                "So.",
                config,
                config(sizes=(7,)),
                parts=[
                    Part("size", self.compute, over=lambda config: config.sizes, join=along("size"))
                ],
                rules=[is_it, is_it_not],
                figures=[StudyFigure("line", _draw, "A line.")] if name == "first" else [],
                listed=True,
            )
            for name, config in {"first": FirstConfig, "second": SecondConfig}.items()
        }

    def compute(self, config, size, progress):
        self.calls.append(size)
        if size in self.raising:
            raise self.raising[size]
        generator = np.random.default_rng([getattr(config, "seed", 0), size])
        return xr.Dataset(
            {"value": ("draw", generator.standard_normal(4) * getattr(config, "scale", 1.0))}
        )

    def install(self, monkeypatch):
        """Make them the registry's only studies, computed by threads of this process."""
        known = registry.study
        monkeypatch.setattr(registry, "OURS", tuple(self.studies))
        monkeypatch.setattr(registry, "study", lambda name: self.studies.get(name) or known(name))
        pool = lambda workers, limit, modules: ThreadPoolExecutor(workers)  # noqa: E731
        monkeypatch.setattr(executors, "Pool", pool)
        return self


def _draw(data):
    figure = Figure(figsize=(2, 2))
    figure.subplots().plot(data.value.values.T)
    return figure
