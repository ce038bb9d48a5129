"""Verdicts by rule: one small function for each question, judged one by one."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import pydantic
import xarray as xr

from largeprompt.runs.words import typeset

Outcome = Literal["holds", "holds in part", "fails", "undecided"]
Answer = tuple[Outcome, str] | tuple[Outcome, str, str]  # outcome, numbers behind it, headline
Labelled = TypeVar("Labelled", xr.Dataset, xr.DataArray)
# of a claim; plain, as strangers write them too
Id = Annotated[str, pydantic.Field(pattern=r"^[A-Za-z0-9_]{1,40}$")]

# rate of false alarms of one verdict, over all of its comparisons of samples with predictions
# together
FALSE_ALARM = 1e-6


@dataclasses.dataclass(frozen=True)
class Finding:
    """What a rule found.

    Attributes
    ----------
    outcome
        'holds', 'holds in part', 'fails' or 'undecided'; :func:`judged` makes it.
    headline, otherwise
        What a colleague would say where the rule holds, and where it does not: one sentence of at
        most 25 words. '' for a detail that the card does not show.
    numbers
        The numbers behind it by what they are: a number, an array (its range is shown), text, or
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
    """The settings of a run left out a value that a rule needs: the rule is then 'undecided', for
    this reason.
    """


@dataclasses.dataclass(frozen=True)
class Claim:
    """What verdicts are about, as the report introduces it.

    Attributes
    ----------
    id
        What verdicts name: C1 to C7 for the paper's claims, E1, N1, Q1, ... for the experiments
        asked of it.
    question
        A few words that 'yes' or 'no' answers, for what goes beyond the paper; '' otherwise.
    experiment
        Whether it is an experiment that was asked for, rather than a claim of the paper.
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
    claim
        Id of the :class:`Claim`.
    asked
        What was asked, in one sentence.
    outcome
        'holds', 'holds in part', 'fails' or 'undecided'.
    measured
        The numbers behind it, in one or two sentences.
    control
        Whether this is a negative control, one that must fail for the others to mean anything.
    headline
        What was found, in one sentence of at most 25 words: the report's card of the claim and the
        terminal say it. '' for details.
    meaning
        Of one that fails: what has failed (the paper's form, a conjecture of ours, a method), and
        what that means.
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
    """A question and the function that answers it from a run's dataset; made by the decorator
    :func:`rule`.
    """

    claim: str
    question: str | Callable[[xr.Dataset], str]
    answer: Callable[[xr.Dataset], Finding | Answer | None]
    control: bool = False
    fails: str = ""
    stronger: bool = False

    def __call__(self, data: xr.Dataset) -> Verdict | None:
        """The verdict; None where the settings of the run leave the question out."""
        found = self.answer(data)
        if found is None:
            return None
        asked = self.question if isinstance(self.question, str) else self.question(data)
        if isinstance(found, Finding):
            outcome, measured, headline = found.outcome, found.measured, found.said
        else:
            outcome, measured, headline = (*found, "")[:3]
        asked, measured, headline, meaning = map(
            typeset, (asked, measured, headline, self.fails if outcome == "fails" else "")
        )
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
    """Make a function of the dataset the rule for a question: it returns (outcome, text), or None
    for no verdict.

    A third entry is the finding as a headline. Numbers are written as Python writes them, and
    typeset when the rule is applied. ``fails`` is said where it fails: what has failed, and what
    that means. A ``stronger`` rule asks more than the claim says.

    Examples
    --------
    >>> from largeprompt.runs.judging import judged, rule
    >>> @rule("C2", "Is the limit affine?")
    ... def affine(data):
    ...     error = float(data.error.max())
    ...     return judged(error < 1e-12, rests_on=[error]), f"Largest error {error:.0e}."
    >>> affine(xr.Dataset({"error": ("case", [1e-15, 3e-16])})).outcome
    'holds'
    """

    def made(answer: Callable[[xr.Dataset], Finding | Answer | None]) -> Rule:
        return Rule(claim, question, answer, control, fails, stronger)

    return made


def judged(holds: bool, *, in_part: bool = False, rests_on: Iterable[Any] = ()) -> Outcome:
    """'holds', 'holds in part' or 'fails'; 'undecided' where a number that the outcome rests on is
    NaN.
    """
    if any(bool(np.isnan(np.asarray(number, dtype=np.float64)).any()) for number in rests_on):
        return "undecided"
    return "holds" if holds else "holds in part" if in_part else "fails"


def at(data: Labelled, **where: Any) -> Labelled:
    """``data.sel(**where)``, for values that the settings of a run may lack; :class:`NotInRunError`
    says which and what there is.

    Parameters
    ----------
    data
        Dataset or array with a coordinate for each name.
    where
        The value wanted along each coordinate, or a list of values.

    Returns
    -------
    The part of the data at these values.

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
    """Verdicts of a dataset. A rule to which the settings left nothing to look at is 'undecided',
    and the others are judged.

    A name that is not there (KeyError, AttributeError, NameError, TypeError) is a mistake in the
    rule, not a finding: it is raised.
    """
    found = []
    for each in rules:
        try:
            verdict = each(data)
        except KeyError:
            raise
        except (ArithmeticError, LookupError, ValueError) as error:
            asked = each.question if isinstance(each.question, str) else "A question of this study"
            said = (
                str(error)
                if isinstance(error, NotInRunError)
                else f"{type(error).__name__}: {error}"
            )
            reason = f"The rule cannot be applied to what these settings gave ({said})."
            verdict = Verdict(
                each.claim, typeset(asked), "undecided", typeset(reason), each.control
            )
        if verdict is not None:
            found.append(verdict)
    return found


