"""Watch the heads of a model while it trains, without an L x L map."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from largeprompt import validation
from largeprompt.audit.adapters.transformers import (
    Model,
    attending_layers,
    check_model,
    head_count,
    transformers_module,
    watching,
)
from largeprompt.audit.heads import Heads
from largeprompt.display.labels import label
from largeprompt.law import regime

if TYPE_CHECKING:
    import xarray as xr

Log = Callable[[Mapping[str, float], int], Any]
NAMES = {
    "largest_score": "largest score",
    "score_variance": "variance of the scores of a query over its keys",
    "entropy": "entropy of the softmax weights [nats]",
    "effective_tokens": "effective number of tokens read [tokens]",
    "keys": "keys that a query may read [tokens]",
    "regime": "regime of Gaussian scores of this variance",
}
LOGGED = 4  # the first names: a logger takes them as they are


class Monitor:
    """What :func:`monitor` measured so far.

    ``steps`` are the numbers of the forward passes, or training steps, that were measured.
    """

    def __init__(self, layers: list[int], heads: int, positions: int, log: Log | None) -> None:
        self.steps: list[int] = []
        self._layers, self._heads, self._positions, self._log = layers, heads, positions, log
        self._found: list[NDArray[np.float64]] = []  # (layer, head, name) of each step
        self._pass: dict[int, Tensor] | None = None  # of the layers in the pass that is measured

    def __repr__(self) -> str:
        return f"Monitor({len(self._layers)} layers, {self._heads} heads, {len(self.steps)} steps)"

    def to_xarray(self) -> xr.Dataset:
        """Return the statistics as a dataset (step, layer, head), with the regime of each."""
        import xarray as xr

        shape = (len(self.steps), len(self._layers), self._heads)
        found = np.stack(self._found) if self.steps else np.empty((*shape, len(NAMES) - 1))
        values: dict[str, Any] = dict(zip(NAMES, np.moveaxis(found, -1, 0), strict=False))
        pairs = zip(values["score_variance"].ravel(), values["keys"].ravel(), strict=True)
        words = [regime(a, round(b)) if np.isfinite(a) else "" for a, b in pairs]
        values["regime"] = np.array(words, dtype=str).reshape(shape)
        dims = ("step", "layer", "head")
        coords = {"step": self.steps, "layer": self._layers, "head": range(self._heads)}
        data = xr.Dataset({name: (dims, each) for name, each in values.items()}, coords=coords)
        return label(data, NAMES)

    def _visit(self, layer: int, heads: Heads, output: Tensor) -> None:
        if self._pass is not None:
            self._pass[layer] = _statistics(heads, self._positions)

    def _finish(self, step: int) -> None:
        """Take the pass that has just ended as a step."""
        passed, self._pass = self._pass or {}, None
        found = np.full((len(self._layers), self._heads, len(NAMES) - 1), np.nan)
        for layer, each in passed.items():
            found[self._layers.index(layer)] = each.cpu().double().numpy()
        self.steps.append(step)
        self._found.append(found)
        if self._log is not None:
            numbers = {
                f"L{layer}H{head}/{name}": float(number)
                for layer, rows in zip(self._layers, found, strict=True)
                for head, row in enumerate(rows)
                for name, number in zip(NAMES, row[:LOGGED], strict=False)
            }
            self._log(numbers, step)


@contextlib.contextmanager
def monitor(
    model: Model, every: int = 100, *, positions: int = 32, log: Log | None = None
) -> Iterator[Monitor]:
    """Measure every head in the forward pass, while the model trains or runs inside the block.

    The model computes what it did before, with its gradients; only what is measured has none.
    Passes that gradient checkpointing repeats are not counted. Under ``torch.compile`` every
    attention layer becomes a graph break; with ``fullgraph=True`` it cannot be monitored.

    Parameters
    ----------
    model
        A model of transformers.
    every
        Measure the first forward pass, and then one in so many.
    positions
        Queries that are looked at, evenly spaced over the second half of each text.
    log
        Called as ``log({"L0H3/score_variance": 1.2, ...}, step)`` after each pass that is measured:
        numbers by head and name, and the number of the pass.

    Yields
    ------
    Monitor
        With ``steps`` and ``to_xarray()``: the largest score, score variance, entropy, effective
        tokens 1/E Σ w² and regime of every head, averages over texts and queries.
    """
    every = validation.integer("every", every)
    passes = iter(range(2**62))

    def due() -> int | None:
        number = next(passes)
        return number if number % every == 0 else None

    with _monitored(model, positions, log, due) as found:
        yield found


@contextlib.contextmanager
def _monitored(
    model: Model, positions: int, log: Log | None, due: Callable[[], int | None]
) -> Iterator[Monitor]:
    """Measure the passes for which ``due`` gives a number."""
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    check_model(model)
    positions = validation.integer("positions", positions)
    found = Monitor(attending_layers(model), head_count(model), positions, log)
    steps: list[int | None] = []

    def begin(*_: Any) -> None:
        steps.append(due())
        found._pass = None if steps[-1] is None else {}

    def end(*_: Any) -> None:
        step = steps.pop()
        if step is not None:
            found._finish(step)

    apart: Any = torch.compiler.disable  # a graph break of torch.compile
    hooks = [model.register_forward_pre_hook(apart(begin)), model.register_forward_hook(apart(end))]
    try:
        with watching(model, apart(found._visit)):
            yield found
    finally:
        for hook in hooks:
            hook.remove()


def monitor_callback(every: int = 100, *, positions: int = 32, log: Log | None = None) -> Any:
    """Return a callback for the ``Trainer`` of transformers that monitors every head.

    Its attribute ``monitor`` is the :class:`Monitor`. Steps are the trainer's; the arguments are
    those of :func:`monitor`.
    """
    every = validation.integer("every", every)
    base = transformers_module().TrainerCallback

    class HeadMonitorCallback(base):  # type: ignore[misc, valid-type]
        """Monitor the heads from the beginning to the end of a training."""

        monitor: Monitor

        def __init__(self) -> None:
            self._due: int | None = None
            self._open = contextlib.ExitStack()

        def _next(self) -> int | None:
            due, self._due = self._due, None
            return due

        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            context = _monitored(given["model"], positions, log, self._next)
            self.monitor = self._open.enter_context(context)

        def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            self._due = state.global_step if state.global_step % every == 0 else None

        def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            self._open.close()

    return HeadMonitorCallback()


@torch.no_grad()
def _statistics(heads: Heads, positions: int) -> Tensor:
    """Numbers (heads, names) in the order of NAMES, from some queries of each text."""
    length = heads.query.shape[2]
    count = min(positions, length - length // 2)
    places = torch.linspace(length // 2, length - 1, count).round().long()
    rows = heads.at(places.to(heads.query.device)).scored()
    weights = rows.weights()
    keys = rows.number().expand(weights.shape[:-1]).to(weights.dtype)
    scores = rows.whole()
    variance = rows.weighted(rows.centered()[1].square()).sum(-1) / keys
    entropy = -torch.xlogy(weights, weights).sum(-1)
    several = keys > 1  # a query of padding may read nothing

    def mean(values: Tensor) -> Tensor:
        return torch.where(several, values, torch.nan).nanmean((0, 2))

    largest = torch.where(several, scores.amax(-1), -torch.inf).amax((0, 2))
    effective = 1 / mean(weights.square().sum(-1))
    return torch.stack([largest, mean(variance), mean(entropy), effective, mean(keys)], -1)
