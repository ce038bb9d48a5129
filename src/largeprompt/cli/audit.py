"""``largeprompt audit``: which heads of a real transformer read only the moments of the prompt?"""

from __future__ import annotations

import dataclasses
import json
import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from largeprompt.cli.perform import Fresh, Out, perform, reporting_errors, say
from largeprompt.errors import InvalidArgumentError

if TYPE_CHECKING:
    import xarray as xr

    from largeprompt.audit.parts import AuditConfig
    from largeprompt.runs.study import Study

MOST_ROWS = 150
COLUMNS = {
    "σ²": ("score_variance", ".3g"),
    "reads": ("effective_tokens", ",.0f"),
    "mean": ("mean_error", ".2f"),
    "affine": ("affine_error", ".2f"),
    "law": ("law_share", ".2f"),
}


def audit(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Folder of a transformers model, or its name on the hub.", show_default=False)
    ],
    text: Annotated[list[Path], typer.Option(help="Text file, UTF-8; repeat for several texts.", show_default=False)],
    lengths: Annotated[
        str, typer.Option(help="Prompt lengths in tokens, with commas, the text cut to the longest; by default the text as it is.")
    ] = "",
    layers: Annotated[str, typer.Option(help="Layers to look at, with commas, from 0; by default all.")] = "",
    positions: Annotated[int, typer.Option(min=1, help="Query positions for each text.")] = 32,
    components: Annotated[
        str, typer.Option(help="Sizes of the Gaussian mixtures, with commas; 'none' is much faster.")
    ] = "1,2,4,8,16",
    sinks: Annotated[int, typer.Option(min=0, help="First tokens that mixtures read exactly.")] = 1,
    tolerance: Annotated[
        float, typer.Option(min=0.0, help="Error relative to the output up to which a read-out stands for a head.")
    ] = 0.2,
    replace: Annotated[bool, typer.Option(help="Also replace heads by their read-outs and see what changes.")] = True,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, ...")] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32, float64, bfloat16 or float16.")] = "float32",
    out: Out = Path("runs"),
    fresh: Fresh = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Audit a transformer over a text: a table of heads, and a page with maps, regimes and replacement curves."""
    from largeprompt.report.page import write_report
    from largeprompt.runs.store import Run, default_folder

    with reporting_errors(fresh=fresh):
        lists = {"lengths": _numbers("--lengths", lengths, 2), "layers": _numbers("--layers", layers, 0)}
        lists["components"] = () if components == "none" else _numbers("--components", components, 1)
        numbers = {"positions": positions, "sinks": sinks, "tolerance": tolerance, "counts": 6 if replace else 0}
        names = {"model": model, "texts": [str(path) for path in text], "device": device, "dtype": dtype}
        study, config = _checked(names | lists | numbers)
        run = Run.create(default_folder(out, study, config, False), study, config, quick=False, rerun=_again(config, out))
        if fresh:
            run.clear()
        for error in perform([(study, config, run)], 1, quiet=as_json):
            raise error
        rows = _rows(run.dataset)
        if as_json:
            typer.echo(json.dumps(rows, indent=1))
            return
        console, page = Console(), run.folder / "report.html"
        console.print(_table(rows[:MOST_ROWS], model))
        if len(rows) > MOST_ROWS:
            say(console, f"{len(rows) - MOST_ROWS} more heads are in dataset.nc; --json prints all.")
        for verdict in run.verdicts:
            say(console, f"{verdict.outcome}{' (control)' if verdict.control else ''}. {verdict.asked} {verdict.measured}")
        write_report([run], page)
        say(console, f"wrote {page}")


def _numbers(name: str, text: str, least: int) -> tuple[int, ...]:
    """Whole numbers with commas between, in ascending order, each once."""
    try:
        found = {int(part) for part in text.split(",")} if text.strip() else set()
    except ValueError:
        found = {least - 1}
    if min(found, default=least) < least:
        allowed = f"integers from {least} on, with commas between"
        raise InvalidArgumentError(name, repr(text), allowed, f"Try {name} {least + 2},{least + 6}.")
    return tuple(sorted(found))


def _checked(values: dict[str, Any]) -> tuple[Study, AuditConfig]:
    """The study and its config, after all checks that can be made before the weights are loaded."""
    import torch

    from largeprompt.audit.adapters.load import fingerprint, load_config, most_tokens, read_texts
    from largeprompt.runs.find import find_study
    from largeprompt.runs.settings import config_of

    study = find_study("largeprompt.audit.study:STUDY")
    config: AuditConfig = config_of(study, values)
    described = load_config(config.model)
    count = int(getattr(described.get_text_config(), "num_hidden_layers", 0))
    if config.layers and config.layers[-1] >= count:
        raise InvalidArgumentError("--layers", str(config.layers[-1]), f"0 to {count - 1}: the model has {count} layers")
    try:
        torch.ones(1, device=config.device).item()
    except (RuntimeError, AssertionError, NotImplementedError):
        raise InvalidArgumentError("--device", config.device, "a device that PyTorch finds here, such as cpu") from None
    longest = config.lengths[-1] if config.lengths else None
    tokens = read_texts(config.model, config.texts, longest, allowed=most_tokens(described))
    shortest = int(tokens.get("attention_mask", torch.ones_like(tokens["input_ids"])).sum(1).min())
    if longest is not None and shortest < longest:
        given = f"{longest}, and {'the shortest' if len(config.texts) > 1 else 'the'} text has {shortest} tokens"
        raise InvalidArgumentError("--lengths", given, "lengths up to that of every text", "Give a longer text.")
    study = dataclasses.replace(study, title=f"{study.title}: {_short(config.model)}")
    return study, dataclasses.replace(config, contents=fingerprint(config.model, config.texts))


def _again(config: AuditConfig, out: Path) -> str:
    """The command that makes the run once more."""
    words = ["largeprompt", "audit", config.model, *(word for text in config.texts for word in ("--text", text))]
    for name in ("lengths", "layers", "components", "positions", "sinks", "tolerance", "device", "dtype"):
        value = getattr(config, name)
        if value != getattr(type(config)(), name):
            words += [f"--{name}", (",".join(map(str, value)) or "none") if isinstance(value, tuple) else str(value)]
    words += [] if config.counts else ["--no-replace"]
    return shlex.join([*words, *(["--out", str(out)] if out != Path("runs") else [])])


def _short(model: str) -> str:
    """The last two parts of a path, or a hub name."""
    return "/".join(Path(model).parts[-2:])


def _rows(data: xr.Dataset) -> list[dict[str, Any]]:
    """One dictionary for each head, at the longest length; None for what is not known or not finite, as JSON has no NaN."""
    from largeprompt.audit.kinds import FINDINGS, longest

    last = longest(data)
    columns = [str(name) for name in last if str(name).startswith("head_")]
    rows = []
    for (layer, head), row in last[columns].to_dataframe(["layer", "head"])[columns].iterrows():
        code = int(row.pop("head_finding"))
        found = {"layer": int(layer), "head": int(head), "finding": FINDINGS[code] if code >= 0 else "unknown"}
        rows.append(found | {name.removeprefix("head_"): x if math.isfinite(x) else None for name, x in row.items()})
    return rows


def _table(rows: list[dict[str, Any]], model: str) -> Table:
    caption = "errors relative to the head's output; law: share that length alone explains"
    table = Table(title=f"Heads of {_short(model)}", caption=caption)
    for name in ("head", *COLUMNS, "needs L", "verdict"):
        table.add_column(name, justify="left" if name == "verdict" else "right", no_wrap=True)
    for row in rows:
        verdict, needed = row["finding"].removeprefix("needs a "), row["needed_length"]
        table.add_row(
            f"{row['layer']}.{row['head']}",
            *("-" if row[name] is None else format(row[name], form) for name, form in COLUMNS.values()),
            f"{needed:,.0f}" if needed is not None and needed <= 1e6 else "> 10^6",
            verdict + (f" ({row['clusters']:.0f})" if verdict == "few clusters" else ""),
        )
    return table
