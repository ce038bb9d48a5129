"""Run a model with some heads replaced by their read-outs, and see what changes."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from largeprompt.audit.adapters.transformers import CAUSAL, Model, check_model, evaluating
from largeprompt.audit.heads import Heads
from largeprompt.audit.kinds import NAMES
from largeprompt.audit.plan import Head, Kind, Plan
from largeprompt.audit.readouts import chosen_heads, read_out
from largeprompt.audit.zero import replacing
from largeprompt.display.labels import label
from largeprompt.runs.study import Progress, quiet

STRETCH = 64  # tokens whose log-probabilities are compared at a time: what a cache holds


@contextlib.contextmanager
def linearize(
    model: Model,
    heads: Iterable[Head] | Plan | Path | str,
    kind: Kind = "affine",
    *,
    components: int = 8,
    sinks: int = 1,
) -> Iterator[Model]:
    """Run ``model`` with the chosen heads replaced by a read-out of their prompt's moments, inside
    the block.

    This shows what replacing heads does to the output. It frees nothing: the model computes its own
    attention as well, and the replaced keys and values stay in its cache.

    Parameters
    ----------
    model
        A model of transformers; it is as before after the block.
    heads
        Pairs (layer, head), counted from 0; or a :class:`Plan`, or the file of one (``heads.json``
        of an audit), which says how they are read, too.
    kind
        'affine', v̄ + Cov(v, k) u, the infinite Gaussian prompt with these moments; 'mixture', the
        same for each cluster; or 'mean', v̄ alone.
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

    def read(inputs: Heads, indices: list[int]) -> Tensor:
        return read_out(chosen_heads(inputs, indices), kind, components, sinks)

    with replacing(model, heads, read):
        yield model


class Outputs(NamedTuple):
    """What a model gave of every text; losses are NaN where it is no language model."""

    embedding: Tensor
    log_probabilities: Tensor | None  # of the next token, after every token: (tokens, vocabulary)
    losses: Tensor
    tokens: Tensor  # of every text

    @property
    def loss(self) -> float:
        """Mean loss of the next token, over all tokens of all texts."""
        following = (self.tokens - 1).to(self.losses)
        return float((self.losses * following).sum() / following.sum())


def outputs(model: Model, inputs: Mapping[str, Tensor]) -> Outputs:
    """Return mean last hidden states and, of a causal model, next-token log-probabilities."""
    check_model(model, inputs)
    with evaluating(model):
        result = model(**inputs, output_hidden_states=True)
    hidden = result.hidden_states[-1].cpu().to(torch.float64)
    present = inputs.get("attention_mask", torch.ones(hidden.shape[:2])).to(hidden)[..., None]
    number = present.sum((1, 2))
    embedding = (hidden * present).sum(1) / number[:, None].clamp_min(1)
    logits = getattr(result, "logits", None)
    if logits is None or not type(model).__name__.endswith(CAUSAL):
        return Outputs(embedding, None, torch.full_like(number, torch.nan), number)
    kept = present[..., 0].bool().to(logits.device)
    logits = logits if logits.dtype == torch.float64 else logits.to(torch.float32)
    log_probabilities = torch.log_softmax(logits, -1)
    following = kept[:, :-1] & kept[:, 1:]
    true = log_probabilities[:, :-1].gather(2, inputs["input_ids"][:, 1:, None]).squeeze(2)
    losses = torch.where(following, -true.to(torch.float64), 0.0).sum(1) / following.sum(1)
    return Outputs(embedding, log_probabilities[kept], losses.cpu(), number)


def cosines(before: Outputs, after: Outputs) -> Tensor:
    """Return the cosine of every text's embeddings."""
    return torch.nn.functional.cosine_similarity(before.embedding, after.embedding, dim=-1)


def effects(before: Outputs, after: Outputs) -> Tensor:
    """Return cosine, KL divergence of the next token and change of the loss, (3, texts)."""
    cosine = cosines(before, after)
    kl = torch.full_like(cosine, torch.nan)
    if before.log_probabilities is not None and after.log_probabilities is not None:
        pairs = zip(
            before.log_probabilities.split(STRETCH),
            after.log_probabilities.split(STRETCH),
            strict=True,
        )
        # of a token it is at least 0
        tokens = torch.cat([(p.exp() * (p - q)).sum(-1).clamp_min_(0) for p, q in pairs])
        texts = tokens.double().split([int(number) for number in before.tokens])
        kl = torch.stack([text.mean() for text in texts]).to(kl)
    return torch.stack([cosine, kl, (after.losses - before.losses).to(cosine)])


def standard_error(values: Tensor) -> float:
    """Standard error of the mean over texts; NaN of one."""
    return float(values.std() / len(values) ** 0.5) if len(values) > 1 else float("nan")


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
    compared: Sequence[int] | None = None,
    progress: Progress = quiet,
) -> xr.Dataset:
    """Return the effect on the model's output against how many heads are replaced.

    Embeddings are means of the last hidden states. Curves: 'audit', 'reverse' and 'random' (mean
    over ``randoms`` orders) with the affine read-out, 'mean' and (unless ``components`` is 0)
    'mixture' in the audit's order. If the audit says something true, 'audit' stays close longest.

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
    compared
        At which of the counts the other curves have points, which are most of the work; None for
        all.
    progress
        Called with a line about each point.

    Returns
    -------
    xarray.Dataset
        ``cosine`` of the embeddings, ``kl`` of the next token and ``loss_change``, each (curve,
        replaced), mean over texts; and their standard errors over texts, ``cosine_error``, ... (NaN
        of one text). NaN where a curve has no point.
    """
    before = outputs(model, inputs)
    generator = np.random.default_rng(seed)
    orders: dict[str, list[tuple[Sequence[Head], Kind]]] = {
        "audit": [(order, "affine")],
        "reverse": [(order[::-1], "affine")],
        "random": [
            ([order[i] for i in generator.permutation(len(order))], "affine")
            for _ in range(randoms)
        ],
        "mean": [(order, "mean")],
        **({"mixture": [(order, "mixture")]} if components else {}),
    }
    values = np.full((3, 2, len(orders), len(counts)), np.nan)
    for i, (name, tries) in enumerate(orders.items()):
        for j, count in enumerate(counts):
            if count >= len(order) and name in ("reverse", "random"):
                values[:, :, i, j] = values[:, :, 0, j]  # all are replaced in any order
                continue
            if name != "audit" and compared is not None and count not in compared:
                continue
            progress(f"replacing {count} heads, {name}")
            found = []
            for heads, kind in tries:
                few = heads[:count]
                with linearize(model, few, kind, components=max(components, 1), sinks=sinks):
                    found.append(effects(before, outputs(model, inputs)))
            each = torch.stack(found).mean(0)
            values[:, 0, i, j] = each.mean(-1)
            values[:, 1, i, j] = [standard_error(one) for one in each]
    names = ("cosine", "kl", "loss_change")
    known = {name: each[0] for name, each in zip(names, values, strict=True)}
    known |= {f"{name}_error": each[1] for name, each in zip(names, values, strict=True)}
    data = xr.Dataset(
        {name: (("curve", "replaced"), each) for name, each in known.items()},
        coords={"curve": list(orders), "replaced": list(counts), "mixture_components": components},
    )
    return label(data, NAMES)
