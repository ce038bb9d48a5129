"""Tables that the model is asked about: two Gaussian classes, linear regression cut into ten
classes, three real sets.
"""

import dataclasses
import math

import torch
from torch import Tensor

from largeprompt.audit.real.models import needed
from largeprompt.errors import InvalidArgumentError

# per cent right, as they are known for TabPFN; which rows is not
REAL = {"iris": 97.3, "wine": 96.6, "breast cancer": 97.9}
LOADERS = {"iris": "load_iris", "wine": "load_wine", "breast cancer": "load_breast_cancer"}
BINS = 10  # of a regression: as many as the model has classes
SEPARATION = 1.5  # E‖w‖² = SEPARATION² for classes at w and -w


@dataclasses.dataclass(frozen=True)
class Tables:
    """Some tables of one kind, with what the best answer knows.

    Attributes
    ----------
    context, labels
        Labelled rows (tables, N, columns) and their classes (tables, N).
    others, answers
        Rows to be answered (tables, M, columns) and their classes (tables, M).
    classes
        Number of classes.
    bayes
        Log-probabilities (tables, M, classes) of the best predictor that knows how the tables were
        drawn; None for real sets.
    truth, levels
        Of a regression: w·x (tables, M), and the mean answer in every class of the context (tables,
        classes).
    """

    context: Tensor
    labels: Tensor
    others: Tensor
    answers: Tensor
    classes: int
    bayes: Tensor | None = None
    truth: Tensor | None = None
    levels: Tensor | None = None


def two_classes(
    generator: torch.Generator, count: int, length: int, queries: int, dim: int
) -> Tables:
    """x ~ N(±w, I) with w ~ N(0, s²I), s² = SEPARATION²/d, both classes alike.

    With n = N + 1/s² and S = Σ ±x_i over the N rows, w given them is N(S/n, I/n), and the log-odds
    of x are 2 x·(S/n)/(1 + 1/n): one layer of linear attention is the best predictor.
    """
    scale = SEPARATION / math.sqrt(dim)
    w = scale * torch.randn(count, 1, dim, generator=generator)
    classes = torch.randint(2, (count, length + queries), generator=generator)
    sign = 2.0 * classes[..., None] - 1
    rows = torch.randn(count, length + queries, dim, generator=generator) + sign * w
    context, others = rows[:, :length], rows[:, length:]
    precision = length + scale**-2
    mean = (sign[:, :length] * context).sum(1, keepdim=True) / precision
    odds = 2 * (others * mean).sum(-1) / (1 + 1 / precision)
    bayes = torch.nn.functional.logsigmoid(torch.stack([-odds, odds], -1))
    return Tables(context, classes[:, :length], others, classes[:, length:], 2, bayes)


def regression(
    generator: torch.Generator, count: int, length: int, queries: int, dim: int, noise: float
) -> Tables:
    """y = w·x + ξ with x ~ N(0, I), w ~ N(0, I/d), ξ ~ N(0, noise), cut at the deciles of y in the
    context.

    With P = (X^T X + noise d I)^-1, w given the context is N(PX^T y, noise P), and the best
    predictor gives every class the mass of N(x·PX^T y, noise (1 + x·Px)) between its edges.
    """
    w = torch.randn(count, 1, dim, generator=generator) / math.sqrt(dim)
    rows = torch.randn(count, length + queries, dim, generator=generator)
    truth = (rows * w).sum(-1)
    y = truth + math.sqrt(noise) * torch.randn(truth.shape, generator=generator)
    edges = torch.quantile(
        y[:, :length], torch.linspace(0, 1, BINS + 1)[1:-1], dim=1
    ).T.contiguous()
    classes = torch.searchsorted(edges, y)
    labels, context, others = classes[:, :length], rows[:, :length], rows[:, length:]
    member = torch.nn.functional.one_hot(labels, BINS).to(y.dtype)
    levels = (member * y[:, :length, None]).sum(1) / member.sum(1)
    inverse = torch.linalg.inv(context.mT @ context + noise * dim * torch.eye(dim))
    mean = others @ (inverse @ (context.mT @ y[:, :length, None]))
    spread = (noise * (1 + (others @ inverse * others).sum(-1, keepdim=True))).sqrt()
    below = torch.special.ndtr(((edges[:, None] - mean) / spread).double())
    mass = torch.diff(
        torch.nn.functional.pad(below, (1, 1)).index_fill(-1, torch.tensor([BINS]), 1.0)
    )
    bayes = mass.clamp_min(1e-12).log()
    return Tables(
        context, labels, others, classes[:, length:], BINS, bayes, truth[:, length:], levels
    )


def real_set(name: str) -> tuple[Tensor, Tensor]:
    """Rows and classes of a real set, from scikit-learn, which brings them with it."""
    if name not in REAL:
        raise InvalidArgumentError("name", repr(name), f"one of {', '.join(REAL)}")
    rows, classes = getattr(needed("sklearn.datasets"), LOADERS[name])(return_X_y=True)
    return torch.from_numpy(rows).float(), torch.from_numpy(classes)


def splits(name: str, generator: torch.Generator, count: int, length: int, queries: int) -> Tables:
    """Real tables: each a random choice of the set's rows, ``length`` labelled and at most
    ``queries`` others.
    """
    rows, classes = real_set(name)
    if length > 0.75 * len(rows):
        raise InvalidArgumentError(
            "length", str(length), f"at most three quarters of the {len(rows)} rows of {name}"
        )
    order = torch.stack([torch.randperm(len(rows), generator=generator) for _ in range(count)])[
        :, : length + queries
    ]
    context, others = order[:, :length], order[:, length:]
    return Tables(
        rows[context], classes[context], rows[others], classes[others], int(classes.max()) + 1
    )
