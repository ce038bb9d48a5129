"""Several heads: the lattice against one head's own integral, drawn prompts and the limit of
vanishing tilts.
"""

import math

import numpy as np
import pytest
import torch

import largeprompt as lp
from largeprompt.studies.softmax_vs_linear.several_heads import SeveralHeads

F = torch.float64


def isotropic(d, noise=0.0, query=1.0):
    eye = torch.eye(d, dtype=F)
    return lp.LinearRegression(eye, eye / d, noise, query * eye)


@pytest.fixture(scope="module")
def pairs():
    return SeveralHeads.of(9, (1.0, 0.5), odd=True, largest=4.0)


@pytest.mark.parametrize(("d", "length"), [(1, 40), (5, 100), (10, 10**6)])
def test_one_head_is_the_isotropic_optimum(d, length):
    task = isotropic(d, 0.4, query=1.7)
    found, truth = (
        SeveralHeads.of(length, (1.0,), largest=12.0).optimum(task),
        lp.training.isotropic_optimum(task, length),
    )
    excess = truth.risk - 0.2
    assert found.risk - 0.2 == pytest.approx(excess, rel=1e-5)
    assert found.a == pytest.approx(truth.a, rel=1e-3)
    again = task.isotropic_risk(
        torch.tensor([found.a], dtype=F), torch.tensor(found.readouts, dtype=F), length
    )
    assert float(again[0]) == pytest.approx(found.risk, rel=1e-6)


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("noise", [0.0, 0.7])
def test_vanishing_tilts_are_linear_attention_over_one_token_less(d, noise, pairs):
    task = isotropic(d, noise)
    found = pairs.only([0]).best_readouts(task, 1e-3)
    assert found.risk == pytest.approx(lp.training.linear_optimum(task, 8).risk, rel=1e-5)
    assert pairs.only([0]).optimum(task).risk < found.risk


def test_more_heads_are_never_worse(pairs):
    task = isotropic(2)
    one, two, four = SeveralHeads.of(9, (1.0,)), pairs.only([0]), pairs
    risks = [lattice.optimum(task).risk for lattice in (one, two, four)]
    assert risks[0] > risks[1] >= risks[2]
    assert [lattice.heads for lattice in (one, two, four)] == [1, 2, 4]


def test_odd_read_outs_are_best_for_opposite_tilts(pairs):
    """Free read-outs of the two heads come out opposite: the even part is noise that is
    uncorrelated with the answer.
    """
    task = isotropic(2, 0.1)
    free = SeveralHeads.of(9, (1.0, -1.0), largest=4.0)
    at, pair = free.best_readouts(task, 0.5), pairs.only([0]).best_readouts(task, 0.5)
    assert at.risk == pytest.approx(pair.risk, rel=1e-9)
    np.testing.assert_allclose(at.readouts, np.array([0.5, -0.5]) * pair.readouts[0], rtol=1e-6)


def test_drawn_prompts_agree_for_four_heads(pairs):
    """One comparison at six standard errors; w and the noise averaged out given the inputs."""
    task, length, count = isotropic(2, 0.3), 9, 20_000
    best = pairs.best_readouts(task, 0.6)
    generator = torch.Generator().manual_seed(5)
    x, query = (
        torch.randn(count, length, 2, generator=generator, dtype=F),
        torch.randn(count, 2, generator=generator, dtype=F),
    )
    share = torch.zeros(count, length, dtype=F)
    for b, ratio in zip(best.readouts, pairs.ratios, strict=True):
        scores = (x @ (best.a * ratio * query).unsqueeze(-1)).squeeze(-1)
        share += b * (torch.softmax(scores, -1) - torch.softmax(-scores, -1)) / 2
    missed = (torch.einsum("nl,nli->ni", share, x) - query).square().sum(-1) / 2
    risk = (0.3 + missed + 0.3 * share.square().sum(-1)) / 2
    assert float(risk.mean()) == pytest.approx(
        best.risk, abs=6 * float(risk.std()) / math.sqrt(count)
    )


def test_long_prompts_keep_their_digits():
    task = isotropic(5, 1.0)
    excess = 2 * SeveralHeads.of(10**9, (1.0,), odd=True, largest=3.0).optimum(task).risk - 1.0
    assert excess == pytest.approx(11e-9, rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "options", "name"),
    [
        ((0, (1.0,)), {}, "length"),
        ((5, ()), {}, "ratios"),
        ((5, (1.0, 1.0)), {}, "ratios"),
        ((5, (1.5,)), {}, "ratios"),
        ((5, (1.0, -0.5)), {"odd": True}, "ratios"),
        ((5, (1.0, -0.5)), {"largest": 20.0}, "largest"),
        ((5, (1.0,)), {"largest": "x"}, "largest: got 'x'"),
        ((5, (1.0,)), {"largest": math.nan}, "largest"),
    ],
)
def test_bad_input_is_named(arguments, options, name):
    with pytest.raises(lp.InvalidArgumentError, match=name):
        SeveralHeads.of(*arguments, **options)


def test_tilts_beyond_the_lattice_are_refused(pairs):
    with pytest.raises(lp.InvalidArgumentError, match="lattice"):
        pairs.best_readouts(isotropic(2), 2.0)
    sigma = torch.diag(torch.tensor([1.0, 2.0], dtype=F))
    with pytest.raises(lp.InvalidArgumentError, match="multiples of the identity"):
        pairs.optimum(lp.LinearRegression(sigma, sigma, 0.0))
