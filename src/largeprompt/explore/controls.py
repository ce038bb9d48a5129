"""Sliders and choices for the fields of a state, and pages that are drawn in stages."""

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from largeprompt.errors import LargePromptError
from largeprompt.explore.state import State
from largeprompt.explore.text import note

BUSY = threading.Lock()  # one stage at a time, so that moved sliders do not pile up work


def controls(state: State) -> Any:
    """Return a marimo dictionary of one element a field; slow pages wait until it is let go."""
    import marimo as mo

    patient, fields = state.tab == "training", dataclasses.fields(state)
    return mo.ui.dictionary(
        {each.name: _control(mo, each, getattr(state, each.name), patient) for each in fields}
    )


def _control(mo: Any, field: dataclasses.Field[Any], value: Any, patient: bool) -> Any:
    rules = field.metadata
    choices = rules.get("choices")
    shown = {"label": rules["label"], "full_width": True}
    if isinstance(choices, Mapping):
        words = {text: name for name, text in choices.items()}
        return mo.ui.dropdown(words, value=choices[value], **shown)
    shown |= {"value": value, "debounce": patient}
    if choices:  # marimo would write the value of a long prompt as 1.0e7
        return mo.ui.slider(steps=list(choices), **shown)
    return mo.ui.slider(rules["low"], rules["high"], rules["step"], show_value=True, **shown)


def with_values(mo: Any, elements: Mapping[str, Any]) -> list[Any]:
    """Return the controls; sliders over a list of numbers have their value written beside them."""

    def written(each: Any) -> Any:
        value = mo.Html(f'<output class="value">{each.value:,}</output>')
        return mo.hstack([each, value], widths=[1, 0], align="end", gap=0.5)

    return [
        written(each) if isinstance(each, mo.ui.slider) and each.steps else each
        for each in elements.values()
    ]


def in_stages(mo: Any, stages: Sequence[Callable[[], str]]) -> None:
    """Show the first page, and the others as they get ready, without holding up other cells.

    They are computed in a thread; those that are left when the cell runs again are dropped.
    """
    mo.output.replace(mo.Html(stages[0]()))

    def work() -> None:
        thread = mo.current_thread()
        for stage in stages[1:]:
            with BUSY:
                if thread.should_exit:
                    return
                try:
                    page = stage()
                except LargePromptError as error:
                    page = note(str(error))
            if not thread.should_exit:
                mo.output.replace(mo.Html(page))

    mo.Thread(target=work, daemon=True).start()
