"""The study of in-context Markov chains in a small setting: what it stores, rules that can go either way, figures that draw."""

import dataclasses
import functools
import math

import numpy as np
import pytest
import torch

from largeprompt.measures import MarkovChain
from largeprompt.report.catalogue import figures
from largeprompt.runs.style import house_style
from largeprompt.studies.ngram.learning import _adjusted, drawn
from largeprompt.studies.ngram.paths import extrapolation, summary
from largeprompt.studies.ngram.study import STUDY, NgramConfig
from largeprompt.studies.registry import study
from largeprompt.testing import assert_sample_mean

SMALL = NgramConfig(
    cases=((3, 1), (2, 2), (2, 3)),
    betas=(0.5, 2.0),
    lengths=(32, 64, 128, 256, 512),
    replicas=600,
    exact_contexts=4,
    exact_queries=3,
    mixing_alphabet=3,
    mixing_betas=(0.0, 6.0),
    holdings=(0.0, 0.8),
    mixing_replicas=600,
    control_replicas=600,
    operator_betas=(0.1, 0.2, 4.0, 12.0),
    operator_queries=4,
    training_alphabets=(3, 2),
    training_chains=1,
    training_lengths=(128, 256, 512),
    training_replicas=200,
    times=17,
    batches=4,
    risk_alphabet=3,
    risk_concentrations=(3.0,),
    risk_chains=60,
    risk_replicas=20,
    risk_lengths=(32, 512),
    risk_betas=(0.0, 3.0, 6.0),
)


@functools.cache
def dataset():
    return STUDY.run(SMALL)


def outcome(data, asked):
    return next(verdict for verdict in STUDY.judge(data) if asked in verdict.asked)


def test_registered_and_every_verdict_speaks_for_q3_or_c5():
    assert study("ngram") is STUDY
    found = STUDY.judge(dataset())
    assert {verdict.claim for verdict in found} == {"Q3", "C5"}
    assert [verdict.asked for verdict in found if verdict.control] == ["Does the prediction fit the same symbols shuffled in time?"]
    assert all(verdict.outcome == "fails" for verdict in found if verdict.control)


def test_cells_are_reproducible_and_independent():
    cell = "chain 3 symbols, order 1"
    again = STUDY.compute(SMALL, cell, lambda message: None)
    np.testing.assert_array_equal(again.mse, dataset().mse.sel(case="3 symbols, order 1"))
    other = STUDY.compute(dataclasses.replace(SMALL, seed=1), cell, lambda message: None)
    assert not np.allclose(other.mse, again.mse)
    assert not np.allclose(other.constant, again.constant)


def put(name, where, value):
    def doctor(data):
        data[name][where] = value(data[name][where])

    return doctor


DOCTORED = [
    ("converge to the discrete tilt", "holds", put("constant", {"case": 1}, lambda x: 2 * x), "fails"),
    ("exact law of a finite path", "holds", put("exact", {"case": 0}, lambda x: 2 * x), "fails"),
    ("mixing time as predicted", "holds", put("mixing_exact", {}, lambda x: 2 * x), "fails"),
    ("mixing time as predicted", "holds", put("mixing_constant", {"holding": -1}, lambda x: 0.01 * x), "fails"),
    ("price of slow mixing vanish", "holds", put("mixing_ngram_ratio", {}, lambda x: x + 0.1), "fails"),
    (
        "shuffled in time",
        "fails",
        lambda data: data.update({"shuffled_mse": data.control_exact.sel(source="chain", drop=True)}),
        "holds",
    ),
    ("base theory", "holds", put("control_exact", {"source": 3}, lambda x: 2 * x), "fails"),
    ("base theory", "holds", put("independent_symbols_gap", {}, lambda x: x + 1e-6), "fails"),
    ("grow without bound", "holds", put("beta_infinite", {"training_order": 0}, lambda x: 0.8 * x), "fails"),
    ("stop at a finite", "holds", put("best_beta_exact", {"training_order": 0}, lambda x: x + 0.2), "fails"),
    ("tube around", "holds", put("first_order_shift", {"training_order": 0}, lambda x: 2 * x), "fails"),
    ("like e^-β", "holds", put("row_leading", {"case": 2}, lambda x: 1.1 * x), "fails"),
    ("like e^-β", "holds", put("tv_drawn", {"risk_length": -1}, lambda x: 1.5 * x), "fails"),
    ("beat the unsmoothed", "holds", put("saved", {}, lambda x: -x), "fails"),
    ("beat the unsmoothed", "holds", put("saved", {}, lambda x: 0 * x), "undecided"),
    ("beat the unsmoothed", "holds", put("saved", {"risk_length": -1}, lambda x: 0.2 * x), "holds in part"),
    ("stay a linear operator", "fails", put("affine_gap", {}, lambda x: 1e-14 + 0 * x), "holds"),
    ("stay a linear operator", "fails", put("affine_exact", {}, lambda x: 3 * x), "undecided"),
    ("mixture", "holds", put("identity_error", {"case": 0}, lambda x: x + 1e-9), "fails"),
]


