"""``largeprompt plan``: how many tokens does a layer need?"""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def plan(
    score_variance: Annotated[float, typer.Option(help="Variance of the scores u·x over the tokens, in units of the softmax.")],
    tolerance: Annotated[list[float], typer.Option(help="Root mean squared error allowed; repeat for several rows.")],
    dim: Annotated[int | None, typer.Option(help="Dimension of the tokens, with identity covariance.")] = None,
    covariance: Annotated[
        Path | None, typer.Option(help="Token covariance instead: a .npy file, or text with one row a line.")
    ] = None,
    direction: Annotated[
        Literal["strong", "weak"], typer.Option(help="Along which eigenvector of the covariance the query points.")
    ] = "strong",
    relative: Annotated[bool, typer.Option("--relative", help="Take the tolerance relative to the size of the output.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Say how long a prompt of Gaussian tokens must be for softmax attention to be within a tolerance of its limit.

    The values are the tokens themselves (V = I, mean 0); the query is scaled to give the score variance.
    """
    from largeprompt.errors import LargePromptError

    try:
        rows = [_row(score_variance, one, _matrix(dim, covariance), direction, relative) for one in tolerance]
    except LargePromptError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    size = f"covariance {escape(str(covariance))}" if covariance else f"d = {dim}"
    table = Table(title=f"Softmax attention over Gaussian tokens, score variance {score_variance:g}, {size}")
    for column in ("tolerance", "length needed", "certified length", "regime", "effective tokens", "error there"):
        table.add_column(column, justify="left" if column == "regime" else "right")
    for row in rows:
        asked = f"{row['tolerance']:g}" + (" (relative)" if relative else "")
        needed, proved = (_count(row[name], "> 10^15") for name in ("length", "certified_length"))
        table.add_row(asked, needed, proved, row["regime"] or "-", _count(row["effective_tokens"], "-"), f"{row['rmse']:.4g}")
    Console().print(table)
    for row in rows:
        if row["length"] is None:
            typer.echo(f"tolerance {row['tolerance']:g}: {row['reason']}")


def _count(value: float | None, missing: str) -> str:
    return missing if value is None else f"{value:,.0f}" if value < 1e9 else f"{value:.4g}"


def _matrix(dim: int | None, path: Path | None) -> NDArray[np.float64]:
    """Covariance from the options, exactly one of which must be given."""
    import numpy as np

    from largeprompt.errors import InvalidArgumentError

    if (dim is None) == (path is None):
        given, remedy = ("both", "Leave one of them out.") if path else ("neither", "Try --dim 16.")
        raise InvalidArgumentError("--dim and --covariance", given, "exactly one of them", remedy)
    if path is None:
        if dim is None or dim < 1:
            raise InvalidArgumentError("--dim", str(dim), "an integer of at least 1")
        return np.eye(dim)
    try:
        if path.suffix == ".npy":
            matrix = np.load(path, allow_pickle=False)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an empty file is refused below
                matrix = np.loadtxt(path.read_text().replace(",", " ").splitlines(), ndmin=2)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size or matrix.dtype.kind not in "biuf":
            raise ValueError(f"{matrix.dtype} of shape {matrix.shape}")
        if not np.any(matrix):
            raise ValueError("all zero: the scores would not vary")
    except (OSError, ValueError, EOFError, AttributeError) as error:
        raise InvalidArgumentError("--covariance", f"{path} ({error})", "a square matrix of numbers, .npy or text") from None
    return np.asarray(matrix, dtype=np.float64)


def _row(score_variance: float, tolerance: float, matrix: NDArray[np.float64], direction: str, relative: bool) -> dict[str, Any]:
    import torch

    from largeprompt import Gaussian, SoftmaxAttention, prompt_length, validation

    score_variance = validation.positive("--score-variance", score_variance)
    tolerance = validation.positive("--tolerance", tolerance)
    covariance = torch.from_numpy(matrix)
    mu = Gaussian(torch.zeros(covariance.shape[-1], dtype=torch.float64), covariance)
    eye = torch.eye(mu.dim, dtype=torch.float64)
    values, vectors = torch.linalg.eigh(mu.covariance)
    positive = torch.nonzero(values > 1e-12 * values[-1]).flatten()
    index = int(positive[-1] if direction == "strong" else positive[0])
    query = vectors[:, index] * math.sqrt(score_variance / float(values[index]))
    attention = SoftmaxAttention(eye, eye)
    exact = prompt_length(attention, mu, query, tolerance, relative=relative)
    proved = prompt_length(attention, mu, query, tolerance, "certified", relative=relative)
    length, certified = (None if math.isinf(found.length) else int(found) for found in (exact, proved))
    return {
        "tolerance": tolerance,
        "length": length,
        "certified_length": certified,
        "regime": exact.regime,
        "effective_tokens": exact.effective_tokens,
        "rmse": exact.rmse,
        "reason": exact.reason,
    }
