"""Measure heads while a model runs: layers wait until several are treated at once, and the host
waits for the device only once.
"""

import dataclasses
import weakref
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from largeprompt.audit.adapters.transformers import AuditError
from largeprompt.audit.findings import WIDTHS
from largeprompt.audit.heads import Heads, chunk_numbers, stacked
from largeprompt.audit.statistics import Measured, measured
from largeprompt.audit.subsets import Draws, drawn, keys_read, subset_errors

Array = NDArray[np.float64]
# by name, of the layers in ascending order: (layers, heads, positions)
Statistics: TypeAlias = dict[str, Array]
# of a head's largest output; eager attention takes its softmax in float32 whatever the dtype
PARITY = {torch.float64: 1e-6, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}


class LooksAheadError(AuditError):
    """A token reads later ones, so that the prefix of a text cannot be seen in a pass over the
    whole.
    """


class Place(NamedTuple):
    """Queries that are looked at, when the first so many tokens of the text are its prompt."""

    length: int
    positions: Tensor  # ascending, on the CPU


class Shared(NamedTuple):
    """What layers with the same mask have in common, made once for all of them."""

    given: weakref.ref[Tensor] | None  # the mask itself, which may be large
    mask: Tensor | None  # its rows at the positions
    present: Tensor
    reach: list[int] | None
    draws: Draws | None


class Group(NamedTuple):
    """Layers of one shape that wait to be measured together."""

    place: int
    shared: Shared
    layers: list[int]
    heads: list[Heads]  # at the positions
    outputs: list[Tensor]  # of the model, there


class Done(NamedTuple):
    """Statistics of several layers at one of the places, on their device."""

    place: int
    layers: list[int]
    names: list[str]
    values: Tensor  # (names, layers, heads, positions)
    parity: Tensor  # (3, layers, heads)
    widths: dict[str, Array]


class Collector:
    """A visitor of :func:`watching` that measures the wanted layers; :meth:`finish` gives the
    statistics.

    Parameters
    ----------
    layers
        Which are measured.
    places
        Where; several where a causal model reads prefixes of one text.
    components, sinks
        Of the mixtures; see :func:`head_statistics`.
    """

    def __init__(
        self,
        layers: Sequence[int],
        places: Sequence[Place],
        components: tuple[int, ...],
        sinks: int,
    ) -> None:
        self.layers, self.places, self.components, self.sinks = (
            set(layers),
            places,
            components,
            sinks,
        )
        self._waiting: dict[tuple[object, ...], Group] = {}
        self._held = 0  # scores of those that wait
        self._shared: dict[tuple[object, ...], Shared] = {}
        self._positions: dict[tuple[int, torch.device], Tensor] = {}
        self._ahead: list[Tensor] = []
        self._done: list[Done] = []

    def __call__(self, layer: int, heads: Heads, output: Tensor) -> None:
        """Put the layer among those that wait, and measure them when they are enough."""
        if layer not in self.layers:
            return
        queries, keys = heads.query.shape[2], heads.key.shape[2] - heads.atoms
        if heads.batch > 1:
            raise AuditError(
                f"layer {layer}: attends within {heads.batch} windows, each a prompt of its own; "
                "nothing is reported."
            )
        if queries != keys:
            raise AuditError(
                f"layer {layer}: {queries} queries read {keys} keys; audit without a cache."
            )
        device = heads.query.device
        numbers = heads.count * sum(len(place.positions) * place.length for place in self.places)
        if self._held and self._held + numbers > chunk_numbers(heads):
            self._measure()
        self._held += numbers
        for index, place in enumerate(self.places):
            if (index, device) not in self._positions:
                self._positions[index, device] = place.positions.to(device)
            positions = self._positions[index, device]
            part = (
                heads
                if len(self.places) == 1 or place.length == queries
                else heads.prefix(place.length)
            )
            shared = self._share(index, heads.mask, part, positions)
            some = dataclasses.replace(
                part, query=part.query.index_select(2, positions), mask=shared.mask, causal=False
            )
            shapes = (some.query.shape, some.key.shape, some.value.shape, some.query.dtype, device)
            kind = (index, id(shared), shapes, some.scale, some.cap, some.atoms)
            group = self._waiting.setdefault(kind, Group(index, shared, [], [], []))
            group.layers.append(layer)
            group.heads.append(some)
            group.outputs.append(output.index_select(2, positions))

    def _share(self, index: int, mask: Tensor | None, heads: Heads, positions: Tensor) -> Shared:
        kind = (
            index,
            id(mask) if mask is not None else heads.causal,
            heads.count,
            heads.key.shape[2],
            heads.key.device,
        )
        found = self._shared.get(kind)
        if found is not None and (
            mask is None or (found.given is not None and found.given() is mask)
        ):
            return found
        some = heads.at(positions)
        host, more = self.places[index].positions, heads.key.shape[2] - heads.query.shape[2]
        causal = heads.causal and mask is None
        reach = (host + more + 1).tolist() if causal else None
        draws = drawn(some, reach if reach is not None else keys_read(some))
        if len(self.places) > 1 and not causal:
            if some.allowed is None:
                raise LooksAheadError("its tokens read later ones")
            ahead = (
                torch.arange(heads.key.shape[2], device=positions.device)
                > positions[:, None] + more
            )
            self._ahead.append((some.allowed & ahead).any())
        given = None if mask is None else weakref.ref(mask)
        found = self._shared[kind] = Shared(given, some.mask, heads.present, reach, draws)
        return found

    def _measure(self) -> None:
        """Statistics of all that wait, those of one kind together."""
        while self._waiting:
            place, shared, layers, parts, outputs = self._waiting.pop(next(iter(self._waiting)))
            heads, output = stacked(parts), torch.cat(outputs)
            parts.clear()  # the model's own keys and values, which nobody else holds
            found = measured(heads, self.components, self.sinks, shared.reach, shared.present)
            statistics = found.statistics | (
                {} if shared.draws is None else subset_errors(heads, shared.draws)
            )
            values = _together(list(statistics.values()))
            constant = widths(heads, self.places[place].positions)
            self._done.append(
                Done(
                    place, layers, list(statistics), values, parity(found, heads, output), constant
                )
            )
        self._held = 0

    def finish(self) -> list[Statistics]:
        """The statistics at each place, after the check of the outputs."""
        self._measure()
        missing = sorted(self.layers - {layer for each in self._done for layer in each.layers})
        if missing:
            raise AuditError(
                f"layers {missing} never called the attention interface: they have another kind of "
                "layer there."
            )
        if any(map(bool, self._ahead)):
            raise LooksAheadError("its tokens read later ones")
        checked = [(each.layers, each.parity.cpu()) for each in self._done]
        doubtful = [
            pair
            for layers, each in checked
            if not _equal(each)
            for pair in zip(layers, each.unbind(1), strict=True)
        ]
        for layer, outputs in sorted(doubtful, key=lambda pair: pair[0]):
            refuse(layer, outputs)
        found: list[Statistics] = [{} for _ in self.places]
        order = sorted(self.layers)
        for done in self._done:
            values, rows = (
                done.values.cpu().to(torch.float64).numpy(),
                [order.index(layer) for layer in done.layers],
            )
            named = dict(zip(done.names, values, strict=True)) | done.widths
            for name, each in named.items():  # layers with a window have fewer subsets
                found[done.place].setdefault(
                    name, np.full((len(order), *values.shape[2:]), np.nan)
                )[rows] = each
        return found


