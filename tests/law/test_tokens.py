"""Moments of a token at a node against sums over listed atoms, with complex masses as well as with
probabilities.
"""

import itertools

import numpy as np
import pytest

from largeprompt.law.tokens import Common, Dense, Independent

RNG = np.random.default_rng(0)


def symmetric(dim):
    root = RNG.standard_normal((dim, dim))
    return root + root.T


def listed_moments(points, masses, A, B):
    """Every moment that a node must know, by plain sums; masses sum to one and may be complex."""
    a, b = (np.einsum("ni,ij,nj->n", points, M, points) for M in (A, B))
    return {
        "squared": masses @ b,
        "cubed": masses @ (points * b[:, None]),
        "squared_twice": masses @ (a * b),
        "second": (points.T * masses) @ points,
    }


def compare(moments, expected, A, B, node=0):
    np.testing.assert_allclose(moments.squared(B)[node], expected["squared"], rtol=1e-12)
    np.testing.assert_allclose(moments.cubed(B)[node], expected["cubed"], rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(
        moments.squared_twice(A, B)[node], expected["squared_twice"], rtol=1e-11
    )
    weights = np.eye(len(moments.mean))[[node]] * (
        0.3 - 0.7j if np.iscomplexobj(moments.mean) else 0.3
    )
    np.testing.assert_allclose(
        moments.total_second(weights)[0],
        (weights[0, node] * expected["second"]).real,
        rtol=1e-11,
        atol=1e-12,
    )


@pytest.mark.parametrize("turn", [0.0, 0.4j], ids=["real", "complex"])
def test_independent_coordinates(turn):
    """Three atoms for each of three coordinates, 27 in all; two nodes that differ."""
    dim, nodes = 3, []
    for _ in range(2):
        atoms = RNG.standard_normal((dim, 3))
        masses = RNG.random((dim, 3)) * np.exp(turn * RNG.standard_normal((dim, 3)))
        nodes.append((atoms, masses / masses.sum(-1, keepdims=True)))
    atoms, masses = (np.stack(part) for part in zip(*nodes, strict=True))
    mean = (masses * atoms).sum(-1)
    k2, k3, k4 = ((masses * (atoms - mean[..., None]) ** n).sum(-1) for n in (2, 3, 4))
    moments, (A, B) = Independent(mean, k2, k3, k4 - 3 * k2**2), (symmetric(dim) for _ in range(2))
    assert moments.complete
    for node in range(2):
        choice = np.array(list(itertools.product(range(3), repeat=dim)))
        points = np.take_along_axis(atoms[node], choice.T, 1).T
        together = np.take_along_axis(masses[node], choice.T, 1).prod(0)
        compare(moments, listed_moments(points, together, A, B), A, B, node)


def test_gaussian_around_a_node():
    """N(m, scale·C) by a Gauss-Hermite rule, exact to the ninth degree."""
    root, mean, scale = (
        RNG.standard_normal((2, 2)),
        RNG.standard_normal((2, 2)),
        np.array([1.0, 0.3]),
    )
    x, w = np.polynomial.hermite_e.hermegauss(5)
    grid = np.array(list(itertools.product(x, repeat=2)))
    masses = np.outer(w, w).ravel() / w.sum() ** 2
    A, B = symmetric(2), symmetric(2)
    for node in range(2):
        points = mean[node] + np.sqrt(scale[node]) * grid @ root.T
        compare(
            Common(mean, root @ root.T, scale), listed_moments(points, masses, A, B), A, B, node
        )


def test_sphere_around_a_node():
    """Uniform on a circle across an axis of R^3: eight points are exact to the seventh degree."""
    axis, radius = np.array([0.6, 0.0, 0.8]), 1.7
    across = np.array([[0.0, 1.0, 0.0], [-0.8, 0.0, 0.6]])
    angle = np.arange(8) * np.pi / 4
    points = 0.4 * axis + radius * (
        np.cos(angle)[:, None] * across[0] + np.sin(angle)[:, None] * across[1]
    )
    scale = np.array([radius**2 / 2])
    # E y_i²y_j² on a circle, 1/(m(m+2)), less that of a Gaussian, 1/m²
    fourth = np.array([radius**4]) * (1 / 8 - 1 / 4)
    moments = Common(0.4 * axis[None], np.eye(3) - np.outer(axis, axis), scale, fourth)
    A, B = symmetric(3), symmetric(3)
    compare(moments, listed_moments(points, np.full(8, 1 / 8), A, B), A, B)


def test_a_plain_atom_and_a_covariance_of_its_own():
    point = RNG.standard_normal((1, 2))
    A, B = symmetric(2), symmetric(2)
    compare(Common(point), listed_moments(point, np.ones(1), A, B), A, B)
    covariance = np.stack([np.eye(2), np.array([[2.0, 0.5], [0.5, 1.0]])]) * (1 + 0.5j)
    mean = RNG.standard_normal((2, 2)) * (1 - 0.2j)
    dense = Dense(mean, covariance)
    assert not dense.complete
    np.testing.assert_allclose(dense.trace(B)[1], np.trace(B @ covariance[1]))
    np.testing.assert_allclose(
        dense.trace_pair(A, B)[1], np.trace(A @ covariance[1] @ B @ covariance[1])
    )
    np.testing.assert_allclose(dense.spread_along(mean)[1], covariance[1] @ mean[1])
    weights = np.array([[0.2 + 1j, -0.4]])
    second = [c + np.outer(m, m) for c, m in zip(covariance, mean, strict=True)]
    np.testing.assert_allclose(
        dense.total_second(weights)[0], (weights[0, 0] * second[0] + weights[0, 1] * second[1]).real
    )
