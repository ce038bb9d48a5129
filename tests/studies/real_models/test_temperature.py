"""Longer texts with squeezed positions, and scores multiplied by a factor."""

import numpy as np
import pytest
import torch

import largeprompt as lp
from largeprompt.audit import AuditError
from largeprompt.studies.real_models.language import loaded, loss, text_tokens
from largeprompt.studies.real_models.prefixes import Prefixes
from largeprompt.studies.real_models.temperature import (
    SCALINGS,
    factors,
    interpolated,
    look,
    scaled_queries,
    trained_length,
)


@pytest.fixture
def reader(config, files):
    model, folder = loaded(config, print)
    return model, text_tokens(model, folder, files[0], 512, print)


def by_layer(*rows):
    return {i: torch.tensor(row) for i, row in enumerate(rows)}


def test_scaled_queries_are_those_of_scaled_weights(reader):
    """Rotary positions are linear, so that rows of the query projection may be scaled instead."""
    model, given = reader
    found = by_layer([1.0, 1.3, 0.7, 2.0], [0.5, 1.0, 1.1, 1.2])
    plain = loss(model, given, 64)
    with scaled_queries(model, by_layer([1.0] * 4, [1.0] * 4)):
        assert loss(model, given, 64) == pytest.approx(plain, rel=1e-5)
    with scaled_queries(model, found):
        scaled = loss(model, given, 64)
    assert abs(scaled - plain) > 1e-4
    assert loss(model, given, 64) == plain
    with torch.no_grad():
        for layer, each in zip(model.model.layers, found.values(), strict=True):
            layer.self_attn.q_proj.weight.mul_(each.repeat_interleave(8)[:, None])
    assert loss(model, given, 64) == pytest.approx(scaled, rel=1e-5)


def test_positions_are_those_of_transformers(reader, config):
    """The model of the same weights whose config asks for YaRN without its temperature."""
    model, given = reader
    plain = loss(model, given, 64)
    with interpolated(model, 2):
        found = loss(model, given, 64)
    assert loss(model, given, 64) == plain != found
    rope = model.config.rope_parameters
    options = {"factor": 2.0, "attention_factor": 1.0, "original_max_position_embeddings": 256}
    changed = (
        type(model)
        .from_pretrained(
            config.language_model, rope_parameters=rope | {"rope_type": "yarn"} | options
        )
        .eval()
    )
    assert changed.config.rope_parameters["rope_type"] == "yarn"
    assert loss(changed, given, 64) == pytest.approx(found, rel=1e-5)
    with pytest.raises(AuditError, match="plain rotary"), interpolated(changed, 2):
        pass


def test_exact_factors_keep_the_effective_tokens(reader):
    model, given = reader
    seen = Prefixes([trained_length(model)], 4)
    look(model, given[:, :256], seen)
    made = seen.summary().isel(length=0, drop=True)
    found = factors(made, 256, 2)
    keys, variance = made.tokens.round().astype(int), made.score_variance
    expected = lp.length_scaling(2 * keys.values, keys.values, variance.values).numpy()
    np.testing.assert_allclose(found.sel(scaling="exact by head"), expected, rtol=2e-3)
    np.testing.assert_allclose(found.sel(scaling="exact, mean"), expected.mean(), rtol=2e-3)
    np.testing.assert_allclose(found.sel(scaling="log-n"), np.log(512) / np.log(256))
    np.testing.assert_allclose(found.sel(scaling="YaRN"), (1 + 0.1 * np.log(2)) ** 2)


def test_losses_of_the_trial(reader, data):
    model, given = reader
    found = data.long_loss.isel(long_text=0).sel(longer=2)
    assert tuple(found.scaling.values) == SCALINGS
    assert float(data.trained_length.max()) == 256
    with interpolated(model, 2):
        assert float(found.sel(scaling="none")) == pytest.approx(loss(model, given, 64), rel=1e-6)
        with scaled_queries(model, by_layer(*[[float(np.log(512) / np.log(256))] * 4] * 2)):
            expected = loss(model, given, 64)
    assert float(found.sel(scaling="log-n")) == pytest.approx(expected, rel=1e-6)
