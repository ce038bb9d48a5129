"""Tilts and affine images as wrappers, against discrete laws whose atoms and weights are changed by
hand.
"""

import math

import pytest
import torch
from torch.testing import assert_close

import largeprompt as lp
from largeprompt.measures.wrapped import AffineImage, Tilted

F = torch.float64
ATOMS = torch.tensor([[0.0, 1.0], [2.0, -1.0], [-1.0, 0.5], [1.0, 1.0]], dtype=F)
WEIGHTS = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=F)
BASE = lp.Discrete(ATOMS, WEIGHTS)
U = torch.tensor([0.6, -0.3], dtype=F)
MATRIX = torch.tensor([[1.0, 2.0], [0.0, -1.0], [0.5, 0.5]], dtype=F)
OFFSET = torch.tensor([3.0, 0.0, -1.0], dtype=F)
CASES = {
    "tilt": (Tilted(BASE, U), lp.Discrete(ATOMS, torch.softmax(WEIGHTS.log() + ATOMS @ U, 0))),
    "image": (AffineImage(BASE, MATRIX, OFFSET), lp.Discrete(ATOMS @ MATRIX.mT + OFFSET, WEIGHTS)),
    "tilt of an image": (
        AffineImage(BASE, MATRIX, OFFSET).tilt([0.1, 0.2, -0.4]),
        lp.Discrete(
            ATOMS @ MATRIX.mT + OFFSET,
            torch.softmax(
                WEIGHTS.log()
                + (ATOMS @ MATRIX.mT + OFFSET) @ torch.tensor([0.1, 0.2, -0.4], dtype=F),
                0,
            ),
        ),
    ),
    "image of an image": (
        AffineImage(BASE, MATRIX, OFFSET).map([[1.0, 0.0, 2.0]], [0.5]),
        lp.Discrete(
            (ATOMS @ MATRIX.mT + OFFSET) @ torch.tensor([[1.0], [0.0], [2.0]], dtype=F) + 0.5,
            WEIGHTS,
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_wrapper_is_the_law_with_atoms_and_weights_changed(name):
    wrapped, plain = CASES[name]
    generator = torch.Generator().manual_seed(0)
    v, center = (torch.randn(3, plain.dim, generator=generator, dtype=F) for _ in range(2))
    assert wrapped.dim == plain.dim
    for method in ("cgf", "tilted_mean", "tilted_covariance"):
        assert_close(getattr(wrapped, method)(v), getattr(plain, method)(v), rtol=1e-12, atol=1e-12)
    assert_close(
        wrapped.tilted_norm_moment4(v, center),
        plain.tilted_norm_moment4(v, center),
        rtol=1e-11,
        atol=1e-11,
    )
    for found, expected in zip(
        wrapped._directional_cumulants(v, v[0]), plain._directional_cumulants(v, v[0]), strict=True
    ):
        assert_close(found, expected, rtol=1e-10, atol=1e-10)
    assert wrapped.support_radius >= plain.support_radius * (1 - 1e-12)
    assert wrapped.sample(100, generator).shape == (100, plain.dim)


def test_tilt_outside_the_domain_is_refused_when_it_is_made():
    with pytest.raises(lp.TiltDomainError, match="no infinite-prompt limit"):
        lp.Laplace(1).tilt([math.sqrt(2)])


def test_image_of_another_dimension_is_refused():
    image = AffineImage(BASE, MATRIX, OFFSET)
    with pytest.raises(lp.InvalidArgumentError, match="matrix: got shape"):
        image.map([[1.0, 2.0]])
    with pytest.raises(lp.InvalidArgumentError, match="u: got shape"):
        image.cgf([1.0, 2.0])
