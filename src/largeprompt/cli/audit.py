"""``largeprompt audit``: which heads of a real transformer read only the moments of the prompt?"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import logging
import os
import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console

from largeprompt.cli.perform import (
    MANY,
    AsJson,
    CellLimit,
    Fresh,
    Out,
    Places,
    Where,
    perform,
    prepare,
    reporting_errors,
    say,
    table,
)
from largeprompt.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

    from largeprompt.audit.parts import AuditConfig
    from largeprompt.runs.study import Study

MOST_ROWS = 20
MOST_BYTES = 2**28  # of standard input
TRIED = {"--lengths": "128,512", "--layers": "0,1", "--components": "1,8"}  # in error messages
LEFT_TO_THE_PAGE = ("order", "L", "mean", "±", "saves", "cache")  # columns beyond the 80th
# options that are settings of the same name
SAME = (
    *("lengths", "layers", "components", "positions", "sinks", "tolerance", "budget"),
    *("device", "dtype", "revision", "device_map", "attn_implementation"),
)


def _close(metavar: str, told: str, **options: Any) -> Any:
    """An option that says how closely the audit looks."""
    return typer.Option(metavar=metavar, help=told, rich_help_panel="How closely", **options)


def _load(metavar: str, told: str, **options: Any) -> Any:
    """An option that says how the model is loaded."""
    panel = "How the model is loaded"
    return typer.Option(metavar=metavar, help=told, rich_help_panel=panel, **options)


def audit(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Folder of a transformers model, GGUF file, or name on the hub.",
            show_default=False,
        ),
    ],
    text: Annotated[
        list[str],
        typer.Option(
            metavar="FILE",
            help="UTF-8 text, JSONL, folder of these, or - for standard input; repeatable.",
            show_default=False,
        ),
    ],
    lengths: Annotated[
        str,
        typer.Option(
            metavar="L,...",
            help="Prompt lengths in tokens; by default all that the model reads of the text.",
        ),
    ] = "",
    budget: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            min=0.0,
            max=1.0,
            help="Cosine to be kept (language models: loss before over after).",
        ),
    ] = 0.99,
    device: Annotated[str, typer.Option(metavar="NAME", help="cpu, cuda, mps, ...")] = "cpu",
    layers: Annotated[str, _close("N,...", "Layers to look at, from 0; by default all.")] = "",
    positions: Annotated[int, _close("N", "Query positions for each text.", min=1)] = 32,
    components: Annotated[
        str, _close("K,...", "Sizes of the Gaussian mixtures; 'none' is much faster.")
    ] = "1,2,4,8,16",
    sinks: Annotated[int, _close("N", "First tokens that mixtures read exactly.", min=0)] = 1,
    tolerance: Annotated[
        float, _close("ERROR", "Relative error of a read-out that is enough.", min=0.0)
    ] = 0.2,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace/--no-replace",
            help="Replace heads, and see what changes.",
            rich_help_panel="How closely",
        ),
    ] = True,
    dtype: Annotated[
        str, _load("NAME", "float32, float64, bfloat16, float16, or auto.")
    ] = "float32",
    revision: Annotated[str, _load("NAME", "Branch, tag or commit on the hub.")] = "",
    token: Annotated[
        str,
        _load(
            "TOKEN",
            "For models that are not public; never stored.",
            envvar="HF_TOKEN",
            show_default=False,
        ),
    ] = "",
    device_map: Annotated[
        str, _load("MAP", "Such as 'auto': spread the weights; needs accelerate.")
    ] = "",
    attn_implementation: Annotated[
        str, _load("NAME", "sdpa or eager; else what the model prefers.")
    ] = "",
    workers: Annotated[
        int,
        typer.Option(
            min=1,
            max=64,
            help="Worker processes; each loads the model for itself.",
            rich_help_panel=MANY,
        ),
    ] = 1,
    executor: Where = "local",
    cell_limit: CellLimit = None,
    out: Out = Path("runs"),
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Which heads of a transformer can be replaced by a read-out of their prompt's moments."""
    with reporting_errors(fresh=fresh):
        from largeprompt.audit.answer import answer
        from largeprompt.audit.table import table as heads
        from largeprompt.report.page import write_report

        if token:
            os.environ["HF_TOKEN"] = token  # the hub's library reads it, in worker processes too
        if attn_implementation not in ("", "sdpa", "eager"):
            given, remedy = repr(attn_implementation), "The audit can look into these two."
            raise InvalidArgumentError("--attn-implementation", given, "sdpa or eager", remedy)
        chosen = {
            "model": model,
            "texts": [str(_from_stdin(out) if path == "-" else path) for path in text],
            "lengths": _numbers("--lengths", lengths, 2),
            "layers": _numbers("--layers", layers, 0),
            "components": _numbers("--components", components, 1),
            "positions": positions,
            "sinks": sinks,
            "tolerance": tolerance,
            "budget": budget,
            "counts": 6 if replace else 0,
            "device": device,
            "dtype": dtype,
            "revision": revision,
            "device_map": device_map,
            "attn_implementation": attn_implementation,
        }
        console = Console(quiet=as_json)
        study, config = _checked(chosen, console)
        places = Places(workers, executor, cell_limit)
        run = prepare(study, config, out, fresh=fresh, rerun=_again(config, out))
        with _spoken(console):
            errors = perform([(study, config, run)], places, quiet=as_json)
        for error in errors:
            raise error
        data = run.dataset
        told, shown = answer(data), heads(data)
        page = write_report([run], run.folder / "report.html")
        if as_json:
            typer.echo(json.dumps({"answer": told, "heads": shown.rows}, indent=1))
            return
        say(console, told)
        longest = shown.rows[0].get("length")
        first = [row for row in shown.rows if row.get("length") == longest][:MOST_ROWS]
        console.print(_shown(first, model, int(data.attrs["tokens"])))
        if more := len(shown.rows) - len(first):
            shorter = " (shorter lengths too)" if shown.rows[-1].get("length") != longest else ""
            say(console, f"{more} more rows{shorter} are on the page; --json prints all.")
        for each in run.verdicts:
            control = " (control)" if each.control else ""
            say(console, f"{each.outcome}{control}. {each.asked} {each.measured}")
        plan = f" and {run.folder / 'heads.json'}, which linearize takes"
        say(console, f"wrote {page}{plan if 'heads.json' in run.checksums else ''}")


