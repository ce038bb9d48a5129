"""Choosing heads within a budget."""

import math

import pytest
import torch

from largeprompt.audit import linearize, perplexity, plan_linear
from largeprompt.audit.choose import kept
from largeprompt.audit.replace import outputs
from largeprompt.errors import InvalidArgumentError

ALL = [(layer, head) for layer in range(2) for head in range(4)]


@pytest.fixture
def sharp(built):
    """A small model whose first layer selects: replacing its heads changes the output, those of the
    second hardly.
    """
    import copy

    model = copy.deepcopy(built("bert").to(torch.float32))
    with torch.no_grad():
        for layer in model.encoder.layer:
            layer.attention.self.value.weight.mul_(60.0)
        model.encoder.layer[0].attention.self.query.weight.mul_(3000.0)
    return model


def test_as_many_heads_as_the_budget_allows(sharp, tokens):
    inputs = tokens(batch=2, length=80)
    plan = plan_linear(sharp, inputs, 0.999)
    assert 0 < len(plan.heads) < 8
    assert plan.measure == "cosine"
    assert plan.kept >= 0.999
    before = outputs(sharp, {name: value[::2] for name, value in inputs.items()})
    order = [*plan.heads, *(head for head in ALL if head not in plan.heads)]
    with linearize(sharp, plan):
        found = kept(before, outputs(sharp, {name: value[::2] for name, value in inputs.items()}))
    assert found == pytest.approx(plan.kept)
    more = plan_linear(sharp, inputs, 0.5, order=order)
    assert len(more.heads) >= len(plan.heads)
    assert more.heads[: len(plan.heads)] == plan.heads
    assert plan.confirmed is not None
    assert plan.kept_error is None  # one text chose
    four = plan_linear(sharp, tokens(batch=4, length=80), 0.999, order=order)
    assert 0 < four.kept_error < 1e-3
    assert 0 < four.confirmed_error < 1e-3
    assert plan_linear(sharp, tokens(length=80), 0.999, order=ALL).confirmed is None


def test_a_plan_is_used_from_its_file(sharp, tokens, tmp_path):
    plan = plan_linear(sharp, tokens(length=80), 0.999)
    assert 0 < len(plan.heads) < 8
    inputs = tokens(length=80, seed=1)
    with linearize(sharp, plan.heads):
        expected = outputs(sharp, inputs).embedding
    with linearize(sharp, plan.save(tmp_path / "heads.json")):
        torch.testing.assert_close(outputs(sharp, inputs).embedding, expected)


def test_perplexity_is_the_exponential_of_the_models_own_loss(built, tokens):
    model = built("llama").to(torch.float64)
    inputs = tokens(batch=2)
    with torch.no_grad():
        loss = float(model(**inputs, labels=inputs["input_ids"]).loss)
    assert perplexity(model, inputs) == pytest.approx(math.exp(loss), rel=1e-6)
    with pytest.raises(InvalidArgumentError, match="a causal language model"):
        perplexity(built("bert"), inputs)
    plan = plan_linear(model, inputs, 0.999)
    assert plan.measure == "loss"


def test_bad_budgets_are_refused(built, tokens):
    for bad in (0.0, 1.01, -1.0, float("nan")):
        with pytest.raises(InvalidArgumentError, match="budget"):
            plan_linear(built("bert"), tokens(), bad)
