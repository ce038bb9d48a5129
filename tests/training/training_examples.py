"""Tasks and layers that several tests of training share."""

import math

import numpy as np
import torch

import largeprompt as lp
from largeprompt.law.table import WeightTables
from largeprompt.training import Contexts

F = torch.float64
KINDS = (lp.SoftmaxAttention, lp.LinearAttention)
SCALAR = lp.LinearRegression([[1.0]], [[1.0]], 0.1)  # d = 1, Σ = W = 1


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F)


def spd(d, seed):
    root = draw(d, d, seed=seed) / math.sqrt(d)
    return root @ root.mT + 0.2 * torch.eye(d, dtype=F)


def random_task(d, seed):
    query = spd(d, seed + 2) if seed % 2 else None
    return lp.LinearRegression(spd(d, seed), spd(d, seed + 1) / d, 0.05 + 0.1 * (seed % 5), query)


def scalar_layer(a=0.4, b=0.5, kind=lp.SoftmaxAttention):
    """A layer in blocks for ``SCALAR``."""
    return kind([[a, 0.0], [0.0, 0.0]], [[0.0, b]])


def scalar_derivatives(y):
    """Infinite prompt of ``SCALAR``, R = ½(ab - 1)² + noise: gradient and Hessian by hand."""
    a, b = y
    e = a * b - 1
    return np.array([e * b, e * a]), np.array([[b * b, e + a * b], [e + a * b, a * a]])


def toeplitz(d):
    return torch.tensor([[0.5 ** abs(i - j) for j in range(d)] for i in range(d)], dtype=F)


def blocks(d, alpha=0.3, kind=lp.SoftmaxAttention):
    """Balanced start of the paper's Theorem 5.1: ‖A‖_F = b = α, A a multiple of the identity."""
    U, V = torch.zeros(d + 1, d + 1, dtype=F), torch.zeros(1, d + 1, dtype=F)
    U[:d, :d], V[0, d] = alpha * torch.eye(d, dtype=F) / math.sqrt(d), alpha
    return kind(U, V)


def noiseless(covariance):
    d = covariance.shape[0]
    return lp.LinearRegression(covariance, torch.eye(d, dtype=F), 0.0)


def grid_contexts(task, nodes):
    """Gauss-Hermite contexts, nodes^{2d} of them."""
    points, mass = np.polynomial.hermite_e.hermegauss(nodes)
    grid = torch.cartesian_prod(*[torch.from_numpy(points)] * (2 * task.dim))
    weight = torch.cartesian_prod(*[torch.from_numpy(mass / mass.sum())] * (2 * task.dim)).prod(-1)
    return contexts_of(task, grid, weight)


def contexts_of(task, standard, weight):
    """Contexts at w = W^{1/2} and x_q = Σ_q^{1/2} times standard normal points, (n, 2d)."""
    w, x = standard.split(task.dim, -1)
    w, x = w @ task._roots[1].mT, x @ task._roots[2].mT
    query, target = torch.nn.functional.pad(x, (0, 1)), (w * x).sum(-1, keepdim=True)
    return Contexts(task.token_law(w).covariance, query, target, weight, task.noise_variance)


def conditional_risk(U, V, contexts, length):
    """Limit and what a finite length adds, of softmax with U (D, D) and V (1, D) in each context:
    (risk.2-3), for scores of any size.
    """
    u, gamma = contexts.query @ U.mT, contexts.covariance
    moved = (gamma @ u.unsqueeze(-1)).squeeze(-1)
    a, q = moved @ V.mT, (u * moved).sum(-1)
    f, h = (part[0] for part in WeightTables.reaching([length], float(q.max()))(q[None]))
    size, spread = a.square().sum(-1), (gamma @ V[0]) @ V[0]
    more = f * (spread - size + 2 * (a * contexts.target).sum(-1)) - 6 * h * size
    limit = contexts.noise + (a - contexts.target).square().sum(-1)
    return limit / 2, more / 2
