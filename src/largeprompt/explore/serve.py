"""The explorer's server: on loopback only, without a login, and without a word to others."""

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
REFUSAL = b"The explorer answers on this machine only."


class ExplorerError(LargePromptError):
    """The explorer cannot be opened."""


def serve(folder: Path | None, port: int, *, browser: bool, say: Callable[[str], None]) -> None:
    """Serve the explorer until it is interrupted, and ``say`` its address once it answers.

    A folder of None is ``runs``, which need not be there; port 0 takes any that is free.
    """
    if importlib.util.find_spec("marimo") is None:
        raise ExplorerError(
            "marimo is not installed; the explorer needs it: pip install 'largeprompt[explore]'"
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
    """Return a socket bound to that port on loopback; ExplorerError where it is taken."""
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
    """Return the explorer as an ASGI application."""
    import marimo

    notebook = str(Path(__file__).with_name("app.py"))
    return from_here_only(
        marimo.create_asgi_app(quiet=True).with_app(path="/", root=notebook).build()
    )


def warm_up() -> None:
    """Compute the first page of each tab, and one of each law: the first use loads a lot."""
    from largeprompt.explore import law_page, scaling_page, training_page
    from largeprompt.explore.state import LAWS, LawState, ScalingState, TrainingState

    pages = [law_page.stages(LawState.of({"law": law})) for law in LAWS]
    for stages in (
        *pages,
        training_page.stages(TrainingState()),
        scaling_page.stages(ScalingState()),
    ):
        stages[-1]()


def from_here(headers: dict[str, str]) -> bool:
    """Whether a request names this machine, and comes from a page of this very server, if any."""
    host = headers.get("host", "")
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:  # such as "["
        return False
    return name in NAMES and headers.get("origin", f"http://{host}") == f"http://{host}"


def from_here_only(app: Any) -> Any:
    """Refuse requests under a name other than loopback's, or by a page that came from elsewhere."""

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope.get("headers", ())
        }
        if scope["type"] not in ("http", "websocket") or from_here(headers):
            await app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            plain = [(b"content-type", b"text/plain")]
            await send({"type": "http.response.start", "status": 403, "headers": plain})
            await send({"type": "http.response.body", "body": REFUSAL})

    return guarded
