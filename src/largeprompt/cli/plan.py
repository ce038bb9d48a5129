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
    from torch import Tensor

    from largeprompt import Gaussian, Measure

Law = Literal["gaussian", "rademacher", "uniform", "laplace", "sphere"]


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
    law: Annotated[Law, typer.Option(help="Law of the tokens, of independent coordinates or on a sphere.")] = "gaussian",
    random_query: Annotated[
        bool, typer.Option("--random-query", help="Average over a query N(0, cI) whose score variance has this mean.")
    ] = False,
    relative: Annotated[bool, typer.Option("--relative", help="Take the tolerance relative to the size of the output.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Say how long a prompt of independent tokens must be for softmax attention to be within a tolerance of its limit.

    The values are the tokens themselves (V = I, mean 0); the query is scaled to give the score variance.
    """
    from largeprompt.errors import InvalidArgumentError, LargePromptError, TiltDomainError

    try:
        if random_query and law != "gaussian":
            remedy = "In Python, query_average(..., method='estimate') averages over drawn queries."
            raise InvalidArgumentError("--random-query", f"--law {law}", "--law gaussian, for which it is exact", remedy)
        score_variance, matrix = _positive("--score-variance", score_variance), _matrix(dim, covariance)
        tokens = _tokens(matrix, law)
        query = _random_query(score_variance, matrix) if random_query else _query(score_variance, matrix, direction)
        rows = [_row(tokens, query, _positive("--tolerance", one), relative) for one in tolerance]
    except TiltDomainError:
        most = score_variance * max(tokens.tilt_range(_query(score_variance, matrix, direction))) ** 2
        size = "this covariance" if covariance else f"d = {dim}"
        allowed = f"below {most:.4g} for {law.capitalize()} tokens, {size}"
        error = InvalidArgumentError(
            "--score-variance", f"{score_variance:g}", allowed, "From there on there is no infinite-prompt limit."
        )
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    except LargePromptError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    size = f"covariance {escape(str(covariance))}" if covariance else f"d = {dim}"
    name = f"{law.capitalize() if law == 'gaussian' else law} tokens{', random query' if random_query else ''}"
    table = Table(
        title=f"Softmax attention over {name}, {'mean ' if random_query else ''}score variance {score_variance:g}, {size}"
    )
    off = "relative error there" if relative else "error there"
    for column in ("tolerance", "length needed", "certified length", "regime", "effective tokens", off):
        table.add_column(column, justify="left" if column == "regime" else "right")
    for row in rows:
        asked = f"{row['tolerance']:g}" + (" (relative)" if relative else "")
        needed, proved = (_count(row[name], "> 10^15") for name in ("length", "certified_length"))
        table.add_row(
            asked, needed, proved, row["regime"] or "-", _count(row["effective_tokens"], "-"), f"{row['rmse'] / row['scale']:.4g}"
        )
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
        trouble = getattr(error, "strerror", None) or error  # an OSError's own words, without its number
        raise InvalidArgumentError("--covariance", f"{path} ({trouble})", "a square matrix of numbers, .npy or text") from None
    return np.asarray(matrix, dtype=np.float64)


def _positive(name: str, value: float) -> float:
    from largeprompt import validation

    return validation.positive(name, value)


def _tokens(matrix: NDArray[np.float64], law: Law) -> Measure:
    """Tokens of mean 0 and this covariance."""
    import torch

    import largeprompt as lp

    covariance = torch.from_numpy(matrix)
    gaussian = lp.Gaussian(torch.zeros(len(covariance), dtype=torch.float64), covariance)  # which checks it
    if law == "gaussian":
        return gaussian
    kinds = {"rademacher": lp.Rademacher, "uniform": lp.Uniform, "laplace": lp.Laplace, "sphere": lp.Sphere}
    standard: Measure = kinds[law](len(covariance))
    if bool((covariance == torch.eye(len(covariance))).all()):
        return standard
    values, vectors = torch.linalg.eigh(covariance)
    return standard.map(vectors * values.clamp_min(0.0).sqrt() @ vectors.mT)


def _query(score_variance: float, matrix: NDArray[np.float64], direction: str) -> Tensor:
    """Along the strongest or weakest direction of the tokens."""
    import torch

    values, vectors = torch.linalg.eigh(torch.from_numpy(matrix))
    positive = torch.nonzero(values > 1e-12 * values[-1]).flatten()
    index = int(positive[-1] if direction == "strong" else positive[0])
    query: Tensor = vectors[:, index] * math.sqrt(score_variance / float(values[index]))
    return query


def _random_query(score_variance: float, matrix: NDArray[np.float64]) -> Gaussian:
    """N(0, cI) with E z^TΓz = c tr Γ."""
    import torch

    from largeprompt import Gaussian

    eye = torch.eye(len(matrix), dtype=torch.float64)
    return Gaussian(0 * eye[0], score_variance / float(matrix.trace()) * eye)


def _row(mu: Measure, query: Tensor | Gaussian, tolerance: float, relative: bool) -> dict[str, Any]:
    import torch

    from largeprompt import SoftmaxAttention, prompt_length

    eye = torch.eye(mu.dim, dtype=torch.float64)
    attention = SoftmaxAttention(eye, eye)
    exact = prompt_length(attention, mu, query, tolerance, relative=relative)
    proved = prompt_length(attention, mu, query, tolerance, "certified", relative=relative)
    length, certified = (None if math.isinf(found.length) else int(found) for found in (exact, proved))
    return {
        "tolerance": tolerance,
        "relative": relative,
        "scale": exact.tolerance / tolerance if relative else 1.0,  # times the tolerance: what ``rmse``, a distance, is within
        "length": length,
        "certified_length": certified,
        "regime": exact.regime,
        "effective_tokens": exact.effective_tokens,
        "rmse": exact.rmse,
        "reason": exact.reason,
    }
