# /// script
# [tool.marimo.display]
# theme = "system"
# ///
# mypy: ignore-errors
"""The explorer's notebook; ``largeprompt explore`` serves it. What it shows is computed and drawn
in the modules beside it.
"""

import marimo

app = marimo.App(width="full", app_title="largeprompt explorer", css_file="app.css")


@app.cell
def _():
    import os
    from pathlib import Path

    import marimo as mo

    from largeprompt.explore import code, law_page, reading, runs_page, training_page
    from largeprompt.explore.controls import controls, with_length
    from largeprompt.explore.picture import note
    from largeprompt.explore.state import TABS, LawState, RunsState, TrainingState, address_bar

    asked = dict(mo.query_params().to_dict())
    folder = Path(os.environ.get("LARGEPROMPT_RUNS", "runs"))
    return (
        LawState,
        RunsState,
        TABS,
        TrainingState,
        address_bar,
        asked,
        code,
        controls,
        folder,
        law_page,
        mo,
        note,
        reading,
        runs_page,
        training_page,
        with_length,
    )


@app.cell
def _(TABS, asked, mo):
    _first = asked.get("tab")
    tabs = mo.ui.radio(
        {title: name for name, title in TABS.items()},
        value=TABS.get(_first, TABS["law"]),
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
def _(LawState, TrainingState, asked, controls, mo):
    law_controls = controls(LawState.of(asked))
    training_controls = controls(TrainingState.of(asked), patient=True)
    count = mo.ui.run_button(label="Count to the token")
    return count, law_controls, training_controls


@app.cell
def _(RunsState, asked, folder, mo, reading):
    runs, left_out = reading.available(folder)
    wanted_run = RunsState.of(asked).run
    run_control = mo.ui.dropdown(
        list(runs),
        value=wanted_run if wanted_run in runs else next(iter(runs), None),
        label="Run",
        full_width=True,
    )
    return left_out, run_control, runs


@app.cell
def _(RunsState, asked, mo):
    get_head, set_head = mo.state(RunsState.of(asked).head)
    return get_head, set_head


@app.cell
def _(audit, get_head, mo, set_head):
    head_control = None
    if audit is not None:
        head_control = mo.ui.dropdown(
            audit.heads,
            value=audit.chosen(get_head()),
            label="Head, as layer.head",
            full_width=True,
            on_change=set_head,
        )
    return (head_control,)


@app.cell
def _(
    count,
    folder,
    head_control,
    law_controls,
    left_out,
    mo,
    note,
    run_control,
    runs,
    tab,
    training_controls,
    with_length,
):
    _shown = {
        "law": [*with_length(mo, law_controls.elements), count],
        "training": [
            *training_controls.elements.values(),
            mo.Html(note("A change takes a few seconds.")),
        ],
        "runs": [
            run_control
            if runs
            else mo.Html(note(f"No finished runs in {folder}; largeprompt run NAME makes one.")),
            head_control,
            *(mo.Html(note(f"left out: {each}")) for each in left_out),
        ],
    }[tab]
    mo.Html(
        '<aside class="side" '
        f'aria-label="Controls">{mo.vstack([_each for _each in _shown if _each is not None], gap=0.9)}</aside>'
    )
    return


@app.cell
def _(LawState, law_controls):
    law_state = LawState.of(law_controls.value)
    return (law_state,)


@app.cell
def _(law_page, law_state, mo, tab):
    mo.stop(tab != "law")
    mo.Html(law_page.first_row(law_state))
    return


@app.cell
def _(law_page, law_state, mo, tab):
    mo.stop(tab != "law")
    mo.Html(law_page.second_row(law_state))
    return


@app.cell
def _(count, law_page, law_state, mo, note, tab):
    mo.stop(tab != "law" or not count.value)
    mo.Html(note(law_page.to_the_token(law_state)))
    return


@app.cell
def _(TrainingState, training_controls):
    training_state = TrainingState.of(training_controls.value)
    return (training_state,)


@app.cell
def _(mo, tab, training_page, training_state):
    mo.stop(tab != "training")
    mo.Html(training_page.page(training_state))
    return


@app.cell
def _(mo, note, reading, run_control, runs, tab):
    run = runs.get(run_control.value) if tab == "runs" else None
    audit, trouble = reading.audit_of(run)
    mo.Html(note(trouble)) if trouble else None
    return audit, run


@app.cell
def _(audit, mo, runs_page, set_head):
    if audit is not None:
        _map = mo.ui.table(
            runs_page.head_map(audit),
            selection="single-cell",
            on_change=lambda cells: set_head(
                audit.picked([(cell.row, cell.column) for cell in cells])
            ),
            style_cell=runs_page.cell_style,
            pagination=False,
            show_column_summaries=False,
            show_data_types=False,
            show_download=False,
            show_search=False,
            max_columns=None,
            column_widths={f"h{_head}": 52 for _head in audit.data["head"].values.tolist()}
            | {"layer": 60},
        )
    mo.vstack([mo.Html(runs_page.map_legend(audit)), _map], gap=0.2) if audit is not None else None
    return


@app.cell
def _(audit, get_head, mo, runs_page):
    head = "" if audit is None else audit.chosen(get_head())
    mo.Html(runs_page.head(audit, head)) if head else None
    return (head,)


@app.cell
def _(mo, run, runs_page):
    mo.Html(runs_page.overview(run) + runs_page.figures(run)) if run is not None else None
    return


@app.cell
def _(RunsState, audit, code, head, law_state, run, run_control, tab, training_state):
    state = {
        "law": law_state,
        "training": training_state,
        "runs": RunsState(run_control.value or "", head),
    }[tab]
    if tab == "law":
        program = code.law_code(law_state)
    elif tab == "training":
        program = code.training_code(training_state)
    else:
        program = (
            ""
            if run is None
            else code.runs_code(str(run.folder), state, audit.length if audit is not None else None)
        )
    return program, state


@app.cell
def footer(mo, program, state, tab):
    """The code, where there is any, and the link."""
    _link = (
        f'<p class="foot">A <a id="link" href="{state.link(tab)}">link to what you see</a>; '
        "the address bar has it too.</p>"
    )
    _code = [mo.accordion({"Show the code": mo.md(f"```python\n{program}```")})] if program else []
    mo.vstack([*_code, mo.Html(_link)])
    return


@app.cell
def _(address_bar, mo, state, tab):
    _query = mo.query_params()
    for _name, _value in address_bar(tab, state).items():
        if _query.get(_name) != _value:
            _query.set(_name, _value)  # None takes the name away
    return


if __name__ == "__main__":
    app.run()
