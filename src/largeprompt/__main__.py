"""The command ``largeprompt``, also as ``python -m largeprompt``."""

import signal
import sys


def main() -> None:
    """Run the command; Ctrl-C ends it with one line and exit code 130, also while it is still being loaded."""
    try:
        from largeprompt.cli.app import app

        app()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C finds nothing to interrupt
        sys.stderr.write("interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
