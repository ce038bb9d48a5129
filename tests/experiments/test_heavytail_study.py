"""The heavy-tail study in a small setting: its predictions, its verdict rules, and its figures."""

import dataclasses
import functools
import math

import numpy as np
import pytest
import torch
import xarray as xr

import largeprompt as lp
from largeprompt.law import scalar_prompt
from largeprompt.measures import StudentT, StudentTLaw
from largeprompt.report.catalogue import figures
from largeprompt.studies.heavytail import regression as scalar_regression
from largeprompt.studies.heavytail.rules import allowed_distance, crossing, first_length
from largeprompt.studies.heavytail.study import HeavyTailConfig, asymptote, cells, compute, ideal_tail_index, rule_of_thumb, target
from largeprompt.studies.registry import study

SMALL = HeavyTailConfig(
    dfs=(math.inf, 20.0, 8.0, 4.0, 2.5, 1.0),
    tilts=(1.0,),
    laplace_tilts=(0.5, 1.1, 2.5),
    lognormal_tilts=(-1.0, 1.0),
    lengths=(10, 100, 1000),
    tokens=400_000,
    most_replicas=2000,
    per_decade=1,
    finest=7,
    training_dfs=(math.inf, 1.0),
    training_length=10,
    steps=60,
    batch_size=16,
    runs=6,
    test_prompts=200,
)


@functools.cache
def dataset():
    """The small setting, the risk of training on a coarser table of tilts: good to a few per cent, which is what the rules ask."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scalar_regression, "TILTS", np.logspace(-3, 4, 12))
        return study("heavytail").run(SMALL)


def outcomes(data):
    return {verdict.asked.split("?")[0]: verdict for verdict in study("heavytail").judge(data)}


def find(data, words):
    return next(verdict for asked, verdict in outcomes(data).items() if words in asked)


def test_verdicts_of_the_small_setting():
    data = dataset()
    expected = {
        "Do drawn prompts agree": "holds",
        "df = inf give back": "holds",
        "Below which df": "holds",
        "Is there a finite df": "fails",
        "return its largest token": "holds",
        "Laplace: does": "holds",
        "Lognormal": "holds",
        "affine read-out": "fails",
        "same variance describe": "fails",
    }
    assert {words: find(data, words).outcome for words in expected} == expected
    assert find(data, "same variance describe").control
    assert {verdict.claim for verdict in outcomes(data).values()} == {"N3"}


def doctored(**changes):
    data = dataset().copy(deep=True)
    for name, change in changes.items():
        data[name] = change(data[name])
    return data


@pytest.mark.parametrize(
    ("words", "changes", "outcome"),
    [
        ("Do drawn prompts agree", {"sampled": lambda v: 1.5 * v}, "fails"),
        ("df = inf give back", {"gaussian_difference": lambda v: v + 1e-6}, "fails"),
        ("Below which df", {"measured_breakdown": lambda v: 3 * v}, "fails"),
        ("Is there a finite df", {"breakdown": lambda v: -v}, "undecided"),
        ("return its largest token", {"of_largest": lambda v: 0 * v + 0.5}, "fails"),
        ("return its largest token", {"asymptote": lambda v: 0.5 * v}, "fails"),
        ("Laplace: does", {"curve": lambda v: v**0.9}, "fails"),
        ("Lognormal", {"asymptote": lambda v: 2 * v}, "fails"),
        ("affine read-out", {"error": lambda v: v / v.length**2}, "holds"),
        ("df = inf: does SGD", {"run_risk": lambda v: v + 1}, "fails"),
        ("learn at every df", {"run_median": lambda v: 0 * v.fillna(0).clip(0, 1)}, "holds"),
    ],
)
def test_verdicts_can_go_the_other_way(words, changes, outcome):
    before, after = find(dataset(), words), find(doctored(**changes), words)
    assert after.outcome == outcome
    assert after.measured != before.measured


def test_tail_index_that_sees_every_breakdown_holds_and_one_that_sees_none_fails():
    data = dataset().copy(deep=True)
    base = data.exact.sel(quantity="participation").isel(case=0)
    broken = data.exact.sel(quantity="participation") / base >= 2
    data["tail_index"] = (0 * data.tail_index.fillna(0) + broken.astype(float)).transpose(*data.tail_index.dims)
    assert find(data, "see the breakdown").outcome == "holds"
    data["tail_index"] = 1 - data.tail_index
    assert find(data, "see the breakdown").outcome == "fails"


def test_control_holds_when_heavy_tails_are_taken_away():
    data = dataset().copy(deep=True)
    base = data.isel(case=0)
    for i in range(data.sizes["case"]):
        if float(data.df[i]) == 2.5:
            data.sampled[i] = base.exact
    assert find(data, "same variance describe").outcome == "holds"


def test_same_numbers_whatever_the_order_of_cells():
    name = next(cell for cell in cells(SMALL) if cell == "df = 4")
    again = compute(SMALL, name, lambda message: None)
    whole = dataset().isel(case=np.flatnonzero((dataset().law == "df = 4").values))
    np.testing.assert_array_equal(again.sampled, whole.sampled)


def test_student_laws_share_their_random_numbers():
    """df = inf and df = 10^9 draw the same tokens, so that differences between laws are not noise."""
    config = dataclasses.replace(SMALL, dfs=(math.inf, 1e9), lengths=(10,))
    near, far = (compute(config, f"df = {df:g}", lambda message: None) for df in config.dfs)
    np.testing.assert_allclose(near.sampled, far.sampled, rtol=1e-6)


def test_allowed_distance_is_not_passed_by_rare_events():
    """Means of 100 coins of probability 1e-3: where none fell their own error is 0, and Bernstein's bound still holds."""
    random = np.random.default_rng(0)
    means = random.binomial(100, 1e-3, size=20_000) / 100
    one = xr.DataArray(1.0)
    allowed = float(allowed_distance(xr.DataArray(1e-3 * 0.999), one, xr.DataArray(100), 1e-4))
    assert (np.abs(means - 1e-3) > allowed).mean() <= 1e-3
    assert float(allowed_distance(one / 12, one, xr.DataArray(10**6), 1e-6)) < 6 / math.sqrt(12 * 10**6)


