"""One model of the study: trained with the audit watching, tested at every length, its heads
replaced.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from largeprompt.attention import SoftmaxAttention
from largeprompt.audit.findings import Rule, derived, summary
from largeprompt.audit.heads import Heads
from largeprompt.audit.kinds import READ_MOMENTS
from largeprompt.audit.readouts import read_out
from largeprompt.audit.statistics import head_statistics
from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.study import Progress, along
from largeprompt.studies.own_moments import expected_affine_error
from largeprompt.studies.trained.config import Shape, TrainedConfig
from largeprompt.studies.trained.theory import own_moment_risk, predictions, regression
from largeprompt.studies.trained.transformer import (
    Architecture,
    Attend,
    StackedTransformer,
    reading_mask,
    softmax_attention,
    train,
)

AUDITED = ("score_variance", "alpha", "effective_tokens", "affine_error", "mean_error", "finding")
CHUNK_NUMBERS = 2**22  # of the widest layer of a test batch


def theory(config: TrainedConfig, progress: Progress) -> xr.Dataset:
    """Predictions, which draw nothing."""
    progress("exact optima of one layer")
    return predictions(
        regression(config.dim, config.noise_variance), config.training_lengths, config.test_lengths
    )


def trial(config: TrainedConfig, name: str, progress: Progress) -> xr.Dataset:
    """A model by its name: trained, audited on the way, tested at every length,
    its heads replaced.
    """
    return Trial(config, name, progress).dataset()


def by_model(config: TrainedConfig, results: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Join models; layers and heads that a model does not have are NaN."""
    shapes = [Shape.named(name) for name in results]
    columns = {
        field: ("model", [getattr(shape, field) for shape in shapes]) for field in Shape._fields
    }
    data = along("model")(config, results).assign_coords(columns)
    return data.assign(
        test_prompts=config.test_prompts,
        training_length=("training", list(config.training_lengths)),
    )


