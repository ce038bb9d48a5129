"""The stacked transformer against slow references, and its training."""

import math

import numpy as np
import pytest
import torch

import largeprompt as lp
from largeprompt.studies.trained.study import TrainedConfig
from largeprompt.studies.trained.transformer import (
    Architecture,
    StackedTransformer,
    reading_mask,
    train,
)
from largeprompt.studies.trained.trial import draw as draw_prompts


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def tokens(runs, batch, length, queries, inputs, seed=1):
    found = torch.randn(runs, batch, length + queries, inputs, generator=generator(seed))
    found[:, :, length:, -1] = 0
    return found


def test_who_reads_whom():
    mask = reading_mask(3, [1, 3])
    assert mask.shape == (1, 1, 5, 3)
    assert mask[0, 0].int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1], [1, 0, 0], [1, 1, 1]]


def test_one_bare_head_is_the_librarys_softmax_attention():
    model = StackedTransformer(Architecture("attention", 1, 1, 3), 2, generator())
    prompt = tokens(2, 4, 6, 2, 3)
    with torch.no_grad():
        found = model(prompt, reading_mask(6, [4, 6])).double()
    U, V = model.single_layer()
    wide = prompt.double()
    for run in range(2):
        attention = lp.SoftmaxAttention(U[run], V[run])
        for text in range(4):
            for query, length in enumerate((4, 6)):
                expected = attention(
                    lp.Empirical(wide[run, text, :length]), wide[run, text, 6 + query]
                )
                assert float(found[run, text, query]) == pytest.approx(float(expected), abs=2e-5)


@pytest.mark.parametrize("kind", ["attention", "blocks"])
def test_a_query_of_a_prefix_sees_a_prompt_of_that_length(kind):
    model = StackedTransformer(Architecture(kind, 3, 2, 4, 8), 1, generator())
    prompt = tokens(1, 5, 9, 2, 4)
    with torch.no_grad():
        both = model(prompt, reading_mask(9, [4, 9]))
        short = model(torch.cat([prompt[:, :, :4], prompt[:, :, 9:10]], 2), reading_mask(4, [4]))
        changed = prompt.clone()
        changed[:, :, 4:9] += 1.0
        after = model(changed, reading_mask(9, [4, 9]))
    torch.testing.assert_close(both[..., :1], short, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(both[..., :1], after[..., :1], atol=2e-5, rtol=1e-4)
    assert float((both[..., 1] - after[..., 1]).abs().max()) > 1e-3


def reference(model, run, prompt, prefixes):
    """The blocks one query and one head at a time, float64."""
    shape = model.architecture
    get = {name: each[run].detach().double() for name, each in model.parameters.items()}

    def norm(x, name):
        x = (x - x.mean(-1, keepdim=True)) / torch.sqrt(
            x.var(-1, keepdim=True, correction=0) + 1e-5
        )
        return x * get[f"{name}.gain"] + get[f"{name}.shift"]

    stream = prompt.double() @ get["embed"] + get["embed.bias"]  # (rows, width)
    length = len(prompt) - len(prefixes)
    for i in range(shape.layers):
        source, new = norm(stream, f"{i}.before"), []
        for row in range(len(stream)):
            seen = source[: row + 1 if row < length else prefixes[row - length]]
            parts = []
            for head in range(shape.heads):
                part = slice(head * shape.head_width, (head + 1) * shape.head_width)
                query, key, value = (each[:, part] for each in get[f"{i}.read"].chunk(3, -1))
                weights = torch.softmax(
                    seen @ key @ (source[row] @ query) / math.sqrt(shape.head_width), 0
                )
                parts.append(weights @ (seen @ value))
            new.append(stream[row] + torch.cat(parts) @ get[f"{i}.write"])
        stream = torch.stack(new)
        hidden = torch.nn.functional.gelu(
            norm(stream, f"{i}.between") @ get[f"{i}.up"] + get[f"{i}.up.bias"]
        )
        stream = stream + hidden @ get[f"{i}.down"] + get[f"{i}.down.bias"]
    return (norm(stream, "last") @ get["answer"] + get["answer.bias"])[length:, 0]


def test_blocks_of_every_run_agree_with_a_slow_reference():
    model = StackedTransformer(Architecture("blocks", 2, 2, 3, 8), 3, generator())
    draw = generator(5)
    for each in model.parameters.values():  # gains and biases too
        each.data += 0.3 * torch.randn(each.shape, generator=draw)
    prompt = tokens(3, 2, 5, 2, 3)
    with torch.no_grad():
        found = model(prompt, reading_mask(5, [3, 5]))
    for run in range(3):
        for text in range(2):
            expected = reference(model, run, prompt[run, text], [3, 5])
            torch.testing.assert_close(found[run, text].double(), expected, atol=5e-5, rtol=1e-4)


def test_runs_train_apart():
    """A run trains as it would alone: neither its neighbors' losses nor their
    gradients reach it.
    """

    def trained(runs):
        model = StackedTransformer(Architecture("blocks", 1, 1, 3, 4), 2, generator())
        model.runs = len(runs)
        model.parameters = {
            name: each.detach()[runs].clone().requires_grad_()
            for name, each in model.parameters.items()
        }
        stream = generator(3)

        def draw():
            prompt = torch.randn(2, 4, 6, 3, generator=stream)
            # long gradients: each run's own is shortened
            return prompt[runs], 40 * prompt[runs, :, 5:, 0]

        train(
            model, draw, reading_mask(5, [5]), steps=3, learning_rate=0.1, watch=lambda step: None
        )
        return model.parameters

    both, second = trained([0, 1]), trained([1])
    for name, each in second.items():
        torch.testing.assert_close(both[name][1:], each, atol=1e-5, rtol=1e-4)


def test_training_watches_every_step_and_learns():
    model = StackedTransformer(Architecture("attention", 1, 1, 2), 1, generator())
    config, stream = TrainedConfig(dim=1, runs=1), generator(2)
    losses, seen = [], []

    def draw():
        prompt, _, noisy = draw_prompts(config, stream, 64, 8, 2)
        losses.append(float((model(prompt, mask) - noisy).detach().square().mean()))
        return prompt, noisy

    mask = reading_mask(8, [8, 8])
    train(model, draw, mask, steps=200, learning_rate=0.03, watch=seen.append)
    assert seen == list(range(201))
    assert np.mean(losses[-20:]) < 0.75 * np.mean(losses[:20])
