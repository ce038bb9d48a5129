"""``python -m largeprompt``, and an interrupt before the command is loaded."""

import subprocess
import sys

import largeprompt as lp


def test_interrupt_while_the_command_loads():
    """Ctrl-C before there is anything to stop: one word and exit 130, no traceback."""
    code = """
import sys
class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == "largeprompt.cli.app":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
from largeprompt.__main__ import main
main()
"""
    result = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True
    )
    assert (result.returncode, result.stderr) == (130, "interrupted\n")


def test_python_dash_m():
    result = subprocess.run(
        [sys.executable, "-m", "largeprompt", "--version"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert result.stdout == f"largeprompt {lp.__version__}\n"
