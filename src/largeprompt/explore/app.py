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
    from largeprompt.explore.state import STATES, TITLES, RunsState, address_bar, last
    from largeprompt.explore.text import note

    PAGES = {"law": law_page, "training": training_page, "scaling": scaling_page}
    CODES = {"law": code.law_code, "training": code.training_code, "scaling": code.scaling_code}


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
    moved = mo.ui.dictionary(
        {kind.tab: controls(kind.of(asked)) for kind in STATES if kind.tab in PAGES}
    )
    return (moved,)


@app.cell
def _(asked, folder):
    runs, left_out = reading.available(folder)
    wanted = RunsState.of(asked)
    run_control = mo.ui.dropdown(
        list(runs),
        value=wanted.run if wanted.run in runs else next(iter(runs), None),
        label="Run",
        full_width=True,
    )
    return left_out, run_control, runs, wanted


@app.cell
def _(moved):
    states = {kind.tab: kind.of(moved.value[kind.tab]) for kind in STATES if kind.tab in PAGES}
    return (states,)


@app.cell
def _(folder, left_out, moved, run_control, runs, states, tab):
    if tab in PAGES:
        _shown, _said = with_values(mo, moved.elements[tab].elements), []
        if tab == "law":
            _said = [law_page.too_strong(moved.value[tab]["strength"], states[tab])]
    else:
        _shown, _said = ([run_control] if runs else []), [f"left out: {each}" for each in left_out]
        if not runs:
            _said.insert(0, f"No finished runs in {folder}; largeprompt run NAME makes one.")
    _column = mo.vstack([*_shown, *(mo.Html(note(each)) for each in _said if each)], gap=0.9)
    mo.Html(f'<aside class="side" aria-label="Controls">{_column}</aside>')
    return


@app.cell
def _(states, tab):
    mo.stop(tab not in PAGES)
    in_stages(mo, PAGES[tab].stages(states[tab]))
    return


@app.cell
def _(run_control, runs, tab):
    run = runs.get(run_control.value) if tab == "runs" else None
    audit, _trouble = reading.audit_of(run)
    mo.Html(note(_trouble)) if _trouble else None
    return audit, run


@app.cell
def _(audit):
    head_map = None
    if audit is not None:
        _heads = audit.data["head"].values.tolist()
        head_map = mo.ui.table(
            runs_page.head_map(audit),
            selection="single-cell",
            style_cell=runs_page.cell_style,
            pagination=False,
            show_column_summaries=False,
            show_data_types=False,
            show_download=False,
            show_search=False,
            max_columns=None,
            column_widths={f"h{head}": 52 for head in _heads} | {"layer": 60},
        )
    _legend = [mo.Html(runs_page.map_legend(audit)), head_map] if head_map is not None else []
    mo.vstack(_legend, gap=0.2) if _legend else None
    return (head_map,)


@app.cell
def _(audit, head_map, wanted):
    head = ""
    if audit is not None:
        _cells = [(cell.row, cell.column) for cell in head_map.value]
        head = audit.picked(_cells) if _cells else audit.chosen(wanted.head)
    mo.Html(runs_page.head(audit, head)) if head else None
    return (head,)


@app.cell
def _(run):
    mo.Html(runs_page.overview(run)) if run is not None else None
    return


@app.cell
def _(audit, head, run, run_control, states, tab):
    if tab in PAGES:
        state = states[tab]
        program = CODES[tab](state)
    else:
        state = RunsState(run_control.value or "", head)
        _where = audit.where(head) if head else {}
        program = "" if run is None else code.runs_code(str(run.folder), _where)
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
