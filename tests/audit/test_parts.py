"""Settings and parts of the audit as a study."""

import json

import numpy as np
import pytest
import torch
import xarray as xr

from largeprompt.audit import audit_model, parts, plan_linear, replacement_curves
from largeprompt.audit.parts import AuditConfig, Loaded, combine, only, replacement, steps
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
    heads = xr.Dataset(
        {"regime": ("head", [0, 1])},
        attrs={"silent_layers": [0, 2], "model": "Other", "tokens": 300},
    )
    found = combine(AuditConfig(model="mine"), {"heads": only(AuditConfig(), {(): heads})})
    assert found.attrs["silent_layers"] == [0, 2]
    assert (found.attrs["model"], found.attrs["tokens"]) == ("mine", 300)
    assert found.regime.attrs["flag_meanings"] == "unknown linear heavy frozen"


def test_curves_are_compared_at_every_other_of_halving_counts():
    assert steps(72, 6) == ([2, 4, 9, 18, 36, 72], [36, 9, 2])
    assert steps(270, 6) == ([8, 17, 34, 68, 135, 270], [135, 34, 8])
    assert steps(6, 6) == ([1, 2, 3, 6], [3, 1])
    assert steps(1, 3) == ([1], [1])


def test_the_plan_goes_by_the_texts_that_choose_and_the_heads_are_looked_at_once(
    built, tokens, monkeypatch
):
    """Two texts that disagree: the first says the opposite of what both say together."""
    model, inputs = built("bert").to(torch.float32), tokens(batch=2, length=80)
    seen = audit_model(model, inputs, components=())
    place = xr.DataArray(np.arange(8.0).reshape(2, 4), dims=("layer", "head"))
    seen["affine_error"] = (xr.DataArray([1.0, -3.0], dims="text") * place + 30.0).broadcast_like(
        seen.affine_error
    )
    orders, audits = {}, []
    for name, original in (
        ("plan_linear", plan_linear),
        ("replacement_curves", replacement_curves),
    ):

        def watched(model, inputs, *given, name=name, original=original, **more):
            orders[name] = [*(more.get("order") or given[0])]
            return original(model, inputs, *given, **more)

        monkeypatch.setattr(parts, name, watched)
    monkeypatch.setattr(
        parts,
        "audit_model",
        lambda *given, **more: audits.append(given) or audit_model(*given, **more),
    )
    loaded = Loaded(model, inputs, seen)
    monkeypatch.setattr(parts, "_loaded", lambda config: loaded)
    found = replacement(AuditConfig(counts=2, components=(), budget=0.5), lambda line: None)
    assert orders["plan_linear"] == [(layer, head) for layer in range(2) for head in range(4)]
    assert orders["replacement_curves"] == orders["plan_linear"][::-1]
    assert not audits
    chosen = found.chosen_order.values.ravel()
    assert chosen[chosen > 0].tolist() == [*range(1, int(found.chosen.sum()) + 1)]
    assert len(json.loads(found.attrs["plan"])["heads"]) == int(found.chosen.sum())
    loaded.seen = None  # another process has it
    replacement(AuditConfig(counts=2, components=(), budget=0.5), lambda line: None)
    assert len(audits) == 1
