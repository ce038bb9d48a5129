"""Command lines that nobody would type: whatever they hold, the answer is a sentence, never a
trace, and an honest exit code.
"""

import os
import random
import time

import numpy as np
import pytest
from run_folders import make_run, verdict
from typer.main import get_command
from typer.testing import CliRunner

from largeprompt.cli.app import app

CALLS = 40 if int(os.environ.get("FAULT_ROUNDS", "1")) < 2 else 1000
PLAIN = """
- -- -1 0 1 2 7 0.5 1e-300 1e308 -inf nan 0x10 1_0 1,2 2,1,, 1/3 0/0 4/3 none null true [] {} " a=b
= seed=-1 seed=1e400 dims=1000000 dims=[[1]] points=1e9 lengths=1,2,3 tolerance=NaN until=1e308
nodes={} random_query limit Random_query STUDY os:path ..:x . .. / ~ /dev/null /dev/zero gaussian
laplace sphere rademacher uniform strong weak local dask: dask:foo://x remote os:getcwd
dask:/etc/passwd os:nothing cpu cuda:99 meta float64 auto eager flash %s%n $(id) * <pipe> <loop>
<huge> <text> <deep> <runs> <broken> <syntax>:STUDY <zero>:STUDY <text>:STUDY <runs>/a <folder>/new
<text>/below <model> <folder>
"""
ODD = [
    "",
    " ",
    "9" * 30,
    "-" + "9" * 5000,
    "lengths=" + "9" * 5000,
    "[" * 50_000,
    "no such study",
    "a" * 5000,
    "a/" * 3000,
]
WORDS = [*PLAIN.split(), *ODD, "nul\0", "\x1b[2J\x07", "é\u202e", "\ud800"]
NAMES = ("pipe", "loop", "huge.npy", "text", "deep", "runs", "broken.py", "syntax.py", "zero.py")


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Files and folders of every kind; nothing is computed, served, or asked of a network."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(
        "largeprompt.runs.execute.execute_all", lambda jobs, *given, **options: iter(())
    )
    monkeypatch.setattr("largeprompt.explore.serve.serve", lambda *given, **options: None)
    found = {name: tmp_path / name for name in NAMES}
    os.mkfifo(found["pipe"])
    found["loop"].symlink_to(found["loop"])
    with found["huge.npy"].open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)}
        )
    found["text"].write_text("1 0\n0 1\n")
    (tmp_path / "model").mkdir()
    found["deep"].mkdir()
    (found["deep"] / "config.json").write_text("[" * 100_000)
    (tmp_path / "model" / "config.json").write_text(
        '{"model_type": "gpt2", "n_embd": ' + "9" * 5000 + "}"
    )
    (tmp_path / "model" / "model.safetensors").write_text("")
    run = make_run(found["runs"] / "a", [verdict()])
    (run.folder / "figures" / "curve.png").write_bytes(b"")
    found["broken.py"].write_text("import no_such_module")
    found["syntax.py"].write_text("x = (\0")
    found["zero.py"].write_text("1 / 0")
    return {path.stem: str(path) for path in found.values()} | {
        "model": str(tmp_path / "model"),
        "folder": str(tmp_path),
    }


def command_line(chance, places):
    """A command with some of its options and arguments, and at times something else."""

    def word():
        chosen = chance.choice(WORDS)
        for name, path in places.items():
            chosen = chosen.replace(f"<{name}>", path)
        return chosen

    commands = get_command(app).commands
    name = chance.choice([*commands, "plan", "run", "runs"])
    words = [name]
    for each in commands[name].params:
        wanted = each.required or chance.random() < 0.3
        if wanted and chance.random() < 0.95 and "help" not in each.name:
            flag = getattr(each, "is_flag", False)
            words += [] if each.param_type_name == "argument" else [chance.choice(each.opts)]
            words += [] if flag else [usual(each.name, chance) if chance.random() < 0.5 else word()]
    return words + [word() for _ in range(chance.random() < 0.05)]


def usual(name, chance):
    """What an option might hold, so that what comes after it is reached."""
    known = {
        "score_variance": ["0.5", "2"],
        "tolerance": ["0.1"],
        "dim": ["3", "20000"],
        "name": ["random_query", "limit"],
    }
    return chance.choice(known.get(name, ["1", "local", "cpu", "out", "2,3"]))


def test_no_command_line_ends_in_a_trace(places):
    chance = random.Random(15)
    for _ in range(CALLS):
        words = command_line(chance, places)
        start = time.perf_counter()
        result = CliRunner().invoke(app, words)
        shown = [word[:60] for word in words]
        assert result.exception is None or isinstance(result.exception, SystemExit), (
            shown,
            repr(result.exception)[:300],
        )
        assert result.exit_code in (0, 1, 2, 130), shown
        assert "Traceback" not in result.output, shown
        assert "\x1b[2J" not in result.output, shown
        assert time.perf_counter() - start < 60, shown
