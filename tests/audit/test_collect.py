"""Layers that are measured together, and prefixes of a text in one pass."""

import dataclasses

import numpy as np
import pytest
import torch

from largeprompt.audit import AuditError, Heads, audit_model, head_statistics
from largeprompt.audit import heads as heads_module
from largeprompt.audit.collect import Collector, LooksAheadError, Place, check_parity
from largeprompt.audit.model import _reads_prefixes
from largeprompt.audit.subsets import subset_statistics

transformers = pytest.importorskip("transformers")


def attended(heads):
    """What a model gives for these heads."""
    rows = heads.scored()
    return rows.read(rows.weights()[0])


@pytest.fixture
def layers(random_heads):
    """Three layers of one text, causal."""
    return [random_heads(seed, batch=1, tokens=200, causal=True) for seed in range(3)]


@pytest.mark.parametrize("chunk", [2**19, 1])
def test_layers_together_have_the_numbers_of_each_alone(chunk, layers, monkeypatch):
    """For a whole text and a prefix of it, in single precision, against one head of one layer at a
    time.
    """
    monkeypatch.setitem(heads_module.CHUNK_NUMBERS, "cpu", (chunk, 0))
    layers = [
        dataclasses.replace(
            each, **{name: getattr(each, name).float() for name in ("query", "key", "value")}
        )
        for each in layers
    ]
    places = [Place(150, torch.arange(9, 150, 20)), Place(200, torch.arange(19, 200, 30))]
    collector = Collector([0, 1, 2], places, (2,), 1)
    for number, each in enumerate(layers):
        collector(number, each, attended(each))
    for place, found in zip(places, collector.finish(), strict=True):
        for number, each in enumerate(layers):
            for head in range(each.count):
                group = slice(head // 2, head // 2 + 1)
                query, key, value = (
                    part[:, chosen, : place.length]
                    for part, chosen in (
                        (each.query, [head]),
                        (each.key, group),
                        (each.value, group),
                    )
                )
                alone = Heads(query, key, value, None, each.scale, causal=True)
                expected = head_statistics(alone, place.positions, (2,), 1) | subset_statistics(
                    alone, place.positions
                )
                for name, values in expected.items():
                    close = {
                        "rtol": 1e-6
                        if name in ("score_variance", "affine_error", "output")
                        else 1e-3,
                        "atol": 1e-5,
                    }
                    np.testing.assert_allclose(
                        found[name][number, head], values[0, 0], **close, err_msg=name
                    )


def test_one_pass_reads_the_lengths_that_separate_passes_read(architecture, built, tokens):
    """Exactly, in causal models; others are not read so."""
    model = built(architecture).to(torch.float64)
    model.set_attn_implementation("sdpa")
    causal = architecture != "bert"
    assert _reads_prefixes(model) == causal
    passes = []
    together = audit_model(
        model, tokens(), lengths=[25, 60], positions=6, components=(2,), progress=passes.append
    )
    assert len(passes) == (1 if causal else 2)
    for length in (25, 60):
        alone = audit_model(
            model, {"input_ids": tokens()["input_ids"][:, :length]}, positions=6, components=(2,)
        )
        for name in ("tokens", "query", "affine_error", "mixture_2_error", "tail_index", "entropy"):
            np.testing.assert_allclose(
                together[name].sel(length=length), alone[name], rtol=1e-8, atol=1e-12, err_msg=name
            )


def test_lengths_are_read_one_by_one_where_rotary_embeddings_change_with_them(built):
    model = built("llama")
    config = model.config
    before = config.rope_parameters
    try:
        config.rope_parameters = before | {"rope_type": "dynamic", "factor": 2.0}
        assert not _reads_prefixes(model)
    finally:
        config.rope_parameters = before
    assert _reads_prefixes(model)


def test_prefixes_of_tokens_that_look_ahead_are_refused(random_heads):
    """Without a mask, and with one that lets a query read the key after it."""
    places = [Place(20, torch.arange(20)), Place(50, torch.arange(50))]
    open_heads = random_heads(batch=1)
    with pytest.raises(LooksAheadError):
        Collector([0], places, (), 0)(0, open_heads, attended(open_heads))
    wide = random_heads(batch=1, mask=torch.ones(50, 50, dtype=torch.bool).tril(1)[None, None])
    collector = Collector([0], places, (), 0)
    collector(0, wide, attended(wide))
    with pytest.raises(LooksAheadError):
        collector.finish()


def test_a_layer_that_is_never_seen_and_outputs_of_another_model_are_refused(layers):
    collector = Collector([0, 4], [Place(200, torch.arange(200))], (), 0)
    collector(0, layers[0], attended(layers[0]))
    with pytest.raises(AuditError, match=r"layers \[4\] never"):
        collector.finish()
    wrong = attended(layers[0])
    wrong[:, 3] *= 1.01
    with pytest.raises(AuditError, match="layer 7, head 3"):
        check_parity(7, layers[0], wrong, torch.arange(0, 200, 10))
    wrong[:, 1, 50] = torch.nan
    with pytest.raises(AuditError, match="NaN or infinity"):
        check_parity(7, layers[0], wrong, torch.arange(0, 200, 10))


@pytest.mark.parametrize("chunk", [2**19, 1])
def test_the_first_layer_whose_outputs_are_of_another_model_is_named(chunk, layers, monkeypatch):
    """Whether layers are measured together or one by one."""
    monkeypatch.setitem(heads_module.CHUNK_NUMBERS, "cpu", (chunk, 0))
    for spoilt, message in ((1.01, "layer 1, head 3"), (torch.nan, "layer 1: .* NaN or infinity")):
        collector = Collector([0, 1, 2], [Place(200, torch.arange(0, 200, 20))], (), 0)
        for number, each in enumerate(layers):
            output = attended(each)
            output[:, 3] *= spoilt if number else 1.0
            collector(number, each, output)
        with pytest.raises(AuditError, match=message):
            collector.finish()


def test_layers_in_half_precision_have_the_numbers_of_their_values_in_single_precision(layers):
    """Sums are taken in single precision, whatever the model computes in."""
    half = [
        dataclasses.replace(
            each, **{name: getattr(each, name).bfloat16() for name in ("query", "key", "value")}
        )
        for each in layers
    ]
    positions = torch.arange(19, 200, 30)
    collector = Collector([0, 1, 2], [Place(200, positions)], (), 0)
    for number, each in enumerate(half):
        collector(number, each, attended(each).bfloat16())
    (found,) = collector.finish()
    for number, each in enumerate(half):
        single = dataclasses.replace(
            each, **{name: getattr(each, name).float() for name in ("query", "key", "value")}
        )
        for name, values in head_statistics(single, positions).items():
            np.testing.assert_allclose(
                found[name][number], values[0], rtol=1e-3, atol=1e-5, err_msg=name
            )


def test_layers_with_masks_of_their_own_are_not_mixed_up(random_heads, masks):
    """Two masks in turns, as in models with full and sliding layers."""
    window = masks(50)["window"]
    full = torch.ones(50, 50, dtype=torch.bool).tril()[None, None]
    layers = [
        random_heads(seed, batch=1, mask=mask)
        for seed, mask in enumerate((window, full, window, full))
    ]
    positions = torch.arange(5, 50, 9)
    collector = Collector(range(4), [Place(50, positions)], (2,), 1)
    for number, each in enumerate(layers):
        collector(number, each, attended(each))
    (found,) = collector.finish()
    for number, each in enumerate(layers):
        expected = head_statistics(each, positions, (2,), 1)
        for name in ("tokens", "affine_error", "mixture_2_error", "tail_index"):
            np.testing.assert_allclose(
                found[name][number], expected[name][0], rtol=1e-9, err_msg=name
            )
