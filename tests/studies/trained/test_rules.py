"""Trained transformers: settings, rules that go either way, and figures of the data."""

import dataclasses

import numpy as np
import pydantic
import pytest
from study_checks import RuleChecks, SettingChecks, drawn, figures_are_complete

from largeprompt.studies.trained.figures import heads, risk
from largeprompt.studies.trained.study import STUDY


class TestSettings(SettingChecks):
    study = STUDY
    refused = ("models=attention", "models=blocks 0x1", "width=0", "runs=0", "queries=1")


@pytest.mark.parametrize("bad", [{"width": 31}, {"test_lengths": (8,)}])
def test_bad_settings_are_refused(bad):
    with pytest.raises(pydantic.ValidationError, match=next(iter(bad))):
        dataclasses.replace(STUDY.quick, **bad)


class TestRules(RuleChecks):
    study = STUDY
    reactions = ()

    def test_rules_react(self, data):
        def found(words, **changes):
            made = data.copy()
            for name, value in changes.items():
                made[name] = value.broadcast_like(data[name]).transpose(*data[name].dims)
            (rule,) = (each for each in STUDY.rules if words in each.question)
            return rule(made).outcome

        optimum, linear, softmax = data.objective_optimum, data.linear_optimum, data.softmax_optimum
        for factor, outcome in ((1.01, "holds"), (1.03, "fails")):
            assert found("one bare head", exact_objective=factor * optimum) == outcome
        for alpha, outcome in ((0.4, "holds"), (0.6, "fails")):
            values = data.alpha.where(data.alpha.isnull(), alpha)
            share = found("of bare attention", alpha=values)
            assert share in (outcome, "undecided")  # few trainings
        part = linear.where(data.length > 16, softmax)
        for value, outcome in ((linear, "holds"), (softmax, "fails"), (part, "holds in part")):
            assert found("two softmax heads", risk=value) == outcome
        tiny = 1e-4 * data.risk_error
        for value, outcome in ((data.bayes, "holds"), (2 * softmax, "fails")):
            assert found("deeper models", risk=value, risk_error=tiny) == outcome
        same = data.replaced_risk.sel(replaced="softmax", drop=True)
        worse = same * (1 + (data.replaced == "affine"))
        for value, outcome in ((same, "holds"), (worse, "fails")):
            assert found("be replaced", replaced_risk=value) == outcome
        assert found("without information", risk=data.zero_risk) == "fails"
        assert found("without information", risk=data.bayes) == "holds"


def test_figures_draw_what_was_found(data):
    bare = risk.draw(data).axes[0]
    assert drawn(bare, data.bayes - data.floor)
    one = data.sel(model="attention 1x1")
    assert drawn(bare, (one.risk - data.floor).mean("run"))
    along, _, change = heads.draw(data).axes
    assert drawn(along, one.alpha.median(["run", "layer", "head"]))
    ratio = one.replaced_risk / one.replaced_risk.sel(replaced="softmax")
    assert drawn(change, np.minimum(ratio.sel(replaced=["affine", "mean"]).median("run"), 20))
    figures_are_complete(STUDY, data)
