"""Attention over Markov paths: the exact law against enumeration, the first order against the exact
law and the base theory.
"""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import largeprompt as lp

F = torch.float64


def chain(alphabet, order, seed=0):
    return lp.measures.MarkovChain.random(alphabet, order, 1.0, torch.Generator().manual_seed(seed))


def layer(c, seed=1, out=2):
    d = (c.order + 1) * c.alphabet
    generator = torch.Generator().manual_seed(seed)
    return lp.SoftmaxAttention(
        torch.randn(d, d, generator=generator, dtype=F),
        torch.randn(out, d, generator=generator, dtype=F),
    ), torch.randn(3, d, generator=generator, dtype=F)


def enumerated(c, attention, z, length, center):
    """E‖T_L - c‖² over every path of L windows, from the library's own attention on the tokens."""
    total = mass = 0.0
    law = c.ngram_law(length + c.order)
    for path in itertools.product(range(c.alphabet), repeat=length + c.order):
        symbols = torch.tensor(path)
        output = attention(lp.Empirical(c.tokens(symbols, c.order + 1)), z)
        total += float(law[path]) * (output - center).square().sum(-1)
        mass += float(law[path])
    return total / mass


def test_exact_error_where_some_steps_are_impossible_and_scores_are_large():
    c = lp.measures.MarkovChain([[0.0, 1.0], [0.4, 0.6]])
    attention, z = layer(c)
    attention = lp.SoftmaxAttention(4 * attention.U, attention.V)
    limit = attention(c.ngrams(2), z)
    assert_close(
        lp.finite_prompt(attention, c, z, 5).mse,
        enumerated(c, attention, z, 5, limit),
        rtol=1e-10,
        atol=0,
    )


@pytest.mark.parametrize("size", [300.0, -800.0, 5000.0])
def test_large_tilts_neither_overflow_nor_vanish(size):
    """A match of the first symbol scores ±size: softmax over the matches alone, or over the others
    alone.
    """
    c, eye = chain(2, 1), torch.eye(4, dtype=F)
    attention, z = lp.SoftmaxAttention(eye, eye[2:]), torch.tensor([size, 0.0, 0.0, 0.0], dtype=F)
    center = attention(c.ngrams(2), z)
    expected = enumerated(c, attention, z, 6, center)
    assert_close(
        lp.finite_prompt(attention, c, z, 6).mse,
        torch.as_tensor(expected, dtype=F),
        rtol=1e-10,
        atol=0,
    )


def test_the_door_to_a_path_against_every_path():
    """finite_prompt of a chain: mean, covariance, E Σ w² and mse over all paths of four windows,
    listed.
    """
    attention = lp.SoftmaxAttention(
        torch.eye(4, dtype=torch.float64), [[0.0, 0.0, 1.0, 0.0], [0.5, 0.0, 0.0, 1.0]]
    )
    chain = lp.measures.MarkovChain([[0.9, 0.1], [0.3, 0.7]])
    z, length = torch.tensor([[2.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.5]], dtype=torch.float64), 4
    mean, second, collision = torch.zeros(2, 2), torch.zeros(2, 2, 2), torch.zeros(2)
    for path in itertools.product(range(2), repeat=length + 1):
        steps = list(itertools.pairwise(path))
        probability = chain.stationary.flatten()[path[0]] * math.prod(
            float(chain.transition[a, b]) for a, b in steps
        )
        windows = torch.zeros(length, 4, dtype=torch.float64)
        for row, (a, b) in enumerate(steps):
            windows[row, a] = windows[row, 2 + b] = 1
        weights = torch.softmax(z @ windows.mT, -1)
        output = weights @ windows @ attention.V.mT
        mean, collision = (
            mean + probability * output,
            collision + probability * weights.square().sum(-1),
        )
        second = second + probability * output[:, :, None] * output[:, None, :]
    law = lp.finite_prompt(attention, chain, z, [1, length, 10**6])
    assert law.method == "exact"
    torch.testing.assert_close(law.mean[1], mean, rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(
        law.covariance[1], second - mean[:, :, None] * mean[:, None, :], rtol=0, atol=1e-14
    )
    torch.testing.assert_close(1 / law.effective_tokens[1], collision, rtol=1e-13, atol=0)
    with pytest.raises(lp.InvalidArgumentError, match="ngrams"):
        lp.finite_prompt(attention, chain, z, math.inf)
    with pytest.raises(lp.InvalidArgumentError, match="independent tokens"):
        _ = law.jacobian_u_mse


CASES = json.loads((Path(__file__).parents[1] / "reference" / "chain.json").read_text())


def head(case):
    attention = lp.SoftmaxAttention(
        torch.eye(len(case["u"]), dtype=F), torch.tensor(case["V"], dtype=F)
    )
    return attention, lp.measures.MarkovChain(case["transition"]), torch.tensor(case["u"], dtype=F)


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{len(case['transition'])} symbols, tilt {max(case['u']):.2g}"
)
def test_every_length_and_tilt_against_60_digits(case):
    """Ten digits of bias, mse and E Y from 1 to 10^15 tokens; repeated squaring of M itself loses
    all at 10^15.
    """
    attention, chain, z = head(case)
    law = lp.finite_prompt(attention, chain, z, [row["length"] for row in case["rows"]])
    for name, found in (
        ("bias", law.bias),
        ("mse", law.mse),
        ("collision", 1 / law.effective_tokens),
    ):
        expected = torch.tensor([row[name] for row in case["rows"]], dtype=F)
        size = expected.abs().amax(-1, keepdim=True) if name == "bias" else expected.abs()
        assert float(((found - expected).abs() / size).max()) < 1e-10, name


