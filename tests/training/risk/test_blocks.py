"""Layers in blocks: their form, and the Hessian across them."""

import torch
from training_examples import draw

from largeprompt.training.risk.blocks import across_blocks, block_layer, in_blocks

F = torch.float64


def test_blocks_are_recognized():
    U, V = block_layer(draw(3, 2, 2), draw(3))
    assert (U.shape, V.shape) == ((3, 3, 3), (3, 1, 3))
    assert in_blocks(U, V)
    U[:, :, 2] = 1.0  # meets the query's 0
    assert in_blocks(U, V)
    U[1, 2, 0] = 1e-300
    assert not in_blocks(U, V)


def test_the_hessian_across_blocks_is_that_of_the_other_risk():
    """Of (v_x·U_yx) times b, which is 0 with its gradient in blocks."""
    U, V = block_layer(draw(2, 2, 2), torch.tensor([0.5, -2.0], dtype=F))
    point = torch.cat([U.flatten(1), V.flatten(1)], -1).requires_grad_()

    def risks(U, V):
        return V[:, 0, 2] * (U[:, 2, :2] * V[:, 0, :2]).sum(-1)

    layers = [part.reshape(2, -1, 3) for part in point.split([9, 3], -1)]
    value = across_blocks(point[:, 0] ** 2, *layers, risks)
    (slope,) = torch.autograd.grad(value.sum(), point, create_graph=True)
    found = torch.stack(
        [torch.autograd.grad(one.sum(), point, retain_graph=True)[0] for one in slope.T], 1
    )
    expected = torch.zeros(2, 12, 12, dtype=F)
    expected[:, 0, 0] = 2
    for u, v in ((6, 9), (7, 10)):
        expected[:, u, v] = expected[:, v, u] = torch.tensor([0.5, -2.0], dtype=F)
    torch.testing.assert_close(found, expected)
