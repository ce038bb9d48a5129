"""Verdicts by rule: one small function for each question, judged one by one."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import pydantic
import xarray as xr

from largeprompt.runs.words import typeset

Outcome = Literal["holds", "holds in part", "fails", "undecided"]
Answer = tuple[Outcome, str] | tuple[Outcome, str, str]  # outcome, numbers behind it, headline
Labeled = TypeVar("Labeled", xr.Dataset, xr.DataArray)
Id = Annotated[str, pydantic.Field(pattern=r"^[A-Za-z0-9_]{1,40}$")]

FALSE_ALARM = 1e-6  # of one verdict, over all of its comparisons of samples with predictions


@dataclasses.dataclass(frozen=True)
class Finding:
    """What a rule found.

    Attributes
    ----------
    outcome
        What :func:`judged` returns.
    headline, otherwise
        One sentence of at most 25 words for the card where the rule holds, and where it does not.
    numbers
        Numbers behind it by name: a number, an array (shown by its range), text, or
        ``(number, unit)``.

    Examples
    --------
    >>> numbers = {"ratio": 1.0004, "length": 10_000, "error": (2.1e-14, "of the output")}
    >>> Finding("holds", "Prompts converge at the predicted rate.", numbers=numbers).measured
    'ratio 1.00; length 10,000; error 2.10e-14 of the output.'
    """

    outcome: Outcome
    headline: str = ""
    otherwise: str = ""
    numbers: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def measured(self) -> str:
        """The numbers as one sentence, with three digits and their units."""
        said = "; ".join(f"{name} {_shown(value)}" for name, value in self.numbers.items())
        return said and f"{said}."

    @property
    def said(self) -> str:
        """The headline that is true of the outcome."""
        return {"holds": self.headline, "undecided": ""}.get(self.outcome, self.otherwise)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        number, unit = value
        return f"{_shown(number)} {unit}"
    numbers = np.asarray(value)
    if numbers.size == 1:
        number = numbers.item()
        return f"{number:,}" if isinstance(number, int) else f"{number:#.3g}".rstrip(".")
    return " to ".join(end.rstrip(".") for end in span(value, "#.3g").split(" to "))


class NotInRunError(ValueError):
    """The settings of a run left out a value that a rule needs: the rule is 'undecided'."""


@dataclasses.dataclass(frozen=True)
class Claim:
    """What verdicts are about, as the report introduces it.

    A ``question`` of a few words that 'yes' or 'no' answers marks what goes beyond the paper,
    ``experiment`` what was asked for.
    """

    id: Id
    name: str
    sentence: str
    question: str = ""
    experiment: bool = False


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What the data says about one claim, by a rule written in the study's code.

    Attributes
    ----------
    measured
        The numbers behind it, in one or two sentences.
    control
        Whether this is a negative control, one that must fail for the others to mean anything.
    headline
        What was found, in at most 25 words, for the card and the terminal; '' for a detail.
    meaning
        Where it fails: what has failed, and what that means.
    stronger
        Whether more is asked than the claim says: the badge of the claim does not depend on it.
    """

    claim: Id
    asked: str
    outcome: Outcome
    measured: str
    control: bool = False
    headline: str = ""
    meaning: str = ""
    stronger: bool = False


@dataclasses.dataclass(frozen=True)
class Rule:
    """A question and the function that answers it from a run's dataset; see :func:`rule`."""

    claim: str
    question: str | Callable[[xr.Dataset], str]
    answer: Callable[[xr.Dataset], Finding | Answer | None]
    control: bool = False
    fails: str = ""
    stronger: bool = False

    def __call__(self, data: xr.Dataset) -> Verdict | None:
        """Return the verdict; None where the settings of the run leave the question out."""
        found = self.answer(data)
        if found is None:
            return None
        asked = self.question if isinstance(self.question, str) else self.question(data)
        if isinstance(found, Finding):
            outcome, measured, headline = found.outcome, found.measured, found.said
        else:
            outcome, measured, headline = (*found, "")[:3]
        meaning = self.fails if outcome == "fails" else ""
        asked, measured, headline, meaning = map(typeset, (asked, measured, headline, meaning))
        return Verdict(
            self.claim, asked, outcome, measured, self.control, headline, meaning, self.stronger
        )


