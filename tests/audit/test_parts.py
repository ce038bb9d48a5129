"""Settings and parts of the audit as a study."""

import pytest
import torch
import xarray as xr

from largeprompt.audit.parts import AuditConfig, combine, lengths, only
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
        {"budget": 0.0},
        {"budget": 1.5},
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


def test_attributes_of_the_heads_reach_the_run():
    heads = xr.Dataset({"regime": ("head", [0, 1])}, attrs={"silent_layers": [0, 2], "model": "Other", "tokens": 300})
    found = combine(AuditConfig(model="mine"), {"heads": only(AuditConfig(), {(): heads})})
    assert found.attrs["silent_layers"] == [0, 2]
    assert (found.attrs["model"], found.attrs["tokens"]) == ("mine", 300)
    assert found.regime.attrs["flag_meanings"] == "unknown linear heavy frozen"


def test_shorter_lengths_are_read_to_test_predictions():
    whole = {"input_ids": torch.zeros(2, 300)}
    assert lengths(AuditConfig(), whole) == [75, 150, 300]
    assert lengths(AuditConfig(lengths=(160,)), whole) == [80, 160]
    assert lengths(AuditConfig(lengths=(10, 20)), whole) == [10, 20]
    assert lengths(AuditConfig(), whole | {"attention_mask": torch.ones(2, 300)}) is None
