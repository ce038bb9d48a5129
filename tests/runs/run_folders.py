"""Run folders written by hand, with verdicts and figures, for tests of what reads them."""

import struct
import zlib

from largeprompt.runs.files import sealed, sha256, to_json
from largeprompt.runs.store import Run

PROVENANCE = {
    "version": "0.2.0",
    "commit": "1c15560",
    "python": "3.11.9",
    "packages": {"torch": "2.6.0", "numpy": "2.1.3"},
    "machine": {"platform": "Linux-6.1", "processor": "x86_64", "cpus": 2},
    "seed": 7,
    "workers": 2,
    "started": "2026-11-15T21:02:11+00:00",
    "finished": "2026-11-15T21:05:43+00:00",
    "seconds": 212.4,
    "cells": {"first": 100.0, "second": 3700.0},
}


def png(width, height):
    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + b"\x80" * width for _ in range(height)))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    )


def verdict(
    claim="C3",
    outcome="holds",
    control=False,
    asked="Does it fall?",
    measured="Slope -1.00.",
    **more,
):
    return {
        "claim": claim,
        "asked": asked,
        "outcome": outcome,
        "measured": measured,
        "control": control,
    } | more


def make_run(
    folder,
    verdicts=(),
    figures=("curve",),
    finished=True,
    cells=("first", "second", "third"),
    stored=1,
    claims=(),
    **changes,
):
    """A run folder by hand, as the interface describes it; only ``stored`` cells where it is not
    finished.
    """
    (folder / "cells").mkdir(parents=True)
    described = {
        "study": "convergence",
        "title": "How fast",
        "question": "How fast does it fall?",
        "method": "By counting.",
        "config": {"lengths": [10, 100], "scale": 0.1, "exact": True, "nested": {"a": [1]}},
        "quick": False,
        "rerun": "largeprompt run convergence",
        "cells": list(cells),
        "claims": [
            {"id": name, "name": f"Claim {name}", "sentence": f"Sentence {name}."}
            for name in dict.fromkeys([*claims, *(each["claim"] for each in verdicts)])
        ],
    } | changes
    described = {"version": "", "code": ""} | described
    (folder / "config.json").write_bytes(sealed(described))
    run = Run.open(folder)
    for cell in cells[: len(cells) if finished else stored]:
        run.write_cell(cell, b"", 1.0)
    if finished:
        pictures = {f"figures/{name}.png": png(40, 30) for name in figures}
        pictures |= {f"figures/{name}.pdf": b"%PDF-1.4\n%%EOF\n" for name in figures}
        captions = {
            "figures/captions.json": to_json({name: f"Caption of {name}." for name in figures})
        }
        run.write_results(
            {"dataset.nc": b"", "verdicts.json": to_json(list(verdicts))} | pictures | captions,
            PROVENANCE,
        )
    return run


def rewrite(run, name, content):
    """Put other content into a file of the results as a stranger might, whose
    checksums are right.
    """
    made = run.provenance
    (run.folder / name).write_bytes(content)
    made["files"][name] = sha256(content)
    (run.folder / "provenance.json").write_bytes(sealed(made))
