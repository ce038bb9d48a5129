"""Settings typed on the command line: ``key=value`` in, a config out, and back."""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import shlex
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.study import Study


def configured(study: Study, words: Sequence[str], *, quick: bool = False, seed: int | None = None) -> Any:
    """The config of a study: its full or quick setting, changed by ``key=value`` words and by a seed."""
    base = study.quick if quick else study.config()
    hints = typing.get_type_hints(study.config)
    names = [field.name for field in dataclasses.fields(study.config) if field.init]
    allowed = ", ".join(f"{name} ({_words(hints[name])})" for name in names)
    if seed is not None and "seed" not in names:
        raise InvalidArgumentError("--seed", str(seed), f"no seed for {study.name}, which draws nothing at random")
    changes: dict[str, Any] = {}
    for word in [*words, *([] if seed is None else [f"seed={seed}"])]:
        key, equals, text = word.partition("=")
        key = key.strip()
        if not equals or not key:
            raise InvalidArgumentError("--set", repr(word), f"key=value, with a key among {allowed}")
        if key not in names:
            near = difflib.get_close_matches(key, names, 1)
            raise InvalidArgumentError(
                "--set", repr(word), f"a setting of {study.name}: {allowed}", f"Did you mean {near[0]}?" if near else ""
            )
        if key in changes:
            raise InvalidArgumentError(f"--set {key}", "two values", "one value", "Write several entries as key=a,b.")
        try:
            changes[key] = _parse(text.strip(), hints[key])
        except ValueError:
            raise InvalidArgumentError(f"--set {key}", repr(text), _words(hints[key])) from None
    return dataclasses.replace(base, **{key: value for key, value in changes.items() if value != getattr(base, key)})


def rerun(study: Study, config: Any, quick: bool, out: Path = Path("runs")) -> str:
    """The command that makes this run, or goes on with it."""
    base = study.quick if quick else study.config()
    words = ["largeprompt", "run", study.name, *(["--quick"] if quick else [])]
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value != getattr(base, field.name):
            words += ["--set", f"{field.name}={_render(value)}"]
    return shlex.join([*words, *([] if out == Path("runs") else ["--out", str(out)])])


def _parse(text: str, kind: Any) -> Any:
    """Text as JSON where it is JSON, a list at commas where a tuple is wanted, and the text itself otherwise."""
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if typing.get_origin(kind) is tuple and not isinstance(value, list):
        return _coerced([] if not text else [part.strip() for part in text.split(",")], kind)
    try:
        return _coerced(value, kind)
    except ValueError:
        return _coerced(text, kind)  # a string that happens to be JSON, such as 1e4


def _coerced(value: Any, kind: Any) -> Any:
    """The value in the type that the config declares; ValueError if it has none."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return _tuple(value, arguments)
    if origin in (typing.Union, types.UnionType):
        for each in arguments:
            try:
                return _coerced(value, each)
            except ValueError:
                continue
        raise ValueError(value)
    if origin is typing.Literal:
        for each in arguments:
            if value == each or value == str(each):
                return each
        raise ValueError(value)
    if kind is type(None):
        if value is None or value == "null":
            return None
    elif kind is bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
    elif kind is str:
        if isinstance(value, str):
            return value
    elif kind in (int, float) and isinstance(value, int | float | str) and not isinstance(value, bool):
        return _number(value, kind)
    raise ValueError(value)


def _number(value: float | str, kind: type) -> float:
    """An int where the value is whole, or a float; 1e6 is whole, and inf is a float."""
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(value) from None
    if math.isnan(number):
        raise ValueError(value)
    if kind is float:
        return number
    if not number.is_integer():
        raise ValueError(value)
    try:
        return int(value)  # exact beyond 2^53
    except ValueError:
        return int(number)


def _tuple(value: Any, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError(value)
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(kinds) != len(value):
        raise ValueError(value)
    return tuple(_coerced(each, kind) for each, kind in zip(value, kinds, strict=True))


def _words(kind: Any) -> str:
    """A type in words, for messages."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return f"list of {_words(arguments[0])}, as a,b,c or [a, b, c]"
    if origin is tuple:
        return f"list of {len(arguments)}: {', '.join(_words(each) for each in arguments)}"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_words(each) for each in arguments)
    if origin is typing.Literal:
        return "one of " + ", ".join(map(str, arguments))
    return {int: "whole number", float: "number", str: "text", bool: "true or false", type(None): "null"}.get(kind, str(kind))


def _render(value: Any) -> str:
    """A value as ``--set`` reads it: bare where that is read as the same, JSON otherwise."""
    if isinstance(value, str):
        return value if value and value.strip() == value and not value.startswith('"') else json.dumps(value)
    if isinstance(value, tuple):
        bare = [each if isinstance(each, str) else json.dumps(each) for each in value]
        if all(each and each.strip() == each and not set(each) & set(',[]{}"') for each in bare):
            return ",".join(bare)
    return json.dumps(value)
