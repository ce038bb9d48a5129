"""Two studies of a few numbers for tests of the command; their cells can be counted, and made to fail."""

import contextlib
import dataclasses
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from largeprompt.report import catalogue
from largeprompt.runs import execute
from largeprompt.runs.study import Study, Verdict, along
from largeprompt.studies import registry


@dataclasses.dataclass(frozen=True)
class FirstConfig:
    sizes: tuple[int, ...] = (1, 2, 3)
    scale: float = 1.0
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class SecondConfig:
    sizes: tuple[int, ...] = (4, 5)


class Fakes:
    """``calls`` are the cells computed so far; ``raising`` maps a cell to what it raises."""

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
                lambda config: [f"size = {size}" for size in config.sizes],
                self.compute,
                along("size"),
                lambda data: [Verdict("C9", "Is it?", "holds", "1."), Verdict("C9", "Not?", "fails", "2.", control=True)],
            )
            for name, config in {"first": FirstConfig, "second": SecondConfig}.items()
        }

    def compute(self, config, cell, progress):
        self.calls.append(cell)
        if cell in self.raising:
            raise self.raising[cell]
        size = int(cell.split()[-1])
        generator = np.random.default_rng([getattr(config, "seed", 0), size])
        return xr.Dataset({"value": ("draw", generator.standard_normal(4) * getattr(config, "scale", 1.0))})

    def install(self, monkeypatch):
        """Make them the registry's only studies, computed by threads of this process."""
        known = registry.study
        monkeypatch.setattr(registry, "NAMES", tuple(self.studies))
        monkeypatch.setattr(registry, "study", lambda name: self.studies.get(name) or known(name))
        monkeypatch.setattr(execute, "worker_pool", lambda workers: contextlib.closing(_Closing(workers)))
        monkeypatch.setitem(catalogue.CATALOGUE, "first", (catalogue.Captioned("line", _draw, "A line."),))
        return self


class _Closing(ThreadPoolExecutor):
    def close(self):
        self.shutdown(cancel_futures=True)


def _draw(data):
    figure = Figure(figsize=(2, 2))
    figure.subplots().plot(data.value.values.T)
    return figure