def allowed_score(
    comparisons: int = 1, *, sides: int = 2, degrees: float = math.inf, rate: float = FALSE_ALARM
) -> float:
    """Standard errors that the largest of so many comparisons passes only at the rate of false
    alarms (Bonferroni).

    ``degrees`` of freedom of Student's law where the standard error is itself estimated from few
    values.
    """
    from scipy.stats import norm, t

    level = rate / (sides * max(1, comparisons))
    return float(norm.isf(level) if math.isinf(degrees) else t.isf(level, degrees))


def log_slope(x: Any, y: Any) -> float:
    """Least-squares slope of log y against log x; ValueError for fewer than two places, where there
    is none.
    """
    places = np.log(np.asarray(x, dtype=np.float64))
    if len(np.unique(places)) < 2:
        raise ValueError(f"a slope needs two places, and there are {len(np.unique(places))}")
    return float(np.polyfit(places, np.log(np.asarray(y, dtype=np.float64)), 1)[0])


def compared(sample: Any, predicted: Any, error: Any, **options: Any) -> tuple[float, float]:
    """Largest distance of a sample from its prediction in standard errors, where both are known,
    and what is allowed.

    A ValueError where none is known: the rule that compares them is then 'undecided'.
    """
    scores = np.asarray(abs(sample - predicted) / error, dtype=np.float64)
    scores = scores[~np.isnan(scores)]
    return float(scores.max()), allowed_score(len(scores), **options)


def span(values: Any, form: str = ".2g") -> str:
    """'least to largest', or one number where they are written alike; NaN is left out."""
    values = xr.DataArray(values)
    return " to ".join(
        dict.fromkeys(f"{float(end):{form}}" for end in (values.min(), values.max()))
    )


def listed(values: Any, form: str = "g", place: str = "") -> str:
    """'a, b, c'; with a ``place`` such as 'L = {:g}' each is followed by that, of its coordinate,
    in brackets.
    """
    words = [f"{float(each):{form}}" for each in values]
    if place:
        words = [
            f"{word} ({place.format(at)})"
            for word, at in zip(words, values[values.dims[0]].values, strict=True)
        ]
    return ", ".join(words)
