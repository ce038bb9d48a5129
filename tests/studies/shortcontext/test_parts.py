"""F1: one token in closed form, lengths that are long enough, the task's own risk, and the
settings.
"""

import numpy as np
import pytest
import torch
from study_checks import SettingChecks
from training_examples import grid_contexts

import largeprompt as lp
from largeprompt.studies.covariances import KINDS
from largeprompt.studies.shortcontext.formulas import long_enough
from largeprompt.studies.shortcontext.study import STUDY
from largeprompt.training.risk.exact import context_risk


def test_one_token_and_long_enough(data):
    np.testing.assert_allclose(data.exact.sel(length=1.0), data.at_one, rtol=1e-12)
    np.testing.assert_allclose(
        data.risk.sel(regression_length=1.0, attention="softmax"), data.risk_at_one, rtol=1e-9
    )
    error = np.sqrt(data.exact / data["size"])
    for case in range(data.sizes["case"]):
        start = float(data.limit_from.sel(within=0.5).isel(case=case))
        row = error.isel(case=case)
        assert bool((row.sel(length=slice(start, None)) <= 0.5).all())
        assert float(row.sel(length=slice(None, start - 0.5))[-1]) > 0.5


def test_long_enough_is_infinite_where_it_never_is(data):
    assert bool(np.isinf(long_enough(data.exact * 0 + 1, "length", 0.5)).all())
    assert float(long_enough(data.exact * 0, "length", 0.5).max()) == 1.0


def test_regression_risk_is_the_tasks_own(data):
    """Against Gauss-Hermite rules for task and query, whose error falls with their size."""
    data = data.sel(regression_condition=1.0)
    task = lp.LinearRegression(
        torch.eye(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64) / 2, 0.1
    )
    b = 2**0.25
    U, V = (
        torch.diag(torch.tensor([1 / b, 1 / b, 0.0], dtype=torch.float64)),
        torch.tensor([[0.0, 0.0, b]], dtype=torch.float64),
    )
    contexts = grid_contexts(task, 20)
    for kind, attention in KINDS.items():
        expected = float(context_risk(U[None], V[None], contexts, [10], attention))
        assert float(data.risk.sel(attention=kind, regression_length=10.0)) == pytest.approx(
            expected, rel=1e-5
        )


class TestSettings(SettingChecks):
    study = STUDY
    refused = (
        "dims=0",
        "dims=2,2",
        "score_variances=-1",
        "conditions=0.5",
        "noise_variance=-1",
        "longest=10",
        "longest=inf",
        "points=5",
    )
