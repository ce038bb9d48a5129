"""The parts: what was foretold, what explains it, states in place of heads, losses."""

import numpy as np
import torch
from study_checks import SettingChecks, same_in_any_order

from largeprompt.audit import read_out, watching
from largeprompt.studies.languagemodel.parts import loaded, loss, sizes, state_instead
from largeprompt.studies.languagemodel.state import state_tokens
from largeprompt.studies.languagemodel.study import STUDY
from largeprompt.studies.own_moments import expected_affine_error


def test_law_foretold_by_hand(data):
    one = data.isel(text=0, layer=1, head=2).sel(first="read")
    here, there = one.sel(length=128), one.sel(length=512)
    moments = [np.array(float(here[name])) for name in ("score_variance", "tilt", "value_spread")]
    law = [
        float(expected_affine_error(np.array(float(each.tokens.round())), *moments))
        for each in (there, here)
    ]
    told = float(one.law_foretold.sel(made_at=128, length=512))
    # the law is tabulated
    np.testing.assert_allclose(told, float(here.affine_error) * np.sqrt(law[0] / law[1]), rtol=2e-3)
    assert np.isnan(one.law_foretold.sel(made_at=512, length=128))


def test_explanations_add_up(data):
    term = data.explained
    parts = term.sel(term=["foretold", "variance", "shape", "order"]).sum("term", skipna=False)
    np.testing.assert_allclose(parts, term.sel(term="seen"), rtol=1e-9, atol=1e-12)
    seen = np.log(data.affine_error.isel(length=-1) / data.affine_error.isel(length=0))
    np.testing.assert_allclose(term.sel(term="seen").transpose(*seen.dims), seen, rtol=1e-12)
    assert not bool(term.isnull().any())


def test_a_state_that_holds_everything_changes_nothing(config):
    model, (given,) = loaded(config, [config.texts[0]], 64, print)
    before = loss(model, given)
    with watching(model, state_instead({0: [0, 1, 2, 3], 1: [2]}, 1, 64, 1)):
        assert abs(loss(model, given) - before) < 1e-5
    with watching(model, state_instead({0: [0, 1, 2, 3], 1: [2]}, 0, 2, 1)):
        assert abs(loss(model, given) - before) > 1e-4


def test_one_cluster_of_all_keys_is_the_affine_read_out_in_the_linear_regime(config):
    model, (given,) = loaded(config, [config.texts[0]], 64, print)
    caught = {}

    def visitor(layer, heads, output):
        small = type(heads)(
            0.01 * heads.query, heads.key, heads.value, None, heads.scale, causal=True
        )
        caught[layer] = (
            state_instead({layer: [0, 1, 2, 3]}, 1, 1, 1)(layer, small, output),
            read_out(small, "affine"),
        )

    with torch.no_grad(), watching(model, visitor):
        model(given, use_cache=False)
    for state, affine in caught.values():  # nearly equal weights: whichever keys are read exactly
        torch.testing.assert_close(state, affine, rtol=1e-3, atol=1e-3)


def test_loss_is_of_the_second_half(config):
    model, (given,) = loaded(config, [config.texts[1]], 64, print)
    with torch.no_grad():
        logs = torch.log_softmax(model(given).logits[0], -1)
    expected = -np.mean([float(logs[t - 1, given[0, t]]) for t in range(32, 64)])
    np.testing.assert_allclose(loss(model, given), expected, rtol=1e-5)


def test_sizes_of_states(config):
    model, _ = loaded(config, [config.texts[0]], 64, print)
    found = sizes(config, model, (0, 8))
    np.testing.assert_allclose(
        found, [[1, 9], [state_tokens(0, 1, 1, 8, 8), state_tokens(8, 1, 1, 8, 8)]]
    )


class TestSettings(SettingChecks):
    study = STUDY
    refused = (
        "texts=code",
        "lengths=64",
        "lengths=32,64",
        "lengths=128,64",
        "queries=9",
        "replaced_shares=0,1",
        "sinks=0",
        "steps=0",
    )


def test_same_numbers_in_any_order(data):
    same_in_any_order(STUDY, data)