class Trial:
    """One model of the study."""

    def __init__(self, config: TrainedConfig, name: str, progress: Progress) -> None:
        self.config, self.name, self.progress = config, name, progress
        self.device = _device(config.device)
        kind, layers, heads, self.shuffled = Shape.named(name)
        self.shape = Architecture(kind, layers, heads, config.dim + 1, config.width)
        self.longest = max(config.training_lengths)
        self.steps: int = getattr(config, f"{kind}_steps")
        self.rate: float = getattr(config, f"{kind}_rate")
        seeds = np.random.SeedSequence([config.seed, config.models.index(name)]).generate_state(
            4, np.uint64
        ) >> np.uint64(1)
        self.generators = [torch.Generator(self.device).manual_seed(int(seed)) for seed in seeds]
        self.model = StackedTransformer(self.shape, config.runs, self.generators[0])

    def dataset(self) -> xr.Dataset:
        """Train with the audit watching, then test."""
        config = self.config
        audit = self.draw(
            self.generators[1], config.audit_prompts, self.longest, config.test_queries
        )[:2]
        prefixes = [
            config.training_lengths[i % len(config.training_lengths)] for i in range(config.queries)
        ]
        steps = np.unique(
            np.geomspace(max(1, self.steps // 100), self.steps, max(1, config.checkpoints - 1))
            .round()
            .astype(int)
        )
        seen: dict[int, xr.Dataset] = {}

        def watch(step: int) -> None:
            if step == 0 or step in steps:
                self.progress(f"{self.name}: {step} of {self.steps} steps")
                seen[step] = self.audit(*audit)

        def fresh() -> tuple[Tensor, Tensor]:
            tokens, _, noisy = self.draw(
                self.generators[2], config.batch, self.longest, config.queries, self.shuffled
            )
            return tokens, noisy

        mask = reading_mask(self.longest, prefixes, self.device)
        train(self.model, fresh, mask, steps=self.steps, learning_rate=self.rate, watch=watch)
        along = xr.concat(seen.values(), xr.Variable("checkpoint", range(len(seen))), join="outer")
        along["step"] = ("checkpoint", [float(step) for step in seen])
        self.progress(f"{self.name}: test")
        parts = [along, self.test(), self.replace(seen[self.steps].finding), self.exact_risk()]
        return xr.merge(parts, join="outer", compat="no_conflicts")

    def draw(
        self,
        generator: torch.Generator,
        prompts: int,
        length: int,
        queries: int,
        shuffled: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens (runs, prompts, length + queries, d + 1) with y = 0 at the queries, w·x_q, and
        w·x_q + noise.
        """
        runs, d = self.config.runs, self.config.dim

        def normal(*shape: int) -> Tensor:
            return torch.randn(runs, prompts, *shape, generator=generator, device=self.device)

        x, w = normal(length + queries, d), normal(1, d) / math.sqrt(d)
        clean = (x * w).sum(-1)
        noise = math.sqrt(self.config.noise_variance) * normal(length + queries)
        labels = clean[:, :, :length]
        if shuffled:
            # a task vector for each token
            labels = (x[:, :, :length] * normal(length, d)).sum(-1) / math.sqrt(d)
        labels = torch.cat(
            [labels + noise[:, :, :length], torch.zeros_like(clean[:, :, length:])], -1
        )
        return (
            torch.cat([x, labels.unsqueeze(-1)], -1),
            clean[:, :, length:],
            (clean + noise)[:, :, length:],
        )

    @torch.no_grad()
    def audit(self, tokens: Tensor, answers: Tensor) -> xr.Dataset:
        """Every head at the query tokens of prompts of the longest training length, and the risk
        there.
        """
        config, runs = self.config, self.config.runs
        found: list[xr.Dataset] = []

        def look(
            query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float, layer: int
        ) -> Tensor:
            rows = torch.arange(
                query.shape[2] - config.test_queries, query.shape[2], device=query.device
            )
            statistics = head_statistics(Heads(query, key, value, mask, scale), rows)
            dims = ("run", "text", "head", "position")
            by_run = {
                name: each.reshape(runs, -1, *each.shape[1:]).cpu().numpy()
                for name, each in statistics.items()
            }
            raw = xr.Dataset({name: (dims, each) for name, each in by_run.items()})
            found.append(summary(derived(raw), Rule(fewest=1))[list(AUDITED)])
            moments = (raw.score_variance, raw.tilt, raw.value_spread)
            law = xr.apply_ufunc(expected_affine_error, raw.weighed_tokens.round(), *moments)
            expected = law.mean(["text", "position"])
            found[-1]["law_share"] = expected / raw.affine_error.mean(["text", "position"])
            return softmax_attention(query, key, value, mask, scale, layer)

        mask = reading_mask(self.longest, [self.longest] * config.test_queries, self.device)
        # (run, prompt)
        losses = (self.model(tokens, mask, look) - answers).square().double().mean(
            -1
        ).cpu().numpy() / 2
        data = xr.concat(found, xr.Variable("layer", range(1, len(found) + 1)), join="outer")
        data = data.assign_coords(head=range(1, data.sizes["head"] + 1))
        data["finding"] = data.finding.astype(np.float64)
        data["checkpoint_risk"] = ("run", losses.mean(1) + config.noise_variance / 2)
        data["checkpoint_risk_error"] = ("run", losses.std(1, ddof=1) / math.sqrt(losses.shape[1]))
        return data

    @torch.no_grad()
    def losses(
        self, generator: torch.Generator, lengths: Sequence[int], attentions: Sequence[Attend]
    ) -> np.ndarray[Any, Any]:
        """½(ŷ - w·x_q)², shape (attention, run, prompt, length): the mean over a prompt's queries
        of each length.
        """
        config = self.config
        longest, rows = max(lengths), len(lengths) * config.test_queries
        mask = reading_mask(longest, np.repeat(lengths, config.test_queries).tolist(), self.device)
        widest = (
            self.shape.inputs * self.shape.heads
            if self.shape.kind == "attention"
            else 4 * self.shape.width
        )
        chunk = max(1, CHUNK_NUMBERS // (config.runs * (longest + rows) * widest))
        parts = []
        for begin in range(0, config.test_prompts, chunk):
            tokens, clean, _ = self.draw(
                generator, min(chunk, config.test_prompts - begin), longest, rows
            )
            found = (
                torch.stack([self.model(tokens, mask, attend) - clean for attend in attentions])
                .double()
                .square()
                / 2
            )
            parts.append(found.reshape(*found.shape[:3], len(lengths), -1).mean(-1).cpu().numpy())
        return np.concatenate(parts, 2)

    def test(self) -> xr.Dataset:
        """Risk on fresh prompts of every test length; the noise of the answer is added exactly."""
        losses = self.losses(self.generators[3], self.config.test_lengths, [softmax_attention])[0]
        return xr.Dataset(
            {
                "risk": (("run", "length"), losses.mean(1) + self.config.noise_variance / 2),
                "risk_error": (
                    ("run", "length"),
                    losses.std(1, ddof=1) / math.sqrt(losses.shape[1]),
                ),
                "risk_skewness": (("run", "length"), _skewness(losses, 1)),
            },
            coords={"length": list(self.config.test_lengths)},
        )

    def replace(self, finding: xr.DataArray) -> xr.Dataset:
        """Risk at the longest training length with heads replaced, and the standard error of its
        change, on the same prompts.
        """
        moments = torch.from_numpy(
            finding.transpose("layer", "run", "head").isin(READ_MOMENTS).values
        ).to(self.device)

        def put(kind: Any, everywhere: bool, chosen: Tensor | None) -> Attend:
            def attend(
                query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float, layer: int
            ) -> Tensor:
                found = softmax_attention(query, key, value, mask, scale, layer)
                rows = query.shape[2] if everywhere else self.config.test_queries
                heads = Heads(query[:, :, -rows:], key, value, mask[:, :, -rows:], scale)
                other = read_out(heads, kind)
                if chosen is not None:
                    each = chosen[layer].repeat_interleave(len(query) // self.config.runs, 0)[
                        :, :, None, None
                    ]
                    other = torch.where(each, other, found[:, :, -rows:])
                return torch.cat([found[:, :, :-rows], other], 2)

            return attend

        attentions: dict[str, Attend] = {
            "softmax": softmax_attention,
            "affine": put("affine", True, None),
            "affine at the query": put("affine", False, None),
            "mean": put("mean", True, None),
            "moments heads": put("affine", False, moments),
            "other heads": put("affine", False, ~moments),
        }
        # (replaced, run, prompt)
        losses = self.losses(self.generators[3], [self.longest], list(attentions.values()))[..., 0]
        change = losses - losses[:1]
        return xr.Dataset(
            {
                "replaced_risk": (
                    ("replaced", "run"),
                    losses.mean(2) + self.config.noise_variance / 2,
                ),
                "change_error": (
                    ("replaced", "run"),
                    change.std(2, ddof=1) / math.sqrt(change.shape[2]),
                ),
                "change_skewness": (("replaced", "run"), _skewness(change, 2)),
            },
            coords={"replaced": list(attentions)},
        )

    def exact_risk(self) -> xr.Dataset:
        """For one bare layer with one head: exact risks of the trained U and V, as they are and
        with the affine read-out.
        """
        if (self.shape.kind, self.shape.layers, self.shape.heads) != ("attention", 1, 1):
            return xr.Dataset()
        config, task = self.config, regression(self.config.dim, self.config.noise_variance)
        U, V = self.model.single_layer()
        attention = SoftmaxAttention(U, V)
        tested, trained = (
            np.stack([task.risk(attention, length).numpy() for length in lengths])
            for lengths in (config.test_lengths, config.training_lengths)
        )
        return xr.Dataset(
            {
                "exact_risk": (("length", "run"), tested),
                "exact_objective": ("run", trained.mean(0)),
                "exact_replaced": ("run", own_moment_risk(task, U, V, self.longest).numpy()),
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
        raise InvalidArgumentError(
            "device", repr(name), f"one that this machine has: {', '.join(have)}"
        ) from None
    return device
