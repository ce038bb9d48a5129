"""Plans as files."""

import io
import json

import numpy as np
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


def test_export_by_key_value_head():
    """A table of numbers, one row a layer, and shares by name."""
    plan = Plan(heads=((0, 1), (3, 0), (3, 1)), layers=(0, 3), heads_in_layer=4)
    table = np.loadtxt(io.StringIO(plan.export("duoattention", 2)), delimiter="\t")
    np.testing.assert_array_equal(table, [[0.5, 1.0], [0.0, 1.0]])
    np.testing.assert_array_equal(
        np.loadtxt(io.StringIO(plan.export("duoattention")), delimiter="\t"), plan.full_attention
    )
    shares = json.loads(plan.export("shares", 2))
    assert shares == {"L0H0": 0.5, "L0H1": 1.0, "L3H0": 0.0, "L3H1": 1.0}
    for wrong in (3, 0, 8, 1.5):
        with pytest.raises(InvalidArgumentError, match="key_value_heads"):
            plan.export("shares", wrong)
    with pytest.raises(InvalidArgumentError, match="format"):
        plan.export("yaml")
