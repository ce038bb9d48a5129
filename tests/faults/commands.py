"""The command ``largeprompt run`` on the toy study in processes of its own, to be killed,
interrupted and starved.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import toy_studies
from toy_studies import STUDY, SmallConfig

from largeprompt.runs.execute import execute
from largeprompt.runs.files import RunError
from largeprompt.runs.store import Run, default_folder

SIZES = (1, 2, 3, 4, 5, 6)
ROUNDS = int(os.environ.get("FAULT_ROUNDS", "1"))  # make faults asks for more
# a shell that starts the tests in the background makes them deaf to Ctrl-C, and their children too
MAIN = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from "
    "largeprompt.__main__ import main; main()"
)


class Command:
    """One run, in a folder of its own, whose cells pause so that there is
    something to interrupt.
    """

    def __init__(self, folder):
        self.out, self.scratch = folder / "runs", folder / "scratch"
        self.scratch.mkdir()
        (self.scratch / "pause").touch()
        self.config = SmallConfig(str(self.scratch), SIZES)
        self.folder = default_folder(self.out, STUDY, self.config, False)

    def start(self, *words, before="", **environment):
        given = [
            "--set",
            f"scratch={self.scratch}",
            "--set",
            f"sizes={','.join(map(str, SIZES))}",
            "--out",
            str(self.out),
        ]
        return subprocess.Popen(
            [
                sys.executable,
                "-c",
                f"{before}\n{MAIN}",
                "run",
                f"{toy_studies.__file__}:STUDY",
                *given,
                *map(str, words),
            ],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def begun(self, process, seconds=100.0):
        """Wait until the run's folder is there, or the process is not."""
        until(lambda: (self.folder / "config.json").exists() or process.poll() is not None, seconds)

    @property
    def run(self):
        return Run.open(self.folder)

    @property
    def complete(self):
        with contextlib.suppress(RunError):
            return self.run.intact
        return False

    def undisturbed(self, folder, executor):
        """The bytes of a run that nothing happens to."""
        run = Run.create(folder, STUDY, self.config, quick=False, rerun="")
        execute(run, STUDY, self.config, executor)
        return (folder / "dataset.nc").read_bytes()


def until(true, seconds):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def ended(process, seconds=200.0):
    """What a process printed, and its exit code; fails where it hangs, or leaves others of its
    session behind.
    """
    try:
        out, err = process.communicate(timeout=seconds)
        until(lambda: not living(process.pid), 30.0)
    finally:
        if process.poll() is None or living(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return process.returncode, out, err


def living(session):
    """Processes of a session that are not just waiting to be buried."""
    return [pid for pid, state, _, theirs in _processes() if theirs == session and state != "Z"]


def workers(parent):
    """Worker processes of a command."""
    children = [pid for pid, state, above, _ in _processes() if above == parent and state != "Z"]
    return [pid for pid in children if b"spawn_main" in _command(pid)]


def _processes():
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            state, parent, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            yield int(folder.name), state, int(parent), int(session)


def _command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
