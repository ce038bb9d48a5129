"""The model on tables of every kind and length: its heads, its risk, its risk with heads replaced,
and its known accuracies.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pydantic
import torch
import xarray as xr
from torch import Tensor

from largeprompt.attention import LinearAttention
from largeprompt.audit import FINDINGS, Heads, audit_heads, read_out, summary
from largeprompt.audit.readouts import chosen_heads
from largeprompt.audit.real.models import SOURCES, fetched
from largeprompt.runs.settings import (
    Count,
    Distinct,
    Increasing,
    Positive,
    Replicas,
    Seed,
    settings,
)
from largeprompt.runs.study import Progress, along, side_by_side
from largeprompt.studies.own_moments import expected_affine_error
from largeprompt.studies.tabular.model import TableTransformer, Visitor, load, prepared
from largeprompt.studies.tabular.tables import (
    REAL,
    Tables,
    real_set,
    regression,
    splits,
    two_classes,
)
from largeprompt.training import LinearRegression, isotropic_optimum

Name = Literal["two classes", "regression", "iris", "wine", "breast cancer"]
ORDERS = ("audit", "random", "reverse")
CHUNK_ROWS = 2**13  # rows in one pass of the model
SIZES = {"iris": 150, "wine": 178, "breast cancer": 569}  # rows of the real sets
STATISTICS = ("score_variance", "alpha", "effective_tokens", "mean_error", "affine_error")


@settings
class TabularConfig:
    """Which tables, how many rows and tables, and where the weights are."""

    weights: str = "tabpfn"  # a name that is fetched, or a folder
    kinds: Distinct[Name] = ("two classes", "regression", "iris", "wine", "breast cancer")
    lengths: Increasing[Annotated[int, pydantic.Field(ge=16)]] = (
        32,
        64,
        128,
        256,
        512,
        1024,
        2048,
        4096,
    )
    tables: Replicas = 8  # of each kind and length, fewer where they are long
    # labelled rows of all tables of one kind and length, but two tables at least
    rows: Count = 8192
    queries: Annotated[int, pydantic.Field(ge=2)] = 96  # rows that are answered in each table
    audited: Count = 32  # of them, whose heads are looked at
    dim: Annotated[int, pydantic.Field(ge=1, le=20)] = 5
    noise: Positive = 0.1  # variance of the noise of the regression
    replaced_length: Annotated[int, pydantic.Field(ge=16)] = 256
    steps: Count = 5  # of the replacement curves
    folds: Annotated[int, pydantic.Field(ge=2)] = 10
    tolerance: Positive = 0.2
    device: str = "cpu"
    seed: Seed = 0


def cells(config: TabularConfig) -> Iterable[tuple[str, int]]:
    """Kinds and lengths of tables; a real set has labels for three quarters of its rows at most."""
    return [
        (kind, n)
        for kind in config.kinds
        for n in config.lengths
        if kind not in SIZES or n <= 0.75 * SIZES[kind]
    ]


def replaced_length(config: TabularConfig, kind: str) -> int:
    """Labelled rows where heads are replaced: as the settings say, but half of a real
    set at most.
    """
    return min(config.replaced_length, SIZES[kind] // 2) if kind in REAL else config.replaced_length


def generator(config: TabularConfig, *words: object) -> torch.Generator:
    """Random numbers of their own for every cell."""
    seed = np.random.SeedSequence(
        [config.seed, *"/".join(map(str, words)).encode()]
    ).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(seed >> np.uint64(1)))


def weights(config: TabularConfig, progress: Progress) -> TableTransformer:
    """The model, fetched the first time."""
    known = config.weights in SOURCES
    return load(fetched(config.weights, progress) if known else Path(config.weights), config.device)


def draw(config: TabularConfig, kind: str, length: int, source: torch.Generator) -> Tables:
    """Tables of one kind."""
    count = max(min(config.tables, config.rows // length), 2)
    if kind in REAL:
        return splits(kind, source, count, length, config.queries)
    if kind == "two classes":
        return two_classes(source, count, length, config.queries, config.dim)
    return regression(source, count, length, config.queries, config.dim, config.noise)


class Seen:
    """A visitor that audits every layer where rows without a label read the context."""

    def __init__(self, audited: int) -> None:
        self.audited, self.layers = audited, dict[int, list[xr.Dataset]]()

    def __call__(self, layer: int, heads: Heads, output: Tensor) -> None:
        count = heads.key.shape[2]
        some = Heads(
            heads.query[:, :, count : count + self.audited],
            heads.key,
            heads.value,
            None,
            heads.scale,
        )
        positions = range(some.query.shape[2])
        found = audit_heads(some, positions=positions, components=(), sinks=0)
        size = output[:, :, count : count + self.audited].square().sum(-1).double().cpu().numpy()
        self.layers.setdefault(layer, []).append(
            found.assign(output=(("text", "head", "position"), size))
        )

    def dataset(self) -> xr.Dataset:
        """Dimensions text (the tables), layer, head, position."""
        found = [
            xr.concat(each, "text", data_vars="all").assign_coords(layer=[layer])
            for layer, each in self.layers.items()
        ]
        return xr.concat(found, "layer", data_vars="all")


def affine_instead(heads: Mapping[int, list[int]]) -> Visitor:
    """A visitor that puts the affine read-out in the place of some heads of some layers, for every
    row that reads.
    """

    def visitor(layer: int, seen: Heads, output: Tensor) -> Tensor | None:
        if not heads.get(layer):
            return None
        changed = output.clone()
        changed[:, heads[layer]] = read_out(chosen_heads(seen, heads[layer]), "affine").to(
            output.dtype
        )
        return changed

    return visitor


def log_probabilities(
    model: TableTransformer, tables: Tables, visitor: Visitor | None = None
) -> Tensor:
    """Log-probabilities of the classes of every row without a label, (tables, M, classes)."""
    found = []
    size = tables.context.shape[1] + tables.others.shape[1]
    device = next(model.parameters()).device
    for part in torch.arange(len(tables.context)).split(max(1, CHUNK_ROWS // size)):
        rows = prepared(tables.context[part], tables.others[part], model.features).to(device)
        logits = model(rows, tables.labels[part].to(device), *([visitor] if visitor else []))
        found.append(logits[..., : tables.classes].log_softmax(-1).cpu())
    return torch.cat(found)


def risks(tables: Tables, logs: Tensor) -> dict[str, np.ndarray]:
    """Of each table: cross-entropy, share of right answers, and for a regression the squared error
    of the mean.
    """
    answers = tables.answers[..., None]
    found = {
        "cross_entropy": -logs.gather(-1, answers).squeeze(-1),
        "accuracy": logs.argmax(-1) == tables.answers,
    }
    if tables.levels is not None and tables.truth is not None:
        found["squared_error"] = (
            (logs.exp() * tables.levels[:, None]).sum(-1) - tables.truth
        ).square()
    return {name: each.double().mean(1).numpy() for name, each in found.items()}


def with_error(name: str, by_table: np.ndarray) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """Mean over tables and its standard error, over the first axis."""
    dims = ("replaced",) * (by_table.ndim - 1)
    spread = by_table.std(0, ddof=1) / math.sqrt(len(by_table))
    return {name: (dims, by_table.mean(0)), f"{name}_error": (dims, spread)}


@torch.no_grad()
def audit(config: TabularConfig, kind: str, length: int, progress: Progress) -> xr.Dataset:
    """Heads of the model, and its risk as it is, with the heads within the tolerance replaced, and
    with all replaced.
    """
    progress(f"{kind}, {length} rows")
    model, tables = (
        weights(config, progress),
        draw(config, kind, length, generator(config, "audit", kind, length)),
    )
    seen = Seen(config.audited)
    before = log_probabilities(model, tables, seen)
    data = heads_of(seen.dataset(), config.lengths)
    count = len(model.layers)
    good = (data.affine_error <= config.tolerance).values
    chosen = {layer: np.flatnonzero(good[layer]).tolist() for layer in range(count)}
    every = {layer: list(range(model.heads)) for layer in range(count)}
    passes = [
        before,
        *(log_probabilities(model, tables, affine_instead(each)) for each in (chosen, every)),
    ]
    by_table = [risks(tables, logs) for logs in passes]
    found: dict[str, object] = {}
    for name in by_table[0]:
        stacked = np.stack([each[name] for each in by_table], -1)
        found |= with_error(name, stacked) | with_error(f"{name}_change", stacked - stacked[:, :1])
    if tables.bayes is not None:
        found |= {
            f"bayes_{name}": value.mean() for name, value in risks(tables, tables.bayes).items()
        }
    return data.assign(found).assign_coords(replaced=["none", "within tolerance", "all"])


def heads_of(data: xr.Dataset, targets: Sequence[int]) -> xr.Dataset:
    """Medians of each head's numbers, its verdict, and its mean squared affine error: found, and by
    the law at all lengths.
    """
    over = ["text", "position"]
    made = summary(data)
    result = made[list(STATISTICS)]
    moments = (data.score_variance, data.tilt, data.value_spread)  # the latter two over the output
    found = data.affine_error**2 * data.output
    law = xr.apply_ufunc(expected_affine_error, data.tokens, *moments) * data.output
    result["output"], result["found"], result["law"] = (
        each.mean(over) for each in (data.output, found, law)
    )
    ratio = np.log(found.mean("position") / law.mean("position")) / 2  # of each table
    result["ratio_error"] = ratio.std("text", ddof=1) / math.sqrt(data.sizes["text"])
    later = [
        (xr.apply_ufunc(expected_affine_error, float(n), *moments) * data.output).mean(over)
        for n in targets
    ]
    result["law_later"] = xr.concat(later, xr.Variable("target", list(targets)))
    for index, name in enumerate(FINDINGS):
        result[f"finding_{name.replace(' ', '_')}"] = (made.finding == index).astype(np.float64)
    return result.drop_attrs()


@torch.no_grad()
def replacement(config: TabularConfig, kind: str, progress: Progress) -> xr.Dataset:
    """Cross-entropy with more and more heads replaced: in the order of their affine errors on other
    tables, and in two others.
    """
    model = weights(config, progress)
    length = replaced_length(config, kind)
    trial, tables = (
        draw(config, kind, length, generator(config, word, kind)) for word in ("trial", "replaced")
    )
    seen = Seen(config.audited)
    log_probabilities(model, trial, seen)
    error = (
        seen.dataset().affine_error.median(["text", "position"]).transpose("layer", "head").values
    )
    pairs = np.stack(np.unravel_index(np.argsort(error, axis=None), error.shape), -1)
    shuffled = torch.randperm(len(pairs), generator=generator(config, "order", kind)).numpy()
    orders = {"audit": pairs, "random": pairs[shuffled], "reverse": pairs[::-1]}
    counts = sorted(
        {round(len(pairs) * step / config.steps) for step in range(1, config.steps + 1)} - {0}
    )
    before = risks(tables, log_probabilities(model, tables))["cross_entropy"]
    change = np.empty((len(ORDERS), len(counts), len(before)))
    for i, order in enumerate(ORDERS):
        for j, count in enumerate(counts):
            progress(f"{kind}: {count} heads replaced, order: {order}")
            wanted: dict[int, list[int]] = {}
            for layer, head in orders[order][:count].tolist():
                wanted.setdefault(layer, []).append(head)
            change[i, j] = (
                risks(tables, log_probabilities(model, tables, affine_instead(wanted)))[
                    "cross_entropy"
                ]
                - before
            )
    classes, labels = tables.classes, tables.labels
    mixing = torch.argsort(
        torch.rand(labels.shape, generator=generator(config, "shuffled", kind)), 1
    )
    mixed = log_probabilities(
        model,
        Tables(tables.context, labels.gather(1, mixing), tables.others, tables.answers, classes),
    )
    grid = ("order", "heads_replaced")
    return xr.Dataset(
        {
            "change": (grid, change.mean(-1)),
            "change_error": (grid, change.std(-1, ddof=1) / math.sqrt(len(before))),
            "unchanged": before.mean(),
            "shuffled_accuracy": float((mixed.argmax(-1) == tables.answers).double().mean()),
            "most_frequent": max(
                float((tables.answers == c).double().mean()) for c in range(classes)
            ),
        },
        coords={"order": list(ORDERS), "heads_replaced": counts},
    )


@torch.no_grad()
def known(config: TabularConfig, kind: str, progress: Progress) -> xr.Dataset:
    """Share of right answers in a cross-validation of a real set: folds of rows in a random order,
    one pass for each.
    """
    model = weights(config, progress)
    rows, classes = real_set(kind)
    order = torch.randperm(len(rows), generator=generator(config, "folds", kind))
    right = 0.0
    for number, fold in enumerate(order.chunk(config.folds), 1):
        progress(f"{kind}: fold {number} of {config.folds}")
        kept = torch.ones(len(rows), dtype=torch.bool)
        kept[fold] = False
        tables = Tables(
            rows[kept][None],
            classes[kept][None],
            rows[fold][None],
            classes[fold][None],
            int(classes.max()) + 1,
        )
        right += float(risks(tables, log_probabilities(model, tables))["accuracy"][0]) * len(fold)
    share = right / len(rows)
    spread = math.sqrt(REAL[kind] / 100 * (1 - REAL[kind] / 100) / len(rows))
    return xr.Dataset(
        {"fold_accuracy": share, "known_accuracy": REAL[kind] / 100, "fold_spread": spread}
    )


def theory(config: TabularConfig, progress: Progress) -> xr.Dataset:
    """Least excess risk E(ŷ - w·x)² of one head on the regression, softmax and linear, over N
    labelled rows.
    """
    if "regression" not in config.kinds:
        return xr.Dataset()
    eye = torch.eye(config.dim, dtype=torch.float64)
    task = LinearRegression(eye, eye / config.dim, config.noise)
    softmax = [2 * isotropic_optimum(task, n).risk - config.noise for n in config.lengths]
    linear = [
        2 * isotropic_optimum(task, n, LinearAttention).risk - config.noise for n in config.lengths
    ]
    return xr.Dataset(
        {"one_softmax": ("length", softmax), "one_linear": ("length", linear)},
        coords={"length": list(config.lengths)},
    )


def combine(config: TabularConfig, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """All parts in one dataset; and what each length foretells of the error at the longest, by the
    law alone and with the shape.
    """
    data = side_by_side(config, parts).sel(kind=list(config.kinds))
    # of each kind
    last = data.found.isel(head=0, layer=0, drop=True).notnull().cumsum("length").argmax("length")
    data["longest"] = data.length[last].drop_vars("length")
    later = data.law_later.sel(target=data.longest).drop_vars("target")
    found = np.sqrt(data.found.isel(length=last).drop_vars("length"))
    shape = (data.found - data.law).clip(min=0.0)
    data["law_foretold"], data["foretold"] = (
        np.sqrt(each) / found for each in (later, later + shape)
    )
    return data.drop_vars(["law_later", "target"]).assign_attrs(
        tolerance=config.tolerance, folds=config.folds
    )


by_kind_and_length = along("kind", "length")
