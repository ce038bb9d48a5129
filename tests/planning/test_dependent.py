"""Effective length of dependent Gaussian tokens, against sums done by hand and against drawn
chains.
"""

import math

import numpy as np
import pytest
import torch
from scipy.signal import lfilter

import largeprompt as lp
from largeprompt.planning.dependent import effective_length

F = torch.float64
EYE = torch.eye(2, dtype=F)
ATTENTION = lp.SoftmaxAttention(EYE, EYE)
MU = lp.Gaussian([0.3, -0.2], [[1.0, 0.3], [0.3, 0.8]])


def test_independent_tokens_count_all():
    z = torch.tensor([[0.5, 1.0], [0.0, 0.0]], dtype=F)
    for correlation in (0.0, [], [0.0, 0.0]):
        torch.testing.assert_close(
            effective_length(ATTENTION, MU, z, [1, 7, 10**6], correlation)[1],
            torch.full((2,), 7.0, dtype=F),
        )


@pytest.mark.parametrize("phi", [0.5, -0.7, 0.99])
def test_small_tilts_have_the_classical_length(phi):
    found = float(effective_length(ATTENTION, MU, torch.zeros(2, dtype=F), 10**7, phi))
    assert found == pytest.approx(10**7 * (1 - phi) / (1 + phi), rel=1e-4)


def test_weights_forget_faster_than_tokens():
    sizes = torch.linspace(0, 4, 9, dtype=F).unsqueeze(-1) * torch.tensor([1.0, 0.0], dtype=F)
    share = effective_length(ATTENTION, MU, sizes, 10**6, 0.8) / 10**6
    assert bool((share.diff() > 0).all())
    assert float(share[-1]) > 0.5


def test_covariance_of_two_tilted_tokens_by_quadrature():
    """e^{qc}(c Γ + c² Γuu^TΓ) in one dimension, by Gauss-Hermite over both tokens, gives the length
    of a chain of two.
    """
    u, c = 0.9, 0.6
    x, w = np.polynomial.hermite_e.hermegauss(60)
    w = w / w.sum()
    a, b = np.meshgrid(x, x, indexing="ij")
    second = c * a + math.sqrt(1 - c * c) * b
    weight = np.outer(w, w)

    def mean(f):
        return float((weight * f).sum())

    def g(z):
        return np.exp(u * z - u * u / 2) * (z - u)

    lagged, alone = mean(g(a) * g(second)), mean(g(a) ** 2)
    expected = 2 * alone / (alone + lagged)
    layer = lp.SoftmaxAttention([[1.0]], [[1.0]])
    found = effective_length(layer, lp.Gaussian([0.0], [[1.0]]), torch.tensor([u], dtype=F), 2, [c])
    assert float(found) == pytest.approx(expected, rel=1e-10)


def test_drawn_chains_have_it():
    phi, length, replicas, z = 0.8, 2000, 1500, torch.tensor([0.8, 0.0], dtype=F)
    random = np.random.default_rng(0)
    noise = random.standard_normal((replicas, length, 2))
    noise[:, 1:] *= math.sqrt(1 - phi**2)
    tokens = torch.from_numpy(lfilter([1.0], [1.0, -phi], noise, axis=1))
    mu = lp.Gaussian([0.0, 0.0], EYE)
    squared = (ATTENTION(lp.Empirical(tokens), z) - z).square().sum(-1)
    effective = round(float(effective_length(ATTENTION, mu, z, length, phi)))
    expected = float(lp.finite_prompt(ATTENTION, mu, z, effective).mse)
    assert float(squared.mean()) == pytest.approx(
        expected, rel=0.05 + 5 * float(squared.std() / squared.mean()) / math.sqrt(replicas)
    )
    assert float(squared.mean()) > 3 * float(lp.finite_prompt(ATTENTION, mu, z, length).mse)


def test_long_prompts_need_only_the_lags_that_matter():
    z = torch.zeros(2, dtype=F)
    assert float(effective_length(ATTENTION, MU, z, 10**15, 0.5)) == pytest.approx(
        10**15 / 3, rel=1e-12
    )
    assert float(
        effective_length(ATTENTION, MU, z, 10**15, torch.tensor(0.5, dtype=F))
    ) == pytest.approx(10**15 / 3, rel=1e-12)
    assert float(effective_length(ATTENTION, MU, z, 100, 1 - 1e-9)) == pytest.approx(1.0, abs=1e-6)


BAD = {
    "correlation: got 1;": {"correlation": 1.0},
    "correlation: got NoneType": {"correlation": None},
    "correlation: got str": {"correlation": "x"},
    "correlation: got shape": {"correlation": [[0.5]]},
    "autocorrelations between": {"correlation": [0.5, 1.5]},
    "positive definite": {"correlation": [-0.9], "length": 100},
    "at most 16777216 lags": {"correlation": 1 - 1e-9, "length": 10**12},
    "one Gaussian": {"mu": lp.Rademacher(2)},
    "length: got 0": {"length": 0},
    "attention: got": {"attention": lp.LinearAttention(EYE, EYE)},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input(message):
    good = {
        "attention": ATTENTION,
        "mu": MU,
        "z": torch.zeros(2, dtype=F),
        "length": 10,
        "correlation": 0.5,
    }
    with pytest.raises(lp.InvalidArgumentError, match=message):
        effective_length(**good | BAD[message])
