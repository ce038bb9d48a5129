"""The explorer's server: where it listens, whom it answers, and how it says what is wrong."""

import asyncio
import importlib.util
import socket

import pytest

from largeprompt.errors import InvalidArgumentError
from largeprompt.explore import serve


def test_a_port_on_loopback_that_is_free():
    with serve.listening(0) as place:
        host, port = place.getsockname()
        assert host == "127.0.0.1"
        with pytest.raises(
            serve.ExplorerError,
            match=rf"--port: cannot listen on port {port} \(.*\); choose another",
        ):
            serve.listening(port)


def test_without_the_extra_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(serve.ExplorerError, match=r"pip install 'largeprompt\[explore\]'"):
        serve.serve(tmp_path, 0, browser=False, say=print)


@pytest.mark.parametrize(
    ("name", "words"), [("file", "which is a file"), ("nothing", "which is not there")]
)
def test_what_is_no_folder_of_runs_is_refused(tmp_path, name, words):
    pytest.importorskip("marimo")
    (tmp_path / "file").touch()
    with pytest.raises(InvalidArgumentError, match=f"RUNS_FOLDER: got .*{name}, {words}"):
        serve.serve(tmp_path / name, 0, browser=False, say=print)


async def inner(scope, receive, send):
    await send({"type": "answered"})


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(
    ("headers", "answered"),
    [
        ({"host": "127.0.0.1:2718"}, True),
        ({"host": "localhost:2718", "origin": "http://localhost:2718"}, True),
        ({"host": "evil.example:2718"}, False),
        ({"host": "127.0.0.1:2718", "origin": "https://evil.example"}, False),
        ({"host": "127.0.0.1:2718", "origin": "null"}, False),
        ({"host": "127.0.0.1:2718", "origin": "http://127.0.0.1:8000"}, False),
        ({"host": "127.0.0.1:2718", "origin": "http://localhost:2718"}, False),
        ({"host": "127.0.0.1:2718", "origin": "https://127.0.0.1:2718"}, False),
        ({"host": "["}, False),
        ({"host": "127.0.0.1:2718", "origin": "http://["}, False),
        ({}, False),
    ],
)
def test_only_pages_from_here_are_answered(kind, headers, answered):
    """No login is needed on loopback, so a page from elsewhere, or a name that points here, must
    not be let in.
    """
    sent = []

    async def send(message):
        sent.append(message)

    scope = {
        "type": kind,
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    asyncio.run(serve.from_here_only(inner)(scope, None, send))
    assert (sent == [{"type": "answered"}]) == answered
    if not answered:
        assert sent[0].get("status") == 403 or sent[0] == {"type": "websocket.close", "code": 1008}


def test_loopback_is_all_that_is_listened_on():
    """The socket of the server cannot be reached under the machine's other addresses."""
    with serve.listening(0) as place:
        others = {
            found[4][0] for found in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
        } - {"127.0.0.1"}
        others = {each for each in others if not each.startswith("127.")}
        for other in others:
            with pytest.raises(OSError):  # noqa: PT011
                socket.create_connection((other, place.getsockname()[1]), timeout=1)
