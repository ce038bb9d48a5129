"""Products, derivatives and smoothing of Hermite expansions, against evaluation and quadrature."""

import numpy as np
import torch

from largeprompt.depth.hermite import HermiteBasis

F = torch.float64


def nodes(dim, count):
    """Gauss-Hermite grid of N(0, I): points (n, dim) and weights (n,)."""
    x, w = np.polynomial.hermite_e.hermegauss(count)
    grid = torch.cartesian_prod(*[torch.from_numpy(x)] * dim).reshape(-1, dim)
    mass = torch.cartesian_prod(*[torch.from_numpy(w / w.sum())] * dim).reshape(-1, dim).prod(-1)
    return grid, mass


def test_hermite_algebra_against_evaluation():
    basis = HermiteBasis(3, 4)
    assert len(basis.indices) == basis.size == 35
    generator = torch.Generator().manual_seed(7)
    f = torch.randn(basis.size, generator=generator, dtype=F)
    f[basis.indices.sum(-1) == 4] = 0  # so that a product with ξ stays within the degree
    points = torch.randn(6, 3, generator=generator, dtype=F, requires_grad=True)
    values = basis.evaluate(points) @ f
    (gradient,) = torch.autograd.grad(values.sum(), points)
    for i in range(3):
        torch.testing.assert_close(
            basis.evaluate(points) @ basis.times(i, f), points[:, i] * values
        )
        torch.testing.assert_close(basis.evaluate(points) @ basis.derivative(i, f), gradient[:, i])
    grid, mass = nodes(3, 8)
    gram = basis.evaluate(grid).mT @ (mass.unsqueeze(-1) * basis.evaluate(grid))
    torch.testing.assert_close(gram, torch.eye(basis.size, dtype=F), rtol=1e-10, atol=1e-10)
    matrix, offset = (
        torch.randn(3, 3, generator=generator, dtype=F),
        torch.randn(3, generator=generator, dtype=F),
    )
    smooth = basis.evaluate(points) @ (basis.smoothed(matrix, offset) @ f)
    a = offset + points @ matrix.mT
    expected = (basis.evaluate(a.unsqueeze(1) + grid) @ f) @ mass
    torch.testing.assert_close(smooth, expected, rtol=1e-9, atol=1e-9)