@pytest.mark.parametrize(("asked", "before", "doctor", "after"), DOCTORED)
def test_rule_reacts(asked, before, doctor, after):
    data = dataset()
    assert outcome(data, asked).outcome == before, outcome(data, asked).measured
    wrong = data.copy(deep=True)
    doctor(wrong)
    assert outcome(wrong, asked).outcome == after


def test_extrapolation_removes_the_second_order():
    lengths = (16, 64, 256, 1024)
    weights = extrapolation(lengths, 60)
    at = np.array(lengths, dtype=float)
    assert weights[0] == 0
    assert float(weights @ (3.0 + 5.0 / at)) == pytest.approx(3.0, rel=1e-12)
    assert np.isnan(extrapolation(lengths, 100)).all()
    paths = np.random.default_rng(0).normal(1.0, 0.1, 500)
    found = summary((3.0 / at + 5.0 / at**2)[:, None] * paths, lengths, np.asarray(60.0))
    assert float(found["extrapolated"]) == pytest.approx(3.0 * paths.mean(), rel=1e-12)
    assert float(found["extrapolated_standard_error"]) == pytest.approx(3.0 * paths.std(ddof=1) / math.sqrt(500), rel=1e-12)


def test_controls_have_mean_zero_and_take_noise_off():
    """The pull of the final context is in them: without it the mean would be off by many standard errors."""
    chains = [MarkovChain.random(3, 1, 1.0, torch.Generator().manual_seed(4))]
    (prompts,) = drawn(chains, (64,), 40_000, 4.0, torch.Generator().manual_seed(0))
    assert_sample_mean(prompts.controls, torch.zeros(2, dtype=torch.float64))
    noise = torch.randn(40_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    values = 2.0 + prompts.controls @ torch.tensor([1.0, -3.0], dtype=torch.float64) + 0.01 * noise
    adjusted = _adjusted(values, prompts.controls)
    assert float(adjusted.std()) < 0.011
    assert float(adjusted.mean()) == pytest.approx(2.0, abs=5e-4)


def drawn_in(axes, values):
    values = np.asarray(values)
    lines = [np.asarray(line.get_ydata(), dtype=np.float64) for line in axes.lines]
    return any(len(line) == len(values) and np.allclose(line, values, equal_nan=True) for line in lines)


def test_figures_draw_predictions_and_data():
    data = dataset()
    drawn_figures = [(entry, entry.draw(data)) for entry in figures("ngram")]
    for entry, figure in drawn_figures:
        with house_style():
            figure.draw_without_rendering()
        assert all(axes.get_xlabel() and axes.get_ylabel() for axes in figure.axes)
        assert entry.caption.endswith(".")
    paths, training, operator = (figure.axes for _, figure in drawn_figures)
    left, middle, right = paths
    one = data.sel(case="2 symbols, order 2", query="last").isel(beta=1)
    assert drawn_in(left, one.mse)
    assert drawn_in(left, one.constant / data.length)
    assert drawn_in(middle, (data.extrapolated / data.constant).sel(beta=2.0).stack(pair=("case", "query")))
    assert drawn_in(right, (data.mixing_curve / data.mixing_curve_independent).sel(mixing_beta=6.0))
    left, middle, right = training
    first = data.sel(training_order=1)
    assert drawn_in(middle, first.best_beta_predicted)
    assert drawn_in(middle, first.best_beta_exact)
    early = first.sel(time=slice(0, float(data.tube_until)))
    assert drawn_in(right, abs(early.beta_exact - early.beta_infinite).max("time"))
    left, middle, right = operator
    assert drawn_in(left, data.affine_gap.isel(case=1))
    assert drawn_in(middle, data.infinite_risk.isel(concentration=0))
    saved = data.sel(predictor="posterior mean").isel(concentration=0)
    assert drawn_in(right, saved.saved / saved.saved_predicted)
