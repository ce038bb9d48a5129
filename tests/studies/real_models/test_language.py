"""The parts: what was foretold, what explains it, states in place of heads, losses."""

import numpy as np
import torch
from study_checks import SettingChecks, same_in_any_order

from largeprompt.audit import Heads, linearize, read_out, watching
from largeprompt.studies.real_models.language import (
    loaded,
    loss,
    state_errors,
    state_instead,
    text_tokens,
)
from largeprompt.studies.real_models.own_moments import expected_affine_error
from largeprompt.studies.real_models.study import STUDY


def reader(config, text=0):
    """The model, and 64 letters of a text."""
    model, folder = loaded(config, print)
    return model, text_tokens(model, folder, config.texts[text], 64, print)


def test_law_foretold_by_hand(data):
    one = data.isel(text=0, layer=1, head=2)
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


SOME = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 2)]


def test_a_state_that_holds_everything_changes_nothing(config):
    model, given = reader(config)
    before = loss(model, given, 32)
    with watching(model, state_instead(SOME, 64, True)):
        assert abs(loss(model, given, 32) - before) < 1e-5
    with watching(model, state_instead(SOME, 2, False)):
        assert abs(loss(model, given, 32) - before) > 1e-4


def test_moments_of_all_keys_are_the_affine_read_out_in_the_linear_regime(config):
    model, given = reader(config)
    caught = {}

    def visitor(layer, heads, output):
        small = type(heads)(
            0.01 * heads.query, heads.key, heads.value, None, heads.scale, causal=True
        )
        caught[layer] = (
            state_instead([(layer, head) for head in range(4)], 1, True)(layer, small, output),
            read_out(small, "affine"),
        )

    with torch.no_grad(), watching(model, visitor):
        model(given, use_cache=False)
    for state, affine in caught.values():  # nearly equal weights: whichever keys are read exactly
        torch.testing.assert_close(state, affine, rtol=1e-3, atol=1e-3)


def test_loss_is_of_the_second_half(config):
    model, given = reader(config, 1)
    with torch.no_grad():
        logs = torch.log_softmax(model(given).logits[0], -1)
    expected = -np.mean([float(logs[t - 1, given[0, t]]) for t in range(32, 64)])
    np.testing.assert_allclose(loss(model, given, 32), expected, rtol=1e-5)


def test_state_errors_by_hand():
    draw, where = torch.Generator().manual_seed(0), torch.tensor([40, 63])
    query, key, value = torch.randn(3, 1, 2, 64, 4, generator=draw, dtype=torch.float64)
    some = Heads(query, key, value, None, 0.5, causal=True)
    scores = (0.5 * query @ key.mT).masked_fill(~torch.ones(64, 64).tril().bool(), -torch.inf)
    weights = torch.softmax(scores, -1)
    exact = (weights @ value)[:, :, where]
    found = state_errors(some, weights @ value, where, [1, 5])
    near = torch.arange(64) > where[:, None] - 5
    near[:, 0] = True
    kept = weights[:, :, where] * near
    read = kept / kept.sum(-1, keepdim=True) @ value
    expected = ((read - exact).square().sum((-1, -2)) / exact.square().sum((-1, -2))).sqrt()[0]
    assert found.shape == (2, 2, 2)
    np.testing.assert_allclose(found[0, 1], expected.numpy(), rtol=1e-12)


def test_states_are_smaller_than_the_text(data):
    """Of width 8: with 16 last tokens and moments 26.6 tokens of 64."""
    np.testing.assert_allclose(data.state_size.sel(state="window"), [5, 17])
    np.testing.assert_allclose(data.state_size.sel(state="moments", recent=4), 5 + 117 / 16)


def test_heads_within_the_tolerance_are_replaced_by_their_moments(config, data):
    """Those of the smallest errors on the first text."""
    model, given = reader(config, 1)
    order = data.affine_error.isel(text=0).sel(length=64).stack(pair=("layer", "head"))
    count = int(data.within_count.sel(text=config.texts[1]))
    chosen = order.sortby(order).pair.values[:count].tolist()
    with linearize(model, chosen):
        changed = loss(model, given, 32)
    found = data.sel(text=config.texts[1])
    np.testing.assert_allclose(found.loss, loss(model, given, 32), rtol=1e-6)
    np.testing.assert_allclose(found.within_change, changed - float(found.loss), atol=1e-6)


class TestSettings(SettingChecks):
    study = STUDY
    refused = (
        "parts=poems",
        "texts=code",
        "lengths=64",
        "lengths=32,64",
        "lengths=128,64",
        "queries=9",
        "replaced_shares=0,1",
        "longer=3",
        "kinds=digits",
        "rows=8",
        "tables=1",
        "columns=0",
        "folds=1",
        "seed=-1",
    )


def test_same_numbers_in_any_order(data):
    same_in_any_order(STUDY, data)
