"""``largeprompt plan``: how many tokens does a layer need?"""

from __future__ import annotations

import io
import json
import math
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer
from rich.console import Console

from largeprompt.cli.perform import AsJson, reporting_errors, table
from largeprompt.errors import InvalidArgumentError, TiltDomainError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from largeprompt import Gaussian, Measure

Law = Literal["gaussian", "rademacher", "uniform", "laplace", "sphere"]
BOUNDED = ("rademacher", "uniform", "sphere")
MOST_VARIANCE = 1e4  # of the scores of bounded tokens: beyond, many more nodes would be needed
TOLERANCES = (0.3, 0.1, 0.03)  # of the size of the output, where none is given
MOST_DIM = 10**9
MOST_ROWS = 2000  # of a covariance
MOST_ENTANGLED = 200  # dimension where one coordinate cannot stand for many


def plan(
    score_variance: Annotated[
        float,
        typer.Option(help="Variance of the scores u·x over the tokens, in units of the softmax."),
    ] = 1.0,
    tolerance: Annotated[
        list[float] | None,
        typer.Option(
            help="Root mean squared error allowed; repeat for several rows.",
            show_default="0.3, 0.1 and 0.03 of the output",
        ),
    ] = None,
    dim: Annotated[
        int | None,
        typer.Option(help="Dimension of the tokens, with identity covariance.", show_default="64"),
    ] = None,
    covariance: Annotated[
        Path | None,
        typer.Option(help="Token covariance instead: a .npy file, or text with one row a line."),
    ] = None,
    direction: Annotated[
        Literal["strong", "weak"],
        typer.Option(help="Along which eigenvector of the covariance the query points."),
    ] = "strong",
    law: Annotated[
        Law, typer.Option(help="Law of the tokens, of independent coordinates or on a sphere.")
    ] = "gaussian",
    random_query: Annotated[
        bool,
        typer.Option(
            "--random-query",
            help="Average over a query N(0, cI) whose score variance has this mean.",
        ),
    ] = False,
    relative: Annotated[
        bool,
        typer.Option("--relative", help="Take the tolerance relative to the size of the output."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say how long a prompt of independent tokens must be for attention to be near its limit.

    The values are the tokens themselves (V = I, mean 0); the query is scaled to give the score
    variance. Alone, the command answers for a head of 64 dimensions as networks begin.
    """
    dim = 64 if dim is None and covariance is None else dim
    relative = relative or not tolerance
    with reporting_errors():
        if random_query and law != "gaussian":
            remedy = "In Python, query_average(..., method='estimate') averages over drawn queries."
            raise InvalidArgumentError(
                "--random-query", f"--law {law}", "--law gaussian, for which it is exact", remedy
            )
        most = MOST_VARIANCE if law in BOUNDED else math.inf
        score_variance = _positive("--score-variance", score_variance, most)
        allowed = [_positive("--tolerance", each) for each in tolerance or TOLERANCES]
        tokens, query = _setting(score_variance, dim, covariance, direction, law, random_query)
        try:
            rows = [_row(tokens, query, each, relative) for each in allowed]
        except TiltDomainError:  # not Gaussian, so the query is no law
            most = score_variance * max(tokens.tilt_range(cast("Tensor", query))) ** 2
            size = "this covariance" if covariance else f"d = {dim}"
            raise InvalidArgumentError(
                "--score-variance",
                f"{score_variance:g}",
                f"below {most:.4g} for {law.capitalize()} tokens, {size}",
                "From there on there is no infinite-prompt limit.",
            ) from None
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    size = f"covariance {covariance}" if covariance else f"d = {dim}"
    name = law.capitalize() if law == "gaussian" else law
    asked, mean = (", random query", "mean ") if random_query else ("", "")
    title = f"Softmax attention over {name} tokens{asked}, {mean}score variance {score_variance:g}"
    off = "error relative to the output" if relative else "error"
    columns = ("tolerance", "tokens needed", "certified", "regime", "effective tokens", off)
    lines = [
        (
            f"{row['tolerance']:g}",
            _count(row["length"], "> 10^15"),
            _count(row["certified_length"], "> 10^15"),
            row["regime"] or "-",
            _count(row["effective_tokens"], "-"),
            f"{row['rmse'] / row['scale']:.4g}",
        )
        for row in rows
    ]
    right = {*columns} - {"regime"}
    Console().print(table(columns, lines, right=right, title=f"{title}, {size}"))
    typer.echo("tokens needed: exact; certified: by a proved bound; effective: at that length")
    for row in rows:
        if row["length"] is None:
            typer.echo(f"tolerance {row['tolerance']:g}: {row['reason']}")


def _count(value: float | None, missing: str) -> str:
    return missing if value is None else f"{value:,.0f}" if value < 1e9 else f"{value:.4g}"


def _setting(
    score_variance: float,
    dim: int | None,
    path: Path | None,
    direction: str,
    law: Law,
    random_query: bool,
) -> tuple[Measure, Tensor | Gaussian]:
    """Tokens and query, or law of queries, from the options.

    Coordinates across the query that are independent of the scores add up to one with the sum of
    their variances: it has the same errors and bounds.
    """
    import torch

    from largeprompt import Gaussian, validation

    if dim is not None and path is not None:
        raise InvalidArgumentError(
            "--dim and --covariance", "both", "one of them", "Leave one of them out."
        )
    if dim is not None:
        most = MOST_ENTANGLED if random_query or law == "sphere" else MOST_DIM
        if not 1 <= dim <= most:
            slow = (
                "Larger ones would take minutes; one query and independent coordinates take up to "
                f"{MOST_DIM:,}."
            )
            remedy = slow if dim > 1 and most < MOST_DIM else ""
            allowed = f"an integer from 1 to {most:,}"
            raise InvalidArgumentError("--dim", validation.text(dim), allowed, remedy)
        if dim > MOST_ENTANGLED:
            return _two_axes(1.0, dim - 1.0, law, score_variance)
    matrix = torch.eye(dim or 1) if path is None else torch.from_numpy(_covariance(path))
    if len(matrix) > MOST_ENTANGLED and (random_query or law != "gaussian"):
        allowed = f"at most {MOST_ENTANGLED} with these options"
        remedy = "Larger ones would take minutes."
        raise InvalidArgumentError("--covariance", f"{len(matrix):,} rows", allowed, remedy)
    matrix = matrix.double()
    tokens = _tokens(matrix, law)
    if random_query:  # N(0, cI) with E z^TΓz = c tr Γ
        eye = torch.eye(len(matrix), dtype=torch.float64)
        return tokens, Gaussian(0 * eye[0], score_variance / float(matrix.trace()) * eye)
    values, vectors = torch.linalg.eigh(matrix)
    positive = torch.nonzero(values > 1e-12 * values[-1]).flatten()
    index = int(positive[-1] if direction == "strong" else positive[0])
    along = float(values[index])
    if law == "gaussian" and len(matrix) > 1:
        across = max(0.0, float(values.sum()) - along)
        return _two_axes(along, across, law, score_variance / along)
    return tokens, vectors[:, index] * math.sqrt(score_variance / along)


def _two_axes(along: float, across: float, law: Law, square: float) -> tuple[Measure, Tensor]:
    """Tokens with these variances along and across a query, and the query of this square."""
    import torch

    matrix = torch.diag(torch.tensor([along, across], dtype=torch.float64))
    return _tokens(matrix, law), torch.tensor([math.sqrt(square), 0.0], dtype=torch.float64)


def _covariance(path: Path) -> NDArray[np.float64]:
    """A square matrix from a plain file; one that is too large is not read."""
    import numpy as np

    from largeprompt.runs.files import read_plain

    try:
        content = read_plain(Path(os.path.realpath(path)), largest=2**26)
        if path.suffix == ".npy":
            matrix = np.load(io.BytesIO(content), allow_pickle=False)
        else:
            lines = content.decode().replace(",", " ").splitlines()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an empty file is refused below
                matrix = np.loadtxt(lines, ndmin=2, max_rows=MOST_ROWS + 1)
        square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] > 0
        if not square or matrix.dtype.kind not in "biuf":
            raise ValueError(f"{matrix.dtype} of shape {matrix.shape}")
        if len(matrix) > MOST_ROWS:
            raise ValueError(f"more than {MOST_ROWS:,} rows")
        if not np.any(matrix):
            raise ValueError("all zero: the scores would not vary")
    except (OSError, ValueError, EOFError, AttributeError, MemoryError) as error:
        # an OSError's own words, without its number
        given = f"{path} ({getattr(error, 'strerror', None) or error})"
        allowed = "a square matrix of numbers, .npy or text"
        raise InvalidArgumentError("--covariance", given, allowed) from None
    return np.asarray(matrix, dtype=np.float64)


def _positive(name: str, value: float, most: float = math.inf) -> float:
    from largeprompt import validation

    if validation.positive(name, value) > most:
        allowed = f"a positive number up to {most:g} for this law"
        raise InvalidArgumentError(name, f"{value:g}", allowed)
    return value


def _tokens(covariance: Tensor, law: Law) -> Measure:
    """Tokens of mean 0 and this covariance."""
    import torch

    import largeprompt as lp

    # which checks it
    gaussian = lp.Gaussian(torch.zeros(len(covariance), dtype=torch.float64), covariance)
    if law == "gaussian":
        return gaussian
    standard: Measure = getattr(lp, law.capitalize())(len(covariance))
    if bool((covariance == torch.eye(len(covariance))).all()):
        return standard
    values, vectors = torch.linalg.eigh(covariance)
    return standard.map(vectors * values.clamp_min(0.0).sqrt() @ vectors.mT)


def _row(mu: Measure, query: Tensor | Gaussian, tolerance: float, relative: bool) -> dict[str, Any]:
    import torch

    from largeprompt import SoftmaxAttention, prompt_length

    eye = torch.eye(mu.dim, dtype=torch.float64)
    attention = SoftmaxAttention(eye, eye)
    exact = prompt_length(attention, mu, query, tolerance, relative=relative)
    proved = prompt_length(attention, mu, query, tolerance, "certified", relative=relative)
    length, certified = (
        None if math.isinf(found.length) else int(found) for found in (exact, proved)
    )
    return {
        "tolerance": tolerance,
        "relative": relative,
        # times the tolerance: what ``rmse``, a distance, is within
        "scale": exact.tolerance / tolerance if relative else 1.0,
        "length": length,
        "certified_length": certified,
        "regime": exact.regime,
        "effective_tokens": exact.effective_tokens,
        "rmse": exact.rmse,
        "reason": exact.reason,
    }
