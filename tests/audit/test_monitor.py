"""What is measured of heads in the forward pass, against attention maps."""

import numpy as np
import pytest
import torch
from tiny_models import tiny_inputs, tiny_model

from largeprompt.audit import monitor, monitor_callback
from largeprompt.errors import InvalidArgumentError
from largeprompt.law import regime


@pytest.fixture(scope="module")
def llama():
    return tiny_model("LlamaForCausalLM")


@pytest.fixture(scope="module")
def tokens(llama):
    return tiny_inputs(llama)


def test_statistics_are_those_of_the_attention_maps(llama, tokens):
    """Scores are logarithms of the weights up to a constant for each query."""
    with monitor(llama, 1, positions=1000) as found, torch.no_grad():
        llama(**tokens)
    data = found.to_xarray()
    eager = tiny_model("LlamaForCausalLM")
    eager.set_attn_implementation("eager")
    with torch.no_grad():
        maps = eager(**tokens, output_attentions=True).attentions
    for layer, weights in enumerate(maps):
        rows = weights[0, :, 32:].double()  # the second half of 64 queries
        logs = [[row[: 33 + t].log() for t, row in enumerate(head)] for head in rows]
        variance = [np.mean([row.var(correction=0) for row in head]) for head in logs]
        entropy = [np.mean([-(row.exp() * row).sum() for row in head]) for head in logs]
        tokens_read = 1 / rows.square().sum(-1).mean(-1)
        here = data.isel(step=0).sel(layer=layer)
        np.testing.assert_allclose(here.score_variance, variance, rtol=1e-4)
        np.testing.assert_allclose(here.entropy, entropy, rtol=1e-4)
        np.testing.assert_allclose(here.effective_tokens, tokens_read, rtol=1e-4)
        np.testing.assert_allclose(here["keys"], 48.5)
        assert here.regime.values.tolist() == [regime(float(each), 48) for each in variance]


def test_the_largest_score(llama, tokens):
    from largeprompt.audit import watching

    largest = {}

    def look(layer, heads, output):
        key = heads.key.repeat_interleave(heads.count // heads.groups, 1)
        scores = (heads.scale * heads.query @ key.mT)[0, :, 32:]
        ahead = torch.ones(64, 64, dtype=torch.bool).triu(1)[32:]
        largest[layer] = scores.masked_fill(ahead, -torch.inf).amax((1, 2))

    with torch.no_grad(), watching(llama, look):
        llama(**tokens)
    with torch.no_grad(), monitor(llama, 1, positions=32) as found:
        llama(**tokens)
    found = found.to_xarray().largest_score.values[0]
    np.testing.assert_allclose(found, torch.stack([largest[0], largest[1]]), rtol=1e-12)


def gradients(model, tokens):
    model.zero_grad()
    model(**tokens, labels=tokens["input_ids"]).loss.backward()
    return [each.grad.clone() for each in model.parameters()]


@pytest.mark.parametrize("checkpointing", [False, True])
def test_training_goes_on_as_before(checkpointing, tokens):
    model = tiny_model("LlamaForCausalLM").train()
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    before = gradients(model, tokens)
    logged = []
    with monitor(model, every=2, log=lambda scalars, step: logged.append((step, scalars))) as found:
        after = [gradients(model, tokens) for _ in range(5)]
    again = gradients(model, tokens)
    for each in (*after, again):
        assert all(map(torch.equal, each, before))
    assert found.steps == [0, 2, 4]
    assert found.to_xarray().sizes == {"step": 3, "layer": 2, "head": 2}
    assert [step for step, _ in logged] == [0, 2, 4]
    names = ("largest_score", "score_variance", "entropy", "effective_tokens")
    expected = {f"L{i}H{j}/{name}" for i in (0, 1) for j in (0, 1) for name in names}
    assert set(logged[0][1]) == expected
    assert all(type(value) is float and value == value for value in logged[0][1].values())
    assert repr(found) == "Monitor(2 layers, 2 heads, 3 steps)"


def test_an_error_in_the_pass_leaves_no_trace(llama, tokens):
    with pytest.raises(ValueError, match="exactly one of input_ids"), monitor(llama, 1) as found:
        llama(**tokens, inputs_embeds=torch.zeros(1))
    assert found.steps == []
    assert found.to_xarray().sizes["step"] == 0
    assert not llama._forward_hooks


def test_compiled_models(tokens):
    """A model that torch.compile made, monitored before or after."""
    model = tiny_model("LlamaForCausalLM")
    with monitor(model, 1) as expected, torch.no_grad():
        model(**tokens)
    compiled = torch.compile(model, backend="eager")
    with monitor(compiled, 1) as found, torch.no_grad():
        compiled(**tokens)
        compiled(**tokens)
    assert found.steps == [0, 1]
    for entropy in found.to_xarray().entropy.values:
        np.testing.assert_allclose(entropy, expected.to_xarray().entropy.values[0], rtol=1e-6)
    torch.compiler.reset()


def test_the_callback_of_the_trainer(tokens):
    """Events in the order of a trainer with two passes a step."""
    from transformers import TrainerControl, TrainerState
    from transformers.trainer_callback import CallbackHandler

    model, logged = tiny_model("LlamaForCausalLM").train(), []
    watch = monitor_callback(every=2, log=lambda scalars, step: logged.append(step))
    handler = CallbackHandler([watch], model, None, None, None)
    state, control = TrainerState(), TrainerControl()
    handler.on_train_begin(None, state, control)
    for step in range(5):
        state.global_step = step
        handler.on_step_begin(None, state, control)
        for _ in range(2):
            model(**tokens)
    handler.on_train_end(None, state, control)
    model(**tokens)
    assert logged == watch.monitor.steps == [0, 2, 4]


@pytest.mark.parametrize(
    ("arguments", "name"), [({"every": 0}, "every"), ({"positions": 0}, "positions")]
)
def test_wrong_arguments(llama, arguments, name):
    with pytest.raises(InvalidArgumentError, match=name), monitor(llama, **arguments):
        pass
    with pytest.raises(InvalidArgumentError, match="model"), monitor(torch.nn.Linear(2, 2)):
        pass
