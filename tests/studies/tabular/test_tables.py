"""Generated tables and their best predictors, and the real sets without scikit-learn."""

import types

import numpy as np
import pytest
import torch

from largeprompt.errors import InvalidArgumentError
from largeprompt.studies.tabular import tables


def test_two_classes_and_their_best_predictor():
    """The log-odds by integrating the likelihood over w on a grid, in one dimension."""
    drawn = tables.two_classes(torch.Generator().manual_seed(0), 2, 20, 3, 1)
    w = torch.linspace(-12, 12, 20001, dtype=torch.float64)
    for table in range(2):
        sign = 2.0 * drawn.labels[table] - 1
        prior = -0.5 * (w / tables.SEPARATION) ** 2
        fit = prior - 0.5 * ((drawn.context[table, :, 0] - sign * w[:, None]) ** 2).sum(1)
        for x, bayes in zip(drawn.others[table, :, 0], drawn.bayes[table], strict=True):
            each = torch.stack([torch.logsumexp(fit - 0.5 * (x - s * w) ** 2, 0) for s in (-1, 1)])
            np.testing.assert_allclose(bayes, each.log_softmax(0), atol=1e-4)


def test_regression_is_cut_at_deciles_and_its_best_predictor_beats_others():
    drawn = tables.regression(torch.Generator().manual_seed(0), 3, 400, 500, 3, 0.1)
    counts = torch.stack([torch.bincount(each, minlength=10) for each in drawn.labels])
    assert int(counts.min()) == int(counts.max()) == 40
    np.testing.assert_allclose(drawn.bayes.exp().sum(-1), 1.0, atol=1e-6)
    score = [
        float(-logs.gather(-1, drawn.answers[..., None]).mean())
        for logs in (drawn.bayes, (0.9 * drawn.bayes).log_softmax(-1))
    ]
    assert score[0] < min(score[1], np.log(10) - 0.5)
    value = (drawn.bayes.exp() * drawn.levels[:, None]).sum(-1)
    assert float((value - drawn.truth).square().mean()) < 0.05 < float(drawn.truth.square().mean())


def test_real_sets_come_from_scikit_learn(monkeypatch):
    rows, classes = np.arange(20.0).reshape(10, 2), np.arange(10) % 3
    sets = types.SimpleNamespace(load_iris=lambda return_X_y: (rows, classes))
    monkeypatch.setattr(tables, "needed", lambda name: sets)
    drawn = tables.splits("iris", torch.Generator().manual_seed(0), 4, 6, 3)
    assert drawn.context.shape == (4, 6, 2)
    assert drawn.others.shape == (4, 3, 2)
    assert drawn.classes == 3
    both = torch.cat([drawn.context, drawn.others], 1)[..., 0] / 2
    assert all(len(set(each.tolist())) == 9 for each in both)
    np.testing.assert_array_equal(torch.cat([drawn.labels, drawn.answers], 1), both.long() % 3)
    with pytest.raises(InvalidArgumentError, match="three quarters"):
        tables.splits("iris", torch.Generator(), 1, 8, 1)
    with pytest.raises(InvalidArgumentError, match="one of iris"):
        tables.real_set("digits")