def _together(values: list[Tensor]) -> Tensor:
    """Statistics of one shape as one tensor, double where the device has it."""
    wide = torch.float32 if values[0].device.type == "mps" else torch.float64
    single = [each for each in values if each.dtype != wide]
    widened = iter(torch.stack(single).to(wide) if single else ())
    return torch.stack([each if each.dtype == wide else next(widened) for each in values])


def widths(heads: Heads, positions: Tensor) -> dict[str, Array]:
    """Coordinates of keys and values, and heads of a group, each of shape (heads, positions)."""
    known = (heads.key.shape[-1], heads.value.shape[-1], heads.count // heads.groups)
    return {
        name: np.full((heads.count, len(positions)), float(width))
        for name, width in zip(WIDTHS, known, strict=True)
    }


def parity(found: Measured, heads: Heads, output: Tensor) -> Tensor:
    """How far recomputed outputs are from the model's own, how far they may be, and how large those
    are: (3, batch, heads).
    """
    own = output.to(found.output.dtype)
    largest = own.abs().amax((2, 3))
    rounding = (
        heads.value.abs()
        .amax((2, 3))
        .repeat_interleave(heads.count // heads.groups, 1)
        .to(own.dtype)
    )
    size = 1 + found.size.amax(2)  # scores are as exact as their size allows
    allowed = (
        PARITY.get(output.dtype, 1e-4) * largest
        + 4 * torch.finfo(output.dtype).eps * size * rounding
    )
    return torch.stack([(found.output - own).abs().amax((2, 3)), allowed, largest])


def _equal(found: Tensor) -> bool:
    """Whether all outputs of some layers, by :func:`parity`, are the model's."""
    wrong, allowed, largest = found
    return bool(((wrong <= allowed) & torch.isfinite(largest)).all())


def refuse(layer: int, found: Tensor) -> None:
    """An error where outputs of a layer, by :func:`parity` of shape (3, heads), are not the
    model's.
    """
    wrong, allowed, largest = found
    if not bool(torch.isfinite(largest).all()):
        raise AuditError(
            f"layer {layer}: the model's own attention gives NaN or infinity for this text; try "
            "another dtype, or sdpa."
        )
    if not bool((wrong <= allowed).all()):
        head = int(torch.nan_to_num(wrong / allowed, nan=torch.inf).argmax())
        raise AuditError(
            f"layer {layer}, head {head}: its output, recomputed from what the model passed to "
            f"its attention, is off by {float(wrong[head]):.2g} (allowed "
            f"{float(allowed[head]):.2g}). The model does something else to its scores, so that "
            "nothing is reported."
        )


def check_parity(layer: int, heads: Heads, output: Tensor, positions: Tensor) -> None:
    """Refuse to go on where the outputs recomputed from what was seen are not the model's."""
    some = heads.at(positions)
    for text in parity(measured(some, (), 0), some, output.index_select(2, positions)).unbind(1):
        refuse(layer, text)
