"""Settings and parts of the audit as a study."""

import pytest
import xarray as xr

from largeprompt.audit.parts import AuditConfig, replacement_order
from largeprompt.audit.study import STUDY
from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.settings import config_of


@pytest.mark.parametrize(
    "bad",
    [
        {"lengths": (-5,)},
        {"lengths": (1,)},
        {"lengths": (512, 128)},
        {"lengths": (128, 128)},
        {"layers": (-1,)},
        {"positions": 0},
        {"components": (0,)},
        {"sinks": -1},
        {"tolerance": -0.1},
        {"tolerance": float("nan")},
        {"counts": -1},
        {"dtype": "int8"},
        {"seed": -1},
        {"layer": (1,)},
    ],
    ids=str,
)
def test_bad_settings_are_refused_at_once(bad):
    with pytest.raises(InvalidArgumentError, match=next(iter(bad))):
        config_of(STUDY, bad)


def test_replacement_is_left_out_where_no_step_is_wanted():
    assert list(STUDY.cells(AuditConfig())) == ["heads", "replacement"]
    assert list(STUDY.cells(AuditConfig(counts=0))) == ["heads"]


def test_heads_are_replaced_from_the_smallest_error_on():
    error = xr.DataArray([[0.3, float("nan")], [0.1, 0.3]], coords={"layer": [2, 5], "head": [0, 7]})
    assert replacement_order(xr.Dataset({"affine_error": error})) == [(5, 0), (2, 0), (5, 7), (2, 7)]
