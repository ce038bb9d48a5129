"""Run a model with some heads replaced by their read-outs, and see what changes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from largeprompt.audit.adapters.transformers import CAUSAL, evaluating, layer_count, watching
from largeprompt.audit.heads import Heads
from largeprompt.audit.readouts import Kind, chosen_heads, read_out
from largeprompt.errors import InvalidArgumentError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Head = tuple[int, int]


def head_count(model: PreTrainedModel) -> tuple[int, int]:
    """Layers and heads per layer."""
    return layer_count(model), int(model.config.get_text_config().num_attention_heads)


@contextlib.contextmanager
def linearize(
    model: PreTrainedModel, heads: Iterable[Head], kind: Kind = "affine", *, components: int = 8, sinks: int = 1
) -> Iterator[PreTrainedModel]:
    """Run ``model`` with the chosen heads replaced by a read-out of their prompt's moments, inside the block.

    Parameters
    ----------
    heads
        Pairs (layer, head), counted from 0.
    kind
        'affine': v̄ + Cov(v, k) u, the infinite Gaussian prompt with these moments; 'mixture': the same for each of ``components``
        clusters; 'mean': v̄ alone.
    sinks
        First tokens that the mixture reads exactly, beside its components.
    """
    layers, count = head_count(model)
    wanted: dict[int, list[int]] = {}
    for layer, head in heads:
        if not (0 <= layer < layers and 0 <= head < count):
            raise InvalidArgumentError("heads", f"({layer}, {head})", f"layers 0 to {layers - 1} and heads 0 to {count - 1}")
        wanted.setdefault(int(layer), []).append(int(head))

    def visitor(layer: int, heads: Heads, output: Tensor) -> Tensor | None:
        indices = sorted(set(wanted.get(layer, [])))
        if not indices:
            return None
        changed = output.clone()
        changed[:, indices] = read_out(chosen_heads(heads, indices), kind, components, sinks).to(output.dtype)
        return changed

    with watching(model, visitor):
        yield model


@dataclasses.dataclass(frozen=True)
class Outputs:
    """What a model gave: embeddings of the texts, and log-probabilities with the loss where it is a language model."""

    embedding: Tensor
    log_probabilities: Tensor | None
    loss: float


def outputs(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Outputs:
    """Mean of the last hidden states over real tokens, and the next-token log-probabilities of a causal language model."""
    with torch.no_grad(), evaluating(model):
        result = model(**inputs, output_hidden_states=True)
    hidden = result.hidden_states[-1].cpu().to(torch.float64)
    present = inputs.get("attention_mask", torch.ones(hidden.shape[:2])).to(hidden)[..., None]
    embedding = (hidden * present).sum(1) / present.sum(1).clamp_min(1)
    logits = getattr(result, "logits", None)
    if logits is None or not type(model).__name__.endswith(CAUSAL):
        return Outputs(embedding, None, float("nan"))
    kept = present[..., 0].bool().to(logits.device)
    log_probabilities = torch.log_softmax(logits if logits.dtype == torch.float64 else logits.to(torch.float32), -1)
    following = (kept[:, :-1] & kept[:, 1:]).flatten()
    target = inputs["input_ids"][:, 1:].flatten()[following]
    loss = -log_probabilities[:, :-1].flatten(0, 1)[following].gather(1, target[:, None]).mean()
    return Outputs(embedding, log_probabilities[kept], float(loss))


def effect(before: Outputs, after: Outputs) -> dict[str, float]:
    """Cosine of the embeddings (mean over texts), mean KL divergence of the next token, and the change of the loss."""
    cosine = torch.nn.functional.cosine_similarity(before.embedding, after.embedding, dim=-1).mean()
    found = {"cosine": float(cosine), "kl": float("nan"), "loss_change": after.loss - before.loss}
    if before.log_probabilities is not None and after.log_probabilities is not None:
        difference = before.log_probabilities - after.log_probabilities
        found["kl"] = float((before.log_probabilities.exp() * difference).sum(-1).mean())
    return found


def replacement_curves(
    model: PreTrainedModel,
    inputs: Mapping[str, Tensor],
    order: Sequence[Head],
    counts: Sequence[int],
    *,
    components: int = 8,
    sinks: int = 1,
    seed: int = 0,
    randoms: int = 3,
    progress: Callable[[str], None] | None = None,
) -> xr.Dataset:
    """Effect on the model's output against how many heads are replaced, in the audit's order, at random, and in reverse.

    Embeddings are means of the last hidden states.

    Curves: 'audit', 'reverse' and 'random' (mean over ``randoms`` orders) with the affine read-out, 'mean' and (unless
    ``components`` is 0) 'mixture' in the audit's order. If the audit says something true, 'audit' stays close longest.
    """
    before = outputs(model, inputs)
    generator = np.random.default_rng(seed)
    orders: dict[str, list[tuple[Sequence[Head], Kind]]] = {
        "audit": [(order, "affine")],
        "reverse": [(order[::-1], "affine")],
        "random": [([order[i] for i in generator.permutation(len(order))], "affine") for _ in range(randoms)],
        "mean": [(order, "mean")],
    }
    if components:
        orders["mixture"] = [(order, "mixture")]
    measures = ("cosine", "kl", "loss_change")
    values = np.full((len(orders), len(counts), len(measures)), np.nan)
    for i, (name, tries) in enumerate(orders.items()):
        for j, count in enumerate(counts):
            if progress is not None:
                progress(f"replacing {count} heads, {name}")
            found = []
            for heads, kind in tries:
                with linearize(model, heads[:count], kind, components=components, sinks=sinks):
                    found.append(effect(before, outputs(model, inputs)))
            values[i, j] = [np.mean([each[measure] for each in found]) for measure in measures]
    coords: dict[str, Any] = {"curve": list(orders), "replaced": list(counts), "mixture_components": components}
    return xr.Dataset({name: (("curve", "replaced"), values[..., k]) for k, name in enumerate(measures)}, coords=coords)
