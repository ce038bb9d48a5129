"""Heads are switched off, and nothing else changes."""

import pytest
import torch
from tiny_models import AUDITED, LAYERS, tiny_inputs, tiny_model

from largeprompt.audit import watching, zero_heads
from largeprompt.errors import InvalidArgumentError

# which some architectures use on import
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script.* is deprecated")

# output projection of layer 0, and the dimension along which heads stand
PROJECTIONS = {
    "LlamaForCausalLM": ("model.layers.0.self_attn.o_proj.weight", 1),
    "BertModel": ("encoder.layer.0.attention.output.dense.weight", 1),
    "GPT2LMHeadModel": ("transformer.h.0.attn.c_proj.weight", 0),
}


@pytest.mark.parametrize("name", AUDITED)
def test_every_architecture(name):
    model = tiny_model(name)
    inputs = tiny_inputs(model)
    layers = LAYERS.get(name, [0, 1])
    seen = {}
    with torch.no_grad():
        before = model(**inputs)[0]
        with zero_heads(model, []):
            assert torch.equal(model(**inputs)[0], before)
        zeroed = zero_heads(model, [(layers[-1], 1)])
        with watching(model, lambda layer, heads, output: seen.update({layer: output})), zeroed:
            after = model(**inputs)[0]
        assert torch.equal(model(**inputs)[0], before)
    assert not torch.equal(after, before)
    assert float(seen[layers[-1]][:, 1].abs().max()) > 0  # the head itself was not 0


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "BertModel", "GPT2LMHeadModel"])
def test_a_head_is_its_part_of_the_output_projection(name):
    model = tiny_model(name)
    inputs = tiny_inputs(model)
    with zero_heads(model, [(0, 1)]), torch.no_grad():
        zeroed = model(**inputs)[0]
    place, dim = PROJECTIONS[name]
    weight = model.get_parameter(place)
    with torch.no_grad():
        weight.tensor_split(2, dim)[1].zero_()
        by_hand = model(**inputs)[0]
    torch.testing.assert_close(zeroed, by_hand, rtol=1e-12, atol=1e-12)


def test_gradients_flow_through_the_other_heads():
    model = tiny_model("LlamaForCausalLM").train()
    with zero_heads(model, [(0, 0)]):
        model(**tiny_inputs(model))[0].square().mean().backward()
    query = model.model.layers[0].self_attn.q_proj.weight.grad
    first, second = query.tensor_split(2)
    assert not bool(first.any())
    assert bool(second.any())


@pytest.mark.parametrize("heads", [[(2, 0)], [(0, 2)], [(0, -1)], [0], [(0, 1, 2)], "L0H1", None])
def test_wrong_heads(heads):
    model = tiny_model("LlamaForCausalLM")
    with pytest.raises(InvalidArgumentError, match="heads"), zero_heads(model, heads):
        pass
