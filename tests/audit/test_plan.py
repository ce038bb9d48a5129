"""Plans as files."""

import json

import pytest

from largeprompt.audit import Plan
from largeprompt.errors import InvalidArgumentError

PLAN = Plan(((2, 1), (0, 0), (0, 1)), (0, 2), 2, "loss", 0.99, 0.994, 0.992)


def test_a_plan_is_read_as_it_was_written(tmp_path):
    path = PLAN.save(tmp_path / "heads.json")
    assert Plan.load(path) == PLAN
    found = json.loads(path.read_text())
    assert found["full_attention"] == [[0, 0], [1, 0]]
    assert found["linear_layers"] == [0]


def test_what_is_not_a_plan_is_refused(tmp_path):
    for number, text in enumerate(
        ("{", "[]", "{}", "[" * 100_000, '{"heads": [1], "layers": [0], "heads_in_layer": 2}')
    ):
        path = tmp_path / f"{number}.json"
        path.write_text(text)
        with pytest.raises(InvalidArgumentError, match="the JSON file of a plan"):
            Plan.load(path)
    with pytest.raises(InvalidArgumentError, match="a file that can be read"):
        Plan.load(tmp_path / "none.json")
