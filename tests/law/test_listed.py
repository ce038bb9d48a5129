"""The error of the derivative in U prompt by prompt: against exact arithmetic, other sums, and where these used to be refused."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

import largeprompt as lp
from largeprompt.law import listed
from largeprompt.law.blocks import LEAST_DIGITS
from largeprompt.law.nodes import node_moments

F = torch.float64


def jacobian_error(mu, u, length):
    eye = torch.eye(mu.dim, dtype=F)
    return float(lp.finite_prompt(lp.SoftmaxAttention(eye, eye), mu, torch.tensor(u, dtype=F), length).jacobian_u_mse)


def by_fractions(share, odds, length):
    """E (p - p*)²(1 - p - p*)² in exact arithmetic; odds is e^{difference of scores}."""
    limit = share * odds / (share * odds + 1 - share)
    total = Fraction(0)
    for n in range(length + 1):
        p = n * odds / (n * odds + length - n)
        total += math.comb(length, n) * share**n * (1 - share) ** (length - n) * ((p - limit) * (1 - p - limit)) ** 2
    return float(total)


@pytest.mark.parametrize("share", [Fraction(1, 2), Fraction(3, 10), Fraction(1, 10**6), Fraction(999, 1000)])
@pytest.mark.parametrize("odds", [Fraction(1), Fraction(10**9 + 1, 10**9), Fraction(1, 3000), Fraction(10**17)])
def test_two_atoms_against_exact_arithmetic(share, odds):
    for length in (2, 3, 60):
        apart = math.log1p(float(odds - 1)) if abs(odds - 1) < 0.1 else math.log(odds)
        found = listed._two_atoms(float(share), apart, float(length))
        assert found == pytest.approx(by_fractions(share, odds, length), rel=1e-11)


def test_long_prompts_of_two_atoms_need_few_counts(monkeypatch):
    """Against every count at 10^5 tokens, and E (p - ½)⁴ = (3 - 2/L)/(16 L²) without a tilt up to 10^15."""
    cases = [(share, apart) for share in (0.5, 0.01, 1e-6) for apart in (0.0, 1e-7, -8.0, 30.0)]
    few = [listed._two_atoms(*case, 1e5) for case in cases]
    monkeypatch.setattr(listed, "WHOLE", 10**7)
    assert few == pytest.approx([listed._two_atoms(*case, 1e5) for case in cases], rel=1e-10)
    monkeypatch.undo()
    for length in (1e8, 1e12, 1e15):
        assert listed._two_atoms(0.5, 0.0, length) == pytest.approx((3 - 2 / length) / (16 * length**2), rel=1e-11)


@pytest.mark.parametrize(("u", "lengths"), [(0.8, [2, 7, 40]), (-2.5, [3, 20]), (0.01, [5, 200])])
def test_listed_prompts_are_the_sum_over_ways_to_share_tokens(u, lengths):
    mu = lp.Discrete(torch.tensor([[0.0, 1.0], [2.0, -1.0], [-1.0, 0.5]], dtype=F), torch.tensor([0.2, 0.3, 0.5], dtype=F))
    tilt, limit = torch.tensor([u, -u / 2], dtype=F), mu.tilted_covariance(torch.tensor([u, -u / 2], dtype=F)).numpy()
    A, B = np.array([[2.0, 0.3], [0.3, 1.0]]), np.array([[1.0, -0.2], [-0.2, 0.5]])
    summed = node_moments(mu, tilt[None], lengths)[0].jacobian(A, B, limit)
    assert [listed.listed_jacobian(mu, tilt, float(n), A, B) for n in lengths] == pytest.approx(summed, rel=1e-9)


def test_every_prompt_is_listed_once():
    counts = listed._counts(3, 5)
    assert len(counts) == listed._prompts(3, 5) == len(np.unique(counts, axis=0)) == 21
    assert (counts >= 0).all()
    assert (counts.sum(1) == 5).all()


@pytest.mark.parametrize(("u", "length"), [(4.0, 2), (20.0, 10), (0.0, 10**8), (1e-9, 10**15), (1e-4, 10**12)])
def test_signs_at_any_tilt_and_length(u, length):
    """Where sums over ways to share tokens cancel, and were refused."""
    found = jacobian_error(lp.Rademacher(1), [u], length)
    if length == 2:  # equal signs have C = 0, different ones C = Γ
        assert found == pytest.approx(u**2 * math.cosh(u) ** -4 / 2, rel=1e-12)
    elif u == 20.0:  # of all prompts but for the two of equal signs p(1 - p) is Γ/4 times the odds of its counts
        odds = [n / (10 - n) for n in range(10)]
        expected = sum(math.comb(10, n) * (1 / r - 1) ** 2 for n, r in enumerate(odds) if n) / 2**10 + 2.0**-10
        assert found == pytest.approx(u**2 * (4 * math.exp(-2 * u)) ** 2 * expected, rel=LEAST_DIGITS)
    else:  # first orders in u and 1/L: D = -4(δ² + uδ), δ = p - p* of variance 1/4L
        assert found == pytest.approx(u**2 * 16 * (3 / (16 * length**2) + u**2 / (4 * length)), rel=1e-4)


def test_two_coordinates_of_signs_are_listed_too():
    """Refused where sums cancel. Of two tokens, C_L is half their difference squared, less what the score leaves of it."""
    u = torch.tensor([20.0, 14.0], dtype=F)
    assert jacobian_error(lp.Rademacher(2), u.tolist(), 100) > 0
    signs = torch.tensor([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]], dtype=F)
    pairs = (signs[:, None] - signs).unsqueeze(-1) * (signs[:, None] - signs).unsqueeze(-2)
    share = torch.softmax(torch.stack(torch.broadcast_tensors((signs @ u)[:, None], signs @ u)), 0).prod(0)
    limit = lp.Rademacher(2).tilted_covariance(u)
    errors = share[..., None, None] * pairs - limit
    expected = float(errors.square().sum((-2, -1)).mean() * u.square().sum())
    assert jacobian_error(lp.Rademacher(2), u.tolist(), 2) == pytest.approx(expected, rel=1e-10)


def test_one_atom_has_no_covariance_to_err_in():
    assert jacobian_error(lp.Discrete([[2.0]], [1.0]), [0.9], 4) == 0
    assert jacobian_error(lp.Discrete([[2.0, 1.0]], [1.0]), [0.9, -3.0], 10**12) == 0