@contextlib.contextmanager
def _spoken(console: Console) -> Iterator[None]:
    """Say what is done, line by line, where there is no terminal for a bar: it may take hours."""
    from largeprompt.runs.pool import LOGGER

    handler = logging.StreamHandler()
    # warnings are said in any case
    handler.addFilter(lambda record: record.levelno < logging.WARNING)
    if not console.is_terminal:
        LOGGER.addHandler(handler)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)


def _numbers(name: str, text: str, least: int) -> tuple[int, ...]:
    """Whole numbers with commas between, in ascending order, each once; none for 'none'."""
    text = "" if text == "none" and least == 1 else text
    try:
        found = {int(part) for part in text.split(",")} if text.strip() else set()
    except ValueError:
        found = {least - 1}
    if min(found, default=least) < least:
        allowed = f"integers from {least} on, with commas between"
        raise InvalidArgumentError(name, repr(text), allowed, f"Try {name} {TRIED[name]}.")
    return tuple(sorted(found))


def _from_stdin(out: Path) -> Path:
    """Standard input as a file beside the runs, so that the run can be made again."""
    from largeprompt.runs.files import storing

    content, allowed = typer.get_binary_stream("stdin").read(MOST_BYTES + 1), "UTF-8 text"
    given = f"more than {MOST_BYTES:,} bytes" if len(content) > MOST_BYTES else ""
    try:
        if not content.decode().strip():
            given, allowed = "an empty standard input", "a text of at least two tokens"
    except UnicodeDecodeError as error:
        given = given or f"a standard input that is not UTF-8 ({error})"
    if given:
        raise InvalidArgumentError("--text", given, allowed)
    path = out / "texts" / f"{hashlib.sha256(content).hexdigest()[:16]}.txt"
    with storing(out):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return path


