"""What results by prompt length can do: print themselves, become a dataset, draw their error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from largeprompt.display.labels import named
from largeprompt.display.look import Axes, array, draw_errors
from largeprompt.display.tables import Columns, html_table, text_table

if TYPE_CHECKING:
    import xarray as xr


class ByLength:
    """Base of results whose numbers have the lengths in front, then a batch of heads and queries.

    A subclass names what it computes in ``_numbers``; ``_size`` is the one that always exists.
    """

    length: Any
    rmse: Any
    _numbers: ClassVar[dict[str, str]]
    _size: ClassVar[str]

    def _words(self, *more: str) -> str:
        """The class, and in brackets what is to be said of all lengths."""
        return f"{type(self).__name__}({', '.join(more)})" if more else type(self).__name__

    def _columns(self) -> dict[str, Any]:
        """The numbers that the table shows, by the names of their attributes."""
        raise NotImplementedError

    def _curve(self) -> dict[str, Any]:
        """Label, marker and dash of the picture."""
        raise NotImplementedError

    @property
    def _batch(self) -> tuple[int, ...]:
        """Shape of the batch, without the lengths."""
        shape: tuple[int, ...] = tuple(array(getattr(self, self._size)).shape)
        return shape[np.ndim(self.length) :]

    def _table(self) -> Columns:
        shown = {"length": self.length} | self._columns()
        return {name: np.atleast_1d(array(value)).tolist() for name, value in shown.items()}

    def _summary(self) -> str:
        """The repr of several lengths, or of a batch, whose numbers are not computed for it."""
        if self._batch:
            return self._words(f"batch={self._batch}", f"length={self.length}")
        return text_table(self._words(f"{len(self.length)} lengths"), self._table())

    def _repr_html_(self) -> str | None:
        return None if self._batch else html_table(self._words(), self._table())

    def plot(self, axes: Axes | None = None, **line: Any) -> Axes:
        """Draw the root mean squared error against the length, one curve for each query of a batch.

        ``axes`` are those of matplotlib, new ones when left out; ``line`` is ``color``, ``label``
        and whatever else ``Axes.errorbar`` takes. Return the axes, for more to be drawn on.
        """
        return draw_errors(axes, self.length, self.rmse, **self._curve() | line)

    def to_xarray(self) -> xr.Dataset:
        """The numbers as a dataset of ``length``, ``batch`` (or ``batch_0``, ...), ``output``."""
        import xarray as xr  # brings pandas along, and few need it

        count = len(self._batch)
        batch = ["batch"] if count == 1 else [f"batch_{i}" for i in range(count)]
        lead = ["length", *batch] if np.ndim(self.length) else batch
        values = {}
        for name, (meaning, value) in self._known().items():
            outputs = name in ("mean", "bias", "limit")
            dims = [*(batch if name == "limit" else lead), *(["output"] if outputs else [])]
            units = {"effective_tokens": "tokens", "regime": "label", "reason": "label"}
            found = array(value)
            found = found.astype(str) if found.dtype == object else found
            values[name] = (dims, found, named(meaning, units.get(name, "1")))
        places = np.asarray(self.length)
        whole = places.astype(np.int64) if np.isfinite(places).all() else places
        length = ("length",) if np.ndim(places) else ()
        coords: dict[str, Any] = {"length": (length, whole, named("prompt length", "tokens"))}
        data = xr.Dataset(values, coords=coords, attrs={"title": self._words()})
        if "output" in data.sizes:
            places = np.arange(data.sizes["output"])
            data.coords["output"] = ("output", places, named("coordinate of the output"))
        return data

    def _known(self) -> dict[str, tuple[str, Any]]:
        """Meaning and value of every number that this result has."""
        return {name: (meaning, getattr(self, name)) for name, meaning in self._numbers.items()}
