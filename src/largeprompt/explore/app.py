# /// script
# [tool.marimo.display]
# theme = "system"
# ///
# mypy: ignore-errors
"""The explorer's notebook; what it shows is computed and drawn in the modules beside it."""

import marimo

app = marimo.App(width="full", app_title="largeprompt explorer", css_file="app.css")


with app.setup:
    import os
    from pathlib import Path

    import marimo as mo

    from largeprompt.explore import code, law_page, reading, runs_page, scaling_page, training_page
    from largeprompt.explore.controls import controls, in_stages, with_values
    from largeprompt.explore.state import (
        TITLES,
        LawState,
        RunsState,
        ScalingState,
        TrainingState,
        address_bar,
        last,
    )
    from largeprompt.explore.text import note


@app.cell
def _():
    asked = dict(mo.query_params().to_dict())
    folder = Path(os.environ.get("LARGEPROMPT_RUNS", "runs"))
    return asked, folder


@app.cell
def _(asked):
    tabs = mo.ui.radio(
        {title: name for name, title in TITLES.items()},
        value=TITLES.get(last(asked.get("tab")), TITLES["law"]),
        inline=True,
    )
    _title = mo.Html(
        '<div class="title">largeprompt <small>softmax attention over a prompt seen as a law of '
        "tokens</small></div>"
    )
    mo.hstack([_title, tabs], align="center", justify="start", gap=3)
    return (tabs,)


@app.cell
def _(tabs):
    tab = tabs.value
    return (tab,)


@app.cell
def _(asked):
    law_controls = controls(LawState.of(asked))
    training_controls = controls(TrainingState.of(asked), patient=True)
    scaling_controls = controls(ScalingState.of(asked))
    return law_controls, scaling_controls, training_controls


@app.cell
def _(asked, folder):
    runs, left_out = reading.available(folder)
    wanted_run = RunsState.of(asked).run
    run_control = mo.ui.dropdown(
        list(runs),
        value=wanted_run if wanted_run in runs else next(iter(runs), None),
        label="Run",
        full_width=True,
    )
    get_head, set_head = mo.state(RunsState.of(asked).head)
    return get_head, left_out, run_control, runs, set_head


@app.cell
def _(audit, get_head, set_head):
    head_control = None
    if audit is not None:
        head_control = mo.ui.dropdown(
            list(audit.rows),
            value=audit.chosen(get_head()),
            label="Head",
            full_width=True,
            on_change=set_head,
        )
    return (head_control,)


@app.cell
def _(law_controls, scaling_controls, training_controls):
    law_state = LawState.of(law_controls.value)
    training_state = TrainingState.of(training_controls.value)
    scaling_state = ScalingState.of(scaling_controls.value)
    return law_state, scaling_state, training_state


@app.cell
def _(
    folder,
    head_control,
    law_controls,
    law_state,
    left_out,
    run_control,
    runs,
    scaling_controls,
    tab,
    training_controls,
):
    if tab == "runs":
        _said = [f"left out: {each}" for each in left_out]
        if not runs:
            _said.insert(0, f"No finished runs in {folder}; largeprompt run NAME makes one.")
        _shown = [
            each for each in (run_control if runs else None, head_control) if each is not None
        ]
    else:
        _elements = {
            "law": law_controls,
            "training": training_controls,
            "scaling": scaling_controls,
        }[tab].elements
        _shown = with_values(mo, _elements)
        _weaker = law_page.too_strong(law_controls.value["strength"], law_state)
        _said = [_weaker] if tab == "law" and _weaker else []
    _column = mo.vstack([*_shown, *(mo.Html(note(each)) for each in _said)], gap=0.9)
    mo.Html(f'<aside class="side" aria-label="Controls">{_column}</aside>')
    return


@app.cell
def _(law_state, tab):
    mo.stop(tab != "law")
    mo.Html(law_page.first_row(law_state))
    return


@app.cell
def _(law_state, tab):
    mo.stop(tab != "law")
    in_stages(
        mo,
        law_page.second_row(law_state, law_page.counting(law_state)),
        lambda: law_page.second_row(law_state, law_page.sentence(law_state)),
    )
    return


@app.cell
def _(tab, training_state):
    mo.stop(tab != "training")
    in_stages(mo, note("Computing the flows …"), *training_page.stages(training_state))
    return


@app.cell
def _(scaling_state, tab):
    mo.stop(tab != "scaling")
    mo.Html(scaling_page.page(scaling_state))
    return


@app.cell
def _(run_control, runs, tab):
    run = runs.get(run_control.value) if tab == "runs" else None
    audit, _trouble = reading.audit_of(run)
    mo.Html(note(_trouble)) if _trouble else None
    return audit, run


@app.cell
def _(audit, set_head):
    mo.stop(audit is None)
    _heads = audit.data["head"].values.tolist()
    _map = mo.ui.table(
        runs_page.head_map(audit),
        selection="single-cell",
        on_change=lambda cells: set_head(audit.picked([(one.row, one.column) for one in cells])),
        style_cell=runs_page.cell_style,
        pagination=False,
        show_column_summaries=False,
        show_data_types=False,
        show_download=False,
        show_search=False,
        max_columns=None,
        column_widths={f"h{head}": 52 for head in _heads} | {"layer": 60},
    )
    mo.vstack([mo.Html(runs_page.map_legend(audit)), _map], gap=0.2)
    return


@app.cell
def _(audit, get_head):
    head = "" if audit is None else audit.chosen(get_head())
    mo.Html(runs_page.head(audit, head)) if head else None
    return (head,)


@app.cell
def _(run):
    mo.Html(runs_page.overview(run)) if run is not None else None
    return


@app.cell
def _(audit, folder, head, law_state, run, run_control, scaling_state, tab, training_state):
    if tab == "runs":
        state = RunsState(run_control.value or "", head)
        _where = audit.where(head) if head else {}
        program = "" if run is None else code.runs_code(str(run.folder), _where)
    else:
        state, _code = {
            "law": (law_state, code.law_code),
            "training": (training_state, code.training_code),
            "scaling": (scaling_state, code.scaling_code),
        }[tab]
        program = _code(state)
    return program, state


@app.cell
def footer(program, state):
    """The code, where there is any, and the link."""
    _link = (
        f'<p class="foot">A <a id="link" href="{state.link}">link to what you see</a>; '
        "the address bar has it too.</p>"
    )
    _code = [mo.accordion({"Show the code": mo.md(f"```python\n{program}```")})] if program else []
    mo.vstack([*_code, mo.Html(_link)])
    return


@app.cell
def _(state):
    _query = mo.query_params()
    for _name, _value in address_bar(state).items():
        if _query.get(_name) != _value:
            _query.set(_name, _value)  # None takes the name away
    return


if __name__ == "__main__":
    app.run()
