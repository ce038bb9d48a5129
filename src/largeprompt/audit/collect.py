"""Measure heads while a model runs, after comparing their outputs with the model's own."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from largeprompt.audit.adapters.transformers import AuditError
from largeprompt.audit.findings import WIDTHS
from largeprompt.audit.heads import Heads
from largeprompt.audit.statistics import Measured, measured

Array = NDArray[np.float64]
# of a head's largest output; eager attention takes its softmax in float32 whatever the dtype
PARITY = {torch.float64: 1e-6, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}


class Collector:
    """A visitor of :func:`watching` that measures the wanted layers."""

    def __init__(
        self, layers: Sequence[int], positions: Tensor, components: tuple[int, ...], sinks: int
    ) -> None:
        self.layers, self.positions = sorted(layers), positions
        self.components, self.sinks = components, sinks
        self._found: dict[int, dict[str, Array]] = {}

    def __call__(self, layer: int, heads: Heads, output: Tensor) -> None:
        """Measure the layer where it is wanted."""
        if layer not in self.layers:
            return
        queries, keys = heads.query.shape[2], heads.key.shape[2] - heads.atoms
        if heads.batch > 1:
            raise AuditError(
                f"layer {layer}: attends within {heads.batch} windows, each a prompt of its own."
            )
        if queries != keys:
            raise AuditError(
                f"layer {layer}: {queries} queries read {keys} keys; audit without a cache."
            )
        found = measured(heads, self.positions, self.components, self.sinks)
        check_parity(layer, found, heads, output.index_select(2, self.positions.to(output.device)))
        names = list(found.statistics)
        values = torch.stack([each.double() for each in found.statistics.values()])[:, 0]
        self._found[layer] = dict(zip(names, values.cpu().numpy(), strict=True)) | widths(
            heads, len(self.positions)
        )

    def finish(self) -> dict[str, Array]:
        """Return the statistics by name, (layers, heads, positions), layers ascending."""
        missing = [layer for layer in self.layers if layer not in self._found]
        if missing:
            raise AuditError(f"layers {missing} never called the attention interface.")
        first = self._found[self.layers[0]]
        return {name: np.stack([self._found[i][name] for i in self.layers]) for name in first}


def widths(heads: Heads, positions: int) -> dict[str, Array]:
    """Coordinates of keys and values, and heads of a group, each of shape (heads, positions)."""
    known = (heads.key.shape[-1], heads.value.shape[-1], heads.count // heads.groups)
    shape = (heads.count, positions)
    return {name: np.full(shape, float(each)) for name, each in zip(WIDTHS, known, strict=True)}


def check_parity(layer: int, found: Measured, heads: Heads, output: Tensor) -> None:
    """Refuse to go on where the outputs recomputed from what was seen are not the model's."""
    own = output.to(found.output.dtype)
    largest = own.abs().amax((0, 2, 3))
    share = heads.count // heads.groups
    rounding = heads.value.abs().amax((0, 2, 3)).repeat_interleave(share).to(own.dtype)
    size = 1 + found.size.amax((0, 2))  # scores are as exact as their size allows
    allowed = PARITY.get(output.dtype, 1e-4) * largest
    allowed = allowed + 4 * torch.finfo(output.dtype).eps * size * rounding
    wrong = (found.output - own).abs().amax((0, 2, 3))
    if not bool(torch.isfinite(largest).all()):
        raise AuditError(
            f"layer {layer}: the model's attention gives NaN or infinity here; try another dtype."
        )
    if not bool((wrong <= allowed).all()):
        head = int(torch.nan_to_num(wrong / allowed, nan=torch.inf).argmax())
        raise AuditError(
            f"L{layer}H{head}: its output, recomputed from what the model passed to its attention, "
            f"is off by {float(wrong[head]):.2g} (allowed {float(allowed[head]):.2g}): the model "
            "does something else to its scores."
        )
