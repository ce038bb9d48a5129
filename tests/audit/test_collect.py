"""Layers that are measured while a model runs, and outputs that are not the model's."""

import numpy as np
import pytest
import torch

from largeprompt.audit import AuditError, head_statistics
from largeprompt.audit.collect import Collector

pytest.importorskip("transformers")


def attended(heads):
    """What a model gives for these heads."""
    rows = heads.scored()
    return rows.read(rows.weights())


@pytest.fixture
def layers(random_heads):
    """Three layers of one text, causal."""
    return [random_heads(seed, batch=1, tokens=200, causal=True) for seed in range(3)]


def test_layers_have_the_numbers_of_each_alone_in_ascending_order(layers):
    positions = torch.arange(19, 200, 30)
    collector = Collector([2, 0], positions, (2,), 1)
    for number in (2, 1, 0):
        collector(number, layers[number], attended(layers[number]))
    found = collector.finish()
    for place, number in enumerate((0, 2)):
        for name, values in head_statistics(layers[number], positions, (2,), 1).items():
            np.testing.assert_array_equal(found[name][place], values[0], err_msg=name)


def test_sums_are_taken_in_single_precision_whatever_the_model_computes_in(layers):
    positions = torch.arange(19, 200, 30)
    half = layers[0].like(
        **{name: getattr(layers[0], name).bfloat16() for name in ("query", "key", "value")}
    )
    single = half.like(**{name: getattr(half, name).float() for name in ("query", "key", "value")})
    collector = Collector([0], positions, (), 0)
    collector(0, half, attended(half).bfloat16())
    found = collector.finish()
    for name, values in head_statistics(single, positions).items():
        np.testing.assert_allclose(found[name][0], values[0], rtol=1e-3, atol=1e-5, err_msg=name)


def test_outputs_of_another_model_and_layers_that_are_never_seen_are_refused(layers):
    for spoilt, message in ((1.01, "L7H3"), (torch.nan, "layer 7: .* NaN or infinity")):
        wrong = attended(layers[0])
        wrong[:, 3] *= spoilt
        with pytest.raises(AuditError, match=message):
            Collector([7], torch.arange(0, 200, 10), (), 0)(7, layers[0], wrong)
    collector = Collector([0, 4], torch.arange(200), (), 0)
    collector(0, layers[0], attended(layers[0]))
    with pytest.raises(AuditError, match=r"layers \[4\] never"):
        collector.finish()


def test_windows_and_caches_are_refused(random_heads, layers):
    two = random_heads(batch=2)
    with pytest.raises(AuditError, match="within 2 windows"):
        Collector([0], torch.arange(4), (), 0)(0, two, attended(two))
    later = layers[0].like(query=layers[0].query[:, :, 150:])
    with pytest.raises(AuditError, match="50 queries read 200 keys"):
        Collector([0], torch.arange(4), (), 0)(0, later, attended(later))