def rule(
    claim: str,
    question: str | Callable[[xr.Dataset], str],
    *,
    control: bool = False,
    fails: str = "",
    stronger: bool = False,
) -> Callable[[Any], Rule]:
    """Make a function of the dataset the rule for a question.

    It returns a :class:`Finding`, or (outcome, text) with a headline or none, or None for no
    verdict. The other arguments are those of :class:`Verdict`; ``fails`` is the meaning.

    Examples
    --------
    >>> @rule("C2", "Is the limit affine?")
    ... def affine(data):
    ...     error = float(data.error.max())
    ...     return Finding(judged(error < 1e-12, rests_on=[error]), numbers={"error": error})
    >>> affine(xr.Dataset({"error": ("case", [1e-15, 3e-16])})).outcome
    'holds'
    """

    def made(answer: Callable[[xr.Dataset], Finding | Answer | None]) -> Rule:
        return Rule(claim, question, answer, control, fails, stronger)

    return made


def judged(holds: bool, *, in_part: bool = False, rests_on: Iterable[Any] = ()) -> Outcome:
    """Return 'holds', 'holds in part' or 'fails'; 'undecided' where it rests on a NaN."""
    if any(bool(np.isnan(np.asarray(number, dtype=np.float64)).any()) for number in rests_on):
        return "undecided"
    return "holds" if holds else "holds in part" if in_part else "fails"


def at(data: Labeled, **where: Any) -> Labeled:
    """Return ``data.sel(**where)``; :class:`NotInRunError` names what the run lacks.

    Examples
    --------
    >>> risk = xr.DataArray([0.5, 0.3], coords={"length": [16, 32]})
    >>> float(at(risk, length=32))
    0.3
    >>> at(risk, length=64)
    Traceback (most recent call last):
    largeprompt.runs.judging.NotInRunError: needs length = 64; the run has 16, 32
    """
    for name, wanted in where.items():
        there = data[name].values
        missing = [value for value in np.atleast_1d(wanted) if value not in there]
        if missing:
            needed, known = (
                ", ".join(str(each) if isinstance(each, str) else f"{each:g}" for each in some)
                for some in (missing, there)
            )
            raise NotInRunError(f"needs {name} = {needed}; the run has {known or 'none'}")
    return data.sel(where)


def judge(rules: Sequence[Rule], data: xr.Dataset) -> list[Verdict]:
    """Return the verdicts of a dataset; a rule that cannot be applied is 'undecided'.

    A name that is not there (KeyError, AttributeError, NameError, TypeError) is a mistake in the
    rule and is raised.
    """
    found = []
    for each in rules:
        try:
            verdict = each(data)
        except KeyError:
            raise
        except (ArithmeticError, LookupError, ValueError) as error:
            asked = each.question if isinstance(each.question, str) else "A question of this study"
            kind = "" if isinstance(error, NotInRunError) else f"{type(error).__name__}: "
            reason = f"The rule cannot be applied to what these settings gave ({kind}{error})."
            verdict = Verdict(
                each.claim, typeset(asked), "undecided", typeset(reason), each.control
            )
        if verdict is not None:
            found.append(verdict)
    return found


def allowed_score(comparisons: int = 1, *, sides: int = 2) -> float:
    """Return the standard errors that the largest of so many comparisons may reach (Bonferroni)."""
    from scipy.stats import norm

    return float(norm.isf(FALSE_ALARM / (sides * max(1, comparisons))))


def log_slope(x: Any, y: Any) -> float:
    """Return the least-squares slope of log y against log x; ValueError for fewer than two x."""
    places = np.log(np.asarray(x, dtype=np.float64))
    if len(np.unique(places)) < 2:
        raise ValueError(f"a slope needs two places, and there are {len(np.unique(places))}")
    return float(np.polyfit(places, np.log(np.asarray(y, dtype=np.float64)), 1)[0])


def span(values: Any, form: str = ".2g") -> str:
    """Return 'least to largest', or one number where both are written alike; NaN is left out."""
    values = xr.DataArray(values)
    return " to ".join(
        dict.fromkeys(f"{float(end):{form}}" for end in (values.min(), values.max()))
    )
