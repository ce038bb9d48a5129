"""What a study is made of: parts, cells, joins."""

import numpy as np
import pytest
import xarray as xr
from toy_studies import STUDY, SmallConfig

from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.settings import settings
from largeprompt.runs.study import Part, Study, StudyFigure, along, side_by_side, stacked


@settings
class PairConfig:
    pairs: tuple[tuple[str, int], ...] = (("a", 1), ("b", 2))


def product(config, letter, number, progress):
    progress(letter)
    return xr.Dataset({f"value_{letter}": ("x", np.full(2, float(number)))})


def single(config, progress):
    return xr.Dataset({"alone": 1.0})


PAIRS = Study(
    "pairs",
    "t",
    "q",
    "m",
    PairConfig,
    PairConfig(),
    parts=[Part("pair", product, over=lambda config: config.pairs), Part("single", single)],
    rules=[],
)


def test_cells_are_items_of_parts():
    cells = PAIRS.cells(PairConfig())
    assert list(cells) == ["pair: a, 1", "pair: b, 2", "single"]
    seen = []
    assert float(cells["pair: b, 2"].compute(PairConfig(), seen.append).value_b[0]) == 2.0
    assert seen == ["b"]


def test_parts_are_joined_and_lie_side_by_side():
    data = PAIRS.run()
    assert set(data.data_vars) == {"value_a", "value_b", "alone"}
    assert data.attrs["study"] == "pairs"
    # a part that runs over nothing
    assert set(PAIRS.run(PairConfig(pairs=())).data_vars) == {"alone"}


def test_joins():
    slices = {
        3: xr.Dataset({"v": ("x", [1.0])}, {"x": [3]}),
        5: xr.Dataset({"v": ("x", [2.0])}, {"x": [5]}),
    }
    assert stacked("x")(None, slices).v.values.tolist() == [1.0, 2.0]
    assert side_by_side(None, slices).x.values.tolist() == [3, 5]
    assert STUDY.run(SmallConfig()).size.values.tolist() == [1, 2, 3]


def test_figures_that_lack_their_data_are_left_out():
    def draw(data):
        raise AssertionError

    study = Study(
        "s",
        "",
        "",
        "",
        PairConfig,
        PairConfig(),
        [],
        [],
        [StudyFigure("f", draw, "", needs=("curve",))],
    )
    assert study.drawable(xr.Dataset()) == []
    assert [each.name for each in study.drawable(xr.Dataset({"curve": ("x", [1])}))] == ["f"]


@pytest.mark.parametrize("name", ["../x", "a b", "", "a.png"])
def test_names_that_become_files_are_plain_words(name):
    with pytest.raises(InvalidArgumentError, match="letters, digits and underscores"):
        StudyFigure(name, lambda data: None, "")
    with pytest.raises(InvalidArgumentError, match="letters, digits and underscores"):
        Study(name, "", "", "", PairConfig, PairConfig(), [], [])


def test_along_has_a_dimension_for_each_entry():
    results = {(a, b): xr.Dataset({"x": ("t", [a, b])}) for a in (5, 3) for b in (1, 2)}
    found = along("first", "second")(None, results)
    assert found.x.dims == ("first", "second", "t")
    assert found.x.sel(first=3, second=2).values.tolist() == [3, 2]


def test_along_names_its_entries():
    results = {(2, "b"): xr.Dataset({"x": 1}), (1, "a"): xr.Dataset({"x": 2})}
    assert along("case", name="{}, {}".format)(None, results).case.values.tolist() == [
        "2, b",
        "1, a",
    ]
    assert along("case", name=float)(None, {3: xr.Dataset({"x": 1})}).case.dtype == float
