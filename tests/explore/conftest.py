"""A folder of runs: an audit of drawn heads, a study, and what is neither."""

import dataclasses
import json

import pytest
import torch
import xarray as xr
from run_folders import png

from largeprompt.audit import Heads, audit_heads, summary
from largeprompt.audit.parts import AuditConfig
from largeprompt.audit.study import STUDY
from largeprompt.runs.files import to_json
from largeprompt.runs.judging import Verdict
from largeprompt.runs.netcdf import encode
from largeprompt.runs.store import Run

EVIL = "<script>document.title='broken in'</script>"


def drawn_audit():
    """Two layers of three heads over one text of 200 keys: scores that are weak, middling and
    strong.
    """
    layers = []
    for layer in range(2):
        key = torch.randn(1, 3, 200, 4, generator=torch.Generator().manual_seed(layer))
        query = torch.randn(1, 3, 200, 4, generator=torch.Generator().manual_seed(10 + layer))
        query = query * torch.tensor([0.1, 0.8, 6.0]).reshape(1, 3, 1, 1)
        heads = Heads(query, key, key + 0.3, mask=None, scale=1.0, causal=bool(layer))
        layers.append(
            audit_heads(heads, components=(2,), positions=24).assign_coords(layer=[layer])
        )
    data = xr.concat(
        layers, "layer", data_vars="minimal", coords="minimal", compat="override", join="override"
    )
    found = summary(data)
    data = data.merge(found.rename({str(name): f"head_{name}" for name in found.data_vars}))
    return data.assign_attrs(tolerance=0.2, sinks=1)


def stored(folder, study, data, verdicts, finished=True):
    """A run folder as the store writes it."""
    run = Run.create(folder, study, AuditConfig(), quick=False, rerun="largeprompt audit")
    if finished:
        files = {
            "dataset.nc": encode(data),
            "verdicts.json": to_json([dataclasses.asdict(each) for each in verdicts]),
        }
        captions = {"heads": f"Caption {EVIL}", "lost": "A figure that is lost."}
        for name in captions:
            files |= {f"figures/{name}.png": png(40, 30), f"figures/{name}.pdf": b"%PDF-1.4"}
        files["figures/captions.json"] = to_json(captions)
        run.write_results(files, {"finished": "2026-01-01T00:00:00"})
        (folder / "figures" / "lost.png").unlink()
    return run


@pytest.fixture(scope="session")
def runs_folder(tmp_path_factory):
    folder, data = tmp_path_factory.mktemp("runs"), drawn_audit()
    verdicts = [
        Verdict("audit", f"Asked {EVIL}?", "holds in part", f"Measured {EVIL}."),
        Verdict("audit", "Must it fail?", "fails", "It does.", True),
        Verdict(
            "audit", "Does it fail?", "fails", "It does.", meaning="A method of ours fails <here>."
        ),
    ]
    stored(
        folder / "audit-drawn", dataclasses.replace(STUDY, title=f"Heads {EVIL}"), data, verdicts
    )
    stored(
        folder / "coin",
        dataclasses.replace(STUDY, name="coin", title="A coin"),
        xr.Dataset({"x": ("n", [1.0])}),
        verdicts[:1],
    )
    stored(folder / "empty-audit", STUDY, xr.Dataset({"x": ("n", [1.0])}), [])
    stored(folder / "half", STUDY, data, [], finished=False)
    (folder / "broken").mkdir()
    (folder / "broken" / "config.json").write_text(json.dumps({"study": 3}))
    return folder
