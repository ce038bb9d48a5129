"""One model: trained with the audit watching, tested at every length, its heads replaced."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from largeprompt.attention import SoftmaxAttention
from largeprompt.audit.findings import Rule, derived, summary
from largeprompt.audit.heads import Heads
from largeprompt.audit.readouts import read_out
from largeprompt.audit.statistics import head_statistics
from largeprompt.runs.study import Progress, along
from largeprompt.studies.trained.theory import regression
from largeprompt.studies.trained.transformer import (
    Architecture,
    Attend,
    StackedTransformer,
    reading_mask,
    softmax_attention,
    train,
)

if TYPE_CHECKING:
    from largeprompt.studies.trained.study import TrainedConfig

AUDITED = ["alpha", "affine_error"]
CHUNK_NUMBERS = 2**22  # of the widest layer of a test batch: 16 MiB


def by_model(config: TrainedConfig, results: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Join models; layers and heads that a model does not have are NaN."""
    shapes = [Architecture.named(name, config.dim + 1, config.width) for name in results]
    columns = {
        field: ("model", [getattr(shape, field) for shape in shapes])
        for field in ("kind", "layers", "heads", "shuffled")
    }
    return (
        along("model")(config, results)
        .assign_coords(columns)
        .assign(training_length=("training", list(config.training_lengths)))
    )


