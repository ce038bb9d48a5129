"""Generated tables, their heads beside the exact law, and accuracies of real sets."""

import types

import numpy as np
import torch

from largeprompt.studies.real_models import tables
from largeprompt.studies.real_models.own_moments import expected_affine_error
from largeprompt.studies.real_models.table_model import load, prepared


def test_two_classes_are_separated_by_their_mean():
    source = torch.Generator().manual_seed(0)
    x, classes = tables.two_classes(source, 400, 100, 20, 3)
    assert x.shape == (400, 120, 3)
    sign = 2.0 * classes[..., None] - 1
    w = (x[:, :100] * sign).mean(1)
    # E‖w‖² and the variance of the mean of 100 rows; five standard errors
    assert abs(float(w.square().sum(-1).mean()) - (tables.SEPARATION**2 + 0.03)) < 0.5
    assert abs(float(classes.double().mean()) - 0.5) < 0.0125


def test_regression_is_cut_at_deciles_of_its_answers():
    x, classes = tables.regression(torch.Generator().manual_seed(0), 3, 400, 50, 3)
    assert x.shape == (3, 450, 3)
    counts = torch.stack([torch.bincount(each, minlength=10) for each in classes])
    assert int(counts.min()) == int(counts.max()) == 40
    for rows, labels in zip(x[:, :400], classes, strict=True):  # a line explains most of them
        design = torch.cat([rows, torch.ones(400, 1)], 1)
        line = design @ torch.linalg.lstsq(design, labels[:, None].float()).solution
        left = (labels[:, None] - line).var() / labels.float().var()
        assert float(left) < 0.6


def test_errors_of_a_head_by_hand(config, data, table_folder):
    """The first head of the second layer, from the tables that the cell draws."""
    source = tables.generator(config, "tables", "regression", 32)
    x, classes = tables.regression(source, 2, 32, 4, 3)
    model, seen = load(table_folder), {}
    rows = prepared(x[:, :32], x[:, 32:], 6)
    model(rows, classes, lambda layer, heads: seen.update({layer: heads}))
    found, law = [], []
    heads = seen[1]
    for table in range(2):
        key, value = (each[table, 0].double() for each in (heads.key, heads.value))
        for query in heads.query[table, 0, 32:].double():
            s = heads.scale * key @ query
            centered, spread = s - s.mean(), value - value.mean(0)
            covariance = centered @ spread / 32
            read = value.mean(0) + covariance - torch.softmax(s, 0) @ value
            found.append(float(read.square().sum()))
            moments = [centered.square().mean(), covariance.square().sum()]
            moments += [spread.square().sum() / 32]
            law.append(float(expected_affine_error(32.0, *(each.numpy() for each in moments))))
    some = data.sel(kind="regression", rows=32, table_layer=1, table_head=0)
    np.testing.assert_allclose(some.table_found, np.mean(found), rtol=1e-3)
    np.testing.assert_allclose(some.table_law, np.mean(law), rtol=3e-3)


def test_folds_ask_every_row_once(config, monkeypatch):
    rows = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
    sets = types.SimpleNamespace(
        load_iris=lambda return_X_y: (rows.double().numpy(), np.arange(20) % 2)
    )
    monkeypatch.setattr(tables, "needed", lambda name: sets)
    asked, counts = [], []

    class Oracle:
        """Right of every row but the first of a fold."""

        features = 2

        def __call__(self, given, labels):
            counts.append(labels.shape[1])
            fold = order.chunk(config.folds)[len(asked)]
            asked.append(fold)
            right = torch.nn.functional.one_hot(fold % 2, 10).double()
            right[0] = right[0].flip(0).roll(2)
            return right[None]

    order = torch.randperm(20, generator=tables.generator(config, "folds", "iris"))
    monkeypatch.setattr(tables, "loaded", lambda config, progress: Oracle())
    found = tables.accuracy(config, "iris", lambda line: None)
    assert sorted(torch.cat(asked).tolist()) == list(range(20))
    assert counts == [18] * 10
    assert float(found.fold_accuracy) == 0.5
    assert float(found.known_accuracy) == 0.973
