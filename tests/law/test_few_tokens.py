"""Short prompts of scalar tokens: the variance that softmax weights give, and log-normal tokens, by integrals over two tokens."""

import math

import numpy as np
import pytest
import torch

import largeprompt as lp
from largeprompt.law.density import scalar_density
from largeprompt.law.few_tokens import variance_error

F = torch.float64
PLACES, MASSES = np.polynomial.legendre.leggauss(24)


def panels(breaks):
    half = np.diff(breaks, axis=-1)[..., None] / 2
    return [part.reshape(*breaks.shape[:-1], -1) for part in (breaks[..., :-1, None] + half * (1 + PLACES), half * MASSES)]


def two_tokens(token, place, density, breaks, u):
    """Bias, mse, E Y and E (C - Γ)² of two tokens x(ξ), ξ of some density; inner panels lie around the first token."""
    xi, mass = panels(breaks)
    p, x = mass * density(xi), token(xi)
    share = p * np.exp(u * x - (u * x).max())
    share /= share.sum()
    limit = share @ x
    spread, found = share @ (x - limit) ** 2, np.zeros(4)
    reach = 2.0 ** np.arange(-1, 8)
    for start in range(0, len(xi), 64):
        a = x[start : start + 64, None]
        around = place(a + np.concatenate([-reach, [0.0], reach]) / abs(u))
        inner = np.concatenate([np.broadcast_to(breaks, (len(a), len(breaks))), around], 1)
        eta, weights = panels(np.sort(np.clip(inner, breaks[0], breaks[-1]), 1))
        gap = token(eta) - a
        w = 1 / (1 + np.exp(np.clip(-u * gap, -700, 700)))
        error, variance = a - limit + w * gap, w * (1 - w) * gap**2
        both = p[start : start + 64, None] * weights * density(eta)
        found += [(both * f).sum() for f in (error, error**2, w**2 + (1 - w) ** 2, (variance - spread) ** 2)]
    return found


def two_lognormal(scale, u):
    m = math.exp(scale**2 / 2)
    v = m * math.sqrt(math.expm1(scale**2))
    return two_tokens(
        lambda xi: (np.exp(scale * xi) - m) / v,
        lambda x: np.log(np.maximum(m + v * x, 1e-300)) / scale,
        lambda xi: np.exp(-(xi**2) / 2) / math.sqrt(2 * math.pi),
        np.linspace(-9, 14, 93),
        u,
    )


def law_of(mu, u, length):
    return lp.finite_prompt(
        lp.SoftmaxAttention(torch.eye(1, dtype=F), torch.eye(1, dtype=F)), mu, torch.tensor([u], dtype=F), length
    )


@pytest.mark.parametrize(
    ("scale", "u"), [(0.5, -2.0), (1.0, -1.0), (1.8, -0.05), (2.0, -0.05), (2.0, -2.0), (2.2, -2.0), (2.5, -0.05)]
)
def test_two_log_normal_tokens(scale, u):
    """Scale 2.5, u = -0.05 had the bias to 1.7e-7, scale 2.2, u = -2 the mse to 1.2e-7, scale 1.8 the Jacobian to 6e-7."""
    law = law_of(lp.scalar.LogNormal(1, scale), u, 2)
    found = [float(law.bias), float(law.mse), 1 / float(law.effective_tokens), float(law.jacobian_u_mse) / u**2]
    np.testing.assert_allclose(found, two_lognormal(scale, u), rtol=1e-11)


@pytest.mark.parametrize("u", [3.0, 8.0])
def test_two_uniform_tokens(u):
    """u = 8 was refused for its derivative in U."""
    end = math.sqrt(3)
    expected = two_tokens(lambda x: x, lambda x: x, lambda x: np.full_like(x, 1 / (2 * end)), np.linspace(-end, end, 41), u)
    law = law_of(lp.Uniform(1), u, 2)
    found = [float(law.bias), float(law.mse), 1 / float(law.effective_tokens), float(law.jacobian_u_mse) / u**2]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_three_tokens_by_listing_them():
    """Uniform tokens, u = 8, L = 3 beside others in one batch: a triple sum over Gauss nodes."""
    end, u = math.sqrt(3), 8.0
    x, p = panels(np.linspace(-end, end, 5))
    p = p / (2 * end)
    scores = np.exp(u * (x - end))
    limit = (p * scores) @ x / (p @ scores)
    spread = (p * scores) @ (x - limit) ** 2 / (p @ scores)
    total = 0.0
    for first, mass in zip(range(len(x)), p, strict=True):
        a, b, c = scores[first], scores[:, None], scores[None]
        whole = a + b + c
        mean = (a * x[first] + b * x[:, None] + c * x[None]) / whole
        variance = (a * (x[first] - mean) ** 2 + b * (x[:, None] - mean) ** 2 + c * (x[None] - mean) ** 2) / whole
        total += mass * (p @ (variance - spread) ** 2 @ p)
    law = law_of(lp.Uniform(1), u, [1, 3, 2, 10**6])
    found = law.jacobian_u_mse / u**2
    assert float(found[1]) == pytest.approx(total, rel=1e-9)
    assert float(found[0]) == pytest.approx(spread**2, rel=1e-12)
    assert float(found[3]) == pytest.approx(float(law_of(lp.Uniform(1), u, 10**6).jacobian_u_mse) / u**2, rel=1e-12)


def test_both_ways_agree_on_longer_prompts():
    """Contours against the density: two sums that share nothing."""
    for mu, u in ((lp.scalar.LogNormal(1, 1.0), -1.0), (lp.Uniform(1), 2.0), (lp.Laplace(1), 0.4)):
        known = scalar_density(mu.law) if u > 0 else scalar_density(mu.law).mirrored()
        limit = float(mu.tilted_covariance(torch.tensor([u], dtype=F)))
        found, lost = variance_error(known, abs(u), np.array([250.0, 1000.0]), limit)
        assert lost.max() < 1e-9
        np.testing.assert_allclose(found, (law_of(mu, u, [250, 1000]).jacobian_u_mse / u**2).numpy(), rtol=1e-9)
