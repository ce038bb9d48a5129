"""Run a model with some heads replaced by their read-outs, and see what changes."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from largeprompt.audit.adapters.transformers import CAUSAL, Model, attending_layers, evaluating, head_count, watching
from largeprompt.audit.heads import Heads
from largeprompt.audit.kinds import NAMES
from largeprompt.audit.plan import Head, Kind, Plan
from largeprompt.audit.readouts import chosen_heads, read_out
from largeprompt.display.labels import label
from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.study import Progress, quiet


@contextlib.contextmanager
def linearize(
    model: Model, heads: Iterable[Head] | Plan | Path | str, kind: Kind = "affine", *, components: int = 8, sinks: int = 1
) -> Iterator[Model]:
    """Run ``model`` with the chosen heads replaced by a read-out of their prompt's moments, inside the block.

    Parameters
    ----------
    model
        A model of transformers; it is as before after the block.
    heads
        Pairs (layer, head), counted from 0; or a :class:`Plan`, or the file of one (``heads.json`` of an audit), which says how
        they are read, too.
    kind
        'affine', v̄ + Cov(v, k) u, the infinite Gaussian prompt with these moments; 'mixture', the same for each cluster; or 'mean',
        v̄ alone.
    components, sinks
        For 'mixture': how many clusters, beside how many first tokens that are read exactly.

    Yields
    ------
    PreTrainedModel
        The same model.
    """
    if isinstance(heads, str | Path | Plan):
        plan = heads if isinstance(heads, Plan) else Plan.load(heads)
        heads, kind, components, sinks = plan.heads, plan.kind, plan.components, plan.sinks
    layers, count = attending_layers(model), head_count(model)
    wanted: dict[int, set[int]] = {}
    for layer, head in heads:
        if layer not in layers or not 0 <= head < count:
            raise InvalidArgumentError("heads", f"({layer}, {head})", f"heads 0 to {count - 1} of the layers that attend: {layers}")
        wanted.setdefault(int(layer), set()).add(int(head))

    def visitor(layer: int, heads: Heads, output: Tensor) -> Tensor | None:
        if layer not in wanted:
            return None
        indices = sorted(wanted[layer])
        changed = output.clone()
        changed[:, indices] = read_out(chosen_heads(heads, indices), kind, components, sinks).to(output.dtype)
        return changed

    with watching(model, visitor):
        yield model


class Outputs(NamedTuple):
    """What a model gave: embeddings of the texts, and log-probabilities with the loss where it is a language model."""

    embedding: Tensor
    log_probabilities: Tensor | None
    loss: float


def outputs(model: Model, inputs: Mapping[str, Tensor]) -> Outputs:
    """Mean of the last hidden states over real tokens, and the next-token log-probabilities of a causal language model."""
    with evaluating(model):
        result = model(**inputs, output_hidden_states=True)
    hidden = result.hidden_states[-1].cpu().to(torch.float64)
    present = inputs.get("attention_mask", torch.ones(hidden.shape[:2])).to(hidden)[..., None]
    embedding = (hidden * present).sum(1) / present.sum(1).clamp_min(1)
    logits = getattr(result, "logits", None)
    if logits is None or not type(model).__name__.endswith(CAUSAL):
        return Outputs(embedding, None, float("nan"))
    kept = present[..., 0].bool().to(logits.device)
    log_probabilities = torch.log_softmax(logits if logits.dtype == torch.float64 else logits.to(torch.float32), -1)
    following = kept[:, :-1] & kept[:, 1:]
    target = inputs["input_ids"][:, 1:][following]
    loss = -log_probabilities[:, :-1][following].gather(1, target[:, None]).mean()
    return Outputs(embedding, log_probabilities[kept], float(loss))


def effect(before: Outputs, after: Outputs) -> tuple[float, float, float]:
    """Cosine of the embeddings (mean over texts), mean KL divergence of the next token, and the change of the loss."""
    cosine = torch.nn.functional.cosine_similarity(before.embedding, after.embedding, dim=-1).mean()
    kl = float("nan")
    if before.log_probabilities is not None and after.log_probabilities is not None:
        p, q = before.log_probabilities.exp(), after.log_probabilities.exp()
        terms = p * (before.log_probabilities - after.log_probabilities) - p + q  # none is negative
        kl = float(terms.clamp_min(0).sum(-1).mean())
    return float(cosine), kl, after.loss - before.loss


def replacement_curves(
    model: Model,
    inputs: Mapping[str, Tensor],
    order: Sequence[Head],
    counts: Sequence[int],
    *,
    components: int = 8,
    sinks: int = 1,
    seed: int = 0,
    randoms: int = 3,
    progress: Progress = quiet,
) -> xr.Dataset:
    """Effect on the model's output against how many heads are replaced, in the audit's order, at random, and in reverse.

    Embeddings are means of the last hidden states. Curves: 'audit', 'reverse' and 'random' (mean over ``randoms`` orders) with the
    affine read-out, 'mean' and (unless ``components`` is 0) 'mixture' in the audit's order. If the audit says something true,
    'audit' stays close longest.

    Parameters
    ----------
    model, inputs
        A model of transformers and what its tokenizer gave.
    order
        Pairs (layer, head), those to be replaced first in front.
    counts
        How many heads are replaced, one point of the curves for each.
    components, sinks
        Of the mixture read-out; see :func:`linearize`.
    seed, randoms
        Of the random orders, and how many there are.
    progress
        Called with a line about each point.

    Returns
    -------
    xarray.Dataset
        ``cosine`` of the embeddings, ``kl`` of the next token and ``loss_change``, each (curve, replaced).
    """
    before = outputs(model, inputs)
    generator = np.random.default_rng(seed)
    orders: dict[str, list[tuple[Sequence[Head], Kind]]] = {
        "audit": [(order, "affine")],
        "reverse": [(order[::-1], "affine")],
        "random": [([order[i] for i in generator.permutation(len(order))], "affine") for _ in range(randoms)],
        "mean": [(order, "mean")],
        **({"mixture": [(order, "mixture")]} if components else {}),
    }
    values = np.empty((3, len(orders), len(counts)))
    for i, (name, tries) in enumerate(orders.items()):
        for j, count in enumerate(counts):
            progress(f"replacing {count} heads, {name}")
            found = []
            for heads, kind in tries:
                with linearize(model, heads[:count], kind, components=components, sinks=sinks):
                    found.append(effect(before, outputs(model, inputs)))
            values[:, i, j] = np.mean(found, 0)
    data = xr.Dataset(
        {name: (("curve", "replaced"), each) for name, each in zip(("cosine", "kl", "loss_change"), values, strict=True)},
        coords={"curve": list(orders), "replaced": list(counts), "mixture_components": components},
    )
    return label(data, NAMES)
