"""From blocks to the law of the output: a token of two values, whose blocks are two terms, and what is refused."""

import functools
import math

import numpy as np
import pytest
import torch

import largeprompt as lp
from largeprompt.law.blocks import STEP, Blocks, Piece, output_moments
from largeprompt.law.nodes import node_moments
from largeprompt.law.tokens import Common

SCORES, VALUES = np.array([0.7, -0.4]), np.array([[2.0], [-1.0]])
MASS = np.array([0.3, 0.7])
SCORES = SCORES - math.log(MASS @ np.exp(SCORES))  # E e^s = 1
LIMIT = (MASS * np.exp(SCORES)) @ VALUES


def build(below, above, noise=None):
    tau = STEP * np.arange(-math.ceil(below / STEP), math.ceil(above / STEP) + 1)
    grown = np.exp(np.minimum(tau[:, None] + SCORES, 300.0))
    kept, lost = np.exp(-grown) @ MASS, -np.expm1(-grown) @ MASS
    log_phi = np.where(lost < 0.5, np.log1p(-np.minimum(lost, 0.5)), np.log(np.maximum(kept, 1e-300)))

    def pieces(order):
        kernel = np.minimum(grown, 1e4) ** order * np.exp(-grown) * MASS
        return [Piece(slice(None), kernel[:, [k]], Common(VALUES[[k]] - LIMIT)) for k in (0, 1)]

    return Blocks(log_phi, pieces, None if noise is None else np.full(len(tau), noise))


def two_values(length):
    """Bias, E Y, mse and the error of the variance by the binomial sum over how many tokens have the first value."""
    n = np.arange(length + 1)
    chance = np.array([math.comb(length, int(k)) for k in n]) * MASS[0] ** n * MASS[1] ** (length - n)
    heavy, light = n * np.exp(SCORES[0]), (length - n) * np.exp(SCORES[1])
    share = heavy / (heavy + light)
    error = share * VALUES[0] + (1 - share) * VALUES[1] - LIMIT
    collision = (n * np.exp(2 * SCORES[0]) + (length - n) * np.exp(2 * SCORES[1])) / (heavy + light) ** 2
    gap = float(VALUES[0, 0] - VALUES[1, 0]) ** 2
    limit = MASS[0] * np.exp(SCORES[0])
    spread = gap * (share * (1 - share) - limit * (1 - limit))
    return chance @ error, chance @ collision, chance @ error**2, chance @ spread**2


@pytest.mark.parametrize("start", [(3.0, 1.0), (60.0, 20.0)], ids=["widened", "wide enough"])
def test_two_values_are_a_binomial_sum(start):
    lengths = [2, 3, 4, 7, 40]
    found = output_moments(build, lengths, start, 7.0, 1)
    bias, collision, error, spread = (np.array(part) for part in zip(*map(two_values, lengths), strict=True))
    np.testing.assert_allclose(found.bias[:, 0], bias, rtol=1e-12)
    np.testing.assert_allclose(found.collision, collision, rtol=1e-12)
    np.testing.assert_allclose(found.error(np.eye(1)), error, rtol=1e-12)
    np.testing.assert_allclose(found.error(4 * np.eye(1)), 4 * error, rtol=1e-12)
    np.testing.assert_allclose(found.second()[:, 0, 0], error, rtol=1e-12)
    centred = VALUES - LIMIT
    limit = (MASS * np.exp(SCORES) * centred.T) @ centred
    np.testing.assert_allclose(found.jacobian(np.eye(1), 9 * np.eye(1), limit), 9 * spread, rtol=1e-10)


def test_pieces_add_up_and_their_sizes_bound_them():
    blocks = build(20.0, 5.0)
    total, size = (part(2, lambda y: y.mean, (1,)) for part in (blocks.total, blocks.size))
    joint = sum(piece.kernel @ piece.moments.mean for piece in blocks.pieces(2))
    np.testing.assert_allclose(total, joint, rtol=1e-14)
    assert bool((np.abs(total) <= size * (1 + 1e-14)).all())
    assert bool((np.abs(total) < 0.9 * size).any())
    weights = np.random.default_rng(0).random((3, len(blocks.log_phi)))
    np.testing.assert_allclose(
        blocks.second(2, weights)[:, 0, 0], weights @ blocks.total(2, lambda y: y.squared(np.eye(1))), rtol=1e-12
    )


def test_sums_that_round_too_much_are_refused():
    output_moments(lambda *ends: build(*ends, noise=1.0), [10], (40.0, 10.0), 7.0, 1)
    with pytest.raises(lp.InvalidArgumentError, match=r"so far apart that rounding leaves.*certificate"):
        output_moments(lambda *ends: build(*ends, noise=1e7), [10], (40.0, 10.0), 7.0, 1)


def test_the_derivative_in_u_is_right_or_refused():
    """Two signs of one coordinate: C_2 is 0 or sech²u, which is the limit; at u = 6 eight digits are not left."""
    signs, one = lp.Discrete([[1.0], [-1.0]], [0.5, 0.5]), np.eye(1)
    for u in (0.5, 1.0, 2.0, 3.0, 6.0):
        found = functools.partial(node_moments(signs, torch.tensor([[u]], dtype=torch.float64), [2])[0].jacobian, one, one)
        if u < 4:
            assert found(one / math.cosh(u) ** 2) == pytest.approx(1 / math.cosh(u) ** 4 / 2, rel=1e-10)
        else:
            with pytest.raises(lp.InvalidArgumentError, match="terms cancel"):
                found(one / math.cosh(u) ** 2)


def test_the_derivative_error_of_signs_at_small_tilts():
    """C_L = 1 - S² for the mean S of signs: E S⁴ = (3L - 2)/L³, where yy^T = 1 and its limit cancel."""
    attention = lp.SoftmaxAttention([[1.0]], [[1.0]])
    for mu in (lp.Rademacher(1), lp.Discrete([[1.0], [-1.0]], [0.5, 0.5])):
        for length in (2, 10**6, 10**10, 10**12, 10**15):
            found = lp.finite_prompt(attention, mu, [1e-13], length).jacobian_u_mse
            assert float(found) == pytest.approx(1e-26 * (3 * length - 2) / length**3, rel=1e-9)
