"""The command ``largeprompt``, also as ``python -m largeprompt``."""

import os
import signal
import sys
import traceback
from typing import NoReturn

# set to anything in the environment: errors that nobody foresaw are shown whole
TRACE = "LARGEPROMPT_TRACEBACK"


def main() -> None:
    """Run the command; Ctrl-C ends it with one line and exit code 130, also while it is still being
    loaded.

    An error that nobody foresaw is one line too, with exit code 1.
    """
    heard: list[int] = []

    def interrupt(number: int, frame: object) -> None:
        heard.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where it is ignored
        signal.signal(signal.SIGINT, interrupt)
    try:
        from largeprompt.cli.app import app

        app()
    except KeyboardInterrupt:
        _stop()
    except Exception as error:
        if heard:  # libraries that it meets while they load raise whatever they like
            _stop()
        if os.environ.get(TRACE):
            raise
        sys.stderr.write(_unforeseen(error))
        sys.exit(1)


def _stop() -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C finds nothing to interrupt
    sys.stderr.write("interrupted\n")
    sys.exit(130)


def _unforeseen(error: Exception) -> str:
    """One line about an error, with where it came from."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    said = "".join(
        each if each.isprintable() else " " for each in f"{type(error).__name__}: {error}"[:500]
    )
    place = f"{last.filename}, line {last.lineno}"
    return (
        f"error: {said} ({place}). Nobody foresaw this: please report it, with what {TRACE}=1 "
        "before the command shows.\n"
    )


if __name__ == "__main__":
    main()
