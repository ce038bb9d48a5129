"""Switch heads off: the ablation that transformers had as head masks."""

import contextlib
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from largeprompt.audit.adapters.transformers import (
    Model,
    attending_layers,
    check_model,
    head_count,
    watching,
)
from largeprompt.audit.heads import Heads
from largeprompt.audit.plan import Head, checked_heads
from largeprompt.errors import InvalidArgumentError


@contextlib.contextmanager
def zero_heads(model: Model, heads: Iterable[Head]) -> Iterator[Model]:
    """Run ``model`` with the outputs of the chosen heads set to zero, inside the block.

    The output of a head is zero before the layer mixes its heads, as a head mask of 0 made it.
    Gradients flow through the other heads. The model is as before after the block.

    Parameters
    ----------
    model
        A model of transformers.
    heads
        Pairs (layer, head), counted from 0.

    Yields
    ------
    PreTrainedModel
        The same model.
    """
    with replacing(model, heads, lambda inputs, indices: torch.zeros(())):
        yield model


@contextlib.contextmanager
def replacing(
    model: Model, heads: Iterable[Head], read: Callable[[Heads, list[int]], Tensor]
) -> Iterator[None]:
    """Run ``model`` with the outputs of chosen heads of a layer replaced by what ``read`` gives."""
    chosen = _by_layer(model, heads)

    def visitor(layer: int, heads: Heads, output: Tensor) -> Tensor | None:
        if layer not in chosen:
            return None
        changed = output.clone()
        changed[:, chosen[layer]] = read(heads, chosen[layer]).to(output)
        return changed

    with watching(model, visitor):
        yield


def _by_layer(model: Model, heads: Iterable[Head]) -> dict[int, list[int]]:
    """The chosen heads of each layer, ascending; refuses those that the model has not."""
    check_model(model)
    layers, count = attending_layers(model), head_count(model)
    chosen: dict[int, set[int]] = {}
    for layer, head in checked_heads(heads):
        if layer not in layers or head >= count:
            allowed = f"heads 0 to {count - 1} of the layers that attend: {layers}"
            raise InvalidArgumentError("heads", f"({layer}, {head})", allowed)
        chosen.setdefault(layer, set()).add(head)
    return {layer: sorted(found) for layer, found in chosen.items()}
