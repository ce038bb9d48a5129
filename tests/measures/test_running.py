"""Running states of attention: every way to cut and merge a prompt gives the moments of the whole, written out."""

import pytest
import torch
from torch.testing import assert_close

from largeprompt.measures.running import RunningTilt

F = torch.float64
GENERATOR = torch.Generator().manual_seed(0)
TOKENS, MASSES = 3 * torch.randn(12, 2, generator=GENERATOR, dtype=F), torch.rand(12, generator=GENERATOR, dtype=F)
TILTS = 2 * torch.randn(5, 2, generator=GENERATOR, dtype=F)


def written_out(tokens, masses):
    """Log-mean-exp, mean and covariance of tokens with masses, from e^{u·x} itself."""
    weight = masses * torch.exp(TILTS @ tokens.mT)
    share = weight / weight.sum(-1, keepdim=True)
    mean = share @ tokens
    second = torch.einsum("nl,li,lj->nij", share, tokens, tokens)
    return torch.log(weight.sum(-1) / masses.sum()), mean, second - mean.unsqueeze(-1) * mean.unsqueeze(-2)


@pytest.mark.parametrize("cuts", [(6,), (1, 11), (3, 4, 9), (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)])
@pytest.mark.parametrize("weighted", [False, True])
def test_merged_parts_are_the_whole(cuts, weighted):
    masses = MASSES if weighted else None
    parts = [
        RunningTilt.of(TILTS, tokens, mass, covariance=True)
        for tokens, mass in zip(
            TOKENS.tensor_split(cuts), MASSES.tensor_split(cuts) if weighted else [None] * (len(cuts) + 1), strict=True
        )
    ]
    expected = written_out(TOKENS, torch.ones(12, dtype=F) if masses is None else masses)
    for order in (parts, parts[::-1]):
        state = order[0]
        for part in order[1:]:
            state = state.merge(part)
        for value, wanted in zip((state.cgf, state.mean, state.covariance), expected, strict=True):
            assert_close(value, wanted, rtol=1e-11, atol=1e-11)


def test_a_part_without_mass_changes_nothing_and_has_gradients():
    nothing = torch.zeros(3, dtype=F, requires_grad=True)
    tilts = TILTS.clone().requires_grad_()
    some = RunningTilt.of(tilts, TOKENS[:4], covariance=True)
    both = some.merge(RunningTilt.of(tilts, TOKENS[4:7], nothing, covariance=True))
    assert_close(both.cgf, some.cgf)
    assert_close(both.covariance, some.covariance)
    gradients = torch.autograd.grad(both.mean.sum() + both.cgf.sum(), (tilts, nothing))
    assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients)


def test_covariance_is_there_only_where_both_parts_have_it():
    with_it, without = (RunningTilt.of(TILTS, TOKENS, covariance=asked) for asked in (True, False))
    assert without.covariance is None
    assert with_it.merge(without).covariance is None
    assert with_it.merge(with_it).covariance is not None
