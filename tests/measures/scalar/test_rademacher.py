"""Signs: the closed forms against the sum over all 2^d of them."""

import itertools

import torch
from torch.testing import assert_close

import largeprompt as lp

F = torch.float64


def test_closed_forms_are_sums_over_all_signs():
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=4)), dtype=F)
    u = 3 * torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=F)
    share = torch.softmax(u @ signs.mT, -1)
    mean = share @ signs
    mu = lp.Rademacher(4)
    assert_close(
        mu.cgf(u),
        torch.logsumexp(u @ signs.mT, -1) - torch.tensor(16.0, dtype=F).log(),
        rtol=1e-13,
        atol=0,
    )
    assert_close(mu.tilted_mean(u), mean, rtol=1e-12, atol=1e-13)
    second = torch.einsum("ns,si,sj->nij", share, signs, signs)
    assert_close(
        mu.tilted_covariance(u),
        second - mean.unsqueeze(-1) * mean.unsqueeze(-2),
        rtol=1e-9,
        atol=1e-12,
    )
    assert mu.support_radius == 2.0


def test_draws_of_a_tilt_are_signs_with_its_mean():
    """400,000 signs of mean tanh 0.5 within six standard errors (false alarm 2e-9)."""
    drawn = lp.Rademacher(1).sample_tilted([0.5], 400_000, torch.Generator().manual_seed(0))
    mean = float(torch.tanh(torch.tensor(0.5, dtype=F)))
    assert set(drawn.unique().tolist()) == {-1.0, 1.0}
    assert abs(float(drawn.mean()) - mean) < 6 * ((1 - mean**2) / 400_000) ** 0.5
