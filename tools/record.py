"""Record what runs gave, and compare two records: numbers, verdicts, captions and figure data that
a refactoring must not change.

    python tools/record.py draw RUNS # writes RUNS/figure_data.json from the datasets stored below
    RUNS python tools/record.py compare OLD NEW # exit code 1 and a line for each difference

RUNS is the folder that ``largeprompt reproduce --quick --out RUNS`` and ``largeprompt audit ...
--out RUNS`` fill. Datasets are compared bit for bit (values, dtypes, dimensions, coordinates);
attributes are not.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

FIGURE_DATA = "figure_data.json"


def figure_data(figure: Figure) -> list[dict[str, Any]]:
    """All that is drawn in each panel: lines, collections, images, labels."""
    return [
        {
            "title": axes.get_title(),
            "labels": [axes.get_xlabel(), axes.get_ylabel(), axes.get_xscale(), axes.get_yscale()],
            "lines": [
                [_numbers(line.get_xdata()), _numbers(line.get_ydata()), str(line.get_label())]
                for line in axes.lines
            ],
            "collections": [
                [
                    _numbers(each.get_offsets()),
                    [_numbers(path.vertices) for path in each.get_paths()],
                    _numbers(each.get_array()),
                ]
                for each in axes.collections
            ],
            "images": [_numbers(image.get_array()) for image in axes.images],
            "texts": [text.get_text() for text in axes.texts],
        }
        for axes in figure.axes
    ]


def _numbers(values: Any) -> Any:
    """Numbers as text without loss; NaN equals NaN."""
    if values is None:
        return None
    array = (
        np.ma.filled(np.ma.asarray(values), np.nan)
        if np.asarray(values).dtype.kind == "f"
        else np.asarray(values)
    )
    return [
        float(each).hex() if isinstance(each, float) else str(each)
        for each in array.ravel().tolist()
    ]


def figures_of(run: Path, data: xr.Dataset) -> dict[str, Figure]:
    """Figures of the study that a run belongs to, drawn from its dataset."""
    from largeprompt.studies.registry import study

    name = json.loads((run / "config.json").read_text())["study"]
    found = study("largeprompt.audit.study:STUDY" if name == "audit" else name)
    return {each.name: each.draw(data) for each in found.drawable(data)}


def draw(runs: Path) -> None:
    """Redraw every figure of the runs in a folder and store what it shows."""
    found = {}
    for folder in sorted(path.parent for path in runs.glob("*/config.json")):
        data = xr.load_dataset(folder / "dataset.nc", engine="h5netcdf")
        found[folder.name] = {
            name: figure_data(figure) for name, figure in figures_of(folder, data).items()
        }
    (runs / FIGURE_DATA).write_text(json.dumps(found))


def compare(old: Path, new: Path) -> list[str]:
    """One line for each difference between two records."""
    names = [{path.parent.name for path in folder.glob("*/config.json")} for folder in (old, new)]
    trouble = [f"{name}: only in the new record" for name in sorted(names[1] - names[0])]
    for name in sorted(names[0] & names[1]):
        a, b = old / name, new / name
        trouble += [f"{name}: {line}" for line in _datasets(a / "dataset.nc", b / "dataset.nc")]
        for file in ("verdicts.json", "figures/captions.json"):
            one, other = (json.loads((folder / file).read_text()) for folder in (a, b))
            if len(one) != len(other):
                trouble.append(f"{name}: {file}: {len(one)} entries, now {len(other)}")
            trouble += [
                f"{name}: {file}:\n  - {x}\n  + {y}"
                for x, y in zip(one, other, strict=False)
                if x != y
            ]
    if (old / FIGURE_DATA).exists() and (new / FIGURE_DATA).exists():
        drawn = [json.loads((folder / FIGURE_DATA).read_text()) for folder in (old, new)]
        for name in sorted(names[0] & names[1]):
            for figure in sorted(drawn[0][name].keys() | drawn[1].get(name, {}).keys()):
                if drawn[0][name].get(figure) != drawn[1].get(name, {}).get(figure):
                    trouble.append(f"{name}: figure {figure} differs")
    return trouble


def _datasets(old: Path, new: Path) -> list[str]:
    one, other = (xr.load_dataset(path, engine="h5netcdf") for path in (old, new))
    trouble = [
        f"variable {name} only in one"
        for name in sorted(set(one.variables) ^ set(other.variables), key=str)
    ]
    for name in sorted(set(one.variables) & set(other.variables), key=str):
        a, b = one[name], other[name]
        same = a.dims == b.dims and a.shape == b.shape and a.dtype == b.dtype
        if not same:
            trouble.append(
                f"variable {name}: {a.dims} {a.shape} {a.dtype}, now {b.dims} {b.shape} {b.dtype}"
            )
        elif not np.array_equal(a.values, b.values, equal_nan=a.dtype.kind == "f"):
            difference = ""
            if a.dtype.kind == "f":
                gap = np.abs(a.values - b.values) / np.maximum(np.abs(a.values), 1e-300)
                difference = (
                    f", relative difference up to {np.nanmax(gap):.2g}"
                    if np.isfinite(gap).any()
                    else ""
                )
            trouble.append(
                f"variable {name} differs in {int((a.values != b.values).sum())} of {a.size} "
                f"places{difference}"
            )
    return trouble


def main(words: list[str]) -> int:
    """Draw one record, or compare two."""
    match words:
        case ["draw", runs]:
            draw(Path(runs))
            return 0
        case ["compare", old, new]:
            trouble = compare(Path(old), Path(new))
            print("\n".join(trouble) if trouble else "no difference")
            return int(bool(trouble))
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
