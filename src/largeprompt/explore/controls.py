"""Sliders and choices for the fields of a state."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from largeprompt.explore.state import ATTENTIONS, DIRECTIONS, LAWS, State

LABELS = {
    "law": "Law of the tokens",
    "dim": "Dimension",
    "decay": "Spectrum: variances as i⁻ᵃ, a =",
    "strength": "Query strength, σ of the scores",
    "direction": "The query points along",
    "length": "Prompt length L",
    "tolerance": "Error wanted",
    "attention": "Attention",
    "noise": "Noise variance",
    "start": "Size at the start",
    "until": "Time",
}
WORDS: Mapping[str, Mapping[str, str]] = {
    "law": LAWS,
    "direction": DIRECTIONS,
    "attention": ATTENTIONS,
}


def controls(state: State, *, patient: bool = False) -> Any:
    """A marimo dictionary of one element for each field, at the values of the state; ``patient``
    ones report when let go.
    """
    import marimo as mo

    return mo.ui.dictionary(
        {
            field.name: _control(mo, field, getattr(state, field.name), patient)
            for field in dataclasses.fields(state)
        }
    )


def _control(mo: Any, field: dataclasses.Field[Any], value: Any, patient: bool) -> Any:
    label, rules = LABELS[field.name], field.metadata
    if field.name in WORDS:
        words = WORDS[field.name]
        return mo.ui.dropdown(
            {text: name for name, text in words.items()},
            value=words[value],
            label=label,
            full_width=True,
        )
    shown = {"value": value, "label": label, "full_width": True, "debounce": patient}
    if "choices" in rules:  # marimo would write the value of a long prompt as 1.0e7
        return mo.ui.slider(steps=list(rules["choices"]), **shown)
    return mo.ui.slider(rules["low"], rules["high"], rules["step"], show_value=True, **shown)


def with_length(mo: Any, elements: Mapping[str, Any]) -> list[Any]:
    """The controls as they stand on the page: the prompt length is written beside its slider."""
    return [
        mo.hstack(
            [each, mo.Html(f'<output class="value">{each.value:,}</output>')],
            widths=[1, 0],
            align="end",
            gap=0.5,
        )
        if name == "length"
        else each
        for name, each in elements.items()
    ]
