"""The explorer's server: on loopback only, without a login, and without a word to any other
machine.
"""

import contextlib
import importlib.util
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from largeprompt.errors import InvalidArgumentError, LargePromptError

HOST, NAMES = "127.0.0.1", ("127.0.0.1", "localhost")


class ExplorerError(LargePromptError):
    """The explorer cannot be opened."""


def serve(folder: Path | None, port: int, *, browser: bool, say: Callable[[str], None]) -> None:
    """Serve the explorer until it is interrupted.

    Parameters
    ----------
    folder
        Where the third tab looks for runs; None for ``runs``, which need not be there.
    port
        0 takes any that is free.
    browser
        Whether to open one.
    say
        Told the address once the page answers.
    """
    if importlib.util.find_spec("marimo") is None:
        raise ExplorerError(
            "marimo is not installed; the explorer needs it: pip install '.[explore]' where the "
            "source is"
        )
    if folder is not None and not folder.is_dir():
        given = f"{folder}, which is {'a file' if folder.exists() else 'not there'}"
        remedy = "`largeprompt run NAME` makes a run; `largeprompt explore` alone needs none."
        raise InvalidArgumentError(
            "RUNS_FOLDER", given, "a folder that holds runs, or a run folder", remedy
        )
    import uvicorn

    place = listening(port)
    address = f"http://{HOST}:{place.getsockname()[1]}/"
    os.environ["LARGEPROMPT_RUNS"] = str((folder or Path("runs")).resolve())

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            say(f"the explorer is at {address} (Ctrl-C stops it)")
            # while the browser loads the page
            threading.Thread(target=warm_up, daemon=True).start()
            if browser:
                webbrowser.open(address)

    server = Server(
        uvicorn.Config(page(), log_level="warning", timeout_graceful_shutdown=1, lifespan="off")
    )
    # which uvicorn hands on, unless our parent had it ignored
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[place])
    say("stopped")
    sys.stdout.flush()
    os._exit(0)  # threads of marimo wait for their browsers for ever, and have nothing to save


def listening(port: int) -> socket.socket:
    """A socket bound to that port on loopback; ExplorerError where somebody else has it."""
    place = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        place.bind((HOST, port))
        place.listen(128)
    except OSError as error:
        place.close()
        reason = error.strerror or type(error).__name__
        raise ExplorerError(
            f"--port: cannot listen on port {port} ({reason}); choose another, or 0 for any that "
            "is free."
        ) from None
    return place


def page() -> Any:
    """The explorer as an ASGI application."""
    import marimo

    notebook = str(Path(__file__).with_name("app.py"))
    return from_here_only(
        marimo.create_asgi_app(quiet=True).with_app(path="/", root=notebook).build()
    )


def warm_up() -> None:
    """Compute the first page, which is then there at once, and one of each law: first signs load a
    second's worth of PyTorch.
    """
    from largeprompt.explore import law_page
    from largeprompt.explore.state import LAWS, LawState

    for law in LAWS:
        law_page.first_row(LawState(law))
        law_page.second_row(LawState(law))


def from_here_only(app: Any) -> Any:
    """Refuse requests made under another name than loopback's, or by a page that came from
    elsewhere.
    """

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope.get("headers", ())
        }
        asked = [
            f"//{headers.get('host', '')}",
            *([headers["origin"]] if "origin" in headers else []),
        ]
        if scope["type"] in ("http", "websocket") and not all(
            urlsplit(each).hostname in NAMES for each in asked
        ):
            if scope["type"] == "http":
                await send(
                    {
                        "type": "http.response.start",
                        "status": 403,
                        "headers": [(b"content-type", b"text/plain")],
                    }
                )
                await send(
                    {
                        "type": "http.response.body",
                        "body": b"The explorer answers on this machine only.",
                    }
                )
            else:
                await send({"type": "websocket.close", "code": 1008})
            return
        await app(scope, receive, send)

    return guarded