@pytest.mark.parametrize("scale", [0.01, 1.0])
def test_long_prompts_against_the_first_order(scale):
    """Formula (ngram.4) of docs/mathematics/ngram.md, by the chain's fundamental matrix."""
    generator = torch.Generator().manual_seed(2)
    chain = lp.measures.MarkovChain([[0.7, 0.3, 0.0], [0.1, 0.6, 0.3], [0.5, 0.2, 0.3]])
    U, V, z = (torch.randn(shape, generator=generator, dtype=F) for shape in ((6, 6), (2, 6), (6,)))
    attention, lengths = lp.SoftmaxAttention(scale * U, V), torch.tensor([1e12, 1e15], dtype=F)
    law, window, u = lp.finite_prompt(attention, chain, z, [10**12, 10**15]), chain.ngrams(2), U @ z
    weight = torch.exp(window.atoms @ (scale * u) - window.cgf(scale * u))
    centered = weight * ((window.atoms @ V.mT).mT - attention(window, z).unsqueeze(-1))
    spread = chain.long_run_covariance(centered)
    shift = chain.long_run_covariance(centered, (weight - 1).unsqueeze(-2)).squeeze(-1)
    lengths = lengths[:, None, None]
    assert_close(lengths[:, 0, 0] * law.mse, spread.trace().expand(2), rtol=1e-10, atol=0)
    assert_close(lengths[:, 0] * law.bias, -shift.expand(2, -1), rtol=1e-9, atol=0)
    assert_close(lengths * law.covariance, spread.expand(2, -1, -1), rtol=1e-9, atol=1e-12)


WIDE = [[0.3, 0.4, 0.3], [0.3, 0.6, 0.1], [0.8, 0.1, 0.1]]


@pytest.mark.parametrize("place", range(6))
@pytest.mark.parametrize("size", [1.0, 30.0, 100.0])
def test_short_paths_with_wide_scores_against_all_paths(place, size):
    """The mean of windows of two one-hot symbols sums to 2; it was up to 7.6e-4 off at L = 1, 3
    and 5.
    """
    lengths, P, z = [1, 2, 3, 5], np.array(WIDE), torch.zeros(6, dtype=F)
    z[place] = size
    eye, source = torch.eye(6, dtype=F), lp.measures.MarkovChain(WIDE)
    law = lp.finite_prompt(lp.SoftmaxAttention(eye, eye), source, z, lengths)
    for row, length in enumerate(lengths):
        mean, mse, collision = np.zeros(6), 0.0, 0.0
        for path in itertools.product(range(3), repeat=length + 1):
            chance = float(source.stationary[path[0]]) * math.prod(
                P[a, b] for a, b in itertools.pairwise(path)
            )
            tokens = source.tokens(torch.tensor(path), 2).numpy()
            weights = np.exp(tokens @ z.numpy() - size)
            output = weights @ tokens / weights.sum()
            mean += chance * output
            mse += chance * np.square(output - law.limit.numpy()).sum()
            collision += chance * np.square(weights / weights.sum()).sum()
        np.testing.assert_allclose(law.mean[row], mean, rtol=1e-11, atol=1e-13)
        assert float(law.mse[row]) == pytest.approx(mse, rel=1e-11)
        assert 1 / float(law.effective_tokens[row]) == pytest.approx(collision, rel=1e-11)


@pytest.mark.parametrize(
    ("alphabet", "order", "length"), [(3, 1, 1), (3, 1, 4), (2, 1, 7), (2, 2, 5), (2, 3, 3)]
)
def test_exact_error_by_enumeration(alphabet, order, length):
    c = chain(alphabet, order)
    attention, z = layer(c)
    expected = enumerated(c, attention, z, length, attention(c.ngrams(order + 1), z))
    assert_close(lp.finite_prompt(attention, c, z, length).mse, expected, rtol=1e-11, atol=0)


def test_refusals():
    c = chain(2, 1)
    attention, z = layer(c)
    cases = {
        "attention: got": lambda: lp.finite_prompt(
            lp.LinearAttention(attention.U, attention.V), c, z, 3
        ),
        "length: got 0": lambda: lp.finite_prompt(attention, c, z, 0),
        "z: got scores that differ": lambda: lp.finite_prompt(attention, c, 1e6 * z, 3),
        "a measure on R": lambda: lp.finite_prompt(attention, chain(2, 2), z, 3),
        "expansion: got True": lambda: lp.finite_prompt(attention, c, z, 3, expansion=True),
    }
    for message, call in cases.items():
        with pytest.raises(lp.InvalidArgumentError, match=message):
            call()
    never = lp.measures.MarkovChain([[0.5, 0.25, 0.25], [0.0, 0.4, 0.6], [0.0, 0.6, 0.4]])
    wide, query = layer(never)
    assert math.isfinite(float(lp.finite_prompt(wide, never, query, 3).mse.sum()))
