"""Covariances and starts of the studies of in-context learning (C6)."""

import math

import numpy as np
import pytest
import torch
from scipy.linalg import toeplitz

from largeprompt.errors import InvalidArgumentError
from largeprompt.studies.covariances import block_start, covariance, largest_alpha


@pytest.mark.parametrize("dim", [1, 2, 7])
def test_covariances_are_what_their_names_say(dim):
    np.testing.assert_array_equal(covariance("identity", dim), np.eye(dim))
    np.testing.assert_allclose(covariance("toeplitz", dim), toeplitz(0.5 ** np.arange(dim)))
    if dim > 1:
        assert np.linalg.cond(covariance("condition 1e4", dim)) == pytest.approx(1e4)


def test_another_kind_is_refused():
    with pytest.raises(
        InvalidArgumentError, match=r"covariance: got 'toeplit'; allowed: 'identity'"
    ):
        covariance("toeplit", 3)


def test_bound_of_the_theorem_scales_like_the_inverse_of_the_norm():
    sigma = covariance("toeplitz", 5)
    assert largest_alpha(torch.eye(16, dtype=torch.float64)) == pytest.approx(math.sqrt(2) / 2)
    assert largest_alpha(3 * sigma) == pytest.approx(largest_alpha(sigma) / 3)


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_start_is_balanced_and_in_its_block(seed):
    U, V = block_start(4, 0.3, 0.3, seed)
    A = U[:4, :4]
    assert float(A.norm()) == pytest.approx(float(V[0, 4])) == pytest.approx(0.3)
    assert float(torch.linalg.eigvalsh(A)[0]) > 0
    assert float(U[4].abs().sum() + U[:, 4].abs().sum() + V[0, :4].abs().sum()) == 0
