"""What the explorer shows, as a few numbers and words: read from a link, and written into one."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self
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
TRAINED = tuple(2**power for power in range(9, 18))  # context lengths of published models
TIMES = (2, 4, 8, 16, 32, 64)
VARIANCES = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 4.5, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0)


def within(default: float, low: float, high: float, step: float, label: str) -> Any:
    """Field that is a slider."""
    rules = {"low": low, "high": high, "step": step, "label": label}
    return dataclasses.field(default=default, metadata=rules)


def among(default: Any, choices: Mapping[str, str] | Sequence[float], label: str) -> Any:
    """Field that is one of a few words or numbers."""
    return dataclasses.field(default=default, metadata={"choices": choices, "label": label})


@dataclasses.dataclass(frozen=True)
class State:
    """Fields with their labels and what is allowed of each in the metadata."""

    tab: ClassVar[str]
    title: ClassVar[str]

    @classmethod
    def of(cls, query: Mapping[str, Any]) -> Self:
        """Return the state that a query asks for.

        What is missing or not allowed takes its default, or the nearest end of the slider.
        """
        given = {name: last(value) for name, value in query.items()}
        fields = dataclasses.fields(cls)
        return cls(**{each.name: _allowed(given.get(each.name), each) for each in fields})

    @property
    def query(self) -> dict[str, str]:
        """What differs from the default, as the query of a link."""
        pairs = ((field, getattr(self, field.name)) for field in dataclasses.fields(self))
        return {
            field.name: f"{value:g}" if isinstance(value, float) else str(value)
            for field, value in pairs
            if value != field.default
        }

    @property
    def link(self) -> str:
        """A link to this state, relative to the page."""
        return f"?{urlencode({'tab': self.tab} | self.query)}"


@dataclasses.dataclass(frozen=True)
class LawState(State):
    """Softmax attention over L independent tokens: U = V = I, one query.

    Tokens have covariance diag(λ), λ_i proportional to i^-decay, with trace dim. The query is
    strength Γ^{-1/2} v, so that scores have this standard deviation.
    """

    tab, title = "law", "One prompt"
    law: str = among("gaussian", LAWS, "Law of the tokens")
    dim: int = within(8, 1, 32, 1, "Dimension")
    decay: float = within(0.5, 0.0, 2.0, 0.1, "Spectrum: variances as i⁻ᵃ, a =")
    strength: float = within(1.5, 0.1, 4.0, 0.1, "Query strength, σ of the scores")
    direction: str = among("strong", DIRECTIONS, "The query points along")
    length: int = among(300, LENGTHS, "Prompt length L")
    tolerance: float = within(0.2, 0.02, 1.0, 0.02, "Error wanted")

    @classmethod
    def of(cls, query: Mapping[str, Any]) -> Self:
        """Return the state that a query asks for, at most as strong as tokens allow."""
        found = super().of(query)
        return dataclasses.replace(found, strength=min(found.strength, found.strongest))

    @property
    def strongest(self) -> float:
        """Largest strength of the slider at which attention has a limit.

        Laplace coordinates have exponential moments below √2 only.
        """
        if self.law != "laplace":
            return 4.0
        bound = math.sqrt(2 * self.dim if self.direction == "all" else 2)
        return min(4.0, (math.ceil(10 * bound - 1e-9) - 1) / 10)


@dataclasses.dataclass(frozen=True)
class TrainingState(State):
    """Gradient flow of one layer on in-context linear regression.

    Tokens and queries are N(0, I), weights N(0, I/dim). The layer starts at U = diag(start, ...,
    start, 0), V = (0, ..., 0, start).
    """

    tab, title = "training", "Training"
    attention: str = among("softmax", ATTENTIONS, "Attention")
    dim: int = within(2, 1, 5, 1, "Dimension")
    noise: float = within(0.1, 0.0, 1.0, 0.1, "Noise variance")
    start: float = within(0.3, 0.1, 1.0, 0.1, "Size at the start")
    until: float = within(20.0, 5.0, 40.0, 5.0, "Time")


@dataclasses.dataclass(frozen=True)
class ScalingState(State):
    """A head with scores of this variance at the trained length, read at a longer one."""

    tab, title = "scaling", "Longer prompts"
    trained: int = among(8192, TRAINED, "Trained length")
    times: int = among(8, TIMES, "Times as long")
    variance: float = among(4.5, VARIANCES, "Score variance σ² at the trained length")


@dataclasses.dataclass(frozen=True)
class RunsState(State):
    """A run by the name of its folder, and a head of an audit; empty for the first there is."""

    tab, title = "runs", "Runs and audits"
    run: str = dataclasses.field(default="")
    head: str = dataclasses.field(default="")


STATES: tuple[type[State], ...] = (LawState, TrainingState, ScalingState, RunsState)
TITLES = {kind.tab: kind.title for kind in STATES}


def last(value: Any) -> Any:
    """Return the last of several values that a query gives to one name."""
    return value[-1] if isinstance(value, list) and value else value


def address_bar(state: State) -> dict[str, str | None]:
    """Return what the address bar should hold; None for names that belong to other tabs."""
    names = (field.name for kind in STATES for field in dataclasses.fields(kind))
    return {"tab": state.tab} | dict.fromkeys(names) | state.query


def _allowed(given: Any, field: dataclasses.Field[Any]) -> Any:
    rules: Mapping[str, Any] = field.metadata
    kind: Any = type(field.default)
    try:
        value: Any = str(given or "") if kind is str else kind(float(given))
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
