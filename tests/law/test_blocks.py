"""From blocks to the law of the output: a token of two values, whose blocks are two terms, and what
is refused.
"""

import math

import numpy as np
import pytest

import largeprompt as lp
from largeprompt.law.blocks import TAU_STEP, Blocks, OutputMoments, Piece, widened
from largeprompt.law.jacobian import jacobian_error
from largeprompt.law.tokens import Common

SCORES, VALUES = np.array([0.7, -0.4]), np.array([[2.0], [-1.0]])
MASS = np.array([0.3, 0.7])
SCORES = SCORES - math.log(MASS @ np.exp(SCORES))  # E e^s = 1
LIMIT = (MASS * np.exp(SCORES)) @ VALUES


def build(below, above, noise=None):
    tau = TAU_STEP * np.arange(-math.ceil(below / TAU_STEP), math.ceil(above / TAU_STEP) + 1)
    grown = np.exp(np.minimum(tau[:, None] + SCORES, 300.0))
    kept, lost = np.exp(-grown) @ MASS, -np.expm1(-grown) @ MASS
    log_phi = np.where(
        lost < 0.5, np.log1p(-np.minimum(lost, 0.5)), np.log(np.maximum(kept, 1e-300))
    )

    def pieces(order):
        kernel = np.minimum(grown, 1e4) ** order * np.exp(-grown) * MASS
        return [Piece(slice(None), kernel[:, [k]], Common(VALUES[[k]] - LIMIT)) for k in (0, 1)]

    noise = None if noise is None else np.full(len(tau), noise)
    return Blocks(np.full(len(tau), TAU_STEP), log_phi, pieces, 1, noise)


def moments(lengths, start=(60.0, 20.0), noise=None):
    blocks = widened(lambda *ends: build(*ends, noise=noise), lengths, start, 7.0)
    return OutputMoments(blocks, lengths, float((MASS @ (VALUES - LIMIT) ** 2)[0]))


def two_values(length):
    """Bias, E Y, mse and the error of the variance by the binomial sum over how many tokens have
    the first value.
    """
    n = np.arange(length + 1)
    chance = (
        np.array([math.comb(length, int(k)) for k in n]) * MASS[0] ** n * MASS[1] ** (length - n)
    )
    heavy, light = n * np.exp(SCORES[0]), (length - n) * np.exp(SCORES[1])
    share = heavy / (heavy + light)
    error = share * VALUES[0] + (1 - share) * VALUES[1] - LIMIT
    collision = (n * np.exp(2 * SCORES[0]) + (length - n) * np.exp(2 * SCORES[1])) / (
        heavy + light
    ) ** 2
    gap = float(VALUES[0, 0] - VALUES[1, 0]) ** 2
    limit = MASS[0] * np.exp(SCORES[0])
    spread = gap * (share * (1 - share) - limit * (1 - limit))
    return chance @ error, chance @ collision, chance @ error**2, chance @ spread**2


@pytest.mark.parametrize("start", [(3.0, 1.0), (60.0, 20.0)], ids=["widened", "wide enough"])
def test_two_values_are_a_binomial_sum(start):
    lengths = [2, 3, 4, 7, 40]
    found = moments(lengths, start)
    bias, collision, error, spread = (
        np.array(part) for part in zip(*map(two_values, lengths), strict=True)
    )
    np.testing.assert_allclose(found.bias[:, 0], bias, rtol=1e-12)
    np.testing.assert_allclose(found.collision, collision, rtol=1e-12)
    np.testing.assert_allclose(found.error(np.eye(1)), error, rtol=1e-12)
    np.testing.assert_allclose(found.error(4 * np.eye(1)), 4 * error, rtol=1e-12)
    np.testing.assert_allclose(found.second()[:, 0, 0], error, rtol=1e-12)
    centered = VALUES - LIMIT
    limit = (MASS * np.exp(SCORES) * centered.T) @ centered
    np.testing.assert_allclose(
        jacobian_error(found, np.eye(1), 9 * np.eye(1), limit), 9 * spread, rtol=1e-10
    )


def test_pieces_add_up_and_their_sizes_bound_them():
    blocks = build(20.0, 5.0)
    total, size = blocks.total_and_size(2, lambda y: y.mean, (1,))
    joint = sum(piece.kernel @ piece.moments.mean for piece in blocks.pieces(2))
    np.testing.assert_allclose(total, joint, rtol=1e-14)
    assert bool((np.abs(total) <= size * (1 + 1e-14)).all())
    assert bool((np.abs(total) < 0.9 * size).any())
    second = blocks.total(2, lambda y: y.squared(np.eye(1)))
    np.testing.assert_allclose(blocks.matrices(2)[:, 0, 0], second, rtol=1e-12)
    np.testing.assert_allclose(
        sum(piece.second(np.ones((1, len(total)))) for piece in blocks.pieces(2))[0, 0, 0],
        second.sum(),
        rtol=1e-12,
    )


def test_sums_that_round_too_much_are_refused():
    moments([10], noise=1.0)
    with pytest.raises(
        lp.InvalidArgumentError, match=r"so far apart that rounding may change.*certificate"
    ):
        moments([10], noise=1e10)


@pytest.mark.parametrize("u", [0.5, 1.0, 2.0, 3.0, 6.0, 12.0])
def test_the_derivative_in_u_of_two_signs(u):
    """C_2 is 0 or 1 with equal chances, and its limit sech²u, to the digits that the contract
    gives.
    """
    attention, limit = lp.SoftmaxAttention([[1.0]], [[1.0]]), 1 / math.cosh(u) ** 2
    law = lp.finite_prompt(attention, lp.Discrete([[1.0], [-1.0]], [0.5, 0.5]), [u], 2)
    expected = u**2 * limit**2 / 2
    spread = 1 + math.tanh(u) ** 2
    allowed = 1e-6 * expected + 1e-11 * u**2 * spread**2 / float(law.effective_tokens)
    assert abs(float(law.jacobian_u_mse) - expected) < allowed
