"""The command's root: version, help and completion."""

import contextlib
import os
import signal

import pytest
from typer.testing import CliRunner

import largeprompt as lp
from largeprompt.__main__ import main
from largeprompt.cli.app import app
from largeprompt.studies import registry


def command(*words):
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.mark.parametrize("name", ["run", "runs", "reproduce", "report", "studies"])
def test_help_shows_an_example(name):
    result = command(name, "--help")
    assert result.exit_code == 0
    assert f"Example: largeprompt {name}" in result.output


@pytest.mark.parametrize(
    ("name", "argument"), [("run", "{STUDY}"), ("report", "{RUN}..."), ("explore", "[RUNS_FOLDER]")]
)
def test_usage_names_the_argument_once(name, argument):
    assert f"Usage: largeprompt {name} [OPTIONS] {argument} " in command(name, "--help").output


def test_shell_completes_names_of_studies():
    environment = {
        "_LARGEPROMPT_COMPLETE": "complete_bash",
        "COMP_WORDS": "largeprompt run he",
        "COMP_CWORD": "2",
    }
    result = CliRunner().invoke(app, [], env=environment, prog_name="largeprompt")
    assert result.stdout.split() == ["heavytail"]
    assert "--install-completion" in command("--help").output


def test_help_names_every_study():
    text = " ".join(CliRunner().invoke(app, ["run", "--help"]).output.split())
    assert all(name in text for name in registry.names())


def ended(monkeypatch, error, **environment):
    """What the command says and its exit code when something raises this."""
    called = lambda: raised(error)  # noqa: E731
    monkeypatch.setattr("largeprompt.cli.app.app", called)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    main()


def raised(error):
    raise error


@pytest.mark.parametrize(
    "error",
    [
        ZeroDivisionError("by\x1b[2J zero"),
        MemoryError(),
        RecursionError("deep"),
        OSError(5, "gone"),
    ],
)
def test_what_nobody_foresaw_is_one_line(monkeypatch, capsys, error):
    with pytest.raises(SystemExit) as left:
        ended(monkeypatch, error)
    said = capsys.readouterr().err
    assert left.value.code == 1
    assert said.startswith(f"error: {type(error).__name__}: ")
    assert said.count("\n") == 1
    assert "\x1b" not in said
    assert f"{__file__}, line " in said
    assert "LARGEPROMPT_TRACEBACK=1" in said
    with pytest.raises(type(error)):
        ended(monkeypatch, error, LARGEPROMPT_TRACEBACK="1")


def test_an_import_that_ctrl_c_met_is_an_interrupt(monkeypatch, capsys, tmp_path):
    """A module in C that loads then raises ImportError."""

    def met():
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        raise ImportError("initialization failed")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        monkeypatch.setattr("largeprompt.cli.app.app", met)
        with pytest.raises(SystemExit) as left:
            main()
    finally:
        signal.signal(signal.SIGINT, before)
    assert (left.value.code, capsys.readouterr().err) == (130, "interrupted\n")
    (tmp_path / "met_by_it.py").write_text(
        "raise ImportError('initialization failed') from KeyboardInterrupt()"
    )
    result = command("run", tmp_path / "met_by_it.py:STUDY")
    assert (result.exit_code, result.stderr.partition(":")[0]) == (130, "interrupted")


@pytest.mark.parametrize(
    "words",
    [["plan", "--score-variance", "2", "--dim", "2", "--tolerance", "1"], ["studies"], ["doctor"]],
)
def test_interrupted_anywhere_it_says_so(monkeypatch, words):
    for name in ("plan._setting", "perform.Console", "doctor.Console"):
        monkeypatch.setattr(
            f"largeprompt.cli.{name}", lambda *given, **options: raised(KeyboardInterrupt())
        )
    result = command(*words)
    assert (result.exit_code, result.stderr) == (130, "interrupted\n")


def test_version():
    result = CliRunner().invoke(app, ["--version"])
    assert result.output.strip() == f"largeprompt {lp.__version__}"
