"""How far a flow is, for somebody who waits at a keyboard."""

import multiprocessing
import sys
from time import monotonic

PATIENCE = 2.0  # seconds before anything is shown


class Progress:
    """Show time reached and rate in a terminal or notebook once a flow takes more than two seconds.

    Silent in pipes, in worker processes, and under our command line, which shows its own.
    """

    def __init__(self, name: str, until: float) -> None:
        self.name, self.until = name, until
        self.begin = self.latest = monotonic()
        self.shown = False
        at_keyboard = sys.stderr.isatty() or "ipykernel" in sys.modules
        inside = "largeprompt.cli" in sys.modules
        own = multiprocessing.current_process().name == "MainProcess"
        self.wanted = at_keyboard and own and not inside

    def __call__(self, reached: float) -> None:
        now = monotonic()
        if not self.wanted or now < max(self.begin + PATIENCE, self.latest + 0.2):
            return
        self.latest, self.shown, rate = now, True, reached / (now - self.begin)
        line = f"{self.name}: time {reached:.4g} of {self.until:g}, {rate:.3g} a second"
        print(f"\r{line:<78}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """End the line, if there is one."""
        if self.shown:
            print(file=sys.stderr)
