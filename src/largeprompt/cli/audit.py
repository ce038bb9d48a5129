"""``largeprompt audit``: which heads of a real transformer read only the moments of the prompt?"""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from largeprompt.cli.perform import Fresh, Out, perform, tell, told

if TYPE_CHECKING:
    import xarray as xr

MOST_ROWS = 150


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
    with told(fresh=fresh):
        run, errors = _run(
            model,
            [str(path) for path in text],
            {
                "lengths": _numbers("--lengths", lengths, 2),
                "layers": _numbers("--layers", layers, 0),
                "positions": positions,
                "components": () if components == "none" else _numbers("--components", components, 1),
                "sinks": sinks,
                "tolerance": tolerance,
                "counts": 6 if replace else 0,
                "device": device,
                "dtype": dtype,
            },
            out,
            fresh,
            quiet=as_json,
        )
        if errors:
            raise errors[0]
        data = run.dataset
        if as_json:
            typer.echo(json.dumps(_rows(data), indent=1))
            return
        console = Console()
        _print(console, data, model)
        for verdict in run.verdicts:
            tell(console, f"{verdict.outcome}{' (control)' if verdict.control else ''}. {verdict.asked} {verdict.measured}")
        from largeprompt.report.page import write_report

        page = run.folder / "report.html"
        write_report([run], page)
        tell(console, f"wrote {page}")


def _numbers(name: str, text: str, least: int) -> tuple[int, ...]:
    from largeprompt.errors import InvalidArgumentError

    if not text.strip():
        return ()
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = (least - 1,)
    if min(found) < least:
        raise InvalidArgumentError(
            name, repr(text), f"integers from {least} on, with commas between", f"Try {name} {least + 2},{least + 6}."
        )
    return tuple(sorted(set(found)))


def _run(model: str, texts: list[str], settings: dict[str, Any], out: Path, fresh: bool, *, quiet: bool) -> tuple[Any, list[Any]]:
    """Check what was typed while no weight is loaded yet, then compute what is missing."""
    import dataclasses

    import torch

    from largeprompt.audit.adapters.load import load_config, most_tokens, read_texts
    from largeprompt.audit.study import STUDY, AuditConfig, fingerprint
    from largeprompt.errors import InvalidArgumentError
    from largeprompt.runs.store import Run, default_folder

    config = load_config(model)
    inner = config.get_text_config() if hasattr(config, "get_text_config") else config
    count = int(getattr(inner, "num_hidden_layers", 0))
    if settings["layers"] and max(settings["layers"]) >= count:
        raise InvalidArgumentError("--layers", str(max(settings["layers"])), f"0 to {count - 1}: the model has {count} layers")
    kinds = ("float32", "float64", "bfloat16", "float16")
    if settings["dtype"] not in kinds:
        raise InvalidArgumentError("--dtype", settings["dtype"], ", ".join(kinds))
    try:
        torch.ones(1, device=settings["device"]).item()
    except (RuntimeError, AssertionError, NotImplementedError):
        raise InvalidArgumentError("--device", settings["device"], "a device that PyTorch finds here, such as cpu") from None
    longest = max(settings["lengths"]) if settings["lengths"] else None
    tokens = read_texts(model, [Path(text) for text in texts], longest, allowed=most_tokens(config))
    shortest = int(tokens["attention_mask"].sum(1).min()) if "attention_mask" in tokens else tokens["input_ids"].shape[1]
    if longest is not None and shortest < longest:
        given = f"{longest}, and {'the shortest' if len(texts) > 1 else 'the'} text has {shortest} tokens"
        raise InvalidArgumentError("--lengths", given, "lengths up to that of every text", "Give a longer text.")
    chosen = AuditConfig(model=model, texts=tuple(texts), contents=fingerprint(model, tuple(texts)), **settings)
    study = dataclasses.replace(STUDY, title=f"{STUDY.title}: {_short(model)}")
    run = Run.create(default_folder(out, study, chosen, False), study, chosen, quick=False, rerun=_again(chosen, out))
    if fresh:
        run.clear()
    return run, perform([(study, chosen, run)], 1, quiet=quiet)


def _again(config: Any, out: Path) -> str:
    """The command that makes the run once more."""
    words = ["largeprompt", "audit", config.model]
    for text in config.texts:
        words += ["--text", text]
    for name in ("lengths", "layers", "components"):
        values = getattr(config, name)
        if values != getattr(type(config), name):
            words += [f"--{name}", ",".join(map(str, values)) or "none"]
    for name in ("positions", "sinks", "tolerance", "device", "dtype"):
        if getattr(config, name) != getattr(type(config), name):
            words += [f"--{name}", f"{getattr(config, name)}"]
    words += [] if config.counts else ["--no-replace"]
    return shlex.join([*words, *(["--out", str(out)] if out != Path("runs") else [])])


def _short(model: str) -> str:
    """The last two parts of a path, or a hub name."""
    return "/".join(Path(model).parts[-2:])


def _rows(data: xr.Dataset) -> list[dict[str, Any]]:
    """One dictionary for each head, at the longest length; None for what is not known or not finite."""
    from largeprompt.audit.findings import FINDINGS

    last = data.isel(length=-1) if "length" in data.dims else data
    rows = []
    for layer in last.layer.values:
        for head in last["head"].values:
            at = last.sel(layer=layer, head=head)
            row: dict[str, Any] = {"layer": int(layer), "head": int(head)}
            code = int(at.head_finding)
            row["finding"] = FINDINGS[code] if code >= 0 else "unknown"
            numbers = {
                str(name).removeprefix("head_"): float(at[name])
                for name in at
                if str(name).startswith("head_") and name != "head_finding"
            }
            rows.append(row | {name: value if math.isfinite(value) else None for name, value in numbers.items()})  # JSON has no NaN
    return rows


def _print(console: Console, data: xr.Dataset, model: str) -> None:
    rows = _rows(data)
    table = Table(
        title=f"Heads of {_short(model)}", caption="errors relative to the head's output; law: share that length alone explains"
    )
    for name in ("head", "σ²", "reads", "mean", "affine", "law", "needs L"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in rows[:MOST_ROWS]:
        verdict = row["finding"].removeprefix("needs a ")
        clusters = f" ({row['clusters']:.0f})" if verdict == "few clusters" else ""
        needed = row["needed_length"]
        table.add_row(
            f"{row['layer']}.{row['head']}",
            _number(row["score_variance"], ".3g"),
            _number(row["effective_tokens"], ",.0f"),
            _number(row["mean_error"], ".2f"),
            _number(row["affine_error"], ".2f"),
            _number(row["law_share"], ".2f"),
            f"{needed:,.0f}" if needed is not None and needed <= 1e6 else "> 10^6",
            verdict + clusters,
        )
    console.print(table)
    if len(rows) > MOST_ROWS:
        tell(console, f"{len(rows) - MOST_ROWS} more heads are in dataset.nc; --json prints all.")


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