def _checked(values: dict[str, Any], console: Console) -> tuple[Study, AuditConfig]:
    """The study and its config, after all checks that need no weights; says what is left out."""
    import torch

    from largeprompt.audit.adapters.load import check_device_map, fingerprint, skeleton
    from largeprompt.audit.adapters.source import Source, load_config
    from largeprompt.audit.adapters.texts import ShortenedWarning, texts_in, tokens_of
    from largeprompt.audit.adapters.transformers import (
        AuditWarning,
        attending_layers,
        silent_layers,
    )
    from largeprompt.runs.find import find_study
    from largeprompt.runs.settings import config_of

    study = find_study("largeprompt.audit.study:STUDY")
    config: AuditConfig = config_of(study, values)
    source = Source(config.model, config.revision or None)
    described = load_config(source)
    model = skeleton(described)
    attending, silent = attending_layers(model), silent_layers(model)
    if not set(config.layers) <= set(attending):
        given, allowed = ", ".join(map(str, config.layers)), _ranges(attending)
        raise InvalidArgumentError("--layers", given, f"layers that attend: {allowed}")
    try:
        torch.ones(1, device=config.device).item()
    except (RuntimeError, AssertionError, NotImplementedError):
        allowed = "a device that PyTorch finds here, such as cpu"
        raise InvalidArgumentError("--device", config.device, allowed) from None
    check_device_map(config.device_map or None)
    asked = config.lengths[-1] if config.lengths else None
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", AuditWarning)
        texts = [text for path in config.texts for text in texts_in(path)]
        tokens = tokens_of(source, described, texts, asked)
    cut = [note.message.most for note in notes if isinstance(note.message, ShortenedWarning)]
    most = min(cut, default=None)
    counts = tokens.get("attention_mask", torch.ones_like(tokens["input_ids"])).sum(1)
    if asked is not None and int(counts.min()) < (asked if most is None else most):
        which = "the shortest text" if len(counts) > 1 else "the text"
        given = f"{asked:,}, and {which} has {int(counts.min()):,} tokens"
        raise InvalidArgumentError(
            "--lengths", given, "lengths up to that of every text", "Give a longer text."
        )
    if most is not None:
        shortened = tuple(sorted({min(length, most) for length in config.lengths}))
        config = dataclasses.replace(config, lengths=shortened)
    for note in notes:
        say(console, f"Note: {note.message}")
    if getattr(described, "is_encoder_decoder", False):
        say(console, "Note: the model is an encoder-decoder; its encoder is audited.")
    if silent:
        rest = f"layers {_ranges(silent)} do not and are left out"
        say(console, f"Note: layers {_ranges(attending)} attend; {rest}.")
    study = dataclasses.replace(study, title=f"{study.title}: {_short(config.model)}")
    return study, dataclasses.replace(config, contents=fingerprint(config.model, config.texts))


def _ranges(numbers: list[int]) -> str:
    """Ascending whole numbers in words: '0 to 5, 8, 10 to 12'."""
    groups = [
        [number for _, number in group]
        for _, group in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    ]
    return ", ".join(
        f"{group[0]} to {group[-1]}" if len(group) > 1 else str(group[0]) for group in groups
    )


def _again(config: AuditConfig, out: Path) -> str:
    """The command that makes the run once more."""
    words = ["largeprompt", "audit", config.model]
    words += [word for text in config.texts for word in ("--text", text)]
    for name in SAME:
        value = getattr(config, name)
        if value != getattr(type(config)(), name):
            entries = value if isinstance(value, tuple) else [value]
            words += [f"--{name.replace('_', '-')}", ",".join(map(str, entries)) or "none"]
    words += [] if config.counts else ["--no-replace"]
    return shlex.join([*words, *(["--out", str(out)] if out != Path("runs") else [])])


def _short(model: str) -> str:
    """The last two parts of a path, or a hub name."""
    return "/".join(Path(model).parts[-2:])


def _shown(rows: list[dict[str, Any]], model: str, tokens: int) -> Table:
    """The rows in 80 columns: what does not fit is said below."""
    from largeprompt.audit.table import HeadTable

    every = HeadTable(tuple(rows))
    kept = {name: i for i, name in enumerate(every.headings) if name not in LEFT_TO_THE_PAGE}
    factors = "×2, ×4, ×8: factors on the scores that keep 'reads' at so many times the length"
    told = [factors] if "×2" in kept else []
    for name, what in (("saved_operations", "operations"), ("saved_cache", "cache")):
        shares = [row[name] for row in rows if row.get(name) is not None]
        if shares:
            ends = dict.fromkeys((f"{min(shares):.0%}", f"{max(shares):.0%}"))
            told.append(f"replacing a head saves {' to '.join(ends)} of its {what} (counted)")
    judged = any(row["verdict"] != "not judged" for row in rows)
    order = "to be replaced in this order" if judged else "too short to be judged"
    return table(
        tuple(kept),
        [[row[place] for place in kept.values()] for row in every.cells],
        right={*kept} - {"verdict"},
        whole=kept,
        title=f"Heads of {_short(model)} at {rows[0].get('length', tokens):,} tokens, {order}",
        caption="; ".join(told),
        box=SIMPLE,
        padding=(0, 1, 0, 0),
        pad_edge=True,
    )
