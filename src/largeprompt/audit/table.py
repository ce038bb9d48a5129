"""An audit's table: one row for each head, in the order of replacement; needs no torch."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from largeprompt.audit.kinds import FINDINGS, head_name, longest
from largeprompt.errors import InvalidArgumentError

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]

# columns of the printed table: heading, name in a row, format, meaning
COLUMNS = (
    ("order", "order", ".0f", "place in the order of replacement, smallest affine error first"),
    ("head", "head", "", "layer and head, counted from 0"),
    ("L", "length", ",", "tokens of the text that are read"),
    ("σ²", "score_variance", ".3g", "variance of the scores; this and what follows: medians"),
    ("reads", "effective_tokens", ",.0f", "effective number of tokens, 1/Σ w² of the weights w"),
    ("mean", "mean_error", ".2f", "error of the mean value alone, relative to the head's output"),
    ("affine", "affine_error", ".2f", "error of the affine read-out of mean and covariance"),
    ("±", "affine_error_bar", ".2f", "its standard error over texts"),
    ("×2", "factor_2", ".2f", "factor on the scores that keeps 'reads' at twice the length"),
    ("×4", "factor_4", ".2f", "the factor at four times the length"),
    ("×8", "factor_8", ".2f", "the factor at eight times the length"),
    ("saves", "saved_operations", ".0%", "multiplications that the read-out saves: counted"),
    ("cache", "saved_cache", ".0%", "numbers in the cache that the read-out does without: counted"),
    ("verdict", "verdict", "", "what the head does; in brackets the clusters that are enough"),
    ("replace", "chosen", "", "whether the head is among those that keep the budget together"),
)
MOST_ROWS = 20  # of a printed table, as many as a screen shows


@dataclasses.dataclass(frozen=True, repr=False)
class HeadTable:
    """One row for each head (and length) of an audit, in the order of replacement.

    ``rows`` holds a dictionary for each head: its name, its verdict in words, and its numbers; None
    for what is not known.
    """

    rows: tuple[dict[str, Any], ...]

    @property
    def columns(self) -> list[tuple[str, str, str, str]]:
        """Columns that hold something: heading, name in a row, format, meaning."""
        several = len({row.get("length") for row in self.rows}) > 1
        known = [each for each in COLUMNS if any(row.get(each[1]) is not None for row in self.rows)]
        return [each for each in known if several or each[0] != "L"]

    @property
    def headings(self) -> list[str]:
        """Headings of the columns."""
        return [heading for heading, *_ in self.columns]

    @property
    def cells(self) -> list[list[str]]:
        """The numbers as text, row by row."""
        columns = self.columns
        return [[_cell(row, name, form) for _, name, form, _ in columns] for row in self.rows]

    def to_dataframe(self) -> pandas.DataFrame:
        """Return the rows as a table of pandas, every number in full."""
        import pandas

        return pandas.DataFrame(list(self.rows))

    def __repr__(self) -> str:
        lines = [self.headings, *self.cells[:MOST_ROWS]]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rows = (zip(line, widths, strict=True) for line in lines)
        text = [" ".join(cell.rjust(width) for cell, width in row) for row in rows]
        more = len(self.rows) - MOST_ROWS
        return "\n".join([*text, *([f"... {more} more rows"] if more > 0 else [])])


def _cell(row: dict[str, Any], name: str, form: str) -> str:
    value = row.get(name)
    if name == "verdict" and value == "few clusters":
        return f"few clusters ({row['clusters']:.0f})"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else format(value, form)


def table(data: xr.Dataset) -> HeadTable:
    """Return the audit's table: one row for each head, with its verdict in words.

    Parameters
    ----------
    data
        What :func:`audit_model`, :func:`audit_heads` or :func:`summary` gave, or the dataset of an
        audit's run.

    Examples
    --------
    >>> import torch
    >>> from largeprompt.audit import Heads, audit_heads, table
    >>> tokens = torch.randn(1, 2, 500, 8, generator=torch.Generator().manual_seed(0))
    >>> table(audit_heads(Heads(0.5 * tokens, tokens, tokens + 0.2), components=()))
    order head    σ² reads mean affine   ×2   ×4   ×8 saves verdict
        1 L0H0 0.192   416 0.59   0.03 2.15 2.88 3.46   98% moments
        2 L0H1 0.296   368 0.74   0.04 1.83 2.40 2.86   98% moments
    """
    heads = heads_of(data)
    if "factor_2" not in heads:
        from largeprompt.audit.factors import with_factors

        heads = with_factors(heads)
    columns = [str(name) for name in heads if {"layer", "head"} <= set(heads[name].dims)]
    several = "length" in heads.dims
    chosen = chosen_heads(data)
    rows = []
    for place in reversed(range(heads.sizes["length"])) if several else [0]:
        part = heads.isel(length=place) if several else heads
        frame = part[columns].to_dataframe(["layer", "head"])[columns]
        for (layer, head), row in frame.sort_values("order", kind="stable").iterrows():
            code = int(row.pop("finding"))
            found: dict[str, Any] = {"length": int(part.length)} if several else {}
            found |= {"head": head_name(layer, head), "layer": int(layer), "number": int(head)}
            found |= {"verdict": FINDINGS[code] if code >= 0 else "not judged"}
            found |= {name: x if math.isfinite(x) else None for name, x in row.items()}
            if was_replaced(data):
                found["chosen"] = (int(layer), int(head)) in chosen
            rows.append(found)
    return HeadTable(tuple(rows))


def heads_of(data: xr.Dataset, argument: str = "data") -> xr.Dataset:
    """Return the summary of heads in any dataset of an audit."""
    names = set(data.variables) if isinstance(data, xr.Dataset) else set()
    if "head_finding" in names:
        ours = [str(name) for name in data.data_vars if str(name).startswith("head_")]
        return data[ours].rename({name: name.removeprefix("head_") for name in ours})
    if not names & {"finding", "affine_error"}:
        given, remedy = f"{type(data).__name__} without heads", "audit_model makes one."
        raise InvalidArgumentError(argument, given, "the dataset of an audit", remedy)
    # this needs torch, as the dataset of a run does not
    from largeprompt.audit.findings import summary

    return data if "finding" in names else summary(data)


def was_replaced(data: xr.Dataset) -> bool:
    """Whether heads were chosen by replacing them, and can be judged."""
    return "chosen" in data and bool((longest(data).head_finding >= 0).any())


def chosen_heads(data: xr.Dataset) -> list[tuple[int, int]]:
    """Return the heads that are to be replaced, in the order of replacement."""
    if not was_replaced(data):
        return []
    place = data.chosen_order.where(data.chosen > 0).stack(pair=("layer", "head"))
    known = place.dropna("pair")
    return [(int(layer), int(head)) for layer, head in known.sortby(known).pair.values.tolist()]


def attending(data: xr.Dataset) -> list[int]:
    """Return the layers of the model that attend, those that were not looked at among them."""
    found = data.attrs.get("attending_layers", data.layer.values)
    return [int(layer) for layer in np.atleast_1d(found)]
