"""``largeprompt explore`` as its user types it."""

import signal
import socket
import subprocess
import sys
import urllib.request

import pytest
from typer.testing import CliRunner

from largeprompt.cli.app import app


def test_help_shows_an_example():
    shown = CliRunner().invoke(app, ["explore", "--help"], env={"COLUMNS": "120"})
    assert shown.exit_code == 0
    assert "largeprompt explore runs --port 2718" in shown.output
    assert "--headless" in shown.output
    assert "[OPTIONS] [RUNS_FOLDER]" in shown.output


def test_a_port_that_is_taken_is_said_to_be():
    pytest.importorskip("marimo")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        shown = CliRunner().invoke(app, ["explore", "--headless", "--port", str(port)])
    assert shown.exit_code == 2
    assert f"error: --port: cannot listen on port {port}" in shown.stderr


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    shown = CliRunner().invoke(app, ["explore", "--headless"])
    assert shown.exit_code == 2
    assert "pip install 'largeprompt[explore]'" in shown.stderr


def test_a_bad_port_is_refused():
    assert CliRunner().invoke(app, ["explore", "--port", "70000"]).exit_code == 2


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    pytest.importorskip("marimo")
    shown = CliRunner().invoke(app, ["explore", "--headless", str(tmp_path / "none")])
    assert shown.exit_code == 2
    assert f"error: RUNS_FOLDER: got {tmp_path / 'none'}, which is not there" in shown.stderr


@pytest.mark.parametrize(
    "inherited", [signal.SIG_DFL, signal.SIG_IGN], ids=["terminal", "background job"]
)
def test_it_answers_without_a_login_and_ctrl_c_stops_it(tmp_path, inherited):
    """In a folder without runs, and with no folder named; shells start background jobs with the
    signal ignored.
    """
    pytest.importorskip("marimo")
    command = [sys.executable, "-m", "largeprompt", "explore", "--headless", "--port", "0"]
    options = {
        "text": True,
        "cwd": tmp_path,
        "preexec_fn": lambda: signal.signal(signal.SIGINT, inherited),
    }
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    ) as server:
        address = server.stdout.readline().split()[4]
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(address, timeout=30) as answer:
            assert (answer.status, answer.url) == (200, address)  # no redirection to a login
            assert b"marimo" in answer.read()
        server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=30)
    assert (server.returncode, out, err) == (0, "stopped\n", "")
