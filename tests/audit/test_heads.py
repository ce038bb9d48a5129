"""Bare tensors of a layer: their verdicts, and what is refused."""

import dataclasses

import pytest
import torch

from largeprompt.audit import FINDINGS, Heads, audit_heads, read_out, summary
from largeprompt.errors import InvalidArgumentError


def test_bad_heads_are_refused(random_heads):
    good = random_heads()
    with pytest.raises(InvalidArgumentError, match="four dimensions"):
        Heads(good.query[0], good.key, good.value, None, 1.0)
    with pytest.raises(InvalidArgumentError, match="heads a multiple"):
        Heads(good.query[:, :3], good.key, good.value, None, 1.0)
    with pytest.raises(InvalidArgumentError, match="mask"):
        Heads(good.query, good.key, good.value, torch.ones(2, 1, 50, 49, dtype=torch.bool), 1.0)
    with pytest.raises(InvalidArgumentError, match="mask: got dtype"):
        Heads(good.query, good.key, good.value, torch.ones(1, 1, 50, 50, dtype=torch.int64), 1.0)
    with pytest.raises(InvalidArgumentError, match="kind"):
        read_out(good, "cubic")


def test_bare_tensors_get_verdicts(planted):
    data = audit_heads(planted("linear"), positions=list(range(16)), components=())
    assert dict(data.sizes) == {"text": 6, "layer": 1, "head": 1, "position": 16}
    assert FINDINGS[int(summary(data).finding.item())] == "moments"
    learning = dataclasses.replace(planted("linear"), value=planted("linear").value.requires_grad_())
    assert bool(audit_heads(learning, positions=4, components=()).affine_error.notnull().all())
    with pytest.raises(InvalidArgumentError, match="positions"):
        audit_heads(planted("linear"), positions=[400])