def test_crossing_finds_the_level():
    df = np.geomspace(2, 100, 30)
    assert crossing(df, 1 + 30 / df**1.5) == pytest.approx(30 ** (1 / 1.5), rel=2e-3)
    assert math.isnan(crossing(df, np.ones(30)))
    assert math.isinf(crossing(df, np.full(30, 3.0)))


def test_breakdown_and_lasting_length_are_exact_and_inverse():
    data = dataset().sel(breakdown_tilt=1.0)
    gaussian = StudentTLaw(math.inf, 1.0)

    def ratio(df, length):
        return float(
            (
                scalar_prompt(StudentT(1, df).law, 1.0, [length]).participation
                / scalar_prompt(gaussian, 1.0, [length]).participation
            )[0]
        )

    for length in (100, 10**6):
        assert ratio(float(data.breakdown.sel(grid=length)), length) == pytest.approx(2.0, abs=1e-4)
    for df, length in zip(data.lasting_df.values, data.lasting.values, strict=True):
        assert ratio(float(df), int(length)) == pytest.approx(2.0, abs=0.02 if length > 100 else 0.1)
    assert (np.diff(data.lasting.values) > 0).all()


def test_first_length_is_the_first_that_passes():
    lengths = [10, 100, 1000, 10**6]
    assert first_length(lambda at: np.array(at) / 150, lengths) == 300
    assert first_length(lambda at: np.array(at) / 1e5, lengths) == pytest.approx(2e5, rel=1e-3)
    assert first_length(lambda at: np.zeros(len(at)), lengths) == math.inf


def test_asymptotes_meet_the_exact_curves():
    data = dataset()
    for i in range(data.sizes["case"]):
        case = data.isel(case=i)
        ratio = float((case.curve / case.asymptote)[-1])
        if np.isfinite(ratio) and not float(case.df) > 4:
            assert ratio == pytest.approx(1.0, rel=0.02), str(case.law.values)
    participation, mean = asymptote(lp.LogNormalLaw(0.5), 1.0, np.array([10.0]))
    assert np.isnan(participation).all()
    assert np.isnan(mean).all()


def test_targets_are_limits_where_they_exist():
    assert target(lp.LaplaceLaw(), 1.0) == pytest.approx(2.0)
    assert target(lp.LaplaceLaw(), 2.0) == 2.0
    assert target(lp.StudentTLaw(3.0, 1.0), 0.7) == 0.7
    assert target(lp.LogNormalLaw(0.5), -1.0) == pytest.approx(float(lp.LogNormal(1, 0.5).tilted_mean([-1.0])))


def test_tail_index_of_laplace_weights_is_known():
    """Weights e^{uz} have tail index u/√2; the estimate leans towards 1/2 by its prior."""
    assert ideal_tail_index(lp.LaplaceLaw(), 1.2, 10**6) == pytest.approx(1.2 / math.sqrt(2), abs=0.01)
    assert math.isnan(ideal_tail_index(lp.LaplaceLaw(), 1.2, 5))


def test_rule_of_thumb_is_a_quantile():
    df = rule_of_thumb(1.0, 1e6)
    quantile = lp.StudentT(1, df).law.scale * torch.tensor(1.0)
    from scipy.stats import t

    assert float(quantile) * t.isf(1e-6, df) == pytest.approx(math.log(1e6) / 2 + 1, rel=1e-6)


def test_figures_draw_what_the_data_says():
    data = dataset()
    entries = figures("heavytail")
    assert [entry.name for entry in entries] == ["tails", "breakdown", "heavy_training"]
    for entry in entries:
        figure = entry.draw(data)
        assert all(axes.get_xlabel() and axes.get_ylabel() for axes in figure.axes)
    left = entries[1].draw(data).axes[0]
    lines = [line.get_ydata() for line in left.lines]
    assert any(len(line) == data.sizes["grid"] and np.allclose(line, data.breakdown[0], equal_nan=True) for line in lines)
