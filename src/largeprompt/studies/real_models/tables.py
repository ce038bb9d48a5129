"""An in-context learner on tables: errors of its heads beside the exact law, and its accuracies."""

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from largeprompt.audit import Heads, head_statistics
from largeprompt.audit.real.models import SOURCES, fetched, needed
from largeprompt.runs.study import Progress
from largeprompt.studies.real_models.config import RealModelsConfig
from largeprompt.studies.real_models.own_moments import expected_affine_error
from largeprompt.studies.real_models.table_model import TableTransformer, load, prepared

# percent of right answers, as they are known for TabPFN; which rows were asked is not known
KNOWN = {"iris": 97.3, "wine": 96.6, "breast cancer": 97.9}
LOADERS = {"iris": "load_iris", "wine": "load_wine", "breast cancer": "load_breast_cancer"}
BINS = 10  # of a regression: as many as the model has classes
SEPARATION = 1.5  # E‖w‖² = SEPARATION² for classes at w and -w: neither apart nor alike
NOISE = 0.1  # variance of the noise of the regression, whose answers have variance 1


def generator(config: RealModelsConfig, *words: object) -> torch.Generator:
    """Random numbers of their own for every cell."""
    entropy = [config.seed, *"/".join(map(str, words)).encode()]
    seed = np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(seed >> np.uint64(1)))


def loaded(config: RealModelsConfig, progress: Progress) -> TableTransformer:
    """The model, fetched the first time."""
    name = config.table_model
    return load(fetched(name, progress) if name in SOURCES else Path(name), config.device)


def two_classes(
    source: torch.Generator, count: int, rows: int, more: int, dim: int
) -> tuple[Tensor, Tensor]:
    """Tables x ~ N(±w, I) with w ~ N(0, s²I), s² = SEPARATION²/d, and the classes of their rows.

    Rows have labels; as many ``more`` have none.
    """
    w = SEPARATION / math.sqrt(dim) * torch.randn(count, 1, dim, generator=source)
    classes = torch.randint(2, (count, rows + more), generator=source)
    x = torch.randn(count, rows + more, dim, generator=source)
    return x + (2.0 * classes[..., None] - 1) * w, classes[:, :rows]


def regression(
    source: torch.Generator, count: int, rows: int, more: int, dim: int
) -> tuple[Tensor, Tensor]:
    """Tables y = w·x + ξ with x ~ N(0, I), w ~ N(0, I/d), classes cut at the deciles of y.

    Rows have labels; as many ``more`` have none.
    """
    w = torch.randn(count, 1, dim, generator=source) / math.sqrt(dim)
    x = torch.randn(count, rows + more, dim, generator=source)
    noise = math.sqrt(NOISE) * torch.randn(count, rows, generator=source)
    y = (x[:, :rows] * w).sum(-1) + noise
    edges = torch.quantile(y, torch.linspace(0, 1, BINS + 1)[1:-1], dim=1).T.contiguous()
    return x, torch.searchsorted(edges, y)


def cells(config: RealModelsConfig) -> Iterable[tuple[str, int]]:
    """Kinds of tables and numbers of labeled rows."""
    return [(kind, rows) for kind in config.kinds for rows in config.rows]


@torch.no_grad()
def heads(config: RealModelsConfig, kind: str, rows: int, progress: Progress) -> xr.Dataset:
    """Errors of the affine read-out of every head, found and by the exact law.

    Rows without a label read the labeled ones. Squared errors are means over tables and rows that
    are answered; the law is that of as many Gaussian rows of the same moments.
    """
    model, source = loaded(config, progress), generator(config, "tables", kind, rows)
    count = max(min(config.tables, config.most_rows // rows), 2)
    draw = two_classes if kind == "two classes" else regression
    x, classes = draw(source, count, rows, config.answered, config.columns)
    seen: dict[int, list[dict[str, np.ndarray]]] = {}

    def visitor(layer: int, heads: Heads) -> None:
        where = torch.arange(rows, heads.query.shape[2], device=heads.query.device)
        found = head_statistics(heads, where)
        seen.setdefault(layer, []).append({key: each.numpy() for key, each in found.items()})

    for table in range(count):
        progress(f"{kind}, {rows} rows: table {table + 1} of {count}")
        one = slice(table, table + 1)
        given = prepared(x[one, :rows], x[one, rows:], model.features).to(config.device)
        model(given, classes[one].to(config.device), visitor)
    by_name = {
        name: np.stack([np.concatenate([one[name] for one in seen[i]]) for i in sorted(seen)])
        for name in seen[0][0]
    }  # (layer, table, head, row)
    moments = (by_name[name] for name in ("tokens", "score_variance", "tilt", "value_spread"))
    law = expected_affine_error(*moments)
    error = np.sqrt(by_name["affine_error"] / by_name["output"])
    found = {
        "table_found": by_name["affine_error"].mean((1, 3)),
        "table_law": law.mean((1, 3)),
        "table_affine_error": np.median(error, (1, 3)),
    }
    dims = ("table_layer", "table_head")
    places = {name: range(n) for name, n in zip(dims, law.shape[::2], strict=True)}
    return xr.Dataset({name: (dims, each) for name, each in found.items()}, coords=places)


def real_set(name: str) -> tuple[Tensor, Tensor]:
    """Rows and classes of a real set, from scikit-learn, which brings them with it."""
    rows, classes = getattr(needed("sklearn.datasets"), LOADERS[name])(return_X_y=True)
    return torch.from_numpy(rows).float(), torch.from_numpy(classes)


@torch.no_grad()
def accuracy(config: RealModelsConfig, name: str, progress: Progress) -> xr.Dataset:
    """Share of right answers in a cross-validation of a real set, one pass for each fold."""
    model, (rows, classes) = loaded(config, progress), real_set(name)
    order = torch.randperm(len(rows), generator=generator(config, "folds", name))
    right = 0
    for number, fold in enumerate(order.chunk(config.folds), 1):
        progress(f"{name}: fold {number} of {config.folds}")
        kept = torch.ones(len(rows), dtype=torch.bool)
        kept[fold] = False
        given = prepared(rows[kept][None], rows[fold][None], model.features).to(config.device)
        logits = model(given, classes[kept][None].to(config.device))[0, :, : classes.max() + 1]
        right += int((logits.argmax(-1).cpu() == classes[fold]).sum())
    known = KNOWN[name] / 100
    return xr.Dataset(
        {
            "fold_accuracy": right / len(rows),
            "known_accuracy": known,
            "known_error": math.sqrt(known * (1 - known) / len(rows)),
        }
    )