def draw(
    config: TrainedConfig,
    generator: torch.Generator,
    prompts: int,
    length: int,
    queries: int,
    shuffled: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens (runs, prompts, length + queries, d + 1), y = 0 at queries; w·x_q; w·x_q + noise."""
    d = config.dim

    def normal(*shape: int) -> Tensor:
        return torch.randn(config.runs, prompts, *shape, generator=generator)

    x, w = normal(length + queries, d), normal(1, d) / math.sqrt(d)
    clean = (x * w).sum(-1)
    noise = math.sqrt(config.noise_variance) * normal(length + queries)
    labels = clean[:, :, :length]
    if shuffled:  # a task vector for each token
        labels = (x[:, :, :length] * normal(length, d)).sum(-1) / math.sqrt(d)
    labels = torch.cat([labels + noise[:, :, :length], torch.zeros_like(noise[:, :, length:])], -1)
    tokens = torch.cat([x, labels.unsqueeze(-1)], -1)
    return tokens, clean[:, :, length:], (clean + noise)[:, :, length:]


def trial(config: TrainedConfig, name: str, progress: Progress) -> xr.Dataset:
    """A model by its name: trained, audited on the way, tested, its heads replaced."""
    shape = Architecture.named(name, config.dim + 1, config.width)
    longest = config.training_lengths[-1]
    sequence = np.random.SeedSequence([config.seed, config.models.index(name)])
    seeds = sequence.generate_state(4, np.uint64) >> np.uint64(1)
    streams = (torch.Generator().manual_seed(int(seed)) for seed in seeds)
    first, auditing, training, testing = streams
    model = StackedTransformer(shape, config.runs, first)
    texts = draw(config, auditing, config.audit_prompts, longest, config.test_queries)[0]
    steps: int = getattr(config, f"{shape.kind}_steps")
    points = np.geomspace(max(1, steps // 100), steps, max(1, config.checkpoints - 1)).round()
    seen: dict[int, xr.Dataset] = {}

    def watch(step: int) -> None:
        if step == 0 or step in points:
            progress(f"{name}: {step} of {steps} steps")
            seen[step] = audit(config, model, texts)

    def fresh() -> tuple[Tensor, Tensor]:
        drawn = draw(config, training, config.batch, longest, config.queries, shape.shuffled)
        return drawn[0], drawn[2]

    lengths = config.training_lengths
    mask = reading_mask(longest, [lengths[i % len(lengths)] for i in range(config.queries)])
    rate: float = getattr(config, f"{shape.kind}_rate")
    train(model, fresh, mask, steps=steps, learning_rate=rate, watch=watch)
    history = xr.concat(seen.values(), xr.Variable("checkpoint", range(len(seen))), join="outer")
    history["step"] = ("checkpoint", [float(step) for step in seen])
    progress(f"{name}: test")
    # (run, prompt, length)
    losses = squared_errors(config, model, testing, config.test_lengths, [softmax_attention])[0]
    tested = {
        "risk": losses.mean(1) + config.noise_variance / 2,
        "risk_error": losses.std(1, ddof=1) / math.sqrt(losses.shape[1]),
    }
    attentions = {"softmax": softmax_attention, "affine": put("affine"), "mean": put("mean")}
    replaced = squared_errors(config, model, testing, [longest], list(attentions.values()))
    changed = replaced[..., 0].mean(2) + config.noise_variance / 2
    found = xr.Dataset(
        {key: (("run", "length"), value) for key, value in tested.items()}
        | {"replaced_risk": (("replaced", "run"), changed)},
        coords={"length": list(config.test_lengths), "replaced": list(attentions)},
    )
    if (shape.kind, shape.layers, shape.heads) == ("attention", 1, 1):
        task, attention = regression(config), SoftmaxAttention(*model.single_layer())
        exact, objective = (
            np.stack([task.risk(attention, length).numpy() for length in some])
            for some in (config.test_lengths, lengths)
        )
        found["exact_risk"] = (("length", "run"), exact)
        found["exact_objective"] = ("run", objective.mean(0))
    return xr.merge([history, found], join="outer", compat="no_conflicts")


@torch.no_grad()
def audit(config: TrainedConfig, model: StackedTransformer, tokens: Tensor) -> xr.Dataset:
    """Every head at the query tokens of prompts of the longest training length."""
    found: list[xr.Dataset] = []
    dims = ("run", "text", "head", "position")

    def look(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float) -> Tensor:
        rows = torch.arange(query.shape[2] - config.test_queries, query.shape[2])
        statistics = head_statistics(Heads(query, key, value, mask, scale), rows)
        by_run = {
            name: (dims, each.reshape(config.runs, -1, *each.shape[1:]).numpy())
            for name, each in statistics.items()
        }
        found.append(summary(derived(xr.Dataset(by_run)), Rule(fewest=1))[AUDITED])
        return softmax_attention(query, key, value, mask, scale)

    longest = config.training_lengths[-1]
    model(tokens, reading_mask(longest, [longest] * config.test_queries), look)
    data = xr.concat(found, xr.Variable("layer", range(1, len(found) + 1)), join="outer")
    return data.assign_coords(head=range(1, data.sizes["head"] + 1))


def put(kind: str) -> Attend:
    """Attention with the affine read-out, or the mean, of the prompt in the place of each head."""

    def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float) -> Tensor:
        return read_out(Heads(query, key, value, mask, scale), kind)  # type: ignore[arg-type]

    return attend


@torch.no_grad()
def squared_errors(
    config: TrainedConfig,
    model: StackedTransformer,
    generator: torch.Generator,
    lengths: Sequence[int],
    attentions: Sequence[Attend],
) -> NDArray[np.float64]:
    """½(ŷ - w·x_q)², shape (attention, run, prompt, length), means over the queries."""
    shape, longest, rows = model.architecture, max(lengths), len(lengths) * config.test_queries
    mask = reading_mask(longest, np.repeat(lengths, config.test_queries).tolist())
    bare = shape.kind == "attention"
    widest = shape.inputs * shape.heads if bare else 4 * shape.width
    chunk = max(1, CHUNK_NUMBERS // (config.runs * (longest + rows) * widest))
    parts = []
    for begin in range(0, config.test_prompts, chunk):
        count = min(chunk, config.test_prompts - begin)
        tokens, clean, _ = draw(config, generator, count, longest, rows)
        off = torch.stack([model(tokens, mask, attend) - clean for attend in attentions])
        squared = off.double().square() / 2
        parts.append(squared.reshape(*off.shape[:3], len(lengths), -1).mean(-1).numpy())
    return np.concatenate(parts, 2)
