"""The factor on a head's scores as the prompt grows."""

import numpy as np
import pytest
import torch
import xarray as xr

import largeprompt as lp
from largeprompt.audit import audit_heads, summary
from largeprompt.audit.factors import with_factors


def test_factors_are_those_of_the_exact_law():
    variance = np.geomspace(0.02, 40.0, 48).reshape(12, 4)
    variance[3, 1] = 0.0
    dims = ("layer", "head")
    heads = xr.Dataset({"score_variance": (dims, variance), "tokens": (dims, 0 * variance + 300)})
    found = with_factors(heads)
    some = np.array([0, 9, 20, 33, 47])
    for times in (2, 4, 8):
        exact = lp.length_scaling(times * 300, 300, variance.ravel()[some]).numpy()
        np.testing.assert_allclose(found[f"factor_{times}"].values.ravel()[some], exact, rtol=2e-3)
        assert np.isnan(found[f"factor_{times}"].values[3, 1])


def test_they_keep_the_tokens_that_a_gaussian_head_reads(random_heads):
    heads = random_heads(batch=1, tokens=4000, width=8)
    short = heads.like(key=heads.key[:, :, :1000], value=heads.value[:, :, :1000])
    some = torch.arange(0, 1000, 10).tolist()
    one = with_factors(summary(audit_heads(short, positions=some, components=())))
    factor = float(one.factor_4.mean())
    scaled = heads.like(scale=factor * heads.scale)
    two, same = (
        summary(audit_heads(each, positions=some, components=())) for each in (scaled, heads)
    )
    kept, grown = (
        float((each.effective_tokens / one.effective_tokens).mean()) for each in (two, same)
    )
    assert kept == pytest.approx(1.0, abs=0.15)
    assert grown > 2
