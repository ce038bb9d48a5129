"""Settings of a study: declared with their ranges, typed as ``key=value``, checked before a run."""

import contextlib
import dataclasses
import difflib
import inspect
import itertools
import json
import math
import re
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
        raise ValueError(f"up to 1,000: one matrix takes {needed:.3g} GiB, and studies take many")
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


ENDS = {"gt": "above", "ge": "from", "lt": "below", "le": "to"}
NOTES = {
    _a_length: "whole, or inf",
    _a_dimension: "up to 1,000",
    _each_once: "each once",
    _growing: "increasing",
}
Distinct = Annotated[Some[T], AfterValidator(_each_once)]
Increasing = Annotated[Some[T], AfterValidator(_growing)]


COMMON = {  # what needs no comment in each study
    "dim": "dimension of the tokens",
    "dims": "dimensions of the tokens",
    "length": "prompt length",
    "lengths": "prompt lengths",
    "longest": "longest prompt",
    "points": "lengths at which a curve is computed",
    "replicas": "prompts drawn for each number",
    "score_variances": "variances of the scores over the tokens",
    "seed": "seed of the random numbers",
    "fitted": "lengths from and to that a power is fitted on",
}


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def settings(kind: type[T]) -> type[T]:
    """Make a class of annotated defaults the settings of a study: frozen, and checked when made.

    Examples
    --------
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
    """Return the full or quick config, changed by ``key=value`` words and by a seed."""
    hints, names = _hints(study), _names(study)
    if seed is not None and "seed" not in names:
        allowed = f"no seed for {study.name}, which draws nothing at random"
        raise InvalidArgumentError("--seed", str(seed), allowed)
    typed: dict[str, str] = {}
    remedy = f"`largeprompt studies {study.name}` lists them."
    for word in [*words, *([] if seed is None else [f"seed={seed}"])]:
        key, equals, text = word.partition("=")
        key = key.strip()
        if not equals or not key:
            raise InvalidArgumentError("--set", repr(word), "a setting as key=value", remedy)
        if key not in names:
            near = difflib.get_close_matches(key, names, 3, 0.5)
            allowed = f"a setting of {study.name}: {', '.join(near or names)}"
            raise InvalidArgumentError("--set", repr(word), allowed, remedy)
        if key in typed:
            remedy = "Write several entries as key=a,b."
            raise InvalidArgumentError(f"--set {key}", "two values", "one value", remedy)
        typed[key] = text
    base = study.quick if quick else study.config()
    values = {name: getattr(base, name) for name in names}
    values |= {key: _read(text, hints[key]) for key, text in typed.items()}
    return config_of(study, values, typed)


def config_of(
    study: Study, values: Mapping[str, Any], typed: Mapping[str, str] | None = None
) -> Any:
    """Return the config with these values; ``typed`` is what a person wrote on the command line."""
    try:
        return study.config(**values)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        prefix, said = ("" if typed is None else "--set "), typed or {}
        problem, place = first["msg"].removeprefix("Value error, "), first["loc"]
        name = str(place[0]) if place else "settings"
        given, allowed = repr(said.get(name, values.get(name))), f"a setting of {study.name}"
        if not place:  # settings that do not fit together
            together = ", ".join(f"{name}={text}" for name, text in said.items())
            given, allowed = together or "values that do not fit together", problem
        elif name in (hints := _hints(study)):
            entry = "".join(f", entry {part + 1}" for part in place[1:] if isinstance(part, int))
            problem = f"{problem[0].lower()}{problem[1:]}{entry}"
            allowed = f"{described(hints[name])} ({problem})"
        raise InvalidArgumentError(f"{prefix}{name}", given, allowed) from None


def changes(study: Study, config: Any, quick: bool) -> dict[str, str]:
    """Return the settings that differ from the full or quick ones, as ``--set`` reads them."""
    base = study.quick if quick else study.config()
    values = {name: getattr(config, name) for name in _names(study)}
    return {name: _written(value) for name, value in values.items() if value != getattr(base, name)}


def rerun(study: Study, config: Any, quick: bool, out: Path = Path("runs")) -> str:
    """Return the command that makes this run, or goes on with it."""
    name = study.name if study.listed else study.source
    words = ["largeprompt", "run", name, *(["--quick"] if quick else [])]
    for key, text in changes(study, config, quick).items():
        words += ["--set", f"{key}={text}"]
    return shlex.join([*words, *([] if out == Path("runs") else ["--out", str(out)])])


@dataclasses.dataclass(frozen=True)
class Setting:
    """A setting as a person reads it: what it takes, its default, the quick one, its meaning."""

    name: str
    kind: str
    default: str
    quick: str
    meaning: str


def listed(study: Study) -> list[Setting]:
    """Return the settings of a study in words; their meanings are the comments beside them."""
    hints, full, meanings = _hints(study), study.config(), _meanings(study.config)
    return [
        Setting(
            name,
            kind=described(hints[name]),
            default=_written(getattr(full, name)),
            quick=_written(getattr(study.quick, name)),
            meaning=meanings.get(name) or COMMON.get(name, ""),
        )
        for name in _names(study)
    ]


def _meanings(kind: type) -> dict[str, str]:
    """The comment beside each setting, or above it, in the source of the class."""
    found, above = {}, list[str]()
    for line in inspect.getsource(kind).splitlines():
        code, _, said = line.partition("# ")
        if name := re.match(r"    (\w+): ", code):
            found[name[1]] = " ".join([*above, *([said] if said else [])])
        above = [*above, said] if said and not code.strip() else []
    return found


def _hints(study: Study) -> dict[str, Any]:
    return typing.get_type_hints(study.config, include_extras=True)


def _names(study: Study) -> list[str]:
    return [field.name for field in dataclasses.fields(study.config) if field.init]


def _read(text: str, hint: Any) -> Any:
    """The first reading of a text that its type takes; otherwise one that tells what is wrong."""
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    parts = [part.strip() for part in text.split(",")] if text else []
    readings: list[Any] = [value] if value is None or isinstance(value, str) else []
    readings += [text, value]
    if not isinstance(value, list):
        readings += [parts, [_number(part) for part in parts]]
    adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(hint)
    for reading in readings:
        with contextlib.suppress(pydantic.ValidationError):
            return adapter.validate_python(reading)
    several = typing.get_origin(_split(hint)[0]) is tuple
    return (value if isinstance(value, list) else parts) if several else text


def _number(text: str) -> Any:
    """A number such as 1e6, which is whole but not written so; any other text as it is."""
    try:
        return float(text)
    except ValueError:
        return text


def _split(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """The type by itself, and its annotations."""
    found = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
    return found[0], found[1:]


def described(hint: Any) -> str:
    """Return a type in words, with its range."""
    bare, notes = _split(hint)
    origin, arguments = typing.get_origin(bare), typing.get_args(bare)
    if origin is tuple and arguments[1:] == (Ellipsis,):
        words = f"list, each a {described(arguments[0])}"
    elif origin is tuple:
        words = f"list of {len(arguments)}: {', '.join(map(described, arguments))}"
    elif origin in (typing.Union, types.UnionType):
        words = " or ".join(map(described, arguments))
    elif origin is typing.Literal:
        words = "one of " + ", ".join(map(str, arguments))
    else:
        names = {int: "whole number", float: "number", str: "text", bool: "true or false"}
        words = {type(None): "null", **names}.get(bare, str(bare))
    return f"{words}{_noted(notes)}"


def _noted(notes: Sequence[Any]) -> str:
    """The range of a type and what else its annotations ask, in words."""
    ends, said = dict[str, float](), ""
    for each in [*notes, *(more for one in notes for more in getattr(one, "metadata", ()))]:
        found = {end: getattr(each, end, None) for end in ENDS}
        ends |= {end: value for end, value in found.items() if value is not None}
        said += f", {NOTES[each.func]}" if getattr(each, "func", None) in NOTES else ""
    return "".join(f" {ENDS[end]} {_round(value)}" for end, value in ends.items()) + said


def _round(value: float) -> str:
    """An end of a range: powers of ten and of two as such where they are long."""
    for base in (10, 2):
        power = round(math.log(value, base)) if value >= 1e6 else 0
        if power and base**power == value:
            return f"{base}^{power}"
    return f"{value:,}"


def _written(value: Any) -> str:
    """A value as ``--set`` reads it: bare where that is read as the same, JSON otherwise."""
    if isinstance(value, str):
        return json.dumps(value) if value.startswith('"') else value
    if isinstance(value, tuple) and not any(isinstance(each, tuple) for each in value):
        bare = [_written(each) for each in value]
        if all(each and each.strip() == each and not set(each) & set(',[]{}"') for each in bare):
            return ",".join(bare)
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return json.dumps(value)
