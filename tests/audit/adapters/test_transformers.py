"""Models of transformers are seen as they are, and left as they were."""

import numpy as np
import pytest
import torch

from largeprompt.audit import audit_model, head_statistics, watching
from largeprompt.audit.model import check_parity


def test_padded_passes_are_seen_as_they_are(architecture, built, padded):
    """A padded batch through the interface itself: parity, and the numbers of each text alone."""
    model = built(architecture).to(torch.float64)
    model.set_attn_implementation("sdpa")
    found = {}

    def look(layer, heads, output):
        check_parity(layer, heads, output, torch.tensor([20, 44]))
        found[layer] = head_statistics(heads, torch.tensor([20, 44]), (3,), 1)

    with torch.no_grad(), watching(model, look):
        model(**padded())
    alone = audit_model(model, padded(), positions=[20, 44], components=(3,))
    for layer in range(2):
        for raw, name_of in (("score_variance", "score_variance"), ("tokens", "tokens"), ("mass_mixture_3", "mass_mixture_3")):
            np.testing.assert_allclose(found[layer][raw].numpy()[1], alone[name_of].values[1, layer], rtol=1e-6, atol=1e-9)


def test_watching_changes_nothing_and_is_undone_after_an_error(architecture, built, tokens):
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    model = built(architecture).to(torch.float32)
    model.set_attn_implementation("sdpa")
    before, names = model(**tokens())[0], set(ALL_ATTENTION_FUNCTIONS.valid_keys())
    with watching(model, lambda layer, heads, output: None):
        assert set(ALL_ATTENTION_FUNCTIONS.valid_keys()) != names
        assert torch.equal(model(**tokens())[0], before)

    def broken(layer, heads, output):
        raise KeyError("on purpose")

    with pytest.raises(KeyError, match="on purpose"), watching(model, broken):
        model(**tokens())
    assert set(ALL_ATTENTION_FUNCTIONS.valid_keys()) == names
    assert model.config._attn_implementation == "sdpa"
    assert torch.equal(model(**tokens())[0], before)
