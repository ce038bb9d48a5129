"""What the explorer shows, as a few numbers and words: read from the query of a link, and written
back into one.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self
from urllib.parse import urlencode

LAWS = {  # the value in a link, and what the page calls it
    "gaussian": "Gaussian",
    "clusters": "two Gaussian clusters",
    "signs": "signs ±1",
    "uniform": "uniform",
    "laplace": "Laplace",
    "sphere": "on a sphere",
}
DIRECTIONS = {
    "strong": "the strongest coordinate",
    "weak": "the weakest coordinate",
    "all": "all coordinates alike",
}
ATTENTIONS = {"softmax": "softmax", "linear": "linear"}
LENGTHS = (*(step * 10**power for power in range(7) for step in (1, 3)), 10**7)
TABS = {"law": "One prompt", "training": "Training", "runs": "Runs and audits"}


def within(low: float, high: float, step: float) -> dict[str, Any]:
    """Metadata of a field that is a slider."""
    return {"low": low, "high": high, "step": step}


def among(choices: Mapping[str, str] | Sequence[int]) -> dict[str, Any]:
    """Metadata of a field that is one of a few words or lengths."""
    return {"choices": tuple(choices)}


@dataclasses.dataclass(frozen=True)
class State:
    """Fields with what is allowed of each in its metadata; see :func:`within` and :func:`among`."""

    @classmethod
    def of(cls, query: Mapping[str, Any]) -> Self:
        """The state that a query asks for; what is missing or not allowed is as it is by default,
        or at the nearest end.
        """
        found = {}
        for field in dataclasses.fields(cls):
            given = query.get(field.name, field.default)
            found[field.name] = _allowed(
                given[-1] if isinstance(given, list) and given else given, field
            )
        return cls(**found)

    @property
    def query(self) -> dict[str, str]:
        """What differs from the default, as the query of a link."""
        pairs = ((field, getattr(self, field.name)) for field in dataclasses.fields(self))
        return {
            field.name: f"{value:g}" if isinstance(value, float) else str(value)
            for field, value in pairs
            if value != field.default
        }

    def link(self, tab: str) -> str:
        """A link to this state, relative to the page."""
        return f"?{urlencode({'tab': tab} | self.query)}"


@dataclasses.dataclass(frozen=True)
class LawState(State):
    """Softmax attention over L independent tokens: U = V = I, one query.

    Attributes
    ----------
    law, dim, decay
        Tokens in R^dim with covariance diag(λ), λ_i proportional to i^-decay, tr = dim.
    strength, direction
        The query is z = strength Γ^{-1/2} v, so that scores have this standard deviation; v is a
        coordinate, or all alike.
    length
        L.
    tolerance
        Root mean squared error that one would put up with.
    """

    law: str = dataclasses.field(default="gaussian", metadata=among(LAWS))
    dim: int = dataclasses.field(default=8, metadata=within(1, 32, 1))
    decay: float = dataclasses.field(default=0.5, metadata=within(0.0, 2.0, 0.1))
    strength: float = dataclasses.field(default=1.5, metadata=within(0.1, 4.0, 0.1))
    direction: str = dataclasses.field(default="strong", metadata=among(DIRECTIONS))
    length: int = dataclasses.field(default=300, metadata=among(LENGTHS))
    tolerance: float = dataclasses.field(default=0.2, metadata=within(0.02, 1.0, 0.02))


@dataclasses.dataclass(frozen=True)
class TrainingState(State):
    """Gradient flow of one layer on in-context linear regression, tokens and queries N(0, I),
    weights N(0, I/dim).

    Attributes
    ----------
    attention, dim
        The kind of layer, and the dimension of the inputs.
    noise
        Variance of the noise in the labels.
    start
        The layer starts at U = diag(start, ..., start, 0), V = (0, ..., 0, start).
    until
        Last time.
    """

    attention: str = dataclasses.field(default="softmax", metadata=among(ATTENTIONS))
    dim: int = dataclasses.field(default=2, metadata=within(1, 5, 1))
    noise: float = dataclasses.field(default=0.1, metadata=within(0.0, 1.0, 0.1))
    start: float = dataclasses.field(default=0.3, metadata=within(0.1, 1.0, 0.1))
    until: float = dataclasses.field(default=20.0, metadata=within(5.0, 40.0, 5.0))


@dataclasses.dataclass(frozen=True)
class RunsState(State):
    """A run by the name of its folder, and a head of an audit as 'layer.head'; empty for the first
    there is.
    """

    run: str = dataclasses.field(default="", metadata={})
    head: str = dataclasses.field(default="", metadata={})


def address_bar(tab: str, state: State) -> dict[str, str | None]:
    """What the query in the address bar should be: a value for each name that belongs there, None
    for those of other tabs.
    """
    names = (
        field.name
        for kind in (LawState, TrainingState, RunsState)
        for field in dataclasses.fields(kind)
    )
    return {"tab": tab} | dict.fromkeys(names) | state.query


def _allowed(given: Any, field: dataclasses.Field[Any]) -> Any:
    rules: Mapping[str, Any] = field.metadata
    kind: Any = type(field.default)
    try:
        value: Any = kind(float(given)) if kind in (int, float) else str(given)
    except (TypeError, ValueError, OverflowError):
        return field.default
    if "choices" in rules:
        return value if value in rules["choices"] else field.default
    if "low" not in rules:
        return value
    if math.isnan(value):
        return field.default
    low, high, step = rules["low"], rules["high"], rules["step"]
    return kind(round(low + step * round((min(max(value, low), high) - low) / step), 10))
