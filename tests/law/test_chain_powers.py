"""Powers of transfer matrices at every length: against 60-digit arithmetic and the first order."""

import json
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.law.chain import chain_error, chain_expansion
from largeprompt.law.chain_powers import require_digits

F = torch.float64
CASES = json.loads((Path(__file__).parents[1] / "reference" / "chain.json").read_text())


def head(case):
    attention = lp.SoftmaxAttention(torch.eye(len(case["u"]), dtype=F), torch.tensor(case["V"], dtype=F))
    return attention, lp.measures.MarkovChain(case["transition"]), torch.tensor(case["u"], dtype=F)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{len(case['transition'])} symbols, tilt {max(case['u']):.2g}")
def test_every_length_and_tilt_against_60_digits(case):
    """Ten digits of bias, mse and E Y from 1 to 10^15 tokens; repeated squaring of M itself loses all at 10^15."""
    attention, chain, z = head(case)
    law = lp.finite_prompt(attention, chain, z, [row["length"] for row in case["rows"]])
    for name, found in (("bias", law.bias), ("mse", law.mse), ("collision", 1 / law.effective_tokens)):
        expected = torch.tensor([row[name] for row in case["rows"]], dtype=F)
        size = expected.abs().amax(-1, keepdim=True) if name == "bias" else expected.abs()
        assert float(((found - expected).abs() / size).max()) < 1e-10, name


@pytest.mark.parametrize("scale", [0.01, 1.0])
def test_long_prompts_against_the_first_order(scale):
    generator = torch.Generator().manual_seed(2)
    chain = lp.measures.MarkovChain([[0.7, 0.3, 0.0], [0.1, 0.6, 0.3], [0.5, 0.2, 0.3]])
    U, V, z = (torch.randn(shape, generator=generator, dtype=F) for shape in ((6, 6), (2, 6), (6,)))
    attention, lengths = lp.SoftmaxAttention(scale * U, V), torch.tensor([1e12, 1e15], dtype=F)
    law, first = lp.finite_prompt(attention, chain, z, [10**12, 10**15]), chain_expansion(attention, chain, z)
    assert_close(lengths * law.mse, first.constant.expand(2), rtol=1e-10, atol=0)
    assert_close(lengths[:, None] * law.bias, first.drift.expand(2, 2), rtol=1e-9, atol=0)
    assert_close(lengths[:, None, None] * law.covariance, first.covariance.expand(2, 2, 2), rtol=1e-9, atol=1e-12)


def test_a_center_away_from_the_limit_and_a_known_end():
    """At long lengths E‖T_L - c‖² less its limit is first order, given the end of the path too."""
    generator = torch.Generator().manual_seed(5)
    chain = lp.measures.MarkovChain.random(3, 1, 1.0, generator)
    U, V, z = (torch.randn(shape, generator=generator, dtype=F) for shape in ((6, 6), (2, 6), (6,)))
    attention = lp.SoftmaxAttention(U, V)
    center = attention(chain.ngrams(2), z) + torch.tensor([1e-6, 0.0], dtype=F)
    for ending in (None, torch.tensor(1)):
        found = chain_error(attention, chain, z, 10**10, center=center, ending=ending)
        assert_close(found, chain_expansion(attention, chain, z, ending=ending).error(center, 1e10), rtol=1e-8, atol=0)


def test_lost_digits_are_refused():
    found = torch.tensor([0.1, 1.0, 1.0, 1.0, 1e8], dtype=F)  # mean, square, E Y, and the sizes of terms of mean and square
    require_digits(torch.tensor([0.1, 1.0, 1.0, 1.0, 1.0], dtype=F), 1e-8)
    with pytest.raises(lp.InvalidArgumentError, match="rounding leaves 4e-07"):
        require_digits(found, 1e-8)
