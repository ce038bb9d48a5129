"""Small transformers trained here on in-context regression, and audited along training: is the theory of one layer what they do?"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from largeprompt.attention import SoftmaxAttention
from largeprompt.audit.findings import Rule, derived, summary
from largeprompt.audit.heads import Heads
from largeprompt.audit.readouts import read_out
from largeprompt.audit.statistics import head_statistics
from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.study import Progress, Study
from largeprompt.studies.trained.rules import verdicts
from largeprompt.studies.trained.theory import own_moment_risk, predictions, regression
from largeprompt.studies.trained.transformer import (
    Architecture,
    Attend,
    Kind,
    StackedTransformer,
    reading_mask,
    softmax_attention,
    train,
)

MODEL = re.compile(r"(shuffled )?(attention|blocks) ([1-9]\d*)x([1-9]\d*)")
AUDITED = ("score_variance", "alpha", "effective_tokens", "affine_error", "mean_error", "finding")
REPLACED = ("softmax", "affine", "affine at the query", "mean", "moments heads", "other heads")
SCRAMBLES = 8  # of the Sobol points of an exact risk
CHUNK_NUMBERS = 2**22  # of the widest layer of a test batch


@dataclasses.dataclass(frozen=True)
class TrainedConfig:
    """Σ = I, W = I/d; models are 'KIND LAYERSxHEADS', trained in ``runs`` copies on prompts of all training lengths at once.

    A model that is named 'shuffled' is trained on prompts in which every token has a task vector of its own.
    """

    models: tuple[str, ...] = (
        "blocks 4x2",
        "blocks 2x2",
        "attention 4x2",
        "attention 2x2",
        "blocks 1x2",
        "attention 1x2",
        "attention 1x1",
        "shuffled blocks 1x2",
    )
    dim: int = 3
    noise_variance: float = 0.1
    training_lengths: tuple[int, ...] = (8, 16, 32)
    test_lengths: tuple[int, ...] = (4, 8, 16, 32, 64, 128, 256)
    width: int = 32
    runs: int = 4
    batch: int = 32
    queries: int = 9
    attention_steps: int = 2000
    attention_rate: float = 0.01
    blocks_steps: int = 1000
    blocks_rate: float = 0.003
    checkpoints: int = 6
    test_prompts: int = 1024
    test_queries: int = 4
    audit_prompts: int = 128
    points: int = 4096
    device: str = "cpu"
    seed: int = 0


def architecture(config: TrainedConfig, name: str) -> tuple[Architecture, bool]:
    """Shape of a named model, and whether its training prompts are shuffled."""
    found = MODEL.fullmatch(name)
    if found is None:
        raise InvalidArgumentError(
            "models", repr(name), "'attention LxH' or 'blocks LxH' (layers, heads), after 'shuffled ' or not"
        )
    kind: Kind = "attention" if found[2] == "attention" else "blocks"
    return Architecture(kind, int(found[3]), int(found[4]), config.dim + 1, config.width), found[1] is not None


def cells(config: TrainedConfig) -> list[str]:
    """What the exact theory says, and one cell for each model."""
    for name in config.models:
        architecture(config, name)
    return ["theory", *config.models]


def compute(config: TrainedConfig, cell: str, progress: Progress) -> xr.Dataset:
    """Predictions, which draw nothing; or a model: trained, audited on the way, tested at every length, its heads replaced."""
    if cell == "theory":
        progress("exact optima of one layer")
        return predictions(regression(config.dim, config.noise_variance), config.training_lengths, config.test_lengths)
    return _Trial(config, cell, progress).dataset()


class _Trial:
    """One model of the study."""

    def __init__(self, config: TrainedConfig, name: str, progress: Progress) -> None:
        self.config, self.name, self.progress = config, name, progress
        self.device = _device(config.device)
        self.shape, self.shuffled = architecture(config, name)
        self.longest = max(config.training_lengths)
        bare = self.shape.kind == "attention"
        self.steps, self.rate = (
            (config.attention_steps, config.attention_rate) if bare else (config.blocks_steps, config.blocks_rate)
        )
        seeds = np.random.SeedSequence([config.seed, config.models.index(name)]).generate_state(4, np.uint64) >> np.uint64(1)
        self.generators = [torch.Generator(self.device).manual_seed(int(seed)) for seed in seeds]
        self.model = StackedTransformer(self.shape, config.runs, self.generators[0])

    def dataset(self) -> xr.Dataset:
        """Train with the audit watching, then test."""
        config = self.config
        if config.queries < len(config.training_lengths):
            raise InvalidArgumentError(
                "queries", str(config.queries), f"one at least for each of {len(config.training_lengths)} lengths"
            )
        audit = self.draw(self.generators[1], config.audit_prompts, self.longest, config.test_queries)[:2]
        prefixes = [config.training_lengths[i % len(config.training_lengths)] for i in range(config.queries)]
        steps = np.unique(np.geomspace(max(1, self.steps // 100), self.steps, max(1, config.checkpoints - 1)).round().astype(int))
        seen: dict[int, xr.Dataset] = {}

        def watch(step: int) -> None:
            if step == 0 or step in steps:
                self.progress(f"{self.name}: {step} of {self.steps} steps")
                seen[step] = self.audit(*audit)

        def fresh() -> tuple[Tensor, Tensor]:
            tokens, _, noisy = self.draw(self.generators[2], config.batch, self.longest, config.queries, self.shuffled)
            return tokens, noisy

        mask = reading_mask(self.longest, prefixes, self.device)
        train(self.model, fresh, mask, steps=self.steps, learning_rate=self.rate, watch=watch)
        along = xr.concat(seen.values(), xr.Variable("checkpoint", range(len(seen))), join="outer")
        along["step"] = ("checkpoint", [float(step) for step in seen])
        self.progress(f"{self.name}: test")
        return xr.merge(
            [along, self.test(), self.replace(seen[self.steps].finding), self.exact_risk()], join="outer", compat="no_conflicts"
        )

    def draw(
        self, generator: torch.Generator, prompts: int, length: int, queries: int, shuffled: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens (runs, prompts, length + queries, d + 1) with y = 0 at the queries, w·x_q, and w·x_q + noise."""
        runs, d = self.config.runs, self.config.dim

        def normal(*shape: int) -> Tensor:
            return torch.randn(runs, prompts, *shape, generator=generator, device=self.device)

        x, w = normal(length + queries, d), normal(1, d) / math.sqrt(d)
        clean = (x * w).sum(-1)
        noise = math.sqrt(self.config.noise_variance) * normal(length + queries)
        labels = clean[:, :, :length]
        if shuffled:
            labels = (x[:, :, :length] * normal(length, d)).sum(-1) / math.sqrt(d)  # a task vector for each token
        labels = torch.cat([labels + noise[:, :, :length], torch.zeros_like(clean[:, :, length:])], -1)
        return torch.cat([x, labels.unsqueeze(-1)], -1), clean[:, :, length:], (clean + noise)[:, :, length:]

    @torch.no_grad()
    def audit(self, tokens: Tensor, answers: Tensor) -> xr.Dataset:
        """Every head at the query tokens of prompts of the longest training length, and the risk there."""
        config, runs = self.config, self.config.runs
        found: list[xr.Dataset] = []

        def look(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float, layer: int) -> Tensor:
            rows = torch.arange(query.shape[2] - config.test_queries, query.shape[2], device=query.device)
            statistics = head_statistics(Heads(query, key, value, mask, scale), rows)
            dims = ("run", "text", "head", "position")
            raw = xr.Dataset(
                {name: (dims, each.reshape(runs, -1, *each.shape[1:]).cpu().numpy()) for name, each in statistics.items()}
            )
            full = derived(raw)
            found.append(summary(full, Rule(fewest=1))[list(AUDITED)])
            expected = (full.law_error**2 * raw.output).mean(["text", "position"])
            found[-1]["law_share"] = expected / raw.affine_error.mean(["text", "position"])
            return softmax_attention(query, key, value, mask, scale, layer)

        mask = reading_mask(self.longest, [self.longest] * config.test_queries, self.device)
        losses = (self.model(tokens, mask, look) - answers).square().double().mean(-1).cpu().numpy() / 2  # (run, prompt)
        data = xr.concat(found, xr.Variable("layer", range(1, len(found) + 1)), join="outer")
        data = data.assign_coords(head=range(1, data.sizes["head"] + 1))
        data["finding"] = data.finding.astype(np.float64)
        data["checkpoint_risk"] = ("run", losses.mean(1) + config.noise_variance / 2)
        data["checkpoint_risk_error"] = ("run", losses.std(1, ddof=1) / math.sqrt(losses.shape[1]))
        return data

    @torch.no_grad()
    def losses(self, generator: torch.Generator, lengths: Sequence[int], attentions: Sequence[Attend]) -> np.ndarray[Any, Any]:
        """½(ŷ - w·x_q)², shape (attention, run, prompt, length): the mean over a prompt's queries of each length."""
        config = self.config
        longest, rows = max(lengths), len(lengths) * config.test_queries
        mask = reading_mask(longest, np.repeat(lengths, config.test_queries).tolist(), self.device)
        widest = self.shape.inputs * self.shape.heads if self.shape.kind == "attention" else 4 * self.shape.width
        chunk = max(1, CHUNK_NUMBERS // (config.runs * (longest + rows) * widest))
        parts = []
        for begin in range(0, config.test_prompts, chunk):
            tokens, clean, _ = self.draw(generator, min(chunk, config.test_prompts - begin), longest, rows)
            found = torch.stack([self.model(tokens, mask, attend) - clean for attend in attentions]).double().square() / 2
            parts.append(found.reshape(*found.shape[:3], len(lengths), -1).mean(-1).cpu().numpy())
        return np.concatenate(parts, 2)

    def test(self) -> xr.Dataset:
        """Risk on fresh prompts of every test length; the noise of the answer is added exactly."""
        losses = self.losses(self.generators[3], self.config.test_lengths, [softmax_attention])[0]
        return xr.Dataset(
            {
                "risk": (("run", "length"), losses.mean(1) + self.config.noise_variance / 2),
                "risk_error": (("run", "length"), losses.std(1, ddof=1) / math.sqrt(losses.shape[1])),
                "risk_skewness": (("run", "length"), _skewness(losses, 1), {"long_name": "of the loss of one prompt"}),
            },
            coords={"length": list(self.config.test_lengths)},
        )

    def replace(self, finding: xr.DataArray) -> xr.Dataset:
        """Risk at the longest training length with heads replaced, and the standard error of its change, on the same prompts."""
        moments = torch.from_numpy((finding.transpose("layer", "run", "head") == 0).values).to(self.device)

        def put(kind: Any, everywhere: bool, chosen: Tensor | None) -> Attend:
            def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float, layer: int) -> Tensor:
                found = softmax_attention(query, key, value, mask, scale, layer)
                rows = query.shape[2] if everywhere else self.config.test_queries
                heads = Heads(query[:, :, -rows:], key, value, mask[:, :, -rows:], scale)
                other = read_out(heads, kind)
                if chosen is not None:
                    each = chosen[layer].repeat_interleave(len(query) // self.config.runs, 0)[:, :, None, None]
                    other = torch.where(each, other, found[:, :, -rows:])
                return torch.cat([found[:, :, :-rows], other], 2)

            return attend

        attentions: list[Attend] = [
            softmax_attention,
            put("affine", True, None),
            put("affine", False, None),
            put("mean", True, None),
        ]
        attentions += [put("affine", False, moments), put("affine", False, ~moments)]
        losses = self.losses(self.generators[3], [self.longest], attentions)[..., 0]  # (replaced, run, prompt)
        change = losses - losses[:1]
        return xr.Dataset(
            {
                "replaced_risk": (("replaced", "run"), losses.mean(2) + self.config.noise_variance / 2),
                "change_error": (("replaced", "run"), change.std(2, ddof=1) / math.sqrt(change.shape[2])),
                "change_skewness": (("replaced", "run"), _skewness(change, 2)),
            },
            coords={"replaced": list(REPLACED)},
        )

    def exact_risk(self) -> xr.Dataset:
        """For one bare layer with one head: exact risks of the trained U and V, as they are and with the affine read-out."""
        if (self.shape.kind, self.shape.layers, self.shape.heads) != ("attention", 1, 1):
            return xr.Dataset()
        config, task = self.config, regression(self.config.dim, self.config.noise_variance)
        U, V = self.model.single_layer()
        attention = SoftmaxAttention(U, V)
        every = sorted({*config.test_lengths, *config.training_lengths})
        values = np.stack(  # (scrambling, length, run)
            [[task.risk(attention, length, points=config.points, seed=i).numpy() for length in every] for i in range(SCRAMBLES)]
        )
        objective = values[:, [every.index(each) for each in config.training_lengths]].mean(1)
        replaced = [own_moment_risk(task, U, V, self.longest, task.contexts(config.points, i)).numpy() for i in range(SCRAMBLES)]
        tested = values.mean(0)[[every.index(each) for each in config.test_lengths]]
        return xr.Dataset(
            {
                "exact_risk": (("length", "run"), tested),
                "exact_objective": ("run", objective.mean(0)),
                "exact_objective_error": ("run", objective.std(0, ddof=1) / math.sqrt(SCRAMBLES)),
                "exact_replaced": ("run", np.mean(replaced, 0), {"long_name": "risk with the affine read-out, exact"}),
            },
            coords={"length": list(config.test_lengths)},
        )


def _skewness(values: np.ndarray[Any, Any], axis: int) -> np.ndarray[Any, Any]:
    """Skewness along an axis; 0 where nothing varies."""
    centred = values - values.mean(axis, keepdims=True)
    scale = np.maximum(centred.std(axis), 1e-100)
    return np.asarray((centred**3).mean(axis) / scale**3)


def _device(name: str) -> torch.device:
    """The device of that name, if this machine has it."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError):
        have = ["'cpu'"] + [f"'cuda:{i}'" for i in range(torch.cuda.device_count())]
        raise InvalidArgumentError("device", repr(name), f"one that this machine has: {', '.join(have)}") from None
    return device


def combine(config: TrainedConfig, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Predictions beside the models, stacked; layers and heads that a model does not have are NaN."""
    models = [parts[name] for name in config.models]
    data = xr.concat(models, xr.Variable("model", list(config.models)), combine_attrs="drop", join="outer")
    shapes = [architecture(config, name) for name in config.models]
    data = data.assign_coords(
        kind=("model", [shape.kind for shape, _ in shapes]),
        layers=("model", [shape.layers for shape, _ in shapes]),
        heads=("model", [shape.heads for shape, _ in shapes]),
        shuffled=("model", [shuffled for _, shuffled in shapes]),
    )
    data["test_prompts"] = config.test_prompts
    data["training_length"] = ("training", list(config.training_lengths))
    return data.merge(parts["theory"], join="outer")


STUDY = Study(
    "trained",
    "Transformers trained here",
    "Do the heads of trained transformers sit in the linear regime, and where does their risk follow or beat the exact theory of "
    "one layer?",
    "Small causal transformers, bare attention and real blocks of several depths, are trained on in-context linear regression. "
    "The exact optimum of one layer at every length is computed beforehand. Their heads are audited along training, the models are "
    "tested on fresh prompts at every length, and heads are replaced by the affine read-out of the prompt's moments.",
    TrainedConfig,
    TrainedConfig(
        models=("blocks 2x2", "attention 1x2", "attention 1x1", "shuffled blocks 1x2"),
        training_lengths=(16, 32),
        test_lengths=(16, 32, 64),
        runs=2,
        attention_steps=400,
        attention_rate=0.02,
        blocks_steps=120,
        checkpoints=3,
        test_prompts=256,
        audit_prompts=32,
        points=1024,
    ),
    cells,
    compute,
    combine,
    verdicts,
)
