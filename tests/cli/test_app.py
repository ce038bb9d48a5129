"""The command's root: version, help and completion."""

import pytest
from typer.testing import CliRunner

import largeprompt as lp
from largeprompt.cli.app import app
from largeprompt.studies import registry


def command(*words):
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.mark.parametrize("name", ["run", "runs", "reproduce", "report", "studies"])
def test_help_shows_an_example(name):
    result = command(name, "--help")
    assert result.exit_code == 0
    assert f"Example: largeprompt {name}" in result.output


@pytest.mark.parametrize(("name", "argument"), [("run", "{STUDY}"), ("report", "{RUN}..."), ("explore", "[RUNS_FOLDER]")])
def test_usage_names_the_argument_once(name, argument):
    assert f"Usage: largeprompt {name} [OPTIONS] {argument} " in command(name, "--help").output


def test_shell_completes_names_of_studies():
    environment = {"_LARGEPROMPT_COMPLETE": "complete_bash", "COMP_WORDS": "largeprompt run dr", "COMP_CWORD": "2"}
    result = CliRunner().invoke(app, [], env=environment, prog_name="largeprompt")
    assert result.stdout.split() == ["drift"]
    assert "--install-completion" in command("--help").output


def test_help_names_every_study():
    text = " ".join(CliRunner().invoke(app, ["run", "--help"]).output.split())
    assert all(name in text for name in registry.names())


def test_version():
    result = CliRunner().invoke(app, ["--version"])
    assert result.output.strip() == f"largeprompt {lp.__version__}"
