"""Settings of a study: declared with their ranges, typed on the command line as ``key=value``,
checked before anything runs.
"""

import dataclasses
import difflib
import itertools
import json
import math
import shlex
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast, dataclass_transform

import pydantic
from pydantic import AfterValidator, BeforeValidator, Field

from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.study import Study

T = TypeVar("T")


def _no_flag(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("true and false are not numbers")
    return value


def _a_length(value: float) -> float:
    if not (value == math.inf or (1 <= value <= 10**15 and value == int(value))):
        raise ValueError("a whole number from 1 to 10^15, or inf for the infinite prompt")
    return value


def _a_dimension(value: int) -> int:
    if value > 1000:
        needed = 8 * min(value, 10**100) ** 2 / 2**30
        raise ValueError(
            f"up to 1,000: one matrix of that dimension takes {needed:.3g} GiB, and studies take "
            "many"
        )
    return value


Whole = Annotated[int, BeforeValidator(_no_flag)]
Number = Annotated[float, BeforeValidator(_no_flag), Field(allow_inf_nan=False)]
Count = Annotated[Whole, Field(ge=1, le=10**9)]
# each of which is computed by itself, or a coordinate of the dataset
Few = Annotated[Whole, Field(ge=1, le=10**5)]
Dimension = Annotated[Whole, Field(ge=1), AfterValidator(_a_dimension)]
Seed = Annotated[Whole, Field(ge=0, le=2**53)]  # which generators take, and numbers derived from it
Length = Annotated[Whole, Field(ge=1, le=10**15)]
AnyLength = Annotated[int | float, BeforeValidator(_no_flag), AfterValidator(_a_length)]
Positive = Annotated[Number, Field(gt=0)]
NonNegative = Annotated[Number, Field(ge=0)]
TwoOrMore = Annotated[Whole, Field(ge=2, le=10**9)]
SomeFew = Annotated[Few, Field(ge=2)]
Replicas = TwoOrMore  # a standard error needs two
Some = Annotated[tuple[T, ...], Field(min_length=1)]  # at least one
Two = Field(min_length=2)  # at least two entries


def _each_once(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(values)) < len(values):
        raise ValueError("each entry once")
    return values


def _growing(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if any(a >= b for a, b in itertools.pairwise(values)):
        raise ValueError("entries in increasing order")
    return values


Unique = Annotated[tuple[T, ...], AfterValidator(_each_once)]
Distinct = Annotated[Some[T], AfterValidator(_each_once)]
Increasing = Annotated[Some[T], AfterValidator(_growing)]


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def settings(kind: type[T]) -> type[T]:
    """Make a class of annotated defaults the settings of a study: frozen, and checked against its
    annotations when made.

    Examples
    --------
    >>> from largeprompt.runs.settings import Count, Some, settings
    >>> @settings
    ... class MyConfig:
    ...     dims: Some[Count] = (1, 2)
    >>> MyConfig(dims=(3,))
    MyConfig(dims=(3,))
    """
    options = pydantic.ConfigDict(extra="forbid", validate_default=True)
    made: Any = pydantic.dataclasses.dataclass(frozen=True, config=options)(kind)
    return cast(type[T], made)


def configured(
    study: Study, words: Sequence[str], *, quick: bool = False, seed: int | None = None
) -> Any:
    """The config of a study: its full or quick setting, changed by ``key=value`` words and by a
    seed.
    """
    base = study.quick if quick else study.config()
    hints = typing.get_type_hints(study.config)
    names = [field.name for field in dataclasses.fields(study.config) if field.init]
    allowed = ", ".join(f"{name} ({_words(hints[name])})" for name in names)
    if seed is not None and "seed" not in names:
        raise InvalidArgumentError(
            "--seed", str(seed), f"no seed for {study.name}, which draws nothing at random"
        )
    changes: dict[str, str] = {}
    for word in [*words, *([] if seed is None else [f"seed={seed}"])]:
        key, equals, text = word.partition("=")
        key = key.strip()
        if not equals or not key:
            raise InvalidArgumentError(
                "--set", repr(word), f"key=value, with a key among {allowed}"
            )
        if key not in names:
            near = difflib.get_close_matches(key, names, 1)
            raise InvalidArgumentError(
                "--set",
                repr(word),
                f"a setting of {study.name}: {allowed}",
                f"Did you mean {near[0]}?" if near else "",
            )
        if key in changes:
            raise InvalidArgumentError(
                f"--set {key}", "two values", "one value", "Write several entries as key=a,b."
            )
        changes[key] = text.strip()
    fields = {name: getattr(base, name) for name in names}
    return config_of(
        study,
        fields | {key: _parsed(text, hints[key]) for key, text in changes.items()},
        typed=changes,
    )


def config_of(
    study: Study, values: Mapping[str, Any], typed: Mapping[str, str] | None = None
) -> Any:
    """The config with these values, from Python, JSON or the command line; ``typed`` is what a
    person wrote.
    """
    try:
        return study.config(**values)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        prefix, said = ("" if typed is None else "--set "), typed or {}
        problem = first["msg"].removeprefix("Value error, ")
        if not first["loc"]:  # settings that do not fit together
            given = (
                ", ".join(f"{name}={text}" for name, text in said.items())
                or "values that do not fit together"
            )
            raise InvalidArgumentError(f"{prefix}settings", given, problem) from None
        name = str(first["loc"][0])
        place = "".join(f", entry {part + 1}" for part in first["loc"][1:] if isinstance(part, int))
        hint = typing.get_type_hints(study.config).get(name)
        allowed = (
            f"a setting of {study.name}"
            if hint is None
            else f"{_words(hint)} ({problem[0].lower()}{problem[1:]}{place})"
        )
        raise InvalidArgumentError(
            f"{prefix}{name}", repr(said.get(name, values.get(name))), allowed
        ) from None


def rerun(study: Study, config: Any, quick: bool, out: Path = Path("runs")) -> str:
    """The command that makes this run, or goes on with it."""
    base = study.quick if quick else study.config()
    words = [
        "largeprompt",
        "run",
        study.name if study.listed else study.source,
        *(["--quick"] if quick else []),
    ]
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value != getattr(base, field.name):
            words += ["--set", f"{field.name}={_render(value)}"]
    return shlex.join([*words, *([] if out == Path("runs") else ["--out", str(out)])])


def _parsed(text: str, hint: Any) -> Any:
    """Text as JSON where it is JSON, a list at commas where several are wanted, and the text itself
    otherwise.
    """
    kind = _bare(hint)
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if typing.get_origin(kind) is tuple:
        if isinstance(value, list):
            return value
        return (
            [_parsed(part.strip(), typing.get_args(kind)[0]) for part in text.split(",")]
            if text
            else []
        )
    kinds = [_bare(each) for each in typing.get_args(kind)] if _is_union(kind) else [kind]
    if bool in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    words = str in kinds or any(
        typing.get_origin(each) is typing.Literal and value not in typing.get_args(each)
        for each in kinds
    )
    if not words or isinstance(value, str) or (value is None and type(None) in kinds):
        return value
    return text  # a word that happens to be JSON, such as 1e4 or null


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in (typing.Union, types.UnionType)


def _bare(hint: Any) -> Any:
    """The type without its annotations."""
    return _bare(typing.get_args(hint)[0]) if typing.get_origin(hint) is Annotated else hint


def _words(hint: Any) -> str:
    """A type in words, for messages."""
    hint = _bare(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return f"list, each a {_words(arguments[0])}, as a,b,c or [a, b, c]"
    if origin is tuple:
        return f"list of {len(arguments)}: {', '.join(_words(each) for each in arguments)}"
    if _is_union(hint):
        return " or ".join(_words(each) for each in arguments)
    if origin is typing.Literal:
        return "one of " + ", ".join(map(str, arguments))
    return {
        int: "whole number",
        float: "number",
        str: "text",
        bool: "true or false",
        type(None): "null",
    }.get(hint, str(hint))


def _render(value: Any) -> str:
    """A value as ``--set`` reads it: bare where that is read as the same, JSON otherwise."""
    if isinstance(value, str):
        return (
            value
            if value and value.strip() == value and not value.startswith('"')
            else json.dumps(value)
        )
    if isinstance(value, tuple):
        bare = [each if isinstance(each, str) else _number(each) for each in value]
        if all(each and each.strip() == each and not set(each) & set(',[]{}"') for each in bare):
            return ",".join(bare)
    return _number(value)


def _number(value: Any) -> str:
    return "inf" if isinstance(value, float) and value == math.inf else json.dumps(value)
