"""The parts: replaced heads, risks and settings."""

import numpy as np
import torch
from study_checks import SettingChecks, same_in_any_order

from largeprompt.audit import read_out
from largeprompt.studies.tabular.model import load, prepared
from largeprompt.studies.tabular.parts import (
    affine_instead,
    cells,
    draw,
    generator,
    known,
    log_probabilities,
    risks,
)
from largeprompt.studies.tabular.study import STUDY


def test_replaced_heads_are_their_read_outs(config, folder):
    model, tables = load(folder), draw(config, "two classes", 32, generator(config, "here"))

    def by_hand(layer, heads, output):
        if layer == 1:
            output = output.clone()
            output[:, 0] = read_out(heads, "affine")[:, 0]
        return output

    rows = prepared(tables.context, tables.others, 6)
    expected = model(rows, tables.labels, by_hand)[..., :2].log_softmax(-1)
    found = log_probabilities(model, tables, affine_instead({1: [0]}))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(found, log_probabilities(model, tables))


def test_best_predictor_is_better_than_random_weights(data):
    assert np.all(data.bayes_cross_entropy < data.cross_entropy.sel(replaced="none"))
    some = data.sel(kind="regression")
    assert np.all(some.bayes_squared_error < some.squared_error.sel(replaced="none"))
    assert np.all(some.one_linear < some.one_softmax)


def test_risks_by_hand(config):
    tables = draw(config, "two classes", 32, generator(config, "here"))
    logs = torch.full((2, 8, 2), 0.5).log()
    found = risks(tables, logs)
    np.testing.assert_allclose(found["cross_entropy"], np.log(2), rtol=1e-6)
    np.testing.assert_allclose(found["accuracy"], (tables.answers == 0).double().mean(1))


def test_real_sets_are_not_asked_for_more_rows_than_they_have():
    lengths = {
        kind: [n for each, n in cells(STUDY.config()) if each == kind]
        for kind in ("iris", "breast cancer", "regression")
    }
    assert lengths["iris"] == [32, 64]
    assert lengths["breast cancer"][-1] == 256
    assert lengths["regression"][-1] == 4096


def test_folds_ask_every_row_once(config, monkeypatch):
    from largeprompt.studies.tabular import parts

    rows, classes = (
        torch.randn(20, 2, generator=torch.Generator().manual_seed(0)),
        torch.arange(20) % 2,
    )
    monkeypatch.setattr(parts, "real_set", lambda kind: (rows, classes))
    asked = []

    def answer(model, tables, visitor=None):
        asked.extend(tables.others[0, :, 0].tolist())
        return torch.nn.functional.one_hot(tables.answers, 2).double().clamp_min(1e-9).log()

    monkeypatch.setattr(parts, "log_probabilities", answer)
    assert float(known(config, "iris", lambda line: None).fold_accuracy) == 1.0
    assert sorted(asked) == sorted(rows[:, 0].tolist())


class TestSettings(SettingChecks):
    study = STUDY
    refused = (
        "kinds=digits",
        "lengths=8",
        "lengths=64,32",
        "tables=1",
        "dim=0",
        "noise=0",
        "folds=1",
        "seed=-1",
        "steps=0",
    )


def test_same_numbers_in_any_order(data):
    same_in_any_order(STUDY, data)
